//! What goes on now: the attempts that are at work, how long for, what they said last, and who is waited for.
//!
//! Kept up to date by events, so that what is drawn costs as much as its few lines and not as the run.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    engine::{AttemptId, Event, InstanceIx, Opening, OpeningKind, Phase, Record, Role, RunState},
    ir::HoldReason,
    limits,
    time::{Millis, Time},
    view::Names,
};

use super::{
    screen::Room,
    style::{Tone, WORD, word},
    text::{clean, cut, elapsed, spent},
};
use crate::output::Paint;

/// A terminal that is narrower is shown names first.
const WIDE: usize = 60;

/// What is kept of a line that a worker said: no terminal shows more.
const SAID: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Area {
    running: BTreeMap<AttemptId, Running>,
    /// The same, the oldest first.
    by_start: BTreeSet<(Time, AttemptId)>,
    /// Those of which nobody has been told that they are slow.
    untold: BTreeSet<(Time, AttemptId)>,
    /// Gates, waits and holds, the oldest first. Some may be closed by now.
    open: BTreeSet<Opening>,
    /// The attempt that ended last, and how long it took.
    ended: Option<(AttemptId, Millis)>,
}

#[derive(Debug)]
struct Running {
    since: Time,
    said: String,
    /// When it is ended, if it has not stopped by then.
    killed_at: Option<Time>,
}

/// What is drawn, and for whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw<'a> {
    pub(super) state: &'a RunState,
    pub(super) names: &'a Names,
    pub(super) paint: Paint,
    pub(super) now: Time,
    pub(super) slow: Millis,
    pub(super) room: Room,
}

impl Area {
    /// Takes an event that the state has in it.
    pub(super) fn take(&mut self, record: &Record) {
        match &record.event {
            Event::AttemptStarted { attempt, .. } => {
                self.running
                    .insert(*attempt, Running { since: record.at, said: String::new(), killed_at: None });
                self.by_start.insert((record.at, *attempt));
                self.untold.insert((record.at, *attempt));
            }
            Event::StopAsked { attempt, .. } => {
                if let Some(running) = self.running.get_mut(attempt) {
                    running.killed_at = Some(record.at.after(Millis(limits::STOP_GRACE_DEFAULT)));
                }
            }
            Event::AttemptEnded { attempt, .. } => {
                let Some(Running { since, .. }) = self.running.remove(attempt) else { return };
                self.by_start.remove(&(since, *attempt));
                self.untold.remove(&(since, *attempt));
                self.ended = Some((*attempt, record.at.since(since)));
            }
            Event::StepHeld { opening, .. } | Event::Opened { opening, .. } => {
                self.open.insert(*opening);
            }
            Event::Quarantined { .. } => *self = Area::default(),
            _ => {}
        }
    }

    /// What a worker said last. One that is not at work has nothing to say.
    pub(super) fn said(&mut self, attempt: AttemptId, line: &str) {
        if let Some(running) = self.running.get_mut(&attempt) {
            running.said.clear();
            running.said.extend(line.chars().take(SAID));
        }
    }

    pub(super) fn last_ended(&self) -> Option<(AttemptId, Millis)> {
        self.ended
    }

    /// Attempts that have become slow since this was asked last.
    pub(super) fn newly_slow(&mut self, now: Time, slow: Millis) -> Vec<(AttemptId, Millis)> {
        let mut found = Vec::new();
        while let Some((since, attempt)) = self.untold.first().copied() {
            let length = now.since(since);
            if length < slow {
                break;
            }
            self.untold.pop_first();
            found.push((attempt, length));
        }
        found
    }

    /// The oldest gate or hold that is open. Waits are not for people, and a limit of an account ends by itself.
    pub(super) fn question(&self, state: &RunState) -> Option<Opening> {
        let asks = |opening: &&Opening| {
            let opening = state.opening(**opening).filter(|opening| !opening.closed);
            opening.is_some_and(|opening| match opening.kind {
                OpeningKind::Wait => false,
                OpeningKind::Hold(HoldReason::Quota) => opening.deadline.is_none(),
                OpeningKind::Gate | OpeningKind::Hold(_) => true,
            })
        };
        self.open.iter().find(asks).copied().filter(|_| state.end.is_none())
    }

    /// The lines to draw: what runs, what waits if there is room, and a line that counts.
    pub(super) fn draw(&mut self, draw: Draw<'_>) -> Vec<String> {
        let most = draw.room.lines.saturating_sub(1);
        let all = self.running.len() + waits(draw.state);
        let shown = if all > most { most.saturating_sub(1) } else { most };
        self.forget_closed(draw.state, shown);
        let running = self.by_start.iter().map(|(since, attempt)| self.attempt(draw, *since, *attempt));
        let waiting = self.open.iter().filter_map(|opening| waiting(draw, *opening));
        let mut lines: Vec<String> = running.chain(waiting).take(shown).collect();
        if all > lines.len() && most > 0 {
            let indent = if draw.room.columns < WIDE { 0 } else { WORD };
            let more = format!("{:>indent$} {} more", "…", all - lines.len());
            lines.push(cut(&more, draw.room.columns));
        }
        lines.push(self.counts(draw));
        lines
    }

    /// Makes the first so many openings such as are open. Each is looked at once after it closed, not with each drawing.
    fn forget_closed(&mut self, state: &RunState, first: usize) {
        let closed = |opening: &&Opening| state.opening(**opening).is_none_or(|opening| opening.closed);
        let mut open = 0;
        let gone = self.open.iter().take_while(|opening| {
            open += usize::from(!closed(opening));
            open <= first
        });
        let gone: Vec<Opening> = gone.filter(closed).copied().collect();
        gone.iter().for_each(|opening| {
            self.open.remove(opening);
        });
    }

    fn attempt(&self, draw: Draw<'_>, since: Time, attempt: AttemptId) -> String {
        let length = draw.now.since(since);
        let (tone, word) = match attempt.role {
            _ if draw.state.step(attempt.at).phase == Phase::Stopping => (Tone::Care, "stopping"),
            _ if length >= draw.slow => (Tone::Care, "SLOW"),
            Role::Main => (Tone::Plain, "running"),
            Role::Check => (Tone::Plain, "checking"),
            Role::Summary => (Tone::Plain, "summing up"),
            Role::Undo => (Tone::Care, "undoing"),
        };
        let mut text = draw.names.step(attempt.at);
        if let Some(aside) = which(attempt) {
            text += &format!(" ({aside})");
        }
        if let Some(killed_at) = self.running.get(&attempt).and_then(|running| running.killed_at) {
            text += &format!(" (ended in {})", elapsed(killed_at.since(draw.now)));
        }
        if let Some(running) = self.running.get(&attempt).filter(|running| !running.said.is_empty()) {
            text += &format!(": {}", running.said);
        }
        line(draw, tone, word, length, &text)
    }

    fn counts(&self, draw: Draw<'_>) -> String {
        let state = draw.state;
        let over = [Phase::Done, Phase::Undoing, Phase::Undone, Phase::Stuck];
        let over: u32 = over.iter().map(|phase| state.count(*phase)).sum();
        let all: u32 = state.phases.iter().sum();
        let counts = [
            (self.running.len(), "running"),
            (waits(state), "waiting"),
            (state.count(Phase::Ready) as usize, "ready"),
            (state.count(Phase::Backoff) as usize, "to retry"),
        ];
        let counts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let mut text = format!("{over}/{all} steps");
        counts.for_each(|count| text += &format!(", {count}"));
        if let Some(spent) = spent(state.spent) {
            text += &format!("; {spent}");
        }
        let length = state.instances.first().map_or(Millis(0), |root| draw.now.since(root.started));
        let status = state.status();
        let native = draw.names.words(InstanceIx::ROOT).run(status);
        line(draw, Tone::of_run(status), &word(native), length, &text)
    }
}

/// How many steps wait for someone.
fn waits(state: &RunState) -> usize {
    [Phase::Gated, Phase::Waiting, Phase::Held].iter().map(|phase| state.count(*phase) as usize).sum()
}

fn waiting(draw: Draw<'_>, opening: Opening) -> Option<String> {
    let opening = draw.state.opening(opening)?;
    let length = draw.now.since(opening.opened);
    let mut text = draw.names.step(opening.at);
    // A hold ends by itself.
    if let (OpeningKind::Hold(_), Some(deadline)) = (opening.kind, opening.deadline) {
        text += &format!(" ({} left)", elapsed(deadline.since(draw.now)));
    }
    let message = clean(&opening.message);
    if !message.is_empty() {
        text += &format!(": {message}");
    }
    Some(line(draw, Tone::Asks, "waiting", length, &text))
}

/// Which attempt it is, where it is not the first.
pub(super) fn which(attempt: AttemptId) -> Option<String> {
    let again = (attempt.attempt > 1).then(|| format!("attempt {}", attempt.attempt));
    let round = (attempt.iteration > 1).then(|| format!("iteration {}", attempt.iteration));
    let visit = (attempt.visit > 1).then(|| format!("visit {}", attempt.visit));
    let parts: Vec<String> = visit.into_iter().chain(round).chain(again).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// One drawn line: it fits, whatever the text is.
fn line(draw: Draw<'_>, tone: Tone, word: &str, length: Millis, text: &str) -> String {
    let text = clean(text);
    if draw.room.columns < WIDE {
        let word = if word == "running" { String::new() } else { format!("{word} ") };
        let painted = tone.paint(draw.paint, &word);
        let rest = format!("{} {text}", elapsed(length));
        let (all, rest) = (cut(&format!("{word}{rest}"), draw.room.columns), word.len());
        return all.get(rest..).map_or(all.clone(), |rest| format!("{painted}{rest}"));
    }
    let head = format!("{word:>WORD$}");
    let all = cut(&format!("{head} [{:>9}] {text}", elapsed(length)), draw.room.columns);
    let rest = all.get(head.len()..).unwrap_or_default();
    format!("{}{rest}", tone.paint(draw.paint, &head))
}
