//! The timeline: one line for each event that is worth showing.
//!
//! Owns the texts of the lines. Paths come from the names of the run, by the subject of each event.

use serde::Serialize;

use super::words;
use crate::{
    engine::{
        AttemptEnd, AttemptId, AttemptMode, AttemptRole, AttemptStopReason, CheckFinding, CheckOutput, Event,
        EventSubject, EvidenceResult, HaltReason, InstanceIx, InstancePart, JournalRecord, Publication, SkipReason,
        StepAt, StepOutcome, StepPaths, TIMEOUT_ACTOR, Verdict, format_utc,
    },
    ir::{ErrorClass, HookAction, HookTiming, RunStatus, StepKindSpec, StepStatus, WorkflowHook},
};

use TimelineLevel::{Attention, Detail, Error, Info, Warning};

/// A line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// The time in UTC.
    pub at: String,
    /// The number of the event that it describes.
    pub seq: u64,
    /// The step or instance it is about; empty for the run.
    pub path: String,
    pub text: String,
    pub level: TimelineLevel,
}

/// The importance of a line to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimelineLevel {
    /// Details, which short outputs leave out.
    Detail,
    Info,
    /// The run waits for a person or for something outside.
    Attention,
    Warning,
    Error,
}

/// Describes a record of a run, by its number. The names must already include it. Returns `None` if it is not worth a
/// line.
pub fn describe_record(names: &StepPaths, seq: u64, record: &JournalRecord) -> Option<TimelineEntry> {
    let (text, level) = EventDescriber { names }.describe_event(&record.event)?;
    let path = match record.event.subject() {
        EventSubject::NewInstance { parent, .. } => names.step_path(parent),
        subject => names.subject_path(subject)?,
    };
    Some(TimelineEntry { at: format_utc(record.at), seq, path, text, level })
}

/// Describes events with the names of a run.
struct EventDescriber<'a> {
    names: &'a StepPaths,
}

/// The text and the level of a line.
type EventLine = (String, TimelineLevel);

impl EventDescriber<'_> {
    fn describe_event(&self, event: &Event) -> Option<EventLine> {
        match event.subject() {
            EventSubject::Run => self.describe_run_event(event),
            EventSubject::NewInstance { .. } | EventSubject::Instance(_) => self.describe_instance_event(event),
            EventSubject::Step(at) => self.describe_step_event(at, event),
            EventSubject::Attempt(attempt) => describe_attempt_event(attempt, event),
            EventSubject::Waitpoint(_) => self.describe_waitpoint_event(event),
        }
    }

    fn describe_run_event(&self, event: &Event) -> Option<EventLine> {
        let (text, level) = match event {
            Event::RunStarted { start, .. } => match (&start.retry_of, &start.forked_from) {
                (Some(run), _) => (format!("run started, try {} of {run}", start.attempt), Info),
                (None, Some(from)) => (format!("run started, forked from {} at {}", from.run, from.step), Info),
                (None, None) => ("run started".to_owned(), Info),
            },
            Event::CancelAsked { by, reason } => {
                (format!("cancelled by {by}{}", format_suffix(reason.as_deref())), Warning)
            }
            Event::RunDecided { status, error, degraded, .. } => {
                let degraded = if *degraded { ", degraded" } else { "" };
                let message = error.as_ref().map(|error| error.message.as_str());
                let ended = self.describe_run_end(InstanceIx::ROOT, *status);
                (format!("run {ended}{degraded}{}", format_suffix(message)), run_status_level(*status))
            }
            Event::PublicationEnded { item, failed } => match failed {
                Some(message) => (format!("{} failed: {message}", self.describe_publication(*item)), Warning),
                None => (format!("{} done", self.describe_publication(*item)), Detail),
            },
            Event::Quarantined { message } => (format!("run set aside: {message}"), Error),
            Event::Tampered { by, what } => (format!("{by} tried to {what}, and was refused"), Warning),
            Event::SignalKept { name, .. } => (format!("signal `{name}` arrived before any step waited for it"), Info),
            _ => return None,
        };
        Some((text, level))
    }

    fn describe_instance_event(&self, event: &Event) -> Option<EventLine> {
        Some(match event {
            Event::InstanceStarted { part, .. } => (describe_part_start(*part), Detail),
            Event::InstanceHalted { instance, why, undo } => {
                let undo = if *undo { " and is undone" } else { "" };
                let text = format!("stops{undo}: {}", self.describe_halt(*instance, why));
                (text, Warning)
            }
            Event::InstanceEnded { instance, end } if *instance != InstanceIx::ROOT => {
                let ended = self.describe_run_end(*instance, end.status);
                (format!("ended: {ended}"), Detail)
            }
            _ => return describe_undo_event(event),
        })
    }

    fn describe_publication(&self, item: Publication) -> String {
        match item {
            Publication::Hook(n) => self.describe_hook(n),
            Publication::Files => "writing the files".to_owned(),
            Publication::Context => "writing the context".to_owned(),
            Publication::Retry => "starting the run that retries this one".to_owned(),
        }
    }

    /// Formats a hook as its workflow writes it, such as `on_complete.run`.
    fn describe_hook(&self, n: u32) -> String {
        let hooks = &self.names.definition().root().workflow.hooks;
        let Some(WorkflowHook { when, action }) = hooks.get(n as usize) else {
            return format!("hook {}", n + 1);
        };
        let when = match when {
            HookTiming::Start => "on_start",
            HookTiming::Success => "on_complete",
            HookTiming::Failure => "on_failure",
        };
        let action = match action {
            HookAction::Notify { .. } => "notify",
            HookAction::Run { .. } => "run",
        };
        format!("hook `{when}.{action}`")
    }

    fn describe_halt(&self, ix: InstanceIx, why: &HaltReason) -> String {
        match why {
            HaltReason::Failed { step } => format!("`{}` failed", self.names.step_path(StepAt(ix, *step))),
            HaltReason::TimedOut => "its timeout expired".to_owned(),
            HaltReason::Cancelled { by } if by == TIMEOUT_ACTOR => {
                "cancelled: nobody answered before the timeout".to_owned()
            }
            HaltReason::Cancelled { by } => format!("cancelled by {by}"),
            HaltReason::Outer => "the enclosing scope stopped, or a sibling failed".to_owned(),
            HaltReason::Limit { error } => error.message.clone(),
        }
    }

    fn describe_waitpoint_event(&self, event: &Event) -> Option<EventLine> {
        Some(match event {
            Event::StepHeld { reason, until, message, .. } => {
                let until = until.map_or(String::new(), |until| format!(" until {}", format_utc(until)));
                (format!("held for {}{until}: {message}", words::hold_phrase(*reason)), Attention)
            }
            Event::Opened { at, message, .. } => (self.describe_open_waitpoint(*at, message), Attention),
            Event::Escalated { deadline, approvers, .. } => {
                let who = words::join_list(&words::approver_names(approvers), "or");
                let until = deadline.map_or(String::new(), |deadline| format!(", until {}", format_utc(deadline)));
                (format!("escalated to {who}{until}"), Attention)
            }
            Event::Approved { by, reason, .. } => {
                let why = format_suffix(reason.as_deref());
                (format!("approved by {by}; more approvals needed{why}"), Info)
            }
            Event::Decided { decision, by, reason, .. } => {
                let word = match decision {
                    Verdict::Approve => "approved",
                    Verdict::Reject => "rejected",
                };
                (format!("{word} by {by}{}", format_suffix(reason.as_deref())), Info)
            }
            Event::SignalTaken { name, .. } => (format!("got signal `{name}`"), Info),
            _ => return None,
        })
    }

    fn describe_open_waitpoint(&self, at: StepAt, message: &str) -> String {
        match &self.names.step(at).kind {
            StepKindSpec::Wait(wait) => {
                let signals: Vec<String> = wait.on.iter().map(ToString::to_string).collect();
                format!("waits for signal {}", words::join_quoted(&signals, "or"))
            }
            _ => format!("waits for a decision: {message}"),
        }
    }

    fn describe_step_event(&self, at: StepAt, event: &Event) -> Option<EventLine> {
        Some(match event {
            Event::StepExpanded { items, .. } => {
                let count = items.as_array().map_or(0, Vec::len);
                (format!("items: {count}"), Detail)
            }
            Event::StepOverdue { .. } => ("its timeout expired".into(), Warning),
            Event::StepEntered { .. } => ("started".into(), Info),
            Event::RetryScheduled { due, error, .. } => {
                (format!("retry at {}: {}", format_utc(*due), error.message), Warning)
            }
            Event::StepEnded { outcome, error, effect, settler, .. } => {
                let message = error.as_ref().map(|error| error.message.as_str());
                let settles = settler.map(|settler| self.names.step_path(StepAt(at.0, settler)));
                let settles = settles.map_or(String::new(), |step| format!("; `{step}` has to resolve it"));
                let ended = self.describe_step_end(at, *outcome, effect.as_skipped);
                let text = format!("{ended}{}{settles}", format_suffix(message));
                (text, if settler.is_some() { Warning } else { outcome_level(*outcome) })
            }
            Event::StepReused(reused) => {
                let by = reused.decided_by.as_ref().map_or(String::new(), |by| format!(", decided by {by}"));
                let word = self.describe_step_end(at, reused.outcome, reused.effect.as_skipped);
                (format!("reused: {word}{by}"), Info)
            }
            _ => return describe_undo_event(event),
        })
    }

    /// Describes the end of a run or of a called workflow, in the words of its format.
    fn describe_run_end(&self, instance: InstanceIx, status: RunStatus) -> String {
        let word = words::status_word(self.names.words(instance).run_word(status));
        match status {
            RunStatus::UndoFailed => format!("{word}, and could not be undone"),
            RunStatus::Undone if word != "undone" => format!("{word}, and undone"),
            _ => word,
        }
    }

    /// Describes the end of a step, in the words of its format.
    fn describe_step_end(&self, at: StepAt, outcome: StepOutcome, as_skipped: bool) -> String {
        let word = |status| words::status_word(self.names.words(at.0).step_word(status, as_skipped));
        let status = match outcome {
            _ if as_skipped => return format!("failed, and counts as {}", word(StepStatus::Skipped)),
            StepOutcome::Skipped(SkipReason::Condition) => {
                return format!("{}: its condition is false", word(StepStatus::Skipped));
            }
            StepOutcome::Skipped(SkipReason::Upstream(_)) => {
                let word = word(StepStatus::Skipped);
                return format!("{word}: a dependency did not succeed");
            }
            StepOutcome::Rejected => return "rejected".to_owned(),
            StepOutcome::Succeeded => StepStatus::Succeeded,
            StepOutcome::Incomplete | StepOutcome::Exhausted => StepStatus::Incomplete,
            StepOutcome::Failed(ErrorClass::Timeout) => StepStatus::TimedOut,
            StepOutcome::Failed(_) => StepStatus::Failed,
            StepOutcome::Cancelled => StepStatus::Cancelled,
        };
        word(status)
    }
}

fn describe_undo_event(event: &Event) -> Option<EventLine> {
    Some(match event {
        Event::UndoBegan { targets, uncertain, .. } => {
            let cut = match uncertain.len() {
                0 => String::new(),
                n => format!("; {n} cut off, possibly with an effect"),
            };
            let text = format!("undo begins, steps to undo: {}{cut}", targets.len());
            (text, Warning)
        }
        Event::StepUndone { .. } => ("undone".into(), Info),
        Event::UndoFailed { error, .. } => (format!("could not be undone: {}", error.message), Error),
        Event::UndoEnded { clean: true, .. } => ("undo ended".into(), Info),
        Event::UndoEnded { clean: false, .. } => ("undo ended with failures".into(), Error),
        _ => return None,
    })
}

fn describe_attempt_event(attempt: AttemptId, event: &Event) -> Option<EventLine> {
    Some(match event {
        Event::AttemptStarted { mode, .. } => describe_attempt_start(attempt, *mode),
        Event::AttemptEnded { end, proofs, by, .. } => {
            return describe_attempt_end(attempt, end, proofs, by.as_deref());
        }
        Event::StopAsked { why, .. } => {
            let why = match why {
                AttemptStopReason::Halted => "the enclosing scope stopped",
                AttemptStopReason::Timeout => "its timeout expired",
            };
            (format!("stop requested: {why}"), Info)
        }
        _ => return None,
    })
}

fn describe_attempt_start(attempt: AttemptId, mode: AttemptMode) -> EventLine {
    let mut text = match (attempt.role, attempt.attempt) {
        (AttemptRole::Main, 1) => "started".to_owned(),
        (role, 1) => format!("{} started", words::role_word(role)),
        (role, n) => format!("{} {n} started", words::role_word(role)),
    };
    if attempt.iteration > 1 && attempt.role != AttemptRole::Undo {
        text.push_str(&format!(", iteration {}", attempt.iteration));
    }
    text.push_str(match mode {
        AttemptMode::Fresh | AttemptMode::Again => "",
        AttemptMode::Rerun => ", after an interruption",
        AttemptMode::Resume => ", resumed after an interruption",
        AttemptMode::Restore => ", restored after an interruption",
    });
    (text, Info)
}

fn describe_attempt_end(
    attempt: AttemptId,
    end: &AttemptEnd,
    proofs: &[EvidenceResult],
    by: Option<&str>,
) -> Option<EventLine> {
    let what = match attempt.role {
        AttemptRole::Main | AttemptRole::Undo => {
            format!("{} {}", words::role_word(attempt.role), attempt.attempt)
        }
        AttemptRole::Check | AttemptRole::Summary => words::role_word(attempt.role).to_owned(),
    };
    let (text, level) = match end {
        AttemptEnd::Succeeded { .. } if proofs.is_empty() => (format!("{what} was done by {}", by?), Info),
        AttemptEnd::Succeeded { .. } => {
            let proven: Vec<&str> = proofs.iter().map(|proof| proof.what.as_str()).collect();
            let by = by.map(|by| format!(" (done by {by})")).unwrap_or_default();
            (format!("proven: {}{by}", proven.join("; ")), Info)
        }
        AttemptEnd::Checked { finding, reasons, output, .. } => {
            let headline = || output.as_ref().and_then(CheckOutput::headline).map(str::to_owned);
            let remark = join_texts(reasons).or_else(headline);
            (format!("check: {}{}", finding_word(*finding), format_suffix(remark.as_deref())), Info)
        }
        AttemptEnd::Failed { message, .. } => (format!("{what} failed: {message}"), Warning),
        AttemptEnd::Unmerged { message, .. } => (format!("{what} is not merged: {message}"), Warning),
        AttemptEnd::TimedOut => (format!("{what} timed out"), Warning),
        AttemptEnd::Stopped => (format!("{what} stopped"), Info),
        AttemptEnd::Interrupted => (format!("{what} was interrupted"), Warning),
        AttemptEnd::Blocked { .. } => return None,
        AttemptEnd::HandedOver { to, message } => (format!("{what} is handed over to {to}: {message}"), Warning),
    };
    Some((text, level))
}

fn format_suffix(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map_or(String::new(), |text| format!(": {text}"))
}

fn join_texts(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn describe_part_start(part: InstancePart) -> String {
    match part {
        InstancePart::Lane(lane) => format!("lane {} begins", lane + 1),
        InstancePart::Item(item) => format!("item {item} begins"),
        InstancePart::Pass(pass) => format!("pass {pass} begins"),
        InstancePart::Call => "the called workflow begins".to_owned(),
    }
}

fn finding_word(finding: CheckFinding) -> &'static str {
    match finding {
        CheckFinding::Complete => "complete",
        CheckFinding::Incomplete => "incomplete",
        CheckFinding::Undecided => "undecided",
        CheckFinding::Blocked => "blocked",
    }
}

fn run_status_level(status: RunStatus) -> TimelineLevel {
    match status {
        RunStatus::Failed | RunStatus::TimedOut | RunStatus::UndoFailed => Error,
        RunStatus::Cancelled | RunStatus::Undone => Warning,
        _ => Info,
    }
}

fn outcome_level(outcome: StepOutcome) -> TimelineLevel {
    match outcome {
        StepOutcome::Failed(_) | StepOutcome::Exhausted | StepOutcome::Rejected => Error,
        StepOutcome::Incomplete | StepOutcome::Cancelled => Warning,
        StepOutcome::Succeeded | StepOutcome::Skipped(_) => Info,
    }
}
