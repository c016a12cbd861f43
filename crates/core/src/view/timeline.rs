//! The timeline: what happened, one line for each event worth telling.
//!
//! Fed with every record of a run in order; keeps the names of instances and openings and nothing else of the log.

use std::sync::Arc;

use super::{Entry, Level, Names, halt::TIME, words};
use crate::{
    engine::{
        AttemptEnd, AttemptId, CheckOutput, Decision, Event, Finding, Halt, InstanceIx, Mode, Opening,
        Outcome, Part, Proof, Publication, Record, Role, Skip, StepAt, Stop, Walk, utc,
    },
    ir::{ErrorClass, Hook, HookAction, HookWhen, Kind, RunStatus, StepStatus},
    plan::{Definition, Plan},
};

#[derive(Debug, Clone)]
pub struct Timeline {
    names: Names,
    openings: Vec<StepAt>,
    seq: u64,
}

/// What an event is about and says.
type Line = (String, String, Level);

impl Timeline {
    pub fn new(plan: &Plan) -> Timeline {
        Timeline::of(plan.definition.clone())
    }

    pub fn of(definition: Arc<Definition>) -> Timeline {
        Timeline { names: Names::new(definition), openings: Vec::new(), seq: 0 }
    }

    /// The names of the instances so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Takes the next record of the run. None when it is not worth a line.
    pub fn feed(&mut self, record: &Record) -> Option<Entry> {
        let seq = self.seq;
        self.seq += 1;
        match &record.event {
            Event::StepHeld { at, .. } | Event::Opened { at, .. } => self.openings.push(*at),
            event => drop(self.names.feed(event)),
        }
        let (path, text, level) = self.line(&record.event)?;
        Some(Entry { at: utc(record.at), seq, path, text, level })
    }

    fn line(&self, event: &Event) -> Option<Line> {
        match event {
            Event::RunStarted { .. }
            | Event::CancelAsked { .. }
            | Event::RunDecided { .. }
            | Event::PublicationEnded { .. }
            | Event::Closed
            | Event::Quarantined { .. }
            | Event::Tampered { .. }
            | Event::SignalKept { .. } => self.of_run(event),
            Event::InstanceStarted { .. }
            | Event::InstanceHalted { .. }
            | Event::InstanceEnded { .. }
            | Event::UndoBegan { .. }
            | Event::StepUndone { .. }
            | Event::UndoFailed { .. }
            | Event::UndoEnded { .. } => self.of_instance(event),
            Event::AttemptStarted { attempt, mode, .. } => Some(self.attempt_started(*attempt, *mode)),
            Event::AttemptEnded { attempt, end, proofs, by, .. } => {
                self.attempt_ended(*attempt, end, proofs, by.as_deref())
            }
            Event::StepHeld { .. }
            | Event::Opened { .. }
            | Event::Escalated { .. }
            | Event::Approved { .. }
            | Event::Decided { .. }
            | Event::SignalTaken { .. } => self.of_opening(event),
            _ => self.of_step(event),
        }
    }

    fn of_run(&self, event: &Event) -> Option<Line> {
        let (text, level) = match event {
            Event::RunStarted { start, .. } => match (&start.retry_of, &start.forked_from) {
                (Some(run), _) => (format!("run started, try {} of {run}", start.attempt), Level::Info),
                (None, Some(from)) => {
                    (format!("run started, forked from {} at {}", from.run, from.step), Level::Info)
                }
                (None, None) => ("run started".to_owned(), Level::Info),
            },
            Event::CancelAsked { by, reason } => {
                (format!("cancelled by {by}{}", after(reason.as_deref())), Level::Warning)
            }
            Event::RunDecided { status, error, degraded, .. } => {
                let degraded = if *degraded { ", degraded" } else { "" };
                let message = error.as_ref().map(|error| error.message.as_str());
                let ended = self.run_ended(InstanceIx::ROOT, *status);
                (format!("run {ended}{degraded}{}", after(message)), level_of(*status))
            }
            Event::PublicationEnded { item, failed } => match failed {
                Some(message) => (format!("{} failed: {message}", self.published(*item)), Level::Warning),
                None => (format!("{} done", self.published(*item)), Level::Detail),
            },
            Event::Quarantined { message } => (format!("run set aside: {message}"), Level::Error),
            Event::Tampered { by, what } => {
                (format!("{by} tried to {what}, and was refused"), Level::Warning)
            }
            Event::SignalKept { name, .. } => {
                (format!("signal `{name}` came before anything waits for it"), Level::Info)
            }
            _ => return None,
        };
        Some((String::new(), text, level))
    }

    fn of_instance(&self, event: &Event) -> Option<Line> {
        let place = |ix: &InstanceIx| self.names.instance(*ix).to_owned();
        Some(match event {
            Event::InstanceStarted { parent, part, .. } => {
                (self.names.step(*parent), begun(*part), Level::Detail)
            }
            Event::InstanceHalted { instance, why, undo } => {
                let undo = if *undo { " and is undone" } else { "" };
                let text = format!("stops{undo}: {}", self.halted(*instance, why));
                (place(instance), text, Level::Warning)
            }
            Event::InstanceEnded { instance, end } if *instance != InstanceIx::ROOT => {
                let ended = self.run_ended(*instance, end.status);
                (place(instance), format!("ended: {ended}"), Level::Detail)
            }
            Event::UndoBegan { of, targets, uncertain } => {
                let cut = match uncertain.len() {
                    0 => String::new(),
                    n => format!("; {n} cut off, possibly with an effect"),
                };
                let text = format!("undo begins, steps to undo: {}{cut}", targets.len());
                (self.walk(*of), text, Level::Warning)
            }
            Event::StepUndone { at, .. } => (self.names.step(*at), "undone".into(), Level::Info),
            Event::UndoFailed { at, error, .. } => {
                (self.names.step(*at), format!("could not be undone: {}", error.message), Level::Error)
            }
            Event::UndoEnded { of, clean: true } => (self.walk(*of), "undo ended".into(), Level::Info),
            Event::UndoEnded { of, clean: false } => {
                (self.walk(*of), "undo ended with failures".into(), Level::Error)
            }
            _ => return None,
        })
    }

    fn walk(&self, of: Walk) -> String {
        match of {
            Walk::Workflow(ix) => self.names.instance(ix).to_owned(),
            Walk::Composite(at) => self.names.step(at),
        }
    }

    fn published(&self, item: Publication) -> String {
        match item {
            Publication::Hook(n) => self.hook(n),
            Publication::Files => "writing the files".to_owned(),
            Publication::Context => "writing the context".to_owned(),
            Publication::Retry => "starting the run that retries this one".to_owned(),
        }
    }

    /// A hook as its workflow writes it, such as `on_complete.run`.
    fn hook(&self, n: u32) -> String {
        let hooks = &self.names.definition().root().workflow.hooks;
        let Some(Hook { when, action }) = hooks.get(n as usize) else { return format!("hook {}", n + 1) };
        let when = match when {
            HookWhen::Start => "on_start",
            HookWhen::Success => "on_complete",
            HookWhen::Failure => "on_failure",
        };
        let action = match action {
            HookAction::Notify { .. } => "notify",
            HookAction::Run { .. } => "run",
        };
        format!("hook `{when}.{action}`")
    }

    fn halted(&self, ix: InstanceIx, why: &Halt) -> String {
        match why {
            Halt::Failed { step } => format!("`{}` failed", self.names.step(StepAt(ix, *step))),
            Halt::TimedOut => "its time is up".to_owned(),
            Halt::Cancelled { by } if by == TIME => {
                "cancelled: nobody answered before the timeout".to_owned()
            }
            Halt::Cancelled { by } => format!("cancelled by {by}"),
            Halt::Outer => "what is around it stopped, or something beside it failed".to_owned(),
            Halt::Limit { error } => error.message.clone(),
        }
    }

    fn attempt_started(&self, attempt: AttemptId, mode: Mode) -> Line {
        let mut text = match (attempt.role, attempt.attempt) {
            (Role::Main, 1) => "started".to_owned(),
            (role, 1) => format!("{} started", words::role(role)),
            (role, n) => format!("{} {n} started", words::role(role)),
        };
        if attempt.iteration > 1 && attempt.role != Role::Undo {
            text.push_str(&format!(", iteration {}", attempt.iteration));
        }
        text.push_str(match mode {
            Mode::Fresh | Mode::Again => "",
            Mode::Rerun => ", after an interruption",
            Mode::Resume => ", resumed after an interruption",
            Mode::Restore => ", restored after an interruption",
        });
        (self.names.step(attempt.at), text, Level::Info)
    }

    fn attempt_ended(
        &self,
        attempt: AttemptId,
        end: &AttemptEnd,
        proofs: &[Proof],
        by: Option<&str>,
    ) -> Option<Line> {
        let what = match attempt.role {
            Role::Main | Role::Undo => format!("{} {}", words::role(attempt.role), attempt.attempt),
            Role::Check | Role::Summary => words::role(attempt.role).to_owned(),
        };
        let (text, level) = match end {
            AttemptEnd::Succeeded { .. } if proofs.is_empty() => {
                (format!("{what} was done by {}", by?), Level::Info)
            }
            AttemptEnd::Succeeded { .. } => {
                let proven: Vec<&str> = proofs.iter().map(|proof| proof.what.as_str()).collect();
                let by = by.map(|by| format!(" (done by {by})")).unwrap_or_default();
                (format!("proven: {}{by}", proven.join("; ")), Level::Info)
            }
            AttemptEnd::Checked { finding, reasons, output, .. } => {
                let headline = || output.as_ref().and_then(CheckOutput::headline).map(str::to_owned);
                let said = join(reasons).or_else(headline);
                (format!("check: {}{}", found(*finding), after(said.as_deref())), Level::Info)
            }
            AttemptEnd::Failed { message, .. } => (format!("{what} failed: {message}"), Level::Warning),
            AttemptEnd::Unmerged { message, .. } => {
                (format!("{what} is not merged: {message}"), Level::Warning)
            }
            AttemptEnd::TimedOut => (format!("{what} timed out"), Level::Warning),
            AttemptEnd::Stopped => (format!("{what} stopped"), Level::Info),
            AttemptEnd::Interrupted => (format!("{what} was interrupted"), Level::Warning),
            AttemptEnd::Blocked { .. } => return None,
            AttemptEnd::HandedOver { to, message } => {
                (format!("{what} is handed over to {to}: {message}"), Level::Warning)
            }
        };
        Some((self.names.step(attempt.at), text, level))
    }

    fn of_opening(&self, event: &Event) -> Option<Line> {
        let at = |opening: &Opening| self.openings.get(opening.0 as usize).copied();
        let (at, text, level) = match event {
            Event::StepHeld { at, reason, until, message, .. } => {
                let until = until.map_or(String::new(), |until| format!(" until {}", utc(until)));
                (*at, format!("held for {}{until}: {message}", words::hold(*reason)), Level::Attention)
            }
            Event::Opened { at, message, .. } => (*at, self.opened(*at, message), Level::Attention),
            Event::Escalated { opening, deadline, approvers } => {
                let who = words::list(&words::people(approvers), "or");
                let until = deadline.map_or(String::new(), |deadline| format!(", until {}", utc(deadline)));
                (at(opening)?, format!("now asks {who}{until}"), Level::Attention)
            }
            Event::Approved { opening, by, reason } => {
                let why = after(reason.as_deref());
                (at(opening)?, format!("approved by {by}, and others have to{why}"), Level::Info)
            }
            Event::Decided { opening, decision, by, reason, .. } => {
                let word = match decision {
                    Decision::Approve => "approved",
                    Decision::Reject => "rejected",
                };
                (at(opening)?, format!("{word} by {by}{}", after(reason.as_deref())), Level::Info)
            }
            Event::SignalTaken { opening, name, .. } => {
                (at(opening)?, format!("got signal `{name}`"), Level::Info)
            }
            _ => return None,
        };
        Some((self.names.step(at), text, level))
    }

    fn opened(&self, at: StepAt, message: &str) -> String {
        let step = self.names.definition().scope(self.names.scope(at.0)).step(at.1);
        match &step.kind {
            Kind::Wait(wait) => {
                let signals: Vec<String> = wait.on.iter().map(ToString::to_string).collect();
                format!("waits for signal {}", words::quoted(&signals, "or"))
            }
            _ => format!("waits for a decision: {message}"),
        }
    }

    fn of_step(&self, event: &Event) -> Option<Line> {
        let (at, text, level) = match event {
            Event::StepExpanded { at, items } => {
                let count = items.as_array().map_or(0, Vec::len);
                (at, format!("items: {count}"), Level::Detail)
            }
            Event::StepOverdue { at } => (at, "its time is up".into(), Level::Warning),
            Event::StepEntered { at, .. } => (at, "started".into(), Level::Info),
            Event::StopAsked { attempt, why } => {
                let why = match why {
                    Stop::Halted => "what is around it stopped",
                    Stop::Timeout => "its time is up",
                };
                (&attempt.at, format!("is told to stop: {why}"), Level::Info)
            }
            Event::RetryScheduled { at, due, error } => {
                (at, format!("tries again at {}: {}", utc(*due), error.message), Level::Warning)
            }
            Event::StepEnded { at, outcome, error, effect, settler, .. } => {
                let message = error.as_ref().map(|error| error.message.as_str());
                let settles = settler.map(|settler| self.names.step(StepAt(at.0, settler)));
                let settles = settles.map_or(String::new(), |step| format!("; `{step}` is to settle it"));
                let ended = self.step_ended(*at, *outcome, effect.as_skipped);
                let text = format!("{ended}{}{settles}", after(message));
                (at, text, if settler.is_some() { Level::Warning } else { outcome_level(*outcome) })
            }
            Event::StepReused(reused) => {
                let by = reused.decided_by.as_ref().map_or(String::new(), |by| format!(", decided by {by}"));
                let word = self.step_ended(reused.at, reused.outcome, reused.effect.as_skipped);
                (&reused.at, format!("reused: {word}{by}"), Level::Info)
            }
            _ => return None,
        };
        Some((self.names.step(*at), text, level))
    }

    /// The end of a run or of a called workflow, in the words of its format.
    fn run_ended(&self, instance: InstanceIx, status: RunStatus) -> String {
        let word = shown(self.names.words(instance).run(status));
        match status {
            RunStatus::UndoFailed => format!("{word}, and could not be undone"),
            RunStatus::Undone if word != "undone" => format!("{word}, and undone"),
            _ => word,
        }
    }

    /// The end of a step, in the words of its format.
    fn step_ended(&self, at: StepAt, outcome: Outcome, as_skipped: bool) -> String {
        let word = |status| shown(self.names.words(at.0).step(status, as_skipped));
        let status = match outcome {
            _ if as_skipped => return format!("failed, and counts as {}", word(StepStatus::Skipped)),
            Outcome::Skipped(Skip::Condition) => {
                return format!("{}: its condition is false", word(StepStatus::Skipped));
            }
            Outcome::Skipped(Skip::Upstream(_)) => {
                let word = word(StepStatus::Skipped);
                return format!("{word}: something that it depends on did not succeed");
            }
            Outcome::Rejected => return "rejected".to_owned(),
            Outcome::Succeeded => StepStatus::Succeeded,
            Outcome::Incomplete | Outcome::Exhausted => StepStatus::Incomplete,
            Outcome::Failed(ErrorClass::Timeout) => StepStatus::TimedOut,
            Outcome::Failed(_) => StepStatus::Failed,
            Outcome::Cancelled => StepStatus::Cancelled,
        };
        word(status)
    }
}

/// A status as people write it.
fn shown(status: &str) -> String {
    status.replace('_', " ")
}

fn after(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map_or(String::new(), |text| format!(": {text}"))
}

fn join(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn begun(part: Part) -> String {
    match part {
        Part::Lane(lane) => format!("lane {} begins", lane + 1),
        Part::Item(item) => format!("item {item} begins"),
        Part::Pass(pass) => format!("pass {pass} begins"),
        Part::Call => "the called workflow begins".to_owned(),
    }
}

fn found(finding: Finding) -> &'static str {
    match finding {
        Finding::Complete => "complete",
        Finding::Incomplete => "incomplete",
        Finding::Undecided => "undecided",
        Finding::Blocked => "blocked",
    }
}

fn level_of(status: RunStatus) -> Level {
    match status {
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::UndoFailed => Level::Error,
        RunStatus::Cancelled | RunStatus::Undone => Level::Warning,
        _ => Level::Info,
    }
}

fn outcome_level(outcome: Outcome) -> Level {
    match outcome {
        Outcome::Failed(_) | Outcome::Exhausted | Outcome::Rejected => Level::Error,
        Outcome::Incomplete | Outcome::Cancelled => Level::Warning,
        Outcome::Succeeded | Outcome::Skipped(_) => Level::Info,
    }
}
