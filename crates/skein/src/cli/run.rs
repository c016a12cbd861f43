//! `skein run`: does the work of a workflow, shows it, and loses nothing.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use clap::Args;
use serde_json::Value;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use skein_core::{
    engine::{Input, Start},
    ids::RunId,
    limits,
    plan::Plan,
};
use skein_host::{
    crew::{About, Crew},
    host::{Begin, Capacity, Host, new_id},
    secret::Secrets,
    store::Store,
};

use super::{load::Loaded, plan};
use crate::{
    exit::Exit,
    output::Output,
    person,
    settle::{self, Wishes},
    state::State,
    watch::{self, Desk, Follow, Note, Over},
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
    /// Leave the run when it waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    begin(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn begin(arguments: &Arguments, state: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (loaded, plan) = plan::bound(&arguments.what, output)?;
    let state = State::open(state, &loaded.project.root, output)?;
    let about = settled(arguments, &loaded, &plan, &state, output)?;
    let secrets = Secrets::load(&about.secrets).map_err(|errors| {
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        output.refuse(Exit::Refused, &told.join("; "), None)
    })?;
    let run = new_id();
    let desk = Desk::default();
    let crew = Crew::new(&state.path, secrets, Some(desk.lines()))
        .map_err(|error| output.refuse(Exit::Store, &error.to_string(), None))?;
    let workers = loaded.project.config.max_workers.unwrap_or(limits::WORKERS_DEFAULT);
    let store: Arc<dyn Store> = state.store.clone();
    let host = Arc::new(Host::new(store, Box::new(crew), Capacity { workers }, desk.watcher()));
    let notes = desk.open(&run);
    let mine = Arc::new(Mutex::new(run.clone()));
    listen(&host, &mine, &about.user, &desk)
        .map_err(|error| output.refuse(Exit::Broken, &format!("signals cannot be heard: {error}"), None))?;
    let start = Start { run: run.clone(), retry_of: None, attempt: 1, context: Value::Null };
    host.begin(vec![Begin { plan: plan.clone(), start, about: about.value() }])
        .map_err(|error| output.refuse(Exit::Store, &error.to_string(), None))?;
    let (mut run, mut notes) = (run, notes);
    loop {
        let kept = state.path.join("runs").join(run.as_str());
        let waits = !arguments.no_wait;
        let follow = Follow { plan: plan.clone(), workspace: &about.workspace, kept: &kept, waits };
        let last = watch::follow(follow, &notes, output);
        match (last.over, last.next) {
            (Over::Closed, Some(next)) => {
                (run, notes) = next;
                *mine.lock().unwrap_or_else(PoisonError::into_inner) = run.clone();
            }
            (over, _) => {
                if over == Over::Waits {
                    host.leave(&run);
                }
                return Ok(watch::exit(&last.state, &over, output));
            }
        }
    }
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
        user: person::name(),
    };
    settle::settle(plan, &loaded.project, wishes)
        .map_err(|problems| output.refuse(Exit::Refused, &problems.join("\n       "), None))
}

/// Once asks the run to stop; twice leaves it as it is.
fn listen(host: &Arc<Host>, run: &Arc<Mutex<RunId>>, user: &str, desk: &Desk) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (host, run, user, desk) = (Arc::downgrade(host), Arc::clone(run), user.to_owned(), desk.clone());
    let heard = move || {
        for (n, _) in signals.forever().enumerate() {
            let Some(host) = host.upgrade() else { return };
            let run = run.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if n == 0 {
                let reason = Some("stopped at the terminal".to_owned());
                let _ = host.say(&run, Input::Cancel { by: user.clone(), reason });
                continue;
            }
            host.leave(&run);
            desk.tell(&run, Note::Over(Over::Left));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(heard).map(drop)
}
