//! Texts of forks, attempts and lists of runs for people.

use skein_app::runs::{
    fork::{ForkPreview, NAMED, list_steps},
    inspect::{RunOwner, RunRow, is_left},
    logs::AttemptLogReader,
};
use skein_core::{
    engine::{AttemptId, AttemptRole, ForkSeed, RerunReason, format_utc},
    view::TimelineLevel,
};

use crate::render::{
    live::{format_cost, format_duration, one_line, paint_run_status},
    output::Paint,
};

/// The minimum width of the column for statuses.
pub(crate) const STATUS_WIDTH: usize = 11;

/// Describes the reused steps of a fork and those that run again, and that the workspace is not restored.
pub(crate) fn render_fork(fork: &ForkPreview, paint: Paint) -> String {
    let text = match &fork.reloaded {
        Some((source, plan)) => {
            let hash: String = plan.hash.to_string().chars().take(12).collect();
            format!("Run {} with {source} as it is now, plan {hash}\n", fork.forked_from)
                + &render_reloaded_steps(&fork.seed, paint)
        }
        None => one_line_each(&render_forked_steps(fork)),
    };
    let workspace = format!("The workspace is left as it is: {}\n", fork.workspace.display());
    match fork.reloaded.is_some() {
        true => text + &workspace,
        false => text + &one_line_each(&workspace),
    }
}

fn render_reloaded_steps(seed: &ForkSeed, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |word: &str, step: &str, why: &str| {
        let word = paint.title(&format!("{word:8}"));
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        text += &format!("{word}  {}\n", one_line(&format!("{step}{why}")));
    };
    seed.steps.iter().for_each(|step| line("reused", step, ""));
    seed.again.iter().for_each(|(step, why)| line("runs", step, describe_reason(*why)));
    seed.removed.iter().for_each(|step| line("removed", step, "it is no longer in the workflow"));
    text
}

fn render_forked_steps(fork: &ForkPreview) -> String {
    let ForkPreview { forked_from, from, seed, .. } = fork;
    let mut text = match &seed.steps[..] {
        [] => {
            let from = from.as_deref().unwrap_or_default();
            format!("Run {forked_from} has no results before {from}: all steps run again.\n")
        }
        steps => format!("Reused from run {forked_from}: {}.\n", list_steps(steps)),
    };
    for (step, why) in seed.again.iter().take(NAMED) {
        text += &format!("Run again: {step}, because {}.\n", describe_reason(*why));
    }
    if seed.again.len() > NAMED {
        text += &format!("Run again: {} more.\n", seed.again.len() - NAMED);
    }
    text
}

fn one_line_each(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", one_line(line))).collect()
}

/// Returns the reason to run a step, as text.
fn describe_reason(why: RerunReason) -> &'static str {
    match why {
        RerunReason::Undone => "it was undone",
        RerunReason::Failed => "it made the run fail",
        RerunReason::Cancelled => "it was cancelled",
        RerunReason::Conflict => "its merge conflict is resolved again",
        RerunReason::After => "it comes after a step that runs again",
        RerunReason::Changed => "its definition changed",
        RerunReason::Inputs => "its inputs changed",
        RerunReason::Settings => "the settings of its agent or tool changed",
        RerunReason::New => "it is new",
        RerunReason::NotDone => "it had not ended",
        RerunReason::Asked => "it was requested",
    }
}

/// Colours the text of an entry of a timeline by its level.
pub(crate) fn paint_level(level: TimelineLevel, text: &str, paint: Paint) -> String {
    match level {
        TimelineLevel::Detail | TimelineLevel::Info => text.to_owned(),
        TimelineLevel::Attention | TimelineLevel::Warning => paint.warning(text),
        TimelineLevel::Error => paint.error(text),
    }
}

/// Returns the name of an attempt, its times, its agent and its cost.
pub(crate) fn attempt_title(log: &AttemptLogReader) -> String {
    let note = log.read_agent_note();
    let took = log.ended.map(|ended| format_duration(ended.duration_since(log.started)));
    let agent = note.as_ref().map(|note| note.worker.clone());
    let model = note.as_ref().and_then(|note| note.model.clone());
    let cost = log.cost.or(note.as_ref().map(|note| note.cost)).and_then(format_cost);
    let session = note.and_then(|note| note.session).map(|session| format!("session {session}"));
    let by = log.by.as_ref().map(|by| format!("by {by}"));
    let parts = [Some(format_utc(log.started)), took, agent, model, by, cost, session];
    let aside: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}  {}", attempt_name(log), aside.join(", "))
}

/// Returns the name of an attempt: its step and its numbers.
fn attempt_name(log: &AttemptLogReader) -> String {
    let AttemptId { visit, iteration, role, .. } = log.attempt;
    let role = (role != AttemptRole::Main).then(|| role.as_str().to_owned());
    let visit = (visit > 1).then(|| format!("visit {visit}"));
    let iteration = (iteration > 1).then(|| format!("iteration {iteration}"));
    let parts: Vec<String> = role.into_iter().chain(visit).chain(iteration).collect();
    let aside = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!("{}, attempt {}{aside}", log.step, log.number)
}

/// Returns a line for each run.
pub(crate) fn render_runs(rows: &[RunRow], paint: Paint) -> String {
    let widest = |of: &dyn Fn(&RunRow) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let id = widest(&|row| row.run.as_str().chars().count());
    let status = widest(&|row| row.head.native_status.len()).max(STATUS_WIDTH);
    rows.iter().map(|row| render_row(row, id, status, paint)).collect()
}

fn render_row(row: &RunRow, width: usize, status_width: usize, paint: Paint) -> String {
    let name = paint.name(&format!("{:width$}", row.run.as_str()));
    let word = match &row.quarantined {
        Some(_) => paint.error(&format!("{:status_width$}", "set aside")),
        None => paint_run_status(row.head.status, &row.head.native_status, status_width, paint),
    };
    let began = row.head.started_at.map_or_else(|| "-".to_owned(), format_utc);
    let length = row.head.started_at.zip(row.head.finished_at);
    let length = length.map_or(String::new(), |(from, to)| format_duration(to.duration_since(from)));
    let version = row.head.version.as_ref().map_or(String::new(), |version| format!(" {version}"));
    let aside = match (&row.quarantined, &row.owner) {
        (Some(why), _) => format!("  {}", one_line(why)),
        (None, RunOwner::Dead(_)) => "  interrupted".to_owned(),
        (None, _) if is_left(row) => "  left".to_owned(),
        (None, _) => String::new(),
    };
    let forked = row.head.forked_from.as_ref();
    let forked = forked.map_or(String::new(), |from| format!("  forked from {}", one_line(from.run.as_str())));
    let waits: Vec<String> = row.open.iter().take(3).map(|open| one_line(&open.step)).collect();
    let waits = if waits.is_empty() { String::new() } else { format!("  waits at {}", waits.join(", ")) };
    let cost = format_cost(row.head.cost).map_or(String::new(), |cost| format!("  {cost}"));
    let workflow = one_line(&format!("{}{version}", row.head.workflow));
    format!(
        "{name}  {word}  {began:20}  {length:>9}  {workflow}{}\n",
        paint.faint(&format!("{cost}{waits}{aside}{forked}"))
    )
}
