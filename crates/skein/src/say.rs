//! Saying something to a run, whoever has it: to its owner by letter, or, where nobody has it, by taking it for that one
//! input and letting it go again.
//!
//! Owns who may say what from here: a worker decides nothing of the runs beside it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_core::{
    engine::{Actor, Input},
    ids::RunId,
};
use skein_dialects::Diagnostic;
use skein_host::{
    audit::{self, Entry, Subject},
    clock::Clock,
    crew::{About, Crew},
    host::{Answer, Capacity, Host, ResumeError, Told, Watcher},
    identity::{IdentityError, check_identity, current_user},
    secret::Secrets,
    store::{ClaimError, LetterId, OpenRow, Owner, RunRow, StateRegistry, Store, StoreError},
    worker::{StateMark, worker_above},
};

use crate::{
    config::{self, Config},
    exit::Exit,
    output::Output,
    own::not_had,
    state::{State, exit_of_quarantine, failed},
    taped,
};

/// How long an owner may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time that an owner may take to record a cancel on a full disk before its workers are stopped without a record.
const FULL_DISK_PATIENCE: Duration = Duration::from_secs(5);
/// The time that an owner may take to let go of a run.
const LEAVING: Duration = Duration::from_secs(5);
const LOOK_WHILE_LEAVING: Duration = Duration::from_millis(20);
/// How often it is looked whether the owner still lives.
const LOOK: Duration = Duration::from_secs(1);
/// A run that changes hands more often while one thing is said to it is left alone.
const TRIES: usize = 10;

/// Who took what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The process that has the run, and goes on with it.
    ByOwner,
    /// This one, and the run is nobody's again.
    Here,
    /// This one, and it ended the run.
    AndEnded,
}

/// Refuses what workers say to runs, and has the run take note of it.
pub fn outside(state: &State, run: &RunId, what: &str, output: Output) -> Result<(), Exit> {
    let message = match worker(state) {
        Ok(None) => return refuse_unidentified(state, run, what, output),
        Ok(Some(who)) => {
            note(state, run, &who, what);
            format!("this was asked for by {who}, and only people outside of runs decide")
        }
        Err(why) => format!("whether this is asked for by a worker cannot be told: {why}"),
    };
    Err(output.refuse(Exit::Refused, &message, None))
}

/// Refuses what is asked for in a user namespace, where the name of the user means nothing, and has the audit tell of it.
fn refuse_unidentified(state: &State, run: &RunId, what: &str, output: Output) -> Result<(), Exit> {
    let Err(why) = check_user(state) else { return Ok(()) };
    let why = why.to_string();
    let actor = audit::Actor::with_role(&current_user(), "unidentified");
    record_refusal(state, Some(run), actor, what, &why).map_err(|error| failed(&error, output))?;
    let hint = "do it outside of the namespace; in a container whose users are all mapped, `skein doctor --trust-state` accepts it";
    Err(output.refuse(Exit::Refused, &format!("who asks for this cannot be told: {why}"), Some(hint)))
}

/// Records in the audit that something was asked of a run and refused before the run was asked.
pub fn record_refusal(
    state: &State,
    run: Option<&RunId>,
    actor: audit::Actor,
    what: &str,
    why: &str,
) -> Result<(), StoreError> {
    let name = run.map_or_else(String::new, ToString::to_string);
    let subject = Subject { kind: "run", path: run.map(ToString::to_string), name };
    let (at, input) = (Clock::new().now(), json!({"what": what, "why": why}));
    state.store.note(&[Entry { at, actor, action: "run.refuse", subject, input, output: Value::Null }])
}

/// Checks that the user of this process is the one that the system knows outside of namespaces.
fn check_user(state: &State) -> Result<(), IdentityError> {
    check_identity(StateRegistry::of_user().user_map(&state.path).as_deref())
}

/// A letter for whoever has the run, or will have it. A worker waits for no answer to it.
fn note(state: &State, run: &RunId, who: &str, what: &str) {
    let input = Input::Tampered { by: who.to_owned(), what: what.to_owned() };
    let body = serde_json::to_vec(&input).expect("an input serialises to JSON");
    // Where it cannot be kept, the refusal stands all the same.
    let _ = state.store.send(run, &body);
}

/// Returns true if a person is at this process: no worker started it, and it is known who its user is.
pub fn is_person(state: &State) -> bool {
    worker(state).is_ok_and(|worker| worker.is_none()) && check_user(state).is_ok()
}

/// The worker that started this process, or is it.
fn worker(state: &State) -> Result<Option<String>, String> {
    let mark = StateMark::of(&state.path).map_err(|error| error.to_string())?;
    let worker = worker_above(&mark).map(|mark| format!("a worker of run {}", mark.run));
    let below = state.store.is_below_another().map_err(|error| error.to_string())?;
    Ok(worker.or_else(|| below.then(|| "a worker of a run that is kept here".to_owned())))
}

/// The gates and holds of a run that wait for a decision.
pub fn openings(row: &RunRow) -> impl DoubleEndedIterator<Item = &OpenRow> {
    row.open.iter().filter(|open| open.kind != "wait")
}

/// The gate or hold of a step, or the only one of the run. None: there is none, or more than one.
pub fn find_opening<'a>(row: &'a RunRow, step: Option<&str>) -> Option<&'a OpenRow> {
    let mut open = openings(row);
    match step {
        Some(step) => open.rfind(|open| open.step == step),
        None => open.next().filter(|_| open.next().is_none()),
    }
}

/// What was settled about a run when it was begun.
pub fn about(row: &RunRow, output: Output) -> Result<About, Exit> {
    About::read(&row.about).map_err(|why| output.refuse(Exit::Store, &why, None))
}

/// The user of this process, with their roles in a run.
pub fn actor(about: &About, output: Output) -> Result<Actor, Exit> {
    actor_of(about).map_err(|error| crate::cli::invalid(&[*error], output))
}

/// The same, or the error in the configuration of the project. A role counts that the project gave the user when the run was
/// begun and still gives them: neither a change during the run nor an old run gives anyone more.
pub fn actor_of(about: &About) -> Result<Actor, Box<Diagnostic>> {
    actor_named(about, current_user())
}

/// The same for a user of this name.
pub fn actor_named(about: &About, name: String) -> Result<Actor, Box<Diagnostic>> {
    let path = about.project.join(config::NAME);
    let config = Config::load(&path, &path.display().to_string())?;
    let mut roles = config.roles_of(&name);
    if let Some(begun) = &about.roles {
        let begun = config::roles_in(begun, &name);
        roles.retain(|role| begun.contains(role));
    }
    Ok(Actor { name, roles })
}

/// Says it, and waits until it is decided and durable.
pub fn say(state: &State, run: &RunId, input: &Input, output: Output) -> Result<Taken, Exit> {
    let mut letter = None;
    for _ in 0..TRIES {
        let row = row(state, run, output)?;
        if row.head.closed || row.quarantined.is_some() {
            return ended(state, &row, letter, output);
        }
        match row.owner {
            Owner::Other(_) | Owner::Here => {
                let sent = match letter {
                    Some(sent) => sent,
                    None => send(state, &row, input, output)?,
                };
                letter = Some(sent);
                if let Some(answer) = wait(state, &row, sent, input, output)? {
                    return answered(run, answer, Taken::ByOwner, output);
                }
            }
            Owner::Nobody | Owner::Dead(_) => match take(state, run, input, letter) {
                Ok((taken, answer)) => {
                    taped::keep(&*state.store, run, output);
                    return answered(run, answer, taken, output);
                }
                Err(ResumeError::Claim(ClaimError::Owned(_))) => {}
                Err(error) => return Err(not_had(run, &error, output)),
            },
        }
    }
    let message = format!("run `{run}` changes hands all the time; try again");
    Err(output.refuse(Exit::Refused, &message, None))
}

fn row(state: &State, run: &RunId, output: Output) -> Result<RunRow, Exit> {
    let row = state.store.run(run).map_err(|error| failed(&error, output))?;
    row.ok_or_else(|| output.refuse(Exit::Refused, &format!("there is no run `{run}`"), None))
}

/// The run is over. Perhaps because of what was said.
fn ended(state: &State, row: &RunRow, letter: Option<LetterId>, output: Output) -> Result<Taken, Exit> {
    let run = &row.run;
    let read = |letter| state.store.answered(letter, Duration::ZERO).map_err(|error| failed(&error, output));
    if let Some(bytes) = letter.map(read).transpose()?.flatten() {
        return answered(run, understood(&bytes), Taken::ByOwner, output);
    }
    let message = match &row.quarantined {
        Some(why) => format!("run `{run}` was set aside: {why}"),
        None => format!("run `{run}` is over: {}", row.head.native_status),
    };
    let exit = row.quarantined.as_deref().map_or(Exit::Refused, exit_of_quarantine);
    Err(output.refuse(exit, &message, Some(&format!("`skein runs {run}` shows how it went"))))
}

fn send(state: &State, row: &RunRow, input: &Input, output: Output) -> Result<LetterId, Exit> {
    let body = serde_json::to_vec(input).expect("an input serialises to JSON");
    state.store.send(&row.run, &body).map_err(|error| match (&error, input) {
        (StoreError::NoSpace, Input::Cancel { .. }) => stop_without_record(state, row, output),
        _ => failed(&error, output),
    })
}

/// Stops the workers of a run that is to be cancelled when there is no space to record that: its owner lets go of it.
fn stop_without_record(state: &State, row: &RunRow, output: Output) -> Exit {
    let run = &row.run;
    let asked = match &row.owner {
        Owner::Other(owner) => state.store.ask_to_leave(owner, run),
        Owner::Here | Owner::Nobody | Owner::Dead(_) => false,
    };
    let done = match asked {
        true if has_left(state, run) => "the process that had it has stopped its workers and left it",
        true => "the process that has it was told to stop its workers, and has not yet done so",
        false => "the process that has it cannot be told; Ctrl-C or SIGTERM stops it",
    };
    let message = format!("there is no space left to record that run `{run}` is cancelled; {done}");
    let hint = format!("free some space, then `skein cancel {run}`");
    output.refuse(Exit::Store, &message, Some(&hint))
}

/// Waits a moment until no living process owns a run, and returns whether that came to be.
fn has_left(state: &State, run: &RunId) -> bool {
    let until = Instant::now() + LEAVING;
    let is_owned = || {
        let row = state.store.run(run).ok().flatten();
        row.is_none_or(|row| matches!(row.owner, Owner::Other(_) | Owner::Here))
    };
    while is_owned() && Instant::now() < until {
        std::thread::sleep(LOOK_WHILE_LEAVING);
    }
    !is_owned()
}

/// The answer of the owner; none if there is no owner any more.
fn wait(
    state: &State,
    row: &RunRow,
    letter: LetterId,
    input: &Input,
    output: Output,
) -> Result<Option<Answer>, Exit> {
    let (run, begun) = (&row.run, Instant::now());
    let is_cancel = matches!(input, Input::Cancel { .. });
    while begun.elapsed() < PATIENCE {
        let answer = state.store.answered(letter, LOOK).map_err(|error| failed(&error, output))?;
        if let Some(bytes) = answer {
            return Ok(Some(understood(&bytes)));
        }
        let now = self::row(state, run, output)?;
        if now.head.closed || !matches!(now.owner, Owner::Other(_) | Owner::Here) {
            return Ok(None);
        }
        if is_cancel && begun.elapsed() >= FULL_DISK_PATIENCE && state.store.is_full() {
            return Err(stop_without_record(state, &now, output));
        }
    }
    let message = format!("the process that has run `{run}` does not answer; it will be told when it does");
    Err(output.refuse(Exit::Refused, &message, None))
}

fn understood(bytes: &[u8]) -> Answer {
    serde_json::from_slice(bytes).unwrap_or_else(|error| Answer::Unreadable(error.to_string()))
}

fn answered(run: &RunId, answer: Answer, taken: Taken, output: Output) -> Result<Taken, Exit> {
    match answer {
        Answer::Done => Ok(taken),
        Answer::Refused(refusal) => {
            Err(output.refuse(Exit::Refused, &format!("run `{run}` refuses: {refusal}"), None))
        }
        Answer::Unreadable(why) => {
            let message = format!("the process that has run `{run}` does not understand this: {why}");
            let hint = "it may be of another version of Skein";
            Err(output.refuse(Exit::Refused, &message, Some(hint)))
        }
    }
}

/// Takes the run, says it, and lets the run go. Nothing is begun meanwhile: there are no workers to begin it with.
fn take(
    state: &State,
    run: &RunId,
    input: &Input,
    letter: Option<LetterId>,
) -> Result<(Taken, Answer), ResumeError> {
    let broken = |why: String| ResumeError::Store(StoreError::Failed(why));
    let crew = Crew::new(&state.path, Secrets::default(), None).map_err(|error| broken(error.to_string()))?;
    let store: Arc<dyn Store> = state.store.clone();
    let (ended, gone, watcher) = ending();
    let host = Host::new(store, Box::new(crew), Capacity { workers: 0 }, watcher);
    host.resume(vec![run.clone()]).pop().unwrap_or(Ok(0))?;
    let answer = match letter {
        // It is in the inbox, and that is ours now.
        Some(letter) => state.store.answered(letter, PATIENCE)?.map(|bytes| understood(&bytes)),
        None => host.say(run, input.clone()).map(|result| Answer::from(&result)),
    };
    let answer = answer.unwrap_or_else(|| Answer::Unreadable("it went no further".to_owned()));
    let ended = ended.load(Ordering::Acquire);
    if ended {
        // What is made known of its end needs no workers, and a run that is over should not wait for anyone.
        let _ = gone.recv_timeout(PATIENCE);
    }
    host.leave(std::slice::from_ref(run));
    Ok((if ended { Taken::AndEnded } else { Taken::Here }, answer))
}

/// Whether a run has ended, and when it is gone from here.
fn ending() -> (Arc<AtomicBool>, Receiver<()>, Watcher) {
    let ended = Arc::new(AtomicBool::new(false));
    let (to, gone) = channel();
    let seen = Arc::clone(&ended);
    let watcher: Watcher = Box::new(move |told| match told {
        Told::Row { running, .. } => seen.store(running.state.end.is_some(), Ordering::Release),
        Told::NoSpace { .. } | Told::Retries { .. } => {}
        Told::Closed { .. }
        | Told::Left { .. }
        | Told::Lost { .. }
        | Told::SetAside { .. }
        | Told::Broken { .. } => {
            let _ = to.send(());
        }
    });
    (ended, gone, watcher)
}
