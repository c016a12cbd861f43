//! What is said of an event: at most one line, and below it what a person needs to answer or to understand it.

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, CheckOutput, Event, Finding, ForkedFrom, Halt, InstanceIx, Mode, Opening,
        Record, Role, Route, RunState, Start, StepAt,
    },
    ir::{ErrorClass, Kind, RunStatus, StepStatus},
    plan::Plan,
    time::{Millis, Time},
    view::{self, Entry, ErrorView, Names, StepView, WaitsFor},
};

use super::{
    area::which,
    next,
    style::{Line, Tone, below, word},
    text::{clean, cut, spent, until},
};
use crate::output::Paint;

/// So much is shown of what a gate shows.
const SHOWN: usize = 40;
const SHOWN_COLUMNS: usize = 500;

/// An event that has just been folded in, with everything that a line may need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Teller<'a> {
    pub(super) plan: &'a Plan,
    pub(super) state: &'a RunState,
    pub(super) names: &'a Names,
    pub(super) paint: Paint,
    pub(super) workspace: Option<&'a str>,
    /// The attempt that ended last, and how long it took.
    pub(super) ended: Option<(AttemptId, Millis)>,
}

impl Teller<'_> {
    /// The lines of an event; none when it is not worth one. The entry is the timeline's, which has most of the words.
    pub(super) fn tell(&self, record: &Record, entry: Option<Entry>) -> String {
        match &record.event {
            Event::RunStarted { start, .. } => self.started(start).shown(self.paint),
            Event::StepHeld { opening, .. }
            | Event::Opened { opening, .. }
            | Event::Escalated { opening, .. } => self.waiting(*opening).unwrap_or_default(),
            event => self.line(record.at, event, entry).map_or(String::new(), |line| line.shown(self.paint)),
        }
    }

    fn line(&self, now: Time, event: &Event, entry: Option<Entry>) -> Option<Line> {
        let told = |tone, word: &str| {
            let Entry { path, text, .. } = entry.clone()?;
            Some(Line { path, text, ..Line::new(tone, word) })
        };
        match event {
            Event::AttemptStarted { attempt, mode, .. } => self.again(*attempt, *mode),
            Event::AttemptEnded {
                attempt,
                end: AttemptEnd::Checked { finding, reasons, output, .. },
                ..
            } => self.checked(*attempt, *finding, reasons, output.as_ref()),
            Event::AttemptEnded { end: AttemptEnd::HandedOver { .. }, .. } => told(Tone::Care, "handed on"),
            Event::AttemptEnded { end: AttemptEnd::Succeeded { .. }, proofs, .. } if !proofs.is_empty() => {
                let Entry { path, text, .. } = entry?;
                let text = text.strip_prefix("proven: ").unwrap_or(&text).to_owned();
                Some(Line { path, text, ..Line::new(Tone::Plain, "proven") })
            }
            Event::AttemptEnded { end: AttemptEnd::Succeeded { .. }, by: Some(_), .. } => {
                told(Tone::Plain, "by")
            }
            Event::RetryScheduled { at, due, error } => {
                let error = ErrorView {
                    class: error.class,
                    code: error.code.clone(),
                    message: error.message.clone(),
                    step: error.origin.map(|at| self.names.step(at)),
                };
                Some(self.retry(*at, &until(now, *due), &error))
            }
            Event::StepEnded { at, route, .. } => Some(self.step_ended(*at, *route)),
            // What is inside of it was not done here either.
            Event::StepReused(reused) if reused.at.0 == InstanceIx::ROOT => {
                let Entry { path, text, .. } = entry?;
                // The word of the line says it already.
                let text = text.strip_prefix("reused: ").unwrap_or(&text).to_owned();
                Some(Line { path, text, ..Line::new(Tone::Plain, "reused") })
            }
            Event::StepUndone { at, .. } => {
                let path = self.names.step(*at);
                Some(Line { path, took: self.took(*at), ..Line::new(Tone::Care, "undone") })
            }
            Event::Decided { .. } => told(Tone::Plain, "decided"),
            Event::SignalKept { .. } | Event::SignalTaken { .. } => told(Tone::Plain, "signal"),
            Event::CancelAsked { .. } => told(Tone::Care, "cancel"),
            Event::InstanceHalted { why: Halt::TimedOut | Halt::Limit { .. }, .. } => {
                told(Tone::Bad, "stopping")
            }
            Event::UndoBegan { .. } => told(Tone::Care, "undo"),
            Event::UndoEnded { clean: true, .. } => told(Tone::Care, "undo"),
            Event::UndoFailed { .. } => told(Tone::Bad, "not undone"),
            Event::UndoEnded { clean: false, .. } => told(Tone::Bad, "undo"),
            Event::PublicationEnded { failed: Some(_), .. } => told(Tone::Care, "warning"),
            Event::Tampered { .. } => told(Tone::Care, "refused"),
            Event::Quarantined { .. } => told(Tone::Bad, "broken"),
            Event::RunDecided { status, degraded, retry, .. } => {
                Some(self.run_ended(now, *status, *degraded, *retry))
            }
            _ => None,
        }
    }

    /// Where a run is that someone goes on with, and what it waits for.
    pub(super) fn resumed(&self) -> String {
        let Some(start) = &self.state.start else { return String::new() };
        let (text, word) = (self.titled(start), "resumed");
        let mut shown = Line { text, ..Line::new(Tone::Good, word) }.shown(self.paint);
        let openings = (0..).map(Opening).zip(&self.state.openings).filter(|(_, opening)| !opening.closed);
        openings.for_each(|(number, _)| shown += &self.waiting(number).unwrap_or_default());
        shown
    }

    /// Which workflow and run it is, and where.
    fn titled(&self, start: &Start) -> String {
        let workflow = &self.plan.definition.root().workflow;
        let mut text = format!("{}", workflow.id);
        if let Some(version) = &workflow.version {
            text += &format!(" {version}");
        }
        let hash: String = self.plan.hash.to_string().chars().take(12).collect();
        text += &format!(", run {}, plan {hash}", start.run);
        if let Some(workspace) = self.workspace {
            text += &format!(", in {workspace}");
        }
        text
    }

    fn started(&self, start: &Start) -> Line {
        let mut text = self.titled(start);
        if let Some(before) = &start.retry_of {
            text += &format!("; try {} of {before}", start.attempt);
        }
        if let Some(ForkedFrom { run, step }) = &start.forked_from {
            text += &format!("; forked from {run} at {step}");
        }
        Line { text, ..Line::new(Tone::Good, "started") }
    }

    /// How long the attempt took that ended last, if it was of this step.
    fn took(&self, at: StepAt) -> Option<Millis> {
        self.ended.filter(|(attempt, _)| attempt.at == at).map(|(_, took)| took)
    }

    /// An attempt in place of one that was interrupted.
    fn again(&self, attempt: AttemptId, mode: Mode) -> Option<Line> {
        let word = match mode {
            Mode::Fresh | Mode::Again => return None,
            Mode::Rerun => "rerun",
            Mode::Resume => "resumed",
            Mode::Restore => "restored",
        };
        let what = whose(attempt.role);
        let text = format!("{what} was interrupted, because Skein stopped under it");
        let aside = which(attempt).unwrap_or_default();
        Some(Line { path: self.names.step(attempt.at), aside, text, ..Line::new(Tone::Care, word) })
    }

    fn checked(
        &self,
        attempt: AttemptId,
        finding: Finding,
        reasons: &[String],
        output: Option<&CheckOutput>,
    ) -> Option<Line> {
        let word = match finding {
            // What comes of these is an event of its own.
            Finding::Complete | Finding::Blocked => return None,
            Finding::Incomplete => "incomplete",
            Finding::Undecided => "undecided",
        };
        let step = self.plan.definition.scope(self.names.scope(attempt.at.0)).step(attempt.at.1);
        let most = match &step.kind {
            Kind::Work(work) => work.check.as_ref().map(|check| check.max_iterations),
            _ => None,
        };
        let most = most.map_or(String::new(), |most| format!(" of {most}"));
        let mut text = format!("iteration {}{most}", attempt.iteration);
        if !reasons.is_empty() {
            text += &format!(": {}", reasons.join("; "));
        } else if let Some(headline) = output.and_then(CheckOutput::headline) {
            text += &format!(": {headline}");
        }
        let (path, took) = (self.names.step(attempt.at), self.took(attempt.at));
        Some(Line { path, took, text, ..Line::new(Tone::Care, word) })
    }

    fn retry(&self, at: StepAt, when: &str, error: &ErrorView) -> Line {
        let path = self.names.step(at);
        let last = self.ended.filter(|(attempt, _)| attempt.at == at);
        let what = match last {
            Some((AttemptId { role: Role::Main, attempt, .. }, _)) => format!("attempt {attempt} failed"),
            Some((attempt, _)) => format!("{} failed", whose(attempt.role)),
            None => "it failed".to_owned(),
        };
        let text = format!("{what}, again {when}: {}", wrong(error, &path));
        Line { path, text, took: last.map(|(_, took)| took), ..Line::new(Tone::Care, "retry") }
    }

    fn step_ended(&self, at: StepAt, route: Option<Route>) -> Line {
        let step = view::step(self.plan, self.state, self.names, at);
        let cost = self.state.more(at).and_then(|more| spent(more.cost));
        let mut text = reason(&step);
        if let ("branch", StepStatus::Succeeded, Some(route)) = (step.kind, step.status, route) {
            text = match route {
                Route::Step(to) => format!("goes to {}", self.names.step(StepAt(at.0, to))),
                Route::End => "goes to the end".to_owned(),
            };
        }
        let aside: Vec<String> = counted(&step).into_iter().chain(cost).collect();
        let settler = self.state.more(at).and_then(|more| more.settler);
        if let Some(settler) = settler {
            text += &format!("; {} settles it", self.names.step(StepAt(at.0, settler)));
        }
        Line {
            took: step.duration_ms.map(Millis),
            aside: aside.join(", "),
            text,
            tone: if settler.is_some() || (failed(&step) && step.status == StepStatus::Skipped) {
                Tone::Care
            } else {
                Tone::of_step(step.status)
            },
            word: if settler.is_some() { "conflict".to_owned() } else { word(&step.native_status) },
            path: step.path,
        }
    }

    /// What is waited for, who may answer, and with which command.
    fn waiting(&self, opening: Opening) -> Option<String> {
        let opening = view::opening(self.state, self.names, opening)?;
        let why = view::step(self.plan, self.state, self.names, opening.at).why;
        let text = why.map_or(String::new(), |why| why.text);
        let word = if opening.escalated { "escalated" } else { "waiting" };
        let line = Line { path: opening.step.clone(), text, ..Line::new(Tone::Asks, word) };
        let mut shown = line.shown(self.paint);
        let message = clean(&opening.message);
        if opening.kind == WaitsFor::Gate && !message.is_empty() {
            shown += &below(&message);
        }
        let run = self.state.start.as_ref().map_or("", |start| start.run.as_str());
        next::answers(run, &opening).iter().for_each(|command| shown += &below(&clean(command)));
        Some(shown)
    }

    /// What a gate shows those who decide.
    pub(super) fn shows(&self, opening: Opening) -> String {
        let Some(opening) = view::opening(self.state, self.names, opening) else { return String::new() };
        let shows = opening.shows.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        let text: Vec<String> = shows.iter().map(text).collect();
        let text = text.join("\n");
        let mut lines: Vec<String> =
            text.lines().take(SHOWN).map(|line| below(&cut(&clean(line), SHOWN_COLUMNS))).collect();
        if text.lines().nth(SHOWN).is_some() {
            lines.push(below("…"));
        }
        lines.concat()
    }

    /// A question whose answer is typed behind it.
    pub(super) fn question(&self, opening: Opening, columns: usize) -> String {
        let opening = self.state.opening(opening);
        let step = opening.map_or(String::new(), |opening| clean(&self.names.step(opening.at)));
        let rest = "? [y/n, and why] ";
        format!("{}{rest}", Tone::Asks.paint(self.paint, &cut(&step, columns.saturating_sub(rest.len()))))
    }

    fn run_ended(&self, now: Time, status: RunStatus, degraded: bool, retry: Option<Time>) -> Line {
        let run = self.state.start.as_ref().map_or("", |start| start.run.as_str());
        let mut text = format!("run {run}");
        if degraded {
            text += ", degraded";
        }
        if let Some(due) = retry {
            text += &format!("; a new run tries again {}", until(now, due));
        }
        let took = self.state.instances.first().map(|root| now.since(root.started));
        Line {
            took,
            text,
            ..Line::new(Tone::of_run(status), word(self.names.words(InstanceIx::ROOT).run(status)))
        }
    }
}

fn whose(role: Role) -> &'static str {
    match role {
        Role::Main => "the attempt before",
        Role::Check => "its check",
        Role::Summary => "its summary",
        Role::Undo => "its undo",
    }
}

/// How often it was done, where that is not once.
fn counted(step: &StepView) -> Vec<String> {
    let visit = (step.visits > 1).then(|| format!("visit {}", step.visits));
    let round = match (step.kind, step.iterations) {
        ("loop", 1) => Some("1 pass".to_owned()),
        ("loop", passes) => Some(format!("{passes} passes")),
        (_, 0 | 1) => None,
        (_, iterations) => Some(format!("iteration {iterations}")),
    };
    let again = (step.attempts > 1).then(|| format!("attempt {}", step.attempts));
    visit.into_iter().chain(round).chain(again).collect()
}

/// Whether something of it went wrong, whatever it counts as. What was settled did not.
pub(super) fn failed(step: &StepView) -> bool {
    match step.status {
        _ if step.settled_by.is_some() => false,
        StepStatus::Failed | StepStatus::TimedOut | StepStatus::Incomplete => true,
        StepStatus::Skipped => step.error.is_some(),
        _ => false,
    }
}

/// Why a step ended as it did, after its name; empty when it succeeded.
pub(super) fn reason(step: &StepView) -> String {
    match &step.error {
        Some(error) if step.status == StepStatus::Skipped => {
            format!("it failed, and counts as skipped: {}", wrong(error, &step.path))
        }
        Some(error) if failed(step) => wrong(error, &step.path),
        _ => {
            let text = step.why.as_ref().map_or("", |why| &why.text);
            let word = format!("{}: ", word(step.status.as_str()));
            text.strip_prefix(&word).unwrap_or(text).to_owned()
        }
    }
}

/// The word for a class of errors.
pub(crate) fn class(class: ErrorClass) -> String {
    let class = serde_json::to_value(class).unwrap_or_default();
    word(class.as_str().unwrap_or_default())
}

/// An error, its class, and where it began if that is elsewhere.
pub(super) fn wrong(error: &ErrorView, path: &str) -> String {
    let class = class(error.class);
    let code = error.code.as_ref().filter(|code| **code != class);
    let code = code.map_or(String::new(), |code| format!(", {code}"));
    let begun = error.step.as_ref().filter(|step| *step != path);
    let begun = begun.map_or(String::new(), |step| format!("{step}: "));
    format!("{begun}{} ({class}{code})", error.message)
}
