//! `skein resume`: goes on with runs that nobody has, because they were left or because who had them died.

use std::path::Path;

use clap::Args;
use skein_core::{engine::Input, ids::RunId, ir::RunStatus, plan::Plan};
use skein_host::{
    crew::About,
    host::Recall,
    identity::current_user,
    store::{ClaimError, Owner, RunRow, Store, StoreError, Which},
};

use super::{detach, resume_all};
use crate::{
    context::{self, ContextTaken},
    exit::Exit,
    inbox,
    output::Output,
    own::{self, Own},
    result::result,
    say,
    state::{State, failed, refuse_shortened},
    taped::Taped,
    watch::{self, Follow, Over},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins; the only one there is unless told otherwise.
    #[arg(conflicts_with = "all")]
    run: Option<String>,
    /// All runs that were left or whose process died.
    #[arg(long)]
    all: bool,
    /// Leave a run when it waits for a person or a signal.
    #[arg(long)]
    no_wait: bool,
    /// Leave the run to a process in the background.
    #[arg(long, conflicts_with_all = ["all", "no_wait"])]
    detach: bool,
    /// Go on with a run whose journal lost rows that were acknowledged. Steps whose end was in them are done again.
    #[arg(long, requires = "run", conflicts_with = "all")]
    accept_shortened_journal: bool,
    /// This is the process in the background.
    #[arg(long, hide = true)]
    detached: bool,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    resume(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn resume(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    if arguments.all {
        return resume_all::run(given, !arguments.no_wait, output);
    }
    let (state, row) = match &arguments.run {
        Some(run) => State::with_run(given, run, output)?,
        None => only(given, output)?,
    };
    let row = if arguments.accept_shortened_journal { accept_shortened(&state, &row, output)? } else { row };
    check(&row, output)?;
    if arguments.detach {
        return detach::leave(&state, &row.run, &[], output);
    }
    if arguments.detached {
        detach::begin_session();
    }
    let stay = Stay { waits: !arguments.no_wait, quiet: false, detached: arguments.detached };
    take_up(&state, &row, &stay, output)
}

/// Accepts that the journal of a run is shortened, and returns the run as it is from now on.
fn accept_shortened(state: &State, row: &RunRow, output: Output) -> Result<RunRow, Exit> {
    let run = &row.run;
    say::outside(state, run, "accept a shortened journal", output)?;
    let refuse = |message: &str| output.refuse(Exit::Refused, message, None);
    match state.store.accept_shortened(run).map_err(|error| failed(&error, output))? {
        None => Err(refuse(&format!("the journal of run `{run}` is not shortened"))),
        Some(false) => Err(refuse(&format!(
            "nothing is left of run `{run}` to go on with; it is not listed any more, start it again with `skein run`"
        ))),
        Some(true) => {
            let now = state.store.run(run).map_err(|error| failed(&error, output))?;
            now.ok_or_else(|| refuse(&format!("there is no run `{run}`")))
        }
    }
}

/// How a run that is taken up is stayed with.
#[derive(Debug)]
pub struct Stay {
    pub waits: bool,
    /// Whether nothing is printed that programs would read.
    pub quiet: bool,
    /// Whether this is a process in the background.
    pub detached: bool,
}

/// Goes on with a run that nobody has.
pub fn take_up(state: &State, row: &RunRow, stay: &Stay, output: Output) -> Result<Exit, Exit> {
    let about = say::about(row, output)?;
    let secrets = own::secrets(&about.secrets, output)?;
    let known = known(state, row);
    let own = Own::new(state, secrets, own::workers(&about.project), output)?;
    let plan = match known {
        Ok(plan) => plan,
        Err(error) => return Err(unknown(&own, row, &error, output)),
    };
    match context::hold(&own.contexts, state, &row.run, &plan, &about) {
        Ok(()) => {}
        Err(taken @ ContextTaken::InUse(_)) if row.head.status == RunStatus::Queued => {
            context::tell_queued(&row.run, &taken, output);
            if !stay.waits {
                return leave_queued(state, row, &about, stay, output);
            }
            if stay.detached {
                detach::tell_begun();
            }
            context::hold_when_free(&own.contexts, state, &row.run, (&plan, &about), output)?;
        }
        // One that has been at work does not wait in line again.
        Err(taken) => return Err(taken.refuse(output)),
    }
    // Whoever had the folder until now may have had the run, and brought it to its end.
    let now = state.store.run(&row.run).map_err(|error| failed(&error, output))?;
    check(now.as_ref().unwrap_or(row), output)?;
    own.listen(vec![row.run.clone()], &current_user(), output)?;
    inbox::receive(state, &about.project, output);
    if row.head.closed {
        undo_again(state, row, output)?;
    }
    // Another process may have had the run, and left it, since it was read.
    let before = own.resume(&row.run, output)?;
    if stay.detached {
        detach::tell_begun();
    }
    let going = Going { run: &row.run, plan, about: &about, before, waits: stay.waits, quiet: stay.quiet };
    Ok(go_on(state, &own, going, output))
}

/// Leaves a run that waits for its context folder, and shows programs how it is.
fn leave_queued(
    state: &State,
    row: &RunRow,
    about: &About,
    stay: &Stay,
    output: Output,
) -> Result<Exit, Exit> {
    if output.is_json() && !stay.quiet {
        let (plan, replayed) = state.recall(row, output)?;
        output.json(&result(&plan, &replayed, &about.warnings));
    }
    Ok(Exit::Waiting)
}

/// The plan of a run, whose journal can be read.
fn known(state: &State, row: &RunRow) -> Result<Plan, StoreError> {
    Ok(Recall::new(&*state.store).run(row)?.driver.into_parts().0)
}

/// What to say of a journal that cannot be read. One that is damaged is taken all the same: so what the run left running is
/// ended, and it is set aside.
fn unknown(own: &Own, row: &RunRow, error: &StoreError, output: Output) -> Exit {
    let taken = match error {
        StoreError::Damaged(_) => own.resume(&row.run, output).map(drop),
        _ => Ok(()),
    };
    taken.err().unwrap_or_else(|| failed(error, output))
}

/// What could not be undone when the run ended is to be tried again: said to it before it is taken, as it hears nothing
/// once it is over.
fn undo_again(state: &State, row: &RunRow, output: Output) -> Result<(), Exit> {
    let input = Input::RetryUndo { by: current_user() };
    let body = serde_json::to_vec(&input).expect("an input serialises to JSON");
    state.store.send(&row.run, &body).map(drop).map_err(|error| failed(&error, output))
}

/// Runs that can be gone on with.
pub fn left(state: &State, output: Output) -> Result<Vec<RunRow>, Exit> {
    let unfinished = state.store.runs(Which::Unfinished).map_err(|error| failed(&error, output))?;
    let nobodys = |row: &RunRow| matches!(row.owner, Owner::Nobody | Owner::Dead(_));
    Ok(unfinished.into_iter().filter(nobodys).collect())
}

/// The one that can be gone on with.
fn only(given: Option<&Path>, output: Output) -> Result<(State, RunRow), Exit> {
    let nothing = || output.refuse(Exit::Refused, "there is nothing to go on with", None);
    let state = State::find(given, output)?.ok_or_else(nothing)?;
    let left = left(&state, output)?;
    match &left[..] {
        [] => Err(nothing()),
        [one] => Ok((state, one.clone())),
        several => {
            let named: Vec<String> = several.iter().take(5).map(|row| format!("`{}`", row.run)).collect();
            let more = if several.len() > named.len() { ", …" } else { "" };
            let message = format!("{} runs were left: {}{more}", several.len(), named.join(", "));
            let hint = "name one of them, or go on with all by `--all`";
            Err(output.refuse(Exit::Usage, &message, Some(hint)))
        }
    }
}

/// Says no to what is over, and to what someone has.
fn check(row: &RunRow, output: Output) -> Result<(), Exit> {
    let run = &row.run;
    refuse_shortened(row, output)?;
    if row.head.closed && row.head.status != RunStatus::UndoFailed {
        let message = format!("run `{run}` is over: {}", row.head.native_status);
        let hint = format!("`skein runs {run}` shows how it went");
        return Err(output.refuse(Exit::Refused, &message, Some(&hint)));
    }
    match &row.owner {
        Owner::Other(_) => {
            let error = ClaimError::Owned("another process".to_owned()).into();
            Err(own::not_had(run, &error, output))
        }
        Owner::Nobody | Owner::Here | Owner::Dead(_) => Ok(()),
    }
}

/// A run that this process owns from now on.
#[derive(Debug)]
pub struct Going<'a> {
    pub run: &'a RunId,
    pub plan: Plan,
    pub about: &'a About,
    /// So many events are known already.
    pub before: u64,
    pub waits: bool,
    /// Whether nothing is printed that programs would read.
    pub quiet: bool,
}

/// Shows a run that is owned here until it is over or left, and whatever run retries it.
pub fn go_on(state: &State, own: &Own, going: Going<'_>, output: Output) -> Exit {
    let (mut run, mut before) = (going.run.clone(), going.before);
    let mut all = vec![run.clone()];
    loop {
        let ask = if going.waits { own.ask(state, &run, going.about, output) } else { None };
        let follow = Follow {
            run: &run,
            plan: going.plan.clone(),
            store: &*state.store,
            workspace: &going.about.workspace,
            warnings: &going.about.warnings,
            kept: &state.kept(&run),
            before,
            waits: going.waits,
            quiet: going.quiet,
            had: false,
            ask,
        };
        let taped = || {
            own.taping.flush();
            Taped::of(going.about, &state.path, &all)
        };
        let last = watch::follow(follow, &own.told, &taped, output);
        if let (Over::Closed, Some(next)) = (&last.over, last.next) {
            own.also(next.clone());
            all.push(next.clone());
            (run, before) = (next, 0);
            continue;
        }
        if last.over == Over::Waits {
            own.host.leave(&[run]);
        }
        let exit = watch::exit(&last.state, &last.over, own.is_stopped(), output);
        let taped = taped().filter(|_| last.over == Over::Closed);
        return taped.map_or(exit, |taped| taped.tell(exit, output));
    }
}
