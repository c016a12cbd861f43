//! The current activity: the running attempts with their durations and last lines, and the open waitpoints.
//!
//! Updated by events, so that drawing costs as much as its few lines and does not grow with the run.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    engine::{
        AttemptId, AttemptRole, Event, InstanceIx, JournalRecord, RunState, StepPaths, StepPhase, Waitpoint,
        WaitpointKind,
    },
    ir::HoldReason,
    limits,
    time::{Millis, Timestamp},
    view::status_word,
};

use super::{
    screen::ScreenRoom,
    text::{LineTone, WORD, cut_to_width, format_cost, format_elapsed, one_line},
};
use crate::render::output::Paint;

/// A narrower terminal gets shorter lines.
const WIDE: usize = 60;

/// The number of characters that are kept of a worker's line: no terminal shows more.
const SAID: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct ActivityArea {
    running: BTreeMap<AttemptId, LiveAttempt>,
    /// The same, the oldest first.
    by_start: BTreeSet<(Timestamp, AttemptId)>,
    /// Those that have not been reported as slow.
    untold: BTreeSet<(Timestamp, AttemptId)>,
    /// Gates, waits and holds, the oldest first. Some may be closed already.
    open: BTreeSet<Waitpoint>,
    /// The attempt that ended last, and its duration.
    ended: Option<(AttemptId, Millis)>,
}

#[derive(Debug)]
struct LiveAttempt {
    since: Timestamp,
    last_line: String,
    /// The time when it is killed, if it has not stopped by then.
    killed_at: Option<Timestamp>,
}

/// The inputs of a drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrawContext<'a> {
    pub(super) state: &'a RunState,
    pub(super) names: &'a StepPaths,
    pub(super) paint: Paint,
    pub(super) now: Timestamp,
    pub(super) slow: Millis,
    pub(super) room: ScreenRoom,
}

impl ActivityArea {
    /// Applies an event that is already part of the state.
    pub(super) fn apply_record(&mut self, record: &JournalRecord) {
        match &record.event {
            Event::AttemptStarted { attempt, .. } => {
                self.running
                    .insert(*attempt, LiveAttempt { since: record.at, last_line: String::new(), killed_at: None });
                self.by_start.insert((record.at, *attempt));
                self.untold.insert((record.at, *attempt));
            }
            Event::StopAsked { attempt, .. } => {
                if let Some(running) = self.running.get_mut(attempt) {
                    running.killed_at = Some(record.at.saturating_add(Millis(limits::STOP_GRACE_DEFAULT)));
                }
            }
            Event::AttemptEnded { attempt, .. } => {
                let Some(LiveAttempt { since, .. }) = self.running.remove(attempt) else { return };
                self.by_start.remove(&(since, *attempt));
                self.untold.remove(&(since, *attempt));
                self.ended = Some((*attempt, record.at.duration_since(since)));
            }
            Event::StepHeld { opening: waitpoint, .. } | Event::Opened { opening: waitpoint, .. } => {
                self.open.insert(*waitpoint);
            }
            Event::Quarantined { .. } => *self = ActivityArea::default(),
            _ => {}
        }
    }

    /// Sets the last line of a worker. Ignored if it is not running.
    pub(super) fn set_last_line(&mut self, attempt: AttemptId, line: &str) {
        if let Some(running) = self.running.get_mut(&attempt) {
            running.last_line.clear();
            running.last_line.extend(line.chars().take(SAID));
        }
    }

    pub(super) fn last_ended(&self) -> Option<(AttemptId, Millis)> {
        self.ended
    }

    /// Returns the attempts that have become slow since the last call.
    pub(super) fn take_newly_slow(&mut self, now: Timestamp, slow: Millis) -> Vec<(AttemptId, Millis)> {
        let mut found = Vec::new();
        while let Some((since, attempt)) = self.untold.first().copied() {
            let length = now.duration_since(since);
            if length < slow {
                break;
            }
            self.untold.pop_first();
            found.push((attempt, length));
        }
        found
    }

    /// Returns the oldest open gate or hold. Waits are not for people, and a hold for an account limit ends by itself.
    pub(super) fn find_open_question(&self, state: &RunState) -> Option<Waitpoint> {
        let asks = |waitpoint: &&Waitpoint| {
            let waitpoint = state.waitpoint(**waitpoint).filter(|waitpoint| !waitpoint.closed);
            waitpoint.is_some_and(|waitpoint| match waitpoint.kind {
                WaitpointKind::Wait => false,
                WaitpointKind::Hold(HoldReason::Quota) => waitpoint.deadline.is_none(),
                WaitpointKind::Gate | WaitpointKind::Hold(_) => true,
            })
        };
        self.open.iter().find(asks).copied().filter(|_| state.end.is_none())
    }

    /// Returns the lines to draw: running attempts, waitpoints if there is room, and a line of counts.
    pub(super) fn draw_lines(&mut self, draw: DrawContext<'_>) -> Vec<String> {
        let most = draw.room.lines.saturating_sub(1);
        let all = self.running.len() + count_waiting(draw.state);
        let shown = if all > most { most.saturating_sub(1) } else { most };
        self.forget_closed(draw.state, shown);
        let running = self.by_start.iter().map(|(since, attempt)| self.render_attempt(draw, *since, *attempt));
        let waiting = self.open.iter().filter_map(|waitpoint| render_waitpoint(draw, *waitpoint));
        let mut lines: Vec<String> = running.chain(waiting).take(shown).collect();
        if all > lines.len() && most > 0 {
            let indent = if draw.room.columns < WIDE { 0 } else { WORD };
            let more = format!("{:>indent$} {} more", "…", all - lines.len());
            lines.push(cut_to_width(&more, draw.room.columns));
        }
        lines.push(self.render_counts(draw));
        lines
    }

    /// Removes closed waitpoints from the first ones. Each is checked once after it was closed, not with each drawing.
    fn forget_closed(&mut self, state: &RunState, first: usize) {
        let closed = |waitpoint: &&Waitpoint| state.waitpoint(**waitpoint).is_none_or(|waitpoint| waitpoint.closed);
        let mut open = 0;
        let gone = self.open.iter().take_while(|waitpoint| {
            open += usize::from(!closed(waitpoint));
            open <= first
        });
        let gone: Vec<Waitpoint> = gone.filter(closed).copied().collect();
        gone.iter().for_each(|waitpoint| {
            self.open.remove(waitpoint);
        });
    }

    fn render_attempt(&self, draw: DrawContext<'_>, since: Timestamp, attempt: AttemptId) -> String {
        let length = draw.now.duration_since(since);
        let (tone, word) = match attempt.role {
            _ if draw.state.step(attempt.at).phase == StepPhase::Stopping => (LineTone::Care, "stopping"),
            _ if length >= draw.slow => (LineTone::Care, "SLOW"),
            AttemptRole::Main => (LineTone::Plain, "running"),
            AttemptRole::Check => (LineTone::Plain, "checking"),
            AttemptRole::Summary => (LineTone::Plain, "summing up"),
            AttemptRole::Undo => (LineTone::Care, "undoing"),
        };
        let mut text = draw.names.step_path(attempt.at);
        if let Some(aside) = describe_attempt(attempt) {
            text += &format!(" ({aside})");
        }
        if let Some(killed_at) = self.running.get(&attempt).and_then(|running| running.killed_at) {
            text += &format!(" (killed in {})", format_elapsed(killed_at.duration_since(draw.now)));
        }
        if let Some(running) = self.running.get(&attempt).filter(|running| !running.last_line.is_empty()) {
            text += &format!(": {}", running.last_line);
        }
        render_line(draw, tone, word, length, &text)
    }

    fn render_counts(&self, draw: DrawContext<'_>) -> String {
        let state = draw.state;
        let over = [StepPhase::Done, StepPhase::Undoing, StepPhase::Undone, StepPhase::Stuck];
        let over: u32 = over.iter().map(|phase| state.count_in_phase(*phase)).sum();
        let all: u32 = state.phases.iter().sum();
        let counts = [
            (self.running.len(), "running"),
            (count_waiting(state), "waiting"),
            (state.count_in_phase(StepPhase::Ready) as usize, "ready"),
            (state.count_in_phase(StepPhase::Backoff) as usize, "to retry"),
        ];
        let counts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let mut text = format!("{over}/{all} steps");
        counts.for_each(|count| text += &format!(", {count}"));
        if let Some(spent) = format_cost(state.spent) {
            text += &format!("; {spent}");
        }
        let length = state.instances.first().map_or(Millis(0), |root| draw.now.duration_since(root.started));
        let status = state.status();
        let native = draw.names.words(InstanceIx::ROOT).run_word(status);
        render_line(draw, LineTone::from_run_status(status), &status_word(native), length, &text)
    }
}

/// Returns the number of steps that wait for input.
fn count_waiting(state: &RunState) -> usize {
    [StepPhase::Gated, StepPhase::Waiting, StepPhase::Held]
        .iter()
        .map(|phase| state.count_in_phase(*phase) as usize)
        .sum()
}

fn render_waitpoint(draw: DrawContext<'_>, waitpoint: Waitpoint) -> Option<String> {
    let waitpoint = draw.state.waitpoint(waitpoint)?;
    let length = draw.now.duration_since(waitpoint.opened);
    let mut text = draw.names.step_path(waitpoint.at);
    // A hold ends by itself at its deadline.
    if let (WaitpointKind::Hold(_), Some(deadline)) = (waitpoint.kind, waitpoint.deadline) {
        text += &format!(" ({} left)", format_elapsed(deadline.duration_since(draw.now)));
    }
    let message = one_line(&waitpoint.message);
    if !message.is_empty() {
        text += &format!(": {message}");
    }
    Some(render_line(draw, LineTone::Asks, "waiting", length, &text))
}

/// Returns the number of an attempt, if it is not the first.
pub(super) fn describe_attempt(attempt: AttemptId) -> Option<String> {
    let again = (attempt.attempt > 1).then(|| format!("attempt {}", attempt.attempt));
    let round = (attempt.iteration > 1).then(|| format!("iteration {}", attempt.iteration));
    let visit = (attempt.visit > 1).then(|| format!("visit {}", attempt.visit));
    let parts: Vec<String> = visit.into_iter().chain(round).chain(again).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Renders one line, cut to the width of the terminal.
fn render_line(draw: DrawContext<'_>, tone: LineTone, word: &str, length: Millis, text: &str) -> String {
    let text = one_line(text);
    if draw.room.columns < WIDE {
        let word = if word == "running" { String::new() } else { format!("{word} ") };
        let painted = tone.paint_text(draw.paint, &word);
        let rest = format!("{} {text}", format_elapsed(length));
        let (all, rest) = (cut_to_width(&format!("{word}{rest}"), draw.room.columns), word.len());
        return all.get(rest..).map_or(all.clone(), |rest| format!("{painted}{rest}"));
    }
    let head = format!("{word:>WORD$}");
    let all = cut_to_width(&format!("{head} [{:>9}] {text}", format_elapsed(length)), draw.room.columns);
    let rest = all.get(head.len()..).unwrap_or_default();
    format!("{}{rest}", tone.paint_text(draw.paint, &head))
}
