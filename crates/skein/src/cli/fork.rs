//! `skein fork`: a new run that goes on from a step, or with the workflow as it is now, with results of one that is over.

use std::path::Path;

use clap::Args;
use skein_core::{
    closest::did_you_mean,
    engine::{Fork, NoFork},
    ids::RunId,
};
use skein_host::{
    clock::Clock,
    host::{Begin, ForkError, fork as prepare, new_id},
    identity::current_user,
    store::{DeadId, How, RunRow, Settled, Store, StoreError, WhichDead},
    workspace::{Root, RunDir},
};

use super::{
    reload,
    run::{How as Stay, start},
};
use crate::{
    exit::Exit,
    live::{one_line, outermost},
    output::{Format, Output},
    own, say, scratch,
    state::{State, failed},
};

/// So many steps are named.
const NAMED: usize = 10;

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins.
    run: String,
    /// The first step that is done again, with all that comes after it.
    #[arg(long, value_name = "STEP", required_unless_present = "reload")]
    from: Option<String>,
    #[command(flatten)]
    reload: reload::Arguments,
    #[command(flatten)]
    how: Stay,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    let forked =
        State::with_run(state, &arguments.run, output).and_then(|(state, row)| match &arguments.from {
            Some(from) if !arguments.reload.reload => fork(&state, &row, from, &arguments.how, output),
            from => fork_anew(&state, &row, from.as_deref(), arguments, output),
        });
    forked.unwrap_or_else(|exit| exit)
}

/// Forks a run with the workflow and the configuration as they are now.
fn fork_anew(
    state: &State,
    row: &RunRow,
    from: Option<&str>,
    arguments: &Arguments,
    output: Output,
) -> Result<Exit, Exit> {
    say::outside(state, &row.run, "fork the run", output)?;
    check(row, output)?;
    let reloaded = reload::reload(state, row, from, &arguments.reload, output)?;
    if arguments.reload.plan {
        match output.is_json() {
            true => output.json(&reloaded.object(row)),
            false => output.text(&reloaded.text(row, output)),
        }
        return Ok(Exit::Done);
    }
    let run = new_id();
    let begin = reloaded.fork.begin(&state.path, run.clone());
    let Some(begin) = begin.map_err(|error| refused(row, &error, output))? else {
        return Err(unchanged(row, output));
    };
    let settles = again(state, row, &reloaded.fork.fork, &run).map_err(|error| failed(&error, output))?;
    let plan = scratch::found(&begin.plan, state, &run);
    let begin = Begin { settles, about: reloaded.about.value(), plan, ..begin };
    if output.format == Format::Human {
        output.text(&reloaded.text(row, output));
    }
    let about = &reloaded.about;
    let ended = start(state, begin, about, own::workers(&about.project), &arguments.how, output);
    if ended.is_err() {
        clear(state, &run);
    }
    ended
}

fn unchanged(row: &RunRow, output: Output) -> Exit {
    let run = &row.run;
    let message = format!("nothing to do: no step changed since run `{run}`, and all of its results stand");
    let hint = format!("`skein fork {run} --reload --from STEP` does a step again");
    output.refuse(Exit::Refused, &message, Some(&hint))
}

/// Forks a run from a step.
pub fn fork(state: &State, row: &RunRow, from: &str, how: &Stay, output: Output) -> Result<Exit, Exit> {
    // What people decided at gates is taken over, which is for people to do.
    say::outside(state, &row.run, "fork the run", output)?;
    check(row, output)?;
    let mut about = say::about(row, output)?;
    about.user = current_user();
    // What is recorded is another run.
    about.record = None;
    let run = new_id();
    let (begin, fork) = prepare(&*state.store, &state.path, row, from, run.clone())
        .map_err(|error| refused(row, &error, output))?;
    let settles = again(state, row, &fork, &run).map_err(|error| failed(&error, output))?;
    let plan = scratch::found(&begin.plan, state, &run);
    let begin = Begin { settles, about: about.value(), plan, ..begin };
    if output.format == Format::Human {
        output.text(&told(row, from, &fork, &about.workspace.display().to_string()));
    }
    let ended = start(state, begin, &about, own::workers(&about.project), how, output);
    if ended.is_err() {
        clear(state, &run);
    }
    ended
}

/// The dead letters of a run that a fork of it sees to: those of steps that are done again.
fn again(state: &State, row: &RunRow, fork: &Fork, by: &RunId) -> Result<Vec<(DeadId, Settled)>, StoreError> {
    let letters = state.store.dead(&WhichDead::Of(row.run.clone()))?;
    let open = letters.iter().filter(|dead| {
        dead.settled.is_none() && !fork.steps.iter().any(|step| step == outermost(&dead.row.step))
    });
    Ok(open.map(|dead| (dead.id(), settled(How::Rerun(by.clone())))).collect())
}

/// What someone at this terminal did about a dead letter, now.
pub fn settled(how: How) -> Settled {
    Settled { how, by: Some(current_user()), at: Some(Clock::new().now()) }
}

/// The folder of a run that never came to be goes.
fn clear(state: &State, run: &RunId) {
    if let (Ok(None), Ok(root)) = (state.store.run(run), Root::open(&state.path)) {
        // Nobody looks for what is left of it.
        let _ = RunDir::remove(&root, run);
    }
}

/// Says no to a run that goes on: two would work in one workspace.
fn check(row: &RunRow, output: Output) -> Result<(), Exit> {
    let run = &row.run;
    crate::state::refuse_shortened(row, output)?;
    if let Some(why) = &row.quarantined {
        let message = format!("run `{run}` was set aside: {why}");
        return Err(output.refuse(
            Exit::Refused,
            &message,
            Some(&format!("`skein events {run}` tells what happened")),
        ));
    }
    if !row.head.closed {
        return Err(not_over(row, output));
    }
    Ok(())
}

fn not_over(row: &RunRow, output: Output) -> Exit {
    let run = &row.run;
    let message = format!("run `{run}` is not over, and a fork would work in the same workspace");
    let hint = format!("`skein resume {run}` brings it to its end, `skein cancel {run}` ends it");
    output.refuse(Exit::Refused, &message, Some(&hint))
}

pub fn refused(row: &RunRow, error: &ForkError, output: Output) -> Exit {
    let run = &row.run;
    let (message, hint) = match error {
        ForkError::NoFork(NoFork::NotOver) => return not_over(row, output),
        ForkError::NoFork(NoFork::Unknown { step, known }) => {
            let hint = did_you_mean(step, known.iter().map(String::as_str));
            let steps = format!("it can be forked from {}", listed(known));
            (format!("run `{run}` has no step `{step}`"), Some(hint.unwrap_or(steps)))
        }
        ForkError::NoFork(inside @ NoFork::Inside { outer, .. }) => (
            inside.to_string(),
            Some(format!("`skein fork {run} --from {outer}` does all of `{outer}` again")),
        ),
        ForkError::NoFork(NoFork::Never { step }) => {
            let message = format!("run `{run}` never came to `{step}`, so nothing comes before it");
            (message, Some(format!("`skein runs {run}` shows where it went")))
        }
        ForkError::Store(error) => return failed(error, output),
        ForkError::Artifacts(_) | ForkError::Gone { .. } => (
            error.to_string(),
            Some(format!(
                "fork from an earlier step, or see `{}`",
                RunDir::place(Path::new("runs"), run).display()
            )),
        ),
    };
    output.refuse(Exit::Refused, &message, hint.as_deref())
}

/// What is reused, what is not, and what nobody turns back.
fn told(row: &RunRow, from: &str, fork: &Fork, workspace: &str) -> String {
    let mut text = match &fork.steps[..] {
        [] => format!("Nothing of run {} comes before {from}: all is done again.\n", row.run),
        steps => format!("Reused of run {}: {}.\n", row.run, listed(steps)),
    };
    for (step, why) in fork.again.iter().take(NAMED) {
        text += &format!("Done again: {step}, because {}.\n", reload::because(*why));
    }
    if fork.again.len() > NAMED {
        text += &format!("Done again: {} more.\n", fork.again.len() - NAMED);
    }
    text += &format!("The workspace is left as it is: {workspace}\n");
    one_line_each(&text)
}

fn one_line_each(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", one_line(line))).collect()
}

fn listed(steps: &[String]) -> String {
    let more = if steps.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", steps.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "))
}
