//! Inspection of runs: their list, one run with its steps and attempts, its journal row by row, and its object for
//! programs.
//!
//! Owns the guarantee that the documented fields of that object are always present and have their type: `outputs` is an
//! object even if there are none. All else is the core's view of the run; fields may be added but are never removed.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use skein_core::{
    engine::{JournalBatch, JournalError, RunState, format_utc},
    ids::RunId,
    ir::RunStatus,
    plan::Plan,
    time::Timestamp,
    view::{self, CostView, RunView},
};
use skein_dialects::DurationUnits;
use skein_host::{
    clock::Clock,
    run_settings::RunSettings,
    store::{RunList, Store},
    workspace::ROOT_PARAMETER,
};

use crate::{
    app::App,
    app_error::AppError,
    prepare::run_folders,
    runs::{
        follow::{self, FileChangeWatcher, FollowEnd, FollowInbox, RunFeed, RunFrontEnd},
        logs::{AttemptLogReader, AttemptLogs, AttemptSelector, LogFile},
    },
    state::{StateHandle, refuse_shortened, shortened_warnings},
};

pub use skein_host::store::{RunHead, RunOwner, RunRow};

/// Selects runs.
#[derive(Debug, Clone)]
pub struct RunFilter {
    /// The maximum number of runs.
    pub limit: u32,
    /// Statuses, ours or those of a format; empty: any status.
    pub status: Vec<String>,
    /// The id of a workflow.
    pub workflow: Option<String>,
    /// A date, a time in UTC, or a duration before now.
    pub since: Option<String>,
}

impl RunFilter {
    /// Returns true if the filter excludes any run.
    pub fn has_conditions(&self) -> bool {
        !self.status.is_empty() || self.workflow.is_some() || self.since.is_some()
    }

    /// `since` is in the format of the times of runs, so that they can be compared as text.
    fn matches_run(&self, head: &RunHead, since: Option<&str>) -> bool {
        let is = |wanted: &String| {
            [head.status.as_str(), &head.native_status].iter().any(|word| word.eq_ignore_ascii_case(wanted))
        };
        (self.status.is_empty() || self.status.iter().any(is))
            && self.workflow.as_ref().is_none_or(|workflow| head.workflow == *workflow)
            && since.is_none_or(|since| head.started_at.is_some_and(|at| *format_utc(at) >= *since))
    }

    fn list_matching(&self, state: &StateHandle) -> Result<RunList, AppError> {
        let since = self.since.as_deref().map(parse_past_time).transpose()?;
        let matches = |head: &RunHead| self.matches_run(head, since.as_deref());
        Ok(state.store.list_runs(self.limit, self.has_conditions().then_some(&matches))?)
    }
}

/// The selected runs, the newest first.
#[derive(Debug, Default)]
pub struct RunListing {
    pub rows: Vec<RunRow>,
    /// The number of runs beyond the limit.
    pub more: u64,
    /// Warnings about runs whose journal lost acknowledged rows.
    pub shortened: Vec<String>,
}

impl RunListing {
    pub fn to_json(&self) -> Value {
        json!({"runs": self.rows.iter().map(row_to_json).collect::<Vec<_>>(), "more": self.more})
    }
}

/// Lists runs.
pub fn list_runs(app: &App, filter: &RunFilter) -> Result<RunListing, AppError> {
    let Some(state) = app.open_existing_state()? else {
        filter.since.as_deref().map(parse_past_time).transpose()?;
        return Ok(RunListing::default());
    };
    let RunList { rows, more } = filter.list_matching(&state)?;
    Ok(RunListing { rows, more, shortened: shortened_warnings(&state)? })
}

/// Passes on the runs that change, the oldest first, until `each` returns false. Returns false at once if there is no
/// state folder.
pub fn follow_runs(app: &App, filter: &RunFilter, each: &mut dyn FnMut(&[RunRow]) -> bool) -> Result<bool, AppError> {
    let Some(state) = app.open_existing_state()? else { return Ok(false) };
    let changes = watch_journal(&state)?;
    let mut seen: BTreeMap<RunId, (RunHead, RunOwner)> = BTreeMap::new();
    loop {
        let mut rows = filter.list_matching(&state)?.rows;
        // The oldest first, so that new runs are at the bottom.
        rows.reverse();
        let known: BTreeMap<RunId, (RunHead, RunOwner)> =
            rows.iter().map(|row| (row.run.clone(), (row.head.clone(), row.owner.clone()))).collect();
        rows.retain(|row| seen.get(&row.run) != known.get(&row.run));
        seen = known;
        if !each(&rows) {
            return Ok(true);
        }
        changes.wait_for_change();
    }
}

pub(crate) fn watch_journal(state: &StateHandle) -> Result<FileChangeWatcher, AppError> {
    FileChangeWatcher::watch_journal(&state.path)
        .map_err(|error| AppError::bug(format!("cannot watch for changes: {error}")))
}

/// Returns the object of a run in a list.
pub fn row_to_json(row: &RunRow) -> Value {
    let RunHead {
        workflow, version, dialect, status, native_status, started_at, finished_at, forked_from, cost, ..
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
pub fn is_left(row: &RunRow) -> bool {
    !row.head.closed && row.quarantined.is_none() && matches!(row.owner, RunOwner::Nobody | RunOwner::Dead(_))
}

/// A run with its plan, its journal and its attempts.
#[derive(Debug)]
pub struct InspectedRun {
    state: StateHandle,
    pub row: RunRow,
    pub plan: Plan,
    folder: PathBuf,
    workspace: PathBuf,
    warnings: Vec<Value>,
}

/// Opens a run to show it; `-`: the newest.
pub fn inspect_run(app: &App, run: &str) -> Result<InspectedRun, AppError> {
    let (state, row) = app.open_run_or_newest(Some(run))?;
    refuse_shortened(&row)?;
    load_inspected(state, row)
}

fn load_inspected(state: StateHandle, row: RunRow) -> Result<InspectedRun, AppError> {
    // A run whose settings cannot be read is shown without them.
    let settings = RunSettings::from_json(&row.about);
    let (workspace, warnings) = settings.map(|settings| (settings.workspace, settings.warnings)).unwrap_or_default();
    let (plan, folder) = (state.load_plan(&row)?, state.run_folder(&row.run));
    Ok(InspectedRun { state, row, plan, folder, workspace, warnings })
}

impl InspectedRun {
    /// Returns the run as it is followed; without an inbox, it is only summarised.
    fn feed<'a>(&'a self, inbox: Option<&'a FollowInbox>) -> RunFeed<'a> {
        RunFeed {
            run: &self.row.run,
            plan: self.plan.clone(),
            workspace: &self.workspace,
            warnings: &self.warnings,
            folder: self.folder.clone(),
            before: 0,
            waits: true,
            owned_elsewhere: matches!(self.row.owner, RunOwner::Other(_)),
            desk: None,
            store: &*self.state.store,
            inbox,
            recording: &|| None,
        }
    }

    /// Returns the feed of the past events of the run.
    pub fn past_feed(&self) -> RunFeed<'_> {
        self.feed(None)
    }

    /// Fails if the journal of the run is damaged.
    pub fn check_journal(&self) -> Result<(), AppError> {
        self.state.load_run(&self.row).map(drop)
    }

    /// Reads the attempts of the run, and their agents.
    pub fn read_attempts(&self) -> Result<AttemptLogs, AppError> {
        let mut logs = AttemptLogs::new(&self.plan, self.folder.clone(), AttemptSelector::default(), LogFile::Output);
        logs.read_journal(&*self.state.store, &self.row.run)?;
        Ok(logs)
    }

    /// Returns the reason why a queued run does not start.
    pub fn explain_queued(&self) -> Option<String> {
        (self.row.head.status == RunStatus::Queued)
            .then(|| run_folders::explain_queued(&self.state, &self.row, &self.plan))
            .flatten()
    }

    /// Returns the object of the run, with its attempts, and their logs on request.
    pub fn to_json(&self, with_logs: bool) -> Result<Value, AppError> {
        let run = self.state.load_run(&self.row)?;
        let mut object = run_to_json(run.plan(), run.state(), &self.warnings);
        object["run_id"] = json!(self.row.run);
        object["attempts"] = self.read_attempts()?.all.iter().map(AttemptLogReader::to_json).collect();
        if let Some(why) = self.explain_queued() {
            object["queued_because"] = json!(why);
        }
        if with_logs {
            object["logs"] = object["attempts"].clone();
        }
        Ok(object)
    }
}

/// Follows a run that this or another process executes, until it ends; `-`: the newest.
pub fn follow_run(app: &App, run: &str, front_end: &dyn RunFrontEnd) -> Result<(), AppError> {
    let (state, row) = app.open_run_or_newest(Some(run))?;
    let inspected = load_inspected(state, row)?;
    let inbox = follow::follow_journal(app, &inspected.state, &inspected.row.run)
        .map_err(|error| AppError::bug(format!("cannot watch for changes: {error}")))?;
    match front_end.follow(&inspected.feed(Some(&inbox))).end {
        FollowEnd::Broken(why) => Err(AppError::store(why)),
        _ => Ok(()),
    }
}

/// Parses a time and formats it in UTC, so that times can be compared as text.
pub(crate) fn parse_past_time(text: &str) -> Result<String, AppError> {
    if let Ok(ago) = DurationUnits::All.parse(text) {
        let now = Clock::default().now().0;
        return Ok(format_utc(Timestamp(now.saturating_sub(i64::try_from(ago.0).unwrap_or(i64::MAX)))));
    }
    let form = "0000-00-00T00:00:00Z";
    let fits = text.bytes().zip(form.bytes()).all(|(found, wanted)| match wanted {
        b'0' => found.is_ascii_digit(),
        wanted => found == wanted,
    });
    if fits && (text.len() == form.len() || text.len() == 10) {
        return Ok(text.to_owned());
    }
    let hint = "a date such as 2026-11-16, a time such as 2026-11-16T08:00:00Z, or how long ago, such as 24h";
    Err(AppError::usage(format!("`{text}` is not a valid time")).with_hint(hint))
}

/// The journal of a run that is being read.
#[derive(Debug)]
pub struct RunJournal {
    state: StateHandle,
    row: RunRow,
    pub plan: Plan,
}

/// Opens the journal of a run; none or `-`: of the newest.
pub fn open_journal(app: &App, run: Option<&str>) -> Result<RunJournal, AppError> {
    let (state, row) = app.open_run_or_newest(run)?;
    let plan = state.load_plan(&row)?;
    Ok(RunJournal { state, row, plan })
}

impl RunJournal {
    pub fn run(&self) -> &RunId {
        &self.row.run
    }

    /// Passes on the rows one by one, because a journal can be long.
    pub fn read_rows(&self, mut each: impl FnMut(&JournalBatch) -> Result<(), JournalError>) -> Result<(), AppError> {
        let mut broken = None;
        self.state.store.read_journal(&self.row.run, 0, &mut |batch| {
            broken = each(&batch).err();
            broken.is_none()
        })?;
        let refuse = |error| format!("the journal of `{}` cannot be read: {error}", self.row.run);
        broken.map_or(Ok(()), |error: JournalError| Err(AppError::store(refuse(error))))
    }
}

/// Returns the object of a run in its present state, with the warnings about its workflow, if it has any.
pub fn run_to_json(plan: &Plan, state: &RunState, warnings: &[Value]) -> Value {
    let view = view::view_run(plan, state);
    let mut object = view_to_json(&view);
    object["parameters"] = run_parameters(plan);
    let conditions = run_conditions(&view);
    if !conditions.is_empty() {
        object["conditions"] = json!(conditions);
    }
    if !warnings.is_empty() {
        object["diagnostics"] = Value::from(warnings);
    }
    object
}

fn view_to_json(view: &RunView) -> Value {
    let mut object = serde_json::to_value(view).expect("the keys of a view are texts");
    fill_outputs(&mut object);
    let steps = object.get_mut("steps").and_then(Value::as_array_mut);
    steps.into_iter().flatten().for_each(fill_outputs);
    object
}

/// Returns the parameters of a run, without the folder that the host adds for files.
fn run_parameters(plan: &Plan) -> Value {
    let mut parameters = (*plan.parameters).clone();
    if let Some(object) = parameters.as_object_mut() {
        object.remove(ROOT_PARAMETER);
    }
    parameters
}

/// Replaces missing outputs by an empty object.
fn fill_outputs(object: &mut Value) {
    if let Some(outputs) = object.get_mut("outputs").filter(|outputs| outputs.is_null()) {
        *outputs = json!({});
    }
}

/// A condition, as in the status of a resource.
#[derive(Debug, Serialize)]
pub struct RunCondition {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
    #[serde(rename = "lastTransitionTime")]
    pub last_transition: Option<String>,
}

/// Returns the conditions of a run; none if its workflow is no resource.
pub fn run_conditions(view: &RunView) -> Vec<RunCondition> {
    let (kind, reason) = match view.status {
        _ if !view.workflow.is_resource => return Vec::new(),
        RunStatus::Undone => ("RolledBack", "CompensationCompleted"),
        RunStatus::UndoFailed => ("PartialRollback", "CompensationFailed"),
        _ => return Vec::new(),
    };
    let last_transition = view.finished_at.clone();
    vec![RunCondition { kind, status: "True", reason, message: describe_undo(view), last_transition }]
}

/// Returns a text with the steps that were undone, and those that were not.
fn describe_undo(view: &RunView) -> String {
    let listed = |steps: &[String]| if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
    let undo = view.undo.clone().unwrap_or_default();
    match undo.not_undone.is_empty() {
        true => format!("undone: {}", listed(&undo.undone)),
        false => format!("undone: {}; not undone: {}", listed(&undo.undone), listed(&undo.not_undone)),
    }
}
