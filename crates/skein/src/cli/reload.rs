//! `skein fork --reload`: a fork with the present workflow and configuration.
//!
//! Owns reading both again and describing the reused steps and those that run. The core decides which results are
//! reused.

use std::path::PathBuf;

use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    parameters,
    prepare_run::{RunRequest, prepare_run},
    state::{StateHandle, refuse_store_error},
};
use skein_core::{
    engine::{ForkSeed, RerunReason},
    plan::{Plan, PlanProblem, ProblemCode},
};
use skein_host::{
    executor::RunSettings,
    host::{ReloadFork, read_run_parameters as given_to},
    identity::current_user,
    store::RunRow,
    workspace::{ROOT_PARAMETER, has_files, with_root_parameter},
};

use super::{
    load::{LoadedWorkflow, load_workflow},
    plan::refuse_parameters,
    run::refuse_unprepared,
};
use crate::{live::one_line, output::CliOutput, send_input};

/// The arguments of a reload.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub struct ReloadArguments {
    /// Use the present workflow and skein.toml, and reuse the results of unchanged steps.
    #[arg(long)]
    pub reload: bool,
    /// Workflow file, if it is not the one of the run.
    #[arg(long, value_name = "FILE", requires = "reload")]
    workflow: Option<String>,
    /// Parameter with another value than in the run.
    #[arg(long = "param", value_name = "NAME=VALUE", requires = "reload")]
    parameters: Vec<String>,
    /// Only show which steps would be reused and which would run.
    #[arg(long, requires = "reload")]
    pub plan: bool,
}

/// A comparison of a run with the present workflow.
pub struct ReloadPreview<'a> {
    pub about: RunSettings,
    pub plan: Plan,
    pub fork: ReloadFork<'a>,
}

/// Reads the workflow and the configuration of a run again, and compares.
pub fn preview_reload<'a>(
    state: &StateHandle,
    row: &'a RunRow,
    from: Option<&str>,
    arguments: &ReloadArguments,
    output: CliOutput,
) -> Result<ReloadPreview<'a>, AppError> {
    let before = send_input::read_run_settings(row)?;
    let source = find_source(&before, arguments);
    let loaded = load_workflow(&source, output)?;
    let plan = bind_reloaded(state, row, &loaded, arguments)?;
    let allowed = find_allowed_roots(&before);
    let wishes = RunRequest {
        source: &source,
        workspace: Some(&before.workspace),
        allowed: &allowed,
        state: &state.path,
        overridden: &loaded.report.overridden,
        user: current_user(),
        replay: None,
    };
    let about = prepare_run(&plan, &loaded.project, wishes).map_err(|no| refuse_unprepared(&no, state))?;
    let fork = ReloadFork::new(&*state.store, row, plan.clone(), (&before, &about), from);
    let fork = fork.map_err(|error| super::fork::refuse_fork(row, &error))?;
    Ok(ReloadPreview { about, plan, fork })
}

/// Returns the file that was named, or else the one of the run, independent of the current folder.
fn find_source(before: &RunSettings, arguments: &ReloadArguments) -> String {
    let own = before.project.join(&before.source);
    match &arguments.workflow {
        Some(file) => file.clone(),
        None if own.exists() => own.display().to_string(),
        None => before.source.clone(),
    }
}

/// Returns the folders that were allowed on the command line when the run was started.
fn find_allowed_roots(before: &RunSettings) -> Vec<PathBuf> {
    let named = before.overrides.iter().filter(|one| one.name == "allow-root");
    let paths = named.filter_map(|one| one.used.as_array()).flatten();
    paths.filter_map(Value::as_str).map(PathBuf::from).collect()
}

/// Binds the parameters of the run to the workflow. Parameters that it no longer declares are left out.
fn bind_reloaded(
    state: &StateHandle,
    row: &RunRow,
    loaded: &LoadedWorkflow,
    arguments: &ReloadArguments,
) -> Result<Plan, AppError> {
    let Some(definition) = &loaded.report.definition else {
        return Err(AppError::invalid_source(loaded.report.diagnostics.clone()));
    };
    let schema = &definition.root().workflow.inputs;
    let changed = parameters::read_parameters(&arguments.parameters, None, schema)
        .map_err(|why| AppError::new(AppErrorKind::Usage, &why, None))?;
    let mut given = given_to(&*state.store, row).map_err(|error| refuse_store_error(&error))?;
    if has_files(&definition.root().workflow) && given.get(ROOT_PARAMETER).is_none() {
        given = (*with_root_parameter(&given, &state.run_folder(&row.run))).clone();
    }
    if let Err(problems) = definition.bind(given.clone())
        && let Some(given) = given.as_object_mut()
    {
        problems.iter().filter_map(unknown_parameter).for_each(|name| drop(given.remove(name)));
    }
    if let (Some(given), Value::Object(changed)) = (given.as_object_mut(), changed) {
        given.extend(changed);
    }
    definition.bind(given.clone()).map_err(|problems| refuse_parameters(&problems, &given, schema))
}

/// Returns the parameter that a workflow does not declare.
fn unknown_parameter(problem: &PlanProblem) -> Option<&str> {
    let field = problem.at.field.strip_prefix("parameters.");
    field.filter(|_| problem.code == ProblemCode::UnknownParameter)
}

impl ReloadPreview<'_> {
    /// Returns the reused steps and those that run, as JSON.
    pub fn to_json(&self, row: &RunRow) -> Value {
        let ForkSeed { steps, again, removed, .. } = &self.fork.fork;
        let runs: Vec<Value> =
            again.iter().map(|(step, why)| json!({"step": step, "because": why})).collect();
        let root = &self.plan.definition.root().workflow;
        json!({
            "forked_from": row.run,
            "workflow": {"id": root.id, "version": root.version, "hash": self.plan.hash},
            "reused": steps,
            "runs": runs,
            "removed": removed,
            "workspace": self.about.workspace,
        })
    }

    /// Returns the same for people.
    pub fn render_text(&self, row: &RunRow, output: CliOutput) -> String {
        let hash: String = self.plan.hash.to_string().chars().take(12).collect();
        let mut text = format!("Run {} with {} as it is now, plan {hash}\n", row.run, self.about.source);
        let mut line = |word: &str, step: &str, why: &str| {
            let word = output.paint.title(&format!("{word:8}"));
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            text += &format!("{word}  {}\n", one_line(&format!("{step}{why}")));
        };
        let ForkSeed { steps, again, removed, .. } = &self.fork.fork;
        steps.iter().for_each(|step| line("reused", step, ""));
        again.iter().for_each(|(step, why)| line("runs", step, describe_reason(*why)));
        removed.iter().for_each(|step| line("removed", step, "it is no longer in the workflow"));
        text += &format!("The workspace is left as it is: {}\n", self.about.workspace.display());
        text
    }
}

/// Returns the reason to run a step, as text.
pub fn describe_reason(why: RerunReason) -> &'static str {
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
