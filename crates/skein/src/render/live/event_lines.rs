//! The lines of an event: at most one, and below it the details that a person needs to decide or to understand it.

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptMode, AttemptRole, CheckFinding, CheckOutput, CursorRoute, Event, ForkOrigin,
        HaltReason, InstanceIx, JournalRecord, RunProjection, RunStart, RunState, StepAt, Waitpoint,
    },
    ir::{ErrorClass, RunStatus, StepKindSpec, StepStatus},
    time::{Millis, Timestamp},
    view::{self, ErrorView, StepView, TimelineEntry, WaitpointViewKind, status_word},
};

use super::{
    activity::describe_attempt,
    text::{LineTone, StyledLine, cut_to_width, format_cost, format_until, indent_line, one_line},
};
use crate::render::commands;
use crate::render::output::Paint;

/// Maximum number of lines and columns of a gate's content.
const SHOWN: usize = 40;
const SHOWN_COLUMNS: usize = 500;

/// Renders an event that has just been applied, with all that a line may need.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventRenderer<'a> {
    pub(super) run: &'a RunProjection,
    pub(super) paint: Paint,
    pub(super) workspace: Option<&'a str>,
    /// The attempt that ended last, and its duration.
    pub(super) ended: Option<(AttemptId, Millis)>,
}

impl EventRenderer<'_> {
    fn state(&self) -> &RunState {
        self.run.state()
    }

    /// Returns the lines of an event; empty if it is not worth one. Most of the text comes from the entry of the
    /// timeline.
    pub(super) fn render_event(&self, record: &JournalRecord) -> String {
        match &record.event {
            Event::RunStarted { start, .. } => self.started_line(start).render_line(self.paint),
            Event::StepHeld { opening: waitpoint, .. }
            | Event::Opened { opening: waitpoint, .. }
            | Event::Escalated { opening: waitpoint, .. } => self.render_waitpoint(*waitpoint).unwrap_or_default(),
            _ => self.event_line(record).map_or(String::new(), |line| line.render_line(self.paint)),
        }
    }

    fn event_line(&self, record: &JournalRecord) -> Option<StyledLine> {
        let now = record.at;
        let entry = || view::describe_record(self.run.names(), self.state().events.saturating_sub(1), record);
        let line_of = |tone, word: &str| {
            let TimelineEntry { path, text, .. } = entry()?;
            Some(StyledLine { path, text, ..StyledLine::new(tone, word) })
        };
        match &record.event {
            Event::AttemptStarted { attempt, mode, .. } => self.restart_line(*attempt, *mode),
            Event::AttemptEnded { attempt, end: AttemptEnd::Checked { finding, reasons, output, .. }, .. } => {
                self.check_line(*attempt, *finding, reasons, output.as_ref())
            }
            Event::AttemptEnded { end: AttemptEnd::HandedOver { .. }, .. } => line_of(LineTone::Care, "handed on"),
            Event::AttemptEnded { end: AttemptEnd::Succeeded { .. }, proofs, .. } if !proofs.is_empty() => {
                let TimelineEntry { path, text, .. } = entry()?;
                let text = text.strip_prefix("proven: ").unwrap_or(&text).to_owned();
                Some(StyledLine { path, text, ..StyledLine::new(LineTone::Plain, "proven") })
            }
            Event::AttemptEnded { end: AttemptEnd::Succeeded { .. }, by: Some(_), .. } => {
                line_of(LineTone::Plain, "by")
            }
            Event::RetryScheduled { at, due, error } => {
                let error = ErrorView {
                    class: error.class,
                    code: error.code.clone(),
                    message: error.message.clone(),
                    step: error.origin.map(|at| self.run.names().step_path(at)),
                };
                Some(self.retry_line(*at, &format_until(now, *due), &error))
            }
            Event::StepEnded { at, route, .. } => Some(self.step_ended_line(*at, *route)),
            // Only the outermost reused step has a line; its contents were not run here either.
            Event::StepReused(reused) if reused.at.0 == InstanceIx::ROOT => {
                let TimelineEntry { path, text, .. } = entry()?;
                // The word of the line already says it.
                let text = text.strip_prefix("reused: ").unwrap_or(&text).to_owned();
                Some(StyledLine { path, text, ..StyledLine::new(LineTone::Plain, "reused") })
            }
            Event::StepUndone { at, .. } => {
                let path = self.run.names().step_path(*at);
                Some(StyledLine { path, took: self.attempt_duration(*at), ..StyledLine::new(LineTone::Care, "undone") })
            }
            Event::Decided { .. } => line_of(LineTone::Plain, "decided"),
            Event::SignalKept { .. } | Event::SignalTaken { .. } => line_of(LineTone::Plain, "signal"),
            Event::CancelAsked { .. } => line_of(LineTone::Care, "cancel"),
            Event::InstanceHalted { why: HaltReason::TimedOut | HaltReason::Limit { .. }, .. } => {
                line_of(LineTone::Bad, "stopping")
            }
            Event::UndoBegan { .. } => line_of(LineTone::Care, "undo"),
            Event::UndoEnded { clean: true, .. } => line_of(LineTone::Care, "undo"),
            Event::UndoFailed { .. } => line_of(LineTone::Bad, "not undone"),
            Event::UndoEnded { clean: false, .. } => line_of(LineTone::Bad, "undo"),
            Event::PublicationEnded { failed: Some(_), .. } => line_of(LineTone::Care, "warning"),
            Event::Tampered { .. } => line_of(LineTone::Care, "refused"),
            Event::Quarantined { .. } => line_of(LineTone::Bad, "broken"),
            Event::RunDecided { status, degraded, retry, .. } => {
                Some(self.run_ended_line(now, *status, *degraded, *retry))
            }
            _ => None,
        }
    }

    /// Returns the title of a resumed run, and its open waitpoints.
    pub(super) fn render_resumed(&self) -> String {
        let Some(start) = &self.state().start else { return String::new() };
        let (text, word) = (self.run_title(start), "resumed");
        let mut shown = StyledLine { text, ..StyledLine::new(LineTone::Good, word) }.render_line(self.paint);
        let open = self.state().open_waitpoints();
        open.for_each(|(number, _)| shown += &self.render_waitpoint(number).unwrap_or_default());
        shown
    }

    /// Returns the workflow, the run and the workspace.
    fn run_title(&self, start: &RunStart) -> String {
        let workflow = &self.run.plan().definition.root().workflow;
        let mut text = format!("{}", workflow.id);
        if let Some(version) = &workflow.version {
            text += &format!(" {version}");
        }
        let hash: String = self.run.plan().hash.to_string().chars().take(12).collect();
        text += &format!(", run {}, plan {hash}", start.run);
        if let Some(workspace) = self.workspace {
            text += &format!(", in {workspace}");
        }
        text
    }

    fn started_line(&self, start: &RunStart) -> StyledLine {
        let mut text = self.run_title(start);
        if let Some(before) = &start.retry_of {
            text += &format!("; attempt {} of {before}", start.attempt);
        }
        if let Some(ForkOrigin { run, step }) = &start.forked_from {
            text += &format!("; forked from {run} at {step}");
        }
        StyledLine { text, ..StyledLine::new(LineTone::Good, "started") }
    }

    /// Returns the duration of the last attempt, if it was of this step.
    fn attempt_duration(&self, at: StepAt) -> Option<Millis> {
        self.ended.filter(|(attempt, _)| attempt.at == at).map(|(_, took)| took)
    }

    /// Returns the line of an attempt that replaces an interrupted one.
    fn restart_line(&self, attempt: AttemptId, mode: AttemptMode) -> Option<StyledLine> {
        let word = match mode {
            AttemptMode::Fresh | AttemptMode::Again => return None,
            AttemptMode::Rerun => "rerun",
            AttemptMode::Resume => "resumed",
            AttemptMode::Restore => "restored",
        };
        let what = role_phrase(attempt.role);
        let text = format!("{what} was interrupted because Skein stopped");
        let aside = describe_attempt(attempt).unwrap_or_default();
        Some(StyledLine {
            path: self.run.names().step_path(attempt.at),
            aside,
            text,
            ..StyledLine::new(LineTone::Care, word)
        })
    }

    fn check_line(
        &self,
        attempt: AttemptId,
        finding: CheckFinding,
        reasons: &[String],
        output: Option<&CheckOutput>,
    ) -> Option<StyledLine> {
        let word = match finding {
            // The consequences of these are events of their own.
            CheckFinding::Complete | CheckFinding::Blocked => return None,
            CheckFinding::Incomplete => "incomplete",
            CheckFinding::Undecided => "undecided",
        };
        let step = self.run.names().step(attempt.at);
        let most = match &step.kind {
            StepKindSpec::Work(work) => work.check.as_ref().map(|check| check.max_iterations),
            _ => None,
        };
        let most = most.map_or(String::new(), |most| format!(" of {most}"));
        let mut text = format!("iteration {}{most}", attempt.iteration);
        if !reasons.is_empty() {
            text += &format!(": {}", reasons.join("; "));
        } else if let Some(headline) = output.and_then(CheckOutput::headline) {
            text += &format!(": {headline}");
        }
        let (path, took) = (self.run.names().step_path(attempt.at), self.attempt_duration(attempt.at));
        Some(StyledLine { path, took, text, ..StyledLine::new(LineTone::Care, word) })
    }

    fn retry_line(&self, at: StepAt, when: &str, error: &ErrorView) -> StyledLine {
        let path = self.run.names().step_path(at);
        let last = self.ended.filter(|(attempt, _)| attempt.at == at);
        let what = match last {
            Some((AttemptId { role: AttemptRole::Main, attempt, .. }, _)) => {
                format!("attempt {attempt} failed")
            }
            Some((attempt, _)) => format!("{} failed", role_phrase(attempt.role)),
            None => "it failed".to_owned(),
        };
        let text = format!("{what}, retry {when}: {}", describe_error(error, &path));
        StyledLine { path, text, took: last.map(|(_, took)| took), ..StyledLine::new(LineTone::Care, "retry") }
    }

    fn step_ended_line(&self, at: StepAt, route: Option<CursorRoute>) -> StyledLine {
        let step = view::view_step(self.run.plan(), self.state(), self.run.names(), at);
        let cost = self.state().visit_state(at).and_then(|more| format_cost(more.cost));
        let mut text = ending_reason(&step);
        if let ("branch", StepStatus::Succeeded, Some(route)) = (step.kind, step.status, route) {
            text = match route {
                CursorRoute::Step(to) => format!("goes to {}", self.run.names().step_path(StepAt(at.0, to))),
                CursorRoute::End => "goes to the end".to_owned(),
            };
        }
        let aside: Vec<String> = count_phrases(&step).into_iter().chain(cost).collect();
        let settler = self.state().visit_state(at).and_then(|more| more.settler);
        if let Some(settler) = settler {
            text += &format!("; {} resolves it", self.run.names().step_path(StepAt(at.0, settler)));
        }
        StyledLine {
            took: step.duration_ms.map(Millis),
            aside: aside.join(", "),
            text,
            tone: if settler.is_some() || (has_failed(&step) && step.status == StepStatus::Skipped) {
                LineTone::Care
            } else {
                LineTone::from_step_status(step.status)
            },
            word: if settler.is_some() { "conflict".to_owned() } else { status_word(&step.native_status) },
            path: step.path,
        }
    }

    /// Returns the open waitpoint, its approvers, and the commands that answer it.
    fn render_waitpoint(&self, waitpoint: Waitpoint) -> Option<String> {
        let waitpoint = view::view_waitpoint(self.state(), self.run.names(), waitpoint)?;
        let why = view::view_step(self.run.plan(), self.state(), self.run.names(), waitpoint.at).why;
        let text = why.map_or(String::new(), |why| why.text);
        let word = if waitpoint.escalated { "escalated" } else { "waiting" };
        let line = StyledLine { path: waitpoint.step.clone(), text, ..StyledLine::new(LineTone::Asks, word) };
        let mut shown = line.render_line(self.paint);
        let message = one_line(&waitpoint.message);
        if waitpoint.kind == WaitpointViewKind::Gate && !message.is_empty() {
            shown += &indent_line(&message);
        }
        let run = self.state().start.as_ref().map_or("", |start| start.run.as_str());
        commands::answer_commands(run, &waitpoint).iter().for_each(|command| shown += &indent_line(&one_line(command)));
        Some(shown)
    }

    /// Returns the content that a gate shows to the people who decide.
    pub(super) fn render_gate_content(&self, waitpoint: Waitpoint) -> String {
        let Some(waitpoint) = view::view_waitpoint(self.state(), self.run.names(), waitpoint) else {
            return String::new();
        };
        let shows = waitpoint.shows.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        let text: Vec<String> = shows.iter().map(text).collect();
        let text = text.join("\n");
        let mut lines: Vec<String> =
            text.lines().take(SHOWN).map(|line| indent_line(&cut_to_width(&one_line(line), SHOWN_COLUMNS))).collect();
        if text.lines().nth(SHOWN).is_some() {
            lines.push(indent_line("…"));
        }
        lines.concat()
    }

    /// Returns a prompt; the answer is typed after it.
    pub(super) fn render_question(&self, waitpoint: Waitpoint, columns: usize) -> String {
        let waitpoint = self.state().waitpoint(waitpoint);
        let step = waitpoint.map_or(String::new(), |waitpoint| one_line(&self.run.names().step_path(waitpoint.at)));
        let rest = "? [y/n, and why] ";
        format!(
            "{}{rest}",
            LineTone::Asks.paint_text(self.paint, &cut_to_width(&step, columns.saturating_sub(rest.len())))
        )
    }

    fn run_ended_line(
        &self,
        now: Timestamp,
        status: RunStatus,
        degraded: bool,
        retry: Option<Timestamp>,
    ) -> StyledLine {
        let run = self.state().start.as_ref().map_or("", |start| start.run.as_str());
        let mut text = format!("run {run}");
        if degraded {
            text += ", degraded";
        }
        if let Some(due) = retry {
            text += &format!("; a new run retries it {}", format_until(now, due));
        }
        let took = self.state().instances.first().map(|root| now.duration_since(root.started));
        StyledLine {
            took,
            text,
            ..StyledLine::new(
                LineTone::from_run_status(status),
                status_word(self.run.names().words(InstanceIx::ROOT).run_word(status)),
            )
        }
    }
}

fn role_phrase(role: AttemptRole) -> &'static str {
    match role {
        AttemptRole::Main => "the previous attempt",
        AttemptRole::Check => "its check",
        AttemptRole::Summary => "its summary",
        AttemptRole::Undo => "its undo",
    }
}

/// Returns the numbers of visits, iterations and attempts that are not one.
fn count_phrases(step: &StepView) -> Vec<String> {
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

/// Returns true if a part of the step failed, even if its status is another. A resolved conflict is not a failure.
pub(super) fn has_failed(step: &StepView) -> bool {
    match step.status {
        _ if step.settled_by.is_some() => false,
        StepStatus::Failed | StepStatus::TimedOut | StepStatus::Incomplete => true,
        StepStatus::Skipped => step.error.is_some(),
        _ => false,
    }
}

/// Returns the reason for the status of a step; empty if it succeeded.
pub(super) fn ending_reason(step: &StepView) -> String {
    match &step.error {
        Some(error) if step.status == StepStatus::Skipped => {
            format!("it failed, and counts as skipped: {}", describe_error(error, &step.path))
        }
        Some(error) if has_failed(step) => describe_error(error, &step.path),
        _ => {
            let text = step.why.as_ref().map_or("", |why| &why.text);
            let word = format!("{}: ", status_word(step.status.as_str()));
            text.strip_prefix(&word).unwrap_or(text).to_owned()
        }
    }
}

/// Returns the word for a class of errors.
pub(crate) fn error_class_word(class: ErrorClass) -> String {
    let class = serde_json::to_value(class).unwrap_or_default();
    status_word(class.as_str().unwrap_or_default())
}

/// Describes an error, its class, and its origin if that is another step.
pub(super) fn describe_error(error: &ErrorView, path: &str) -> String {
    let class = error_class_word(error.class);
    let code = error.code.as_ref().filter(|code| **code != class);
    let code = code.map_or(String::new(), |code| format!(", {code}"));
    let begun = error.step.as_ref().filter(|step| *step != path);
    let begun = begun.map_or(String::new(), |step| format!("{step}: "));
    format!("{begun}{} ({class}{code})", error.message)
}
