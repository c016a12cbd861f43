//! `skein run`: does the work of a workflow, shows it, and loses nothing.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde_json::Value;
use skein_core::{
    engine::Start,
    limits,
    plan::{Plan, Severity},
};
use skein_dialects::{Diagnostic, render};
use skein_host::{
    clock::Clock,
    crew::About,
    host::{Begin, new_id},
    identity::current_user,
    store::Store,
};

use super::{
    detach,
    load::Loaded,
    plan,
    resume::{Going, Stay, go_on, take_up},
};
use crate::{
    bindings,
    context::{self, ContextTaken},
    exit::Exit,
    inbox, missing_env, orphans,
    output::Output,
    own::{self, Own},
    project::OnDisk,
    scratch,
    settle::{self, Unsettled, Wishes},
    state::{State, failed},
    taped,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    #[command(flatten)]
    what: plan::Arguments,
    /// The folder to work in; the project unless told otherwise.
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// A folder beyond the project in which steps may work.
    #[arg(long = "allow-root", value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// The context folder of this run, in the workspace, in place of the one that the workflow names.
    #[arg(long, value_name = "DIR")]
    context: Option<PathBuf>,
    /// Record what the workers do in this folder, to be replayed.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Do again what is recorded in this folder, without starting anything.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["record", "detach"])]
    replay: Option<PathBuf>,
    #[command(flatten)]
    how: How,
}

/// How long a run that is begun is stayed with.
#[derive(Debug, Default, Args)]
#[group(skip)]
pub struct How {
    /// Leave the run when it waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
    /// Leave the run to a process in the background.
    #[arg(long, conflicts_with = "no_wait")]
    detach: bool,
    /// Whether nothing is printed that programs would read.
    #[arg(skip)]
    quiet: bool,
}

impl How {
    /// Stays with it to its end; without a word for programs, where another value is what they read.
    pub fn to_its_end(quiet: bool) -> How {
        How { quiet, ..How::default() }
    }
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    begin(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn begin(arguments: &Arguments, state: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let run = new_id();
    let mut opened = None;
    let files = |project: &OnDisk| {
        let state = opened.insert(State::open(state, &project.root, output)?);
        Ok(Some(scratch::root(state, &run)))
    };
    let (loaded, plan) = plan::bound(&arguments.what, files, output)?;
    let state = opened.map_or_else(|| State::open(state, &loaded.project.root, output), Ok)?;
    let about = settled(arguments, &loaded, &plan, &state, output)?;
    for missing in missing_env::find(&plan.definition, &loaded.project.config, &missing_env::is_set_here) {
        output.warn(&missing.message());
    }
    let context = bindings::context(&plan, &loaded.project);
    let begin = Begin::new(plan, Start { context, ..Start::new(run) }, about.value());
    let workers = loaded.project.config.max_workers.unwrap_or(limits::WORKERS_DEFAULT);
    start(&state, begin, &about, workers, &arguments.how, output)
}

/// Begins a run, and shows it to its end or leaves it.
pub fn start(
    state: &State,
    begin: Begin,
    about: &About,
    workers: u32,
    how: &How,
    output: Output,
) -> Result<Exit, Exit> {
    let secrets = own::secrets(&about.secrets, output)?;
    orphans::tell(state, output)?;
    scratch::stage(state, &begin, about, output)?;
    if how.detach {
        return detach::begin(state, begin, about, output);
    }
    let (run, plan) = (begin.start.run.clone(), begin.plan.clone());
    let own = Own::new(state, secrets, workers, output)?;
    match context::hold(&own.contexts, state, &run, &plan, about) {
        Ok(()) => {}
        Err(ContextTaken::InUse(_)) => {
            drop(own);
            return start_queued(state, begin, how, output);
        }
        Err(taken @ ContextTaken::Nested(_)) => return Err(taken.refuse(output)),
    }
    own.listen(vec![run.clone()], &about.user, output)?;
    inbox::receive(state, &about.project, output);
    own.host.begin(vec![begin]).map_err(|error| crate::state::failed(&error, output))?;
    let going = Going { run: &run, plan, about, before: 0, waits: !how.no_wait, quiet: how.quiet };
    Ok(go_on(state, &own, going, output))
}

/// Begins a run that cannot start yet, and goes on with it when it can.
fn start_queued(state: &State, begin: Begin, how: &How, output: Output) -> Result<Exit, Exit> {
    let run = begin.start.run.clone();
    detach::begin_queued(state, begin, output)?;
    let row = state.store.run(&run).map_err(|error| failed(&error, output))?;
    let row = row.ok_or_else(|| output.refuse(Exit::Store, &format!("run `{run}` is gone"), None))?;
    let stay = Stay { waits: !how.no_wait, quiet: how.quiet, detached: false };
    take_up(state, &row, &stay, output)
}

fn settled(
    arguments: &Arguments,
    loaded: &Loaded,
    plan: &Plan,
    state: &State,
    output: Output,
) -> Result<About, Exit> {
    let wishes = Wishes {
        source: &arguments.what.workflow,
        workspace: arguments.workspace.as_deref(),
        allowed: &arguments.allow_root,
        state: &state.path,
        overridden: &loaded.report.overridden,
        user: current_user(),
        replay: arguments.replay.as_deref().map(|path| taped::open(path, output)).transpose()?,
    };
    let settled = settle::settle(plan, &loaded.project, wishes);
    let mut about = settled.map_err(|no| refuse(&no, state, output))?;
    about.context =
        arguments.context.as_deref().map(|folder| context_folder(folder, plan, output)).transpose()?;
    about.warnings = warn(&loaded.report.diagnostics, output);
    // What was recorded before goes only when all else is there.
    about.record = arguments.record.as_deref().map(|path| taped::create(path, plan, output)).transpose()?;
    Ok(about)
}

/// The context folder that was asked for, as a path within the workspace.
fn context_folder(folder: &Path, plan: &Plan, output: Output) -> Result<String, Exit> {
    let refuse = |message: &str| Err(output.refuse(Exit::Usage, message, None));
    if plan.definition.root().workflow.context.directory.is_none() {
        return refuse("`--context` is for workflows of AgentCore; no other format has a context folder");
    }
    let is_below = folder.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let is_named = folder.components().any(|part| matches!(part, Component::Normal(_)));
    match folder.to_str().filter(|_| is_below && is_named) {
        Some(folder) => Ok(folder.to_owned()),
        None => refuse(
            "`--context` is a folder of the workspace, as a path from there and not the workspace itself",
        ),
    }
}

/// Prints the warnings about a workflow that is about to run, and returns them for the run's JSON object.
fn warn(diagnostics: &[Diagnostic], output: Output) -> Vec<Value> {
    let warnings = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning);
    if !output.is_json() {
        output.diagnostics(warnings.clone());
    }
    warnings.map(render::object).collect()
}

/// Says why a run does not begin, and notes who asked for a secret that is for others.
pub fn refuse(no: &Unsettled, state: &State, output: Output) -> Exit {
    let (user, now) = (current_user(), Clock::default().now());
    let entries: Vec<_> = no.refused.iter().map(|refused| refused.entry(&user, now)).collect();
    match state.store.note(&entries) {
        Err(error) => failed(&error, output),
        Ok(()) => output.refuse(Exit::Refused, &no.problems.join("\n       "), None),
    }
}
