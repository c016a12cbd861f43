//! The summary of a run that ended or was interrupted: the failures and their reasons, the steps that did not run
//! because of them, the undone steps, and the next commands.

use std::{collections::BTreeMap, fmt::Write};

use skein_app::runs::inspect::run_conditions;
use skein_core::{
    engine::{AttemptId, RunState, StepAt},
    ir::{RunStatus, StepStatus},
    time::{Millis, Timestamp},
    view::{RunView, StepReason, StepView, UndoFailureView, status_word},
};

use super::{
    event_lines::{describe_error, ending_reason, has_failed},
    live_view::LiveOptions,
    text::{LineTone, cut_to_width, format_cost, format_count, format_elapsed, one_line},
};
use crate::render::commands;
use crate::render::output::Paint;

/// Maximum number of listed failures, and of listed reasons for not running.
const LISTED: usize = 10;

/// Maximum number of steps that are named for each reason.
const NAMED: usize = 5;

/// Maximum number of logs that are shown again.
const LOGS: usize = 5;

/// Maximum size of the shown part of a log.
const LOG_LINES: usize = 20;
const LOG_COLUMNS: usize = 500;

pub(super) struct RunSummaryText<'a> {
    pub(super) view: &'a RunView,
    pub(super) state: &'a RunState,
    pub(super) now: Timestamp,
    /// The attempts whose logs explain why a step failed.
    pub(super) logs: BTreeMap<StepAt, AttemptId>,
    pub(super) options: &'a LiveOptions,
}

/// Returns the last lines of a log, each with a mark before it.
pub(super) fn render_log_lines(paint: Paint, log: Option<&str>) -> Vec<String> {
    let lines: Vec<&str> = log.unwrap_or_default().trim_end().lines().collect();
    let end = &lines[lines.len().saturating_sub(LOG_LINES)..];
    // The indentation of a line is kept, because it may be code.
    let shown = |line: &&str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        cut_to_width(&format!("{:indent$}{}", "", one_line(line), indent = indent.min(40)), LOG_COLUMNS)
    };
    end.iter().map(|line| format!("{} {}", paint.faint("│"), shown(line)).trim_end().to_owned()).collect()
}

impl RunSummaryText<'_> {
    pub(super) fn render_text(&self) -> String {
        let mut page = SummaryPage { paint: self.options.paint, text: String::new() };
        page.write_line("");
        page.write_line(&self.render_head());
        page.write_line(&self.render_counts());
        self.write_error(&mut page);
        self.write_failures(&mut page);
        self.write_settled(&mut page);
        self.write_not_run(&mut page);
        self.write_waiting(&mut page);
        self.write_undo(&mut page);
        if let Some(logs_folder) = &self.options.logs_folder {
            page.write_row("Logs", &one_line(logs_folder));
        }
        self.write_worktrees(&mut page);
        for (i, command) in commands::next_commands(self.view, self.options.owned_elsewhere).iter().enumerate() {
            page.write_row(if i == 0 { "Next" } else { "" }, &one_line(command));
        }
        page.text
    }

    /// Lists worktrees with unmerged changes.
    fn write_worktrees(&self, page: &mut SummaryPage) {
        let worktrees = if self.state.end.is_some() { (self.options.worktrees)() } else { Vec::new() };
        for (i, (step, folder)) in worktrees.iter().take(LISTED).enumerate() {
            let title = if i == 0 { "Not merged" } else { "" };
            page.write_row(title, &one_line(&format!("{step}: {}", folder.display())));
        }
        if worktrees.len() > LISTED {
            page.write_row("", &format!("and {} more", worktrees.len() - LISTED));
        }
    }

    /// Returns the status, the duration, and the workflow and run.
    fn render_head(&self) -> String {
        let view = self.view;
        let (tone, status) = match view.quarantine {
            Some(_) => (LineTone::Bad, "set aside".to_owned()),
            None => (LineTone::from_run_status(view.status), status_word(&view.native_status)),
        };
        let began = self.state.instances.first().map(|root| root.started);
        let length = match (view.duration_ms, began) {
            (Some(ms), _) => format!(" in {}", format_length(Millis(ms))),
            (None, Some(began)) => format!(" after {}", format_length(self.now.duration_since(began))),
            (None, None) => String::new(),
        };
        let version = view.workflow.version.as_ref().map_or(String::new(), |version| format!(" {version}"));
        let run = view.run_id.as_ref().map_or(String::new(), |run| format!(", run {run}"));
        let degraded = if view.degraded { ", degraded" } else { "" };
        let status = tone.paint_text(self.options.paint, &capitalize(&status));
        let which = one_line(&format!("{}{version}{run}", view.workflow.id));
        format!("{status}{degraded}{length}: {which}")
    }

    /// Returns the counts of steps, such as "8 succeeded, 1 failed, 2 skipped", and the cost.
    fn render_counts(&self) -> String {
        let mut by_status: BTreeMap<(StepStatus, &str), usize> = BTreeMap::new();
        let (settled, unsettled): (Vec<&StepView>, Vec<&StepView>) =
            self.view.steps.iter().partition(|step| step.settled_by.is_some());
        unsettled.iter().for_each(|step| *by_status.entry((step.status, &step.native_status)).or_default() += 1);
        // Ended steps first, by their importance to people.
        let ended = [
            StepStatus::Succeeded,
            StepStatus::Failed,
            StepStatus::TimedOut,
            StepStatus::Incomplete,
            StepStatus::Cancelled,
            StepStatus::Undone,
            StepStatus::Skipped,
        ];
        let rest = StepStatus::ALL.iter().filter(|status| !ended.contains(status));
        let mut words: Vec<(&str, StepStatus, usize)> = Vec::new();
        for status in ended.iter().chain(rest) {
            for ((_, native), n) in by_status.range((*status, "")..).take_while(|((s, _), _)| s == status) {
                match words.iter_mut().find(|(word, ..)| word == native) {
                    Some((.., count)) => *count += n,
                    None => words.push((native, *status, *n)),
                }
            }
        }
        let counted = words.iter().map(|(native, status, n)| {
            LineTone::from_step_status(*status).paint_text(self.options.paint, &format!("{n} {}", status_word(native)))
        });
        let settled = Some(settled.len()).filter(|n| *n > 0).map(|n| format!("{n} resolved"));
        let counted: Vec<String> = counted.chain(settled).collect();
        let counted = if counted.is_empty() { "no steps".to_owned() } else { counted.join(", ") };
        let cost = format_cost(self.state.spent).map_or(String::new(), |spent| format!("; {spent}"));
        let reused = self.view.steps.iter().filter(|step| step.reused).count();
        let reused = match &self.view.forked_from {
            Some(from) if reused > 0 => {
                format!("; {reused} reused from run {}", one_line(from.run.as_str()))
            }
            _ => String::new(),
        };
        format!("{counted}{reused}{cost}")
    }

    /// Writes the error of the run itself, if no step contains it.
    fn write_error(&self, page: &mut SummaryPage) {
        if let Some(message) = &self.view.quarantine {
            return page.write_row("Broken", &one_line(message));
        }
        if let Some(cancel) = &self.view.cancel {
            let reason = cancel.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
            page.write_row("Cancelled", &one_line(&format!("by {}{reason}", cancel.by)));
            if self.view.status == RunStatus::Cancelled {
                return;
            }
        }
        let Some(error) = &self.view.error else { return };
        let is_of_step = |step: &StepView| has_failed(step) && Some(&step.path) == error.step.as_ref();
        if !self.view.steps.iter().any(is_of_step) {
            page.write_row("Error", &one_line(&describe_error(error, "")));
        }
        if let Some(due) = &self.view.retry_at {
            page.write_row("Retry", &format!("as a new run, due at {due}"));
        }
    }

    fn write_failures(&self, page: &mut SummaryPage) {
        let bad: Vec<&StepView> = self.view.steps.iter().filter(|step| has_failed(step)).collect();
        let listed: std::collections::BTreeSet<&str> = bad.iter().map(|step| step.path.as_str()).collect();
        // A step that failed because of a step inside it adds nothing.
        let begun_inside = |step: &StepView| {
            let origin = step.error.as_ref().and_then(|error| error.step.as_deref());
            origin.is_some_and(|origin| origin != step.path && listed.contains(origin))
        };
        let roots: Vec<&&StepView> = bad.iter().filter(|step| !begun_inside(step)).collect();
        if roots.is_empty() {
            return;
        }
        page.write_title(LineTone::Bad, "Failed");
        for (i, step) in roots.iter().take(LISTED).enumerate() {
            page.write_item(&step.path, &ending_reason(step));
            let attempt = self.logs.get(&step.at).filter(|_| i < LOGS);
            let log = attempt.and_then(|attempt| (self.options.tail)(*attempt));
            render_log_lines(page.paint, log.as_deref())
                .iter()
                .for_each(|line| page.write_line(&format!("    {line}")));
        }
        page.write_more(roots.len(), LISTED);
    }

    /// Lists merge conflicts that other steps resolved.
    fn write_settled(&self, page: &mut SummaryPage) {
        let settled = self.view.steps.iter().filter_map(|step| Some((step, step.settled_by.as_ref()?)));
        let settled: Vec<(&StepView, &String)> = settled.collect();
        if settled.is_empty() {
            return;
        }
        page.write_title(LineTone::Care, "Resolved");
        for (step, by) in settled.iter().take(LISTED) {
            page.write_item(&step.path, &format!("its changes conflicted with those of others, and {by} resolved it"));
        }
        page.write_more(settled.len(), LISTED);
    }

    /// Lists steps that did not run, or were stopped, because of a failure; by reason.
    fn write_not_run(&self, page: &mut SummaryPage) {
        if self.view.status == RunStatus::Succeeded && !self.view.steps.iter().any(has_failed) {
            return;
        }
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        let mut place: BTreeMap<String, usize> = BTreeMap::new();
        for step in self.view.steps.iter().filter(|step| was_cut_short(step)) {
            let reason = ending_reason(step);
            let i = *place.entry(reason.clone()).or_insert_with(|| {
                reasons.push((reason, Vec::new()));
                reasons.len() - 1
            });
            reasons[i].1.push(&step.path);
        }
        if reasons.is_empty() {
            return;
        }
        page.write_title(LineTone::Faint, "Did not run, or did not finish");
        for (reason, steps) in reasons.iter().take(LISTED) {
            page.write_item(&list_steps(steps), reason);
        }
        page.write_more(reasons.len(), LISTED);
    }

    fn write_waiting(&self, page: &mut SummaryPage) {
        let open = &self.view.waiting_for;
        if open.is_empty() {
            return;
        }
        page.write_title(LineTone::Asks, "Waits");
        for waitpoint in open.iter().take(LISTED) {
            let step = self.view.steps.iter().find(|step| step.at == waitpoint.at);
            let text = step.and_then(|step| step.why.as_ref()).map_or("", |why| &why.text);
            page.write_item(&waitpoint.step, text);
        }
        page.write_more(open.len(), LISTED);
    }

    fn write_undo(&self, page: &mut SummaryPage) {
        for condition in run_conditions(self.view) {
            page.write_row("Condition", &one_line(&format!("{}: {}", condition.kind, condition.message)));
        }
        let Some(undo) = &self.view.undo else { return };
        let rows = [
            ("Undone", &undo.undone),
            ("To undo", &undo.to_undo),
            ("Not undone", &undo.not_undone),
            ("Uncertain", &undo.possibly_effective),
        ];
        for (title, steps) in rows.into_iter().filter(|(_, steps)| !steps.is_empty()) {
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            let aside = if title == "Uncertain" { ": interrupted, may have taken effect" } else { "" };
            page.write_row(title, &format!("{}{aside}", one_line(&list_steps(&steps))));
        }
        for UndoFailureView { step, error } in undo.failed.iter().take(LISTED) {
            page.write_item(step, &format!("could not be undone: {}", describe_error(error, step)));
        }
        page.write_more(undo.failed.len(), LISTED);
    }
}

/// Formats the duration of the run.
fn format_length(length: Millis) -> String {
    if length < Millis::from_mins(1) {
        return format!("{}.{:03}s", length.0 / 1_000, length.0 % 1_000);
    }
    format_elapsed(length)
}

fn capitalize(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Returns true if a failure prevented the step from finishing. A condition or a route does not count.
fn was_cut_short(step: &StepView) -> bool {
    let Some(why) = &step.why else { return false };
    let late = matches!(step.status, StepStatus::Skipped | StepStatus::Cancelled) && !has_failed(step);
    late && !matches!(why.reason, StepReason::Condition | StepReason::NotRouted)
}

/// Returns the first few names of many.
fn list_steps(steps: &[&str]) -> String {
    let few = &steps[..steps.len().min(NAMED)];
    match steps.len().saturating_sub(few.len()) {
        0 => few.join(", "),
        rest => format!("{} and {rest} more", few.join(", ")),
    }
}

struct SummaryPage {
    paint: Paint,
    text: String,
}

impl SummaryPage {
    fn write_line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn write_title(&mut self, tone: LineTone, title: &str) {
        let title = tone.paint_text(self.paint, title);
        self.write_line(&title);
    }

    fn write_row(&mut self, title: &str, text: &str) {
        let title = self.paint.title(&format!("{title:12}"));
        self.write_line(&format!("{title}  {text}"));
    }

    fn write_item(&mut self, path: &str, text: &str) {
        let (path, text) = (self.paint.name(&one_line(path)), one_line(text));
        let colon = if text.is_empty() { "" } else { ": " };
        self.write_line(&format!("  {path}{colon}{text}"));
    }

    fn write_more(&mut self, all: usize, shown: usize) {
        if all > shown {
            self.write_line(&format!("  and {}", format_count(all - shown, "other")));
        }
    }
}
