//! `skein fork --reload`: a fork with the workflow and the configuration as they are now.
//!
//! Owns reading both again and telling what is reused and what runs. Which results stand is the core's to choose.

use std::path::PathBuf;

use serde_json::{Value, json};
use skein_core::{
    engine::{Again, Fork},
    plan::{Plan, Problem, ProblemCode},
};
use skein_host::{
    crew::About,
    host::{ReloadFork, parameters as given_to},
    identity::current_user,
    store::RunRow,
    workspace::{ROOT_PARAMETER, has_files, with_root},
};

use super::{
    load::{Loaded, invalid, load},
    plan::misgiven,
    run::refuse,
};
use crate::{
    exit::Exit,
    live::one_line,
    output::Output,
    parameters, say,
    settle::{Wishes, settle},
    state::{State, failed},
};

/// The arguments of a reload.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Use the workflow and skein.toml as they are now, and reuse the results of steps that did not change.
    #[arg(long)]
    pub reload: bool,
    /// The file of the workflow, where it is not the one that the run was begun with.
    #[arg(long, value_name = "FILE", requires = "reload")]
    workflow: Option<String>,
    /// A parameter that has another value than in the run.
    #[arg(long = "param", value_name = "NAME=VALUE", requires = "reload")]
    parameters: Vec<String>,
    /// Only show what would be reused and what would run.
    #[arg(long, requires = "reload")]
    pub plan: bool,
}

/// A run beside the workflow as it is now.
pub struct ReloadPreview<'a> {
    pub about: About,
    pub plan: Plan,
    pub fork: ReloadFork<'a>,
}

/// Reads the workflow and the configuration of a run again, and compares.
pub fn reload<'a>(
    state: &State,
    row: &'a RunRow,
    from: Option<&str>,
    arguments: &Arguments,
    output: Output,
) -> Result<ReloadPreview<'a>, Exit> {
    let before = say::about(row, output)?;
    let source = source(&before, arguments);
    let loaded = load(&source, output)?;
    let plan = bind(state, row, &loaded, arguments, output)?;
    let allowed = allowed_roots(&before);
    let wishes = Wishes {
        source: &source,
        workspace: Some(&before.workspace),
        allowed: &allowed,
        state: &state.path,
        overridden: &loaded.report.overridden,
        user: current_user(),
        replay: None,
    };
    let about = settle(&plan, &loaded.project, wishes).map_err(|no| refuse(&no, state, output))?;
    let fork = ReloadFork::new(&*state.store, row, plan.clone(), (&before, &about), from);
    let fork = fork.map_err(|error| super::fork::refused(row, &error, output))?;
    Ok(ReloadPreview { about, plan, fork })
}

/// The file that was named, or else the one that the run was begun with, wherever this is called.
fn source(before: &About, arguments: &Arguments) -> String {
    let own = before.project.join(&before.source);
    match &arguments.workflow {
        Some(file) => file.clone(),
        None if own.exists() => own.display().to_string(),
        None => before.source.clone(),
    }
}

/// Folders that were allowed on the command line when the run was begun.
fn allowed_roots(before: &About) -> Vec<PathBuf> {
    let named = before.overrides.iter().filter(|one| one.name == "allow-root");
    let paths = named.filter_map(|one| one.used.as_array()).flatten();
    paths.filter_map(Value::as_str).map(PathBuf::from).collect()
}

/// The workflow with the parameters of the run. Those that it does not have any more are left out.
fn bind(
    state: &State,
    row: &RunRow,
    loaded: &Loaded,
    arguments: &Arguments,
    output: Output,
) -> Result<Plan, Exit> {
    let Some(definition) = &loaded.report.definition else {
        return Err(invalid(&loaded.report.diagnostics, output));
    };
    let schema = &definition.root().workflow.inputs;
    let changed = parameters::read(&arguments.parameters, None, schema)
        .map_err(|why| output.refuse(Exit::Usage, &why, None))?;
    let mut given = given_to(&*state.store, row).map_err(|error| failed(&error, output))?;
    if has_files(&definition.root().workflow) && given.get(ROOT_PARAMETER).is_none() {
        given = (*with_root(&given, &state.kept(&row.run))).clone();
    }
    if let Err(problems) = definition.bind(given.clone())
        && let Some(given) = given.as_object_mut()
    {
        problems.iter().filter_map(unknown).for_each(|name| drop(given.remove(name)));
    }
    if let (Some(given), Value::Object(changed)) = (given.as_object_mut(), changed) {
        given.extend(changed);
    }
    definition.bind(given.clone()).map_err(|problems| misgiven(&problems, &given, schema, output))
}

/// The parameter that a workflow does not have.
fn unknown(problem: &Problem) -> Option<&str> {
    let field = problem.at.field.strip_prefix("parameters.");
    field.filter(|_| problem.code == ProblemCode::UnknownParameter)
}

impl ReloadPreview<'_> {
    /// Returns the reused steps and those that run, as JSON.
    pub fn object(&self, row: &RunRow) -> Value {
        let Fork { steps, again, removed, .. } = &self.fork.fork;
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

    /// The same for people.
    pub fn text(&self, row: &RunRow, output: Output) -> String {
        let hash: String = self.plan.hash.to_string().chars().take(12).collect();
        let mut text = format!("Run {} with {} as it is now, plan {hash}\n", row.run, self.about.source);
        let mut line = |word: &str, step: &str, why: &str| {
            let word = output.paint.title(&format!("{word:8}"));
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            text += &format!("{word}  {}\n", one_line(&format!("{step}{why}")));
        };
        let Fork { steps, again, removed, .. } = &self.fork.fork;
        steps.iter().for_each(|step| line("reused", step, ""));
        again.iter().for_each(|(step, why)| line("runs", step, because(*why)));
        removed.iter().for_each(|step| line("removed", step, "the workflow has it no more"));
        text += &format!("The workspace is left as it is: {}\n", self.about.workspace.display());
        text
    }
}

/// The reason to run a step, in words.
pub fn because(why: Again) -> &'static str {
    match why {
        Again::Undone => "it was undone",
        Again::Failed => "the run failed by it",
        Again::Cancelled => "it was cancelled",
        Again::Conflict => "what it could not merge is settled again",
        Again::After => "it comes after one that is done again",
        Again::Changed => "its definition changed",
        Again::Inputs => "its inputs changed",
        Again::Settings => "its agent or tool is set up in another way",
        Again::New => "it is new",
        Again::NotDone => "it had not ended",
        Again::Asked => "it was named",
    }
}
