//! `skein run`: does the work of a workflow, shows it, and loses nothing.

use std::path::{Path, PathBuf};

use clap::Args;
use skein_core::{engine::Start, limits, plan::Plan};
use skein_host::{
    clock::Clock,
    crew::About,
    host::{Begin, new_id},
    store::Store,
};

use super::{
    detach,
    load::Loaded,
    plan,
    resume::{Going, go_on},
};
use crate::{
    context,
    exit::Exit,
    orphans,
    output::Output,
    own::{self, Own},
    person,
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
    let begin = Begin::new(plan, Start::new(run), about.value());
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
    context::hold_or_refuse(&own.contexts, state, &run, (&plan, about), output)?;
    own.listen(vec![run.clone()], &about.user, output)?;
    own.host.begin(vec![begin]).map_err(|error| crate::state::failed(&error, output))?;
    let going = Going { run: &run, plan, about, before: 0, waits: !how.no_wait, quiet: how.quiet };
    Ok(go_on(state, &own, going, output))
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
        user: person::name(),
        replay: arguments.replay.as_deref().map(|path| taped::open(path, output)).transpose()?,
    };
    let settled = settle::settle(plan, &loaded.project, wishes);
    let mut about = settled.map_err(|no| refuse(&no, state, output))?;
    // What was recorded before goes only when all else is there.
    about.record = arguments.record.as_deref().map(|path| taped::create(path, plan, output)).transpose()?;
    Ok(about)
}

/// Says why a run does not begin, and notes who asked for a secret that is for others.
pub fn refuse(no: &Unsettled, state: &State, output: Output) -> Exit {
    let (user, now) = (person::name(), Clock::default().now());
    let entries: Vec<_> = no.refused.iter().map(|refused| refused.entry(&user, now)).collect();
    match state.store.note(&entries) {
        Err(error) => failed(&error, output),
        Ok(()) => output.refuse(Exit::Refused, &no.problems.join("\n       "), None),
    }
}
