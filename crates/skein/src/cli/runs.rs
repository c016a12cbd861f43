//! `skein runs`: lists the runs, or shows one, once or continuously.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    context,
    file_changes::FileChangeWatcher,
    past_time,
    run_json::run_to_json,
    state::{StateHandle, refuse_shortened, refuse_store_error, shortened_warnings},
};
use skein_core::{
    engine::format_utc,
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    time::Millis,
    view::{self, CostView, StepView},
};
use skein_host::{
    executor::RunSettings,
    host::RunLoader,
    store::{RunHead, RunList, RunOwner, RunRow, Store, StoreError},
};

use super::logs;
use crate::{
    attempt_logs::{AttemptLogReader, AttemptLogs, AttemptSelector, LogFile},
    exit::Exit,
    follow_run,
    live::{format_cost, format_duration, one_line, paint_run_status, paint_step_status},
    output::{CliOutput, OutputFormat, is_unread},
    watch::{self, FollowEnd, FollowRequest},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct RunsArguments {
    /// Run id, a unique prefix of it, or `-` for the newest run; default: list all runs.
    run: Option<String>,
    /// Show events until the run ends; without a run, show each run that changes.
    #[arg(long)]
    pub follow: bool,
    /// Also show the output of the run's workers.
    #[arg(long, requires = "run", conflicts_with = "follow")]
    logs: bool,
    /// Maximum number of runs.
    #[arg(long, value_name = "COUNT", default_value = "50", conflicts_with = "run")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// List only runs with this status, such as `failed`, or a status of their format. Can be repeated.
    #[arg(long, value_name = "STATUS", conflicts_with = "run")]
    status: Vec<String>,
    /// List only runs of this workflow, by its id.
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    workflow: Option<String>,
    /// List only runs that were started since then: a date, a time, or a duration before now such as 24h.
    #[arg(long, value_name = "WHEN", conflicts_with = "run")]
    since: Option<String>,
}

pub fn run(arguments: &RunsArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    match &arguments.run {
        Some(run) if arguments.follow => follow_one(run, state, output),
        Some(run) => show_run(run, arguments.logs, state, output),
        None => list_runs(arguments, state, output),
    }
}

fn list_runs(arguments: &RunsArguments, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let state = StateHandle::open_existing(given)?;
    let filter = RunFilter::parse(arguments)?;
    let list = |state: &StateHandle| filter.list_matching(state).map_err(|error| refuse_store_error(&error));
    if let (true, Some(state)) = (arguments.follow, &state) {
        return follow_changes(state, |state| Ok(list(state)?.rows), output);
    }
    let RunList { rows, more } = state.as_ref().map_or(Ok(RunList { rows: Vec::new(), more: 0 }), list)?;
    if output.is_json() {
        output.print_json(&json!({"runs": rows.iter().map(row_to_json).collect::<Vec<_>>(), "more": more}));
    } else if rows.is_empty() && filter.has_conditions() {
        output.print_text("No runs match.\n");
    } else if rows.is_empty() {
        output.print_text("No runs yet; `skein run FILE` starts one.\n");
    } else {
        output.print_text(&render_table(&rows, output));
        if more > 0 {
            let all = rows.len() as u64 + more;
            output.print_text(&output.paint.faint(&format!("{more} more; `--limit {all}` shows them\n")));
        }
    }
    let shortened = state.as_ref().map_or(Ok(Vec::new()), shortened_warnings)?;
    shortened.iter().for_each(|warning| output.warn(warning));
    Ok(if !shortened.is_empty() { Exit::Store } else { Exit::Done })
}

/// Selects the runs to list.
struct RunFilter<'a> {
    arguments: &'a RunsArguments,
    /// In the format of the times of runs, so that they can be compared as text.
    since: Option<String>,
}

impl<'a> RunFilter<'a> {
    fn parse(arguments: &'a RunsArguments) -> Result<RunFilter<'a>, AppError> {
        let since = arguments.since.as_deref().map(past_time::parse_past_time).transpose()?;
        Ok(RunFilter { arguments, since })
    }

    /// Returns true if the filter excludes any run.
    fn has_conditions(&self) -> bool {
        let RunsArguments { status, workflow, .. } = self.arguments;
        !status.is_empty() || workflow.is_some() || self.since.is_some()
    }

    fn matches_run(&self, head: &RunHead) -> bool {
        let is = |wanted: &String| {
            [head.status.as_str(), &head.native_status].iter().any(|word| word.eq_ignore_ascii_case(wanted))
        };
        let RunsArguments { status, workflow, .. } = self.arguments;
        (status.is_empty() || status.iter().any(is))
            && workflow.as_ref().is_none_or(|workflow| head.workflow == *workflow)
            && self
                .since
                .as_ref()
                .is_none_or(|since| head.started_at.is_some_and(|at| format_utc(at) >= *since))
    }

    fn list_matching(&self, state: &StateHandle) -> Result<RunList, StoreError> {
        let takes = |head: &RunHead| self.matches_run(head);
        state.store.list_runs(self.arguments.limit, self.has_conditions().then_some(&takes))
    }
}

/// Prints each run that changes, until it is interrupted.
fn follow_changes(
    state: &StateHandle,
    newest: impl Fn(&StateHandle) -> Result<Vec<RunRow>, AppError>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let changes = FileChangeWatcher::watch_journal(&state.path).map_err(|error| {
        AppError::new(AppErrorKind::Bug, &format!("cannot watch for changes: {error}"), None)
    })?;
    let mut seen: BTreeMap<RunId, (RunHead, RunOwner)> = BTreeMap::new();
    loop {
        let mut rows = newest(state)?;
        // The oldest first, so that new runs are at the bottom.
        rows.reverse();
        let known: BTreeMap<RunId, (RunHead, RunOwner)> =
            rows.iter().map(|row| (row.run.clone(), (row.head.clone(), row.owner.clone()))).collect();
        rows.retain(|row| seen.get(&row.run) != known.get(&row.run));
        seen = known;
        match output.format {
            OutputFormat::Human => output.print_text(&render_table(&rows, output)),
            OutputFormat::Json | OutputFormat::Jsonl => {
                rows.iter().for_each(|row| output.print_json_text(&format!("{}\n", row_to_json(row))));
            }
        }
        if is_unread() {
            return Ok(Exit::Done);
        }
        changes.wait_for_change();
    }
}

fn row_to_json(row: &RunRow) -> Value {
    let RunHead {
        workflow,
        version,
        dialect,
        status,
        native_status,
        started_at,
        finished_at,
        forked_from,
        cost,
        ..
    } = &row.head;
    let mut object = json!({
        "run_id": row.run,
        "workflow": {"id": workflow, "version": version, "dialect": dialect, "hash": row.definition},
        "status": status,
        "native_status": native_status,
        "started_at": started_at.map(format_utc),
        "finished_at": finished_at.map(format_utc),
        "left": is_left(row),
        "cost": CostView::from(*cost),
    });
    if let Some(from) = forked_from {
        object["forked_from"] = json!(from);
    }
    if let Some(why) = &row.quarantined {
        object["quarantine"] = json!(why);
    }
    object
}

/// Returns true if the run can be resumed and no living process owns it.
fn is_left(row: &RunRow) -> bool {
    !row.head.closed && row.quarantined.is_none() && matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_))
}

/// The minimum width of the column for statuses.
const STATUS_WIDTH: usize = 11;

fn render_table(rows: &[RunRow], output: CliOutput) -> String {
    let widest = |of: &dyn Fn(&RunRow) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let id = widest(&|row| row.run.as_str().chars().count());
    let status = widest(&|row| row.head.native_status.len()).max(STATUS_WIDTH);
    rows.iter().map(|row| render_row(row, id, status, output)).collect()
}

fn render_row(row: &RunRow, width: usize, status_width: usize, output: CliOutput) -> String {
    let name = output.paint.name(&format!("{:width$}", row.run.as_str()));
    let word = match &row.quarantined {
        Some(_) => output.paint.error(&format!("{:status_width$}", "set aside")),
        None => paint_run_status(row.head.status, &row.head.native_status, status_width, output.paint),
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
    let forked =
        forked.map_or(String::new(), |from| format!("  forked from {}", one_line(from.run.as_str())));
    let waits: Vec<String> = row.open.iter().take(3).map(|open| one_line(&open.step)).collect();
    let waits = if waits.is_empty() { String::new() } else { format!("  waits at {}", waits.join(", ")) };
    let cost = format_cost(row.head.cost).map_or(String::new(), |cost| format!("  {cost}"));
    let workflow = one_line(&format!("{}{version}", row.head.workflow));
    format!(
        "{name}  {word}  {began:20}  {length:>9}  {workflow}{}\n",
        output.paint.faint(&format!("{cost}{waits}{aside}{forked}"))
    )
}

fn inspect_run<'a>(state: &'a StateHandle, row: &'a RunRow) -> Result<InspectedRun<'a>, AppError> {
    // A run whose settings cannot be read is shown without them.
    let about = RunSettings::from_json(&row.about);
    let (workspace, warnings) = about.map(|about| (about.workspace, about.warnings)).unwrap_or_default();
    Ok(InspectedRun {
        plan: state.load_plan(row)?,
        kept: state.run_folder(&row.run),
        workspace,
        warnings,
        state,
        row,
    })
}

/// A run that is shown.
struct InspectedRun<'a> {
    plan: Plan,
    kept: PathBuf,
    workspace: PathBuf,
    warnings: Vec<Value>,
    state: &'a StateHandle,
    row: &'a RunRow,
}

impl InspectedRun<'_> {
    fn follow_request(&self) -> FollowRequest<'_> {
        FollowRequest {
            run: &self.row.run,
            plan: self.plan.clone(),
            store: &*self.state.store,
            workspace: &self.workspace,
            warnings: &self.warnings,
            kept: &self.kept,
            before: 0,
            waits: true,
            quiet: false,
            had: matches!(self.row.owner, RunOwner::Other(_)),
            ask: None,
        }
    }
}

fn show_run(run: &str, with_logs: bool, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let (state, row) = StateHandle::open_run_or_newest(given, Some(run))?;
    refuse_shortened(&row)?;
    let watched = inspect_run(&state, &row)?;
    if output.is_json() {
        let (plan, replayed) = state.load_run(&row)?;
        let mut object = run_to_json(&plan, &replayed, &watched.warnings);
        object["run_id"] = json!(row.run);
        let logs = read_attempts(&state, &row, &plan)?;
        object["attempts"] = logs.all.iter().map(AttemptLogReader::to_json).collect();
        if let Some(why) = explain_queued(&state, &row, &plan) {
            object["queued_because"] = json!(why);
        }
        if with_logs {
            object["logs"] = object["attempts"].clone();
        }
        output.print_json(&object);
        return Ok(Exit::Done);
    }
    let whole = RunLoader::new(&*state.store).load_run(&row);
    let (last, summary) = watch::summarize_run(watched.follow_request(), output);
    let view = view::view_run(&watched.plan, &last);
    let width = view.steps.iter().map(|step| step.path.chars().count()).max().unwrap_or_default();
    let logs = read_attempts(&state, &row, &watched.plan)?;
    let of = |step: &StepView| {
        let own = logs.all.iter().filter(|log| log.attempt.at == step.at && log.has_agent());
        own.map(|log| format!("{:24}{}\n", "", output.paint.faint(&one_line(&log.title()))))
            .collect::<String>()
    };
    let steps = view.steps.iter().map(|step| render_step(step, width.min(60), output) + &of(step));
    let steps: String = steps.collect();
    let aside = row.quarantined.as_ref();
    let aside = aside.map_or(String::new(), |why| format!("Set aside: {}\n", one_line(why)));
    let queued = explain_queued(&state, &row, &watched.plan);
    let queued = queued.map_or(String::new(), |why| format!("Queued: {}\n", one_line(&why)));
    output.print_text(&format!("{steps}{summary}{queued}{aside}"));
    if with_logs {
        output.print_text("\n");
        logs::show_all_logs(&state, &row, &watched.plan, output)?;
    }
    // A damaged journal is shown as far as it can be read, and then reported.
    whole.map_err(|error| refuse_store_error(&error))?;
    Ok(Exit::Done)
}

/// Reads the attempts of a run, and their agents.
fn read_attempts<'a>(state: &StateHandle, row: &RunRow, plan: &Plan) -> Result<AttemptLogs<'a>, AppError> {
    let every = AttemptSelector { step: None, number: None };
    let mut logs = AttemptLogs::new(plan, state.run_folder(&row.run), every, LogFile::Output);
    logs.read_journal(&*state.store, &row.run).map_err(|error| refuse_store_error(&error))?;
    Ok(logs)
}

/// Returns the reason why a queued run does not start.
fn explain_queued(state: &StateHandle, row: &RunRow, plan: &Plan) -> Option<String> {
    (row.head.status == RunStatus::Queued).then(|| context::explain_queued(state, row, plan)).flatten()
}

fn render_step(step: &StepView, width: usize, output: CliOutput) -> String {
    let word = paint_step_status(step, STATUS_WIDTH, output.paint);
    let length = step.duration_ms.map_or(String::new(), |ms| format_duration(Millis(ms)));
    let path = output.paint.name(&format!("{:width$}", one_line(&step.path)));
    let tries = if step.reused {
        "reused".to_owned()
    } else if step.total_attempts > 1 {
        format!("{} attempts", step.total_attempts)
    } else {
        String::new()
    };
    let mut text = format!("{}\n", format!("{word}  {length:>9}  {path}  {tries}").trim_end());
    for proof in &step.evidence {
        let word = if proof.holds { "proven that" } else { "not proven that" };
        text += &format!("{:24}{word} {}\n", "", one_line(&proof.what));
    }
    text
}

fn follow_one(run: &str, given: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let (state, row) = StateHandle::open_run_or_newest(given, Some(run))?;
    let watched = inspect_run(&state, &row)?;
    let told = follow_run::follow_journal(&state, &row.run, output).map_err(|error| {
        AppError::new(AppErrorKind::Bug, &format!("cannot watch for changes: {error}"), None)
    })?;
    match watch::watch_run(watched.follow_request(), &told, &|| None, output).over {
        FollowEnd::Broken(why) => Err(AppError::new(AppErrorKind::Store, &why, None)),
        _ => Ok(Exit::Done),
    }
}
