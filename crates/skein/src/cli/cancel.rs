//! `skein cancel`: ends a run early, and undoes what its workflow says is to be undone then.

use std::path::Path;

use clap::Args;
use skein_core::{engine::Input, ir::RunStatus};
use skein_host::{
    secret::Secrets,
    store::{RunRow, Store},
};

use super::decide::said;
use crate::{
    exit::Exit,
    output::Output,
    own::{self, Own},
    person,
    say::{self, Taken},
    state::State,
    watch::{self, Follow, Over},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins.
    run: String,
    /// Why, for those who look at the run.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    cancel(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn cancel(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, row) = State::with_run(given, &arguments.run, output)?;
    say::outside(&state, &row.run, "cancel the run", output)?;
    let input = Input::Cancel { by: person::name(), reason: arguments.reason.clone() };
    let taken = say::say(&state, &row.run, &input, output)?;
    let run = &row.run;
    let exit = match taken {
        Taken::ByOwner => {
            tell(&format!("run {run} is told to stop; `skein runs {run} --follow` shows it\n"), output);
            Exit::Done
        }
        Taken::AndEnded => {
            tell(&format!("run {run} is cancelled\n"), output);
            Exit::Done
        }
        Taken::Here => carry_through(&state, &row, output)?,
    };
    if output.is_json() {
        output.json(&said(&state, &row, &Taken::ByOwner));
    }
    Ok(exit)
}

fn tell(text: &str, output: Output) {
    if !output.is_json() {
        output.text(text);
    }
}

/// Nobody has the run, so it is brought to its end here. Nothing goes forward in it any more.
fn carry_through(state: &State, row: &RunRow, output: Output) -> Result<Exit, Exit> {
    let about = say::about(row, output)?;
    // Without its secrets a step that undoes something is held, and says so.
    let secrets = Secrets::load(&about.secrets).unwrap_or_default();
    let (plan, before) = state.recall(row, output)?;
    let before = before.events;
    let own = Own::new(state, secrets, own::workers(&about.project), output)?;
    own.listen(vec![row.run.clone()], &person::name(), output)?;
    own.resume(&row.run, output)?;
    let kept = state.kept(&row.run);
    let (store, workspace) = (&*state.store as &dyn Store, about.workspace.as_path());
    // One object is printed at the end, and it is not the run's.
    let quiet = output.is_json();
    let (waits, had, ask) = (false, false, None);
    let follow =
        Follow { run: &row.run, plan, store, workspace, kept: &kept, before, waits, quiet, had, ask };
    let last = watch::follow(follow, &own.told, &|| None, output);
    if last.over == Over::Waits {
        own.host.leave(std::slice::from_ref(&row.run));
    }
    Ok(match (last.over, last.state.status()) {
        (Over::Closed, RunStatus::Cancelled | RunStatus::Undone) => Exit::Done,
        (over, _) => watch::exit(&last.state, &over, own.is_stopped(), output),
    })
}
