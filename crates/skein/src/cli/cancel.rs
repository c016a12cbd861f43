//! `skein cancel`: ends a run early, and undoes what its workflow says is to be undone then.

use std::path::Path;

use clap::Args;
use skein_core::{engine::Input, ids::RunId, ir::RunStatus};
use skein_host::{
    identity::current_user,
    secret::Secrets,
    store::{RunRow, Sqlite, Store},
};

use super::decide::said;
use crate::{
    exit::Exit,
    output::Output,
    own::{self, Own},
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
    let opened = State::with_run(given, &arguments.run, output);
    let (state, row) = opened.inspect_err(|exit| stop_unopened(*exit, arguments, given, output))?;
    crate::state::refuse_shortened(&row, output)?;
    say::outside(&state, &row.run, "cancel the run", output)?;
    let input = Input::Cancel { by: current_user(), reason: arguments.reason.clone() };
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

/// Stops the workers of a run whose state folder cannot be opened, such as on a disk without any space.
fn stop_unopened(exit: Exit, arguments: &Arguments, given: Option<&Path>, output: Output) {
    if exit != Exit::Store {
        return;
    }
    if let Ok(run) = RunId::new(&arguments.run)
        && Sqlite::ask_all_to_leave(&State::place(given), &run) > 0
    {
        output.warn(&format!("whoever has run `{run}` was told to stop its workers and to leave it"));
    }
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
    let (plan, _) = state.recall(row, output)?;
    let own = Own::new(state, secrets, own::workers(&about.project), output)?;
    own.listen(vec![row.run.clone()], &current_user(), output)?;
    let before = own.resume(&row.run, output)?;
    let kept = state.kept(&row.run);
    let (store, workspace) = (&*state.store as &dyn Store, about.workspace.as_path());
    // One object is printed at the end, and it is not the run's.
    let quiet = output.is_json();
    let (waits, had, ask, warnings) = (false, false, None, &about.warnings[..]);
    let follow = Follow {
        run: &row.run,
        plan,
        store,
        workspace,
        warnings,
        kept: &kept,
        before,
        waits,
        quiet,
        had,
        ask,
    };
    let last = watch::follow(follow, &own.told, &|| None, output);
    if last.over == Over::Waits {
        own.host.leave(std::slice::from_ref(&row.run));
    }
    Ok(match (last.over, last.state.status()) {
        (Over::Closed, RunStatus::Cancelled | RunStatus::Undone) => Exit::Done,
        (over, _) => watch::exit(&last.state, &over, own.is_stopped(), output),
    })
}
