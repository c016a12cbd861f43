//! Saying something to a run, whoever has it: to its owner by letter, or, where nobody has it, by taking it for that one
//! input and letting it go again.
//!
//! Owns who may say what from here: a worker decides nothing of the runs beside it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use skein_core::{
    engine::{Actor, Input},
    ids::RunId,
};
use skein_dialects::Diagnostic;
use skein_host::{
    crew::{About, Crew},
    host::{Answer, Capacity, Host, ResumeError, Told, Watcher},
    secret::Secrets,
    store::{ClaimError, LetterId, Owner, RunRow, Store, StoreError},
    worker::{StateMark, worker_above},
};

use crate::{
    config::{self, Config},
    exit::Exit,
    output::Output,
    own::not_had,
    person,
    state::{State, failed},
    taped,
};

/// How long an owner may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
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
        Ok(None) => return Ok(()),
        Ok(Some(who)) => {
            note(state, run, &who, what);
            format!("this was asked for by {who}, and only people outside of runs decide")
        }
        Err(why) => format!("whether this is asked for by a worker cannot be told: {why}"),
    };
    Err(output.refuse(Exit::Refused, &message, None))
}

/// A letter for whoever has the run, or will have it. A worker waits for no answer to it.
fn note(state: &State, run: &RunId, who: &str, what: &str) {
    let input = Input::Tampered { by: who.to_owned(), what: what.to_owned() };
    let body = serde_json::to_vec(&input).expect("an input serialises to JSON");
    // Where it cannot be kept, the refusal stands all the same.
    let _ = state.store.send(run, &body);
}

/// Whether this process is one that a worker started, or may be.
pub fn is_worker(state: &State) -> bool {
    worker(state).map_or(true, |worker| worker.is_some())
}

/// The worker that started this process, or is it.
fn worker(state: &State) -> Result<Option<String>, String> {
    let mark = StateMark::of(&state.path).map_err(|error| error.to_string())?;
    let worker = worker_above(&mark).map(|mark| format!("a worker of run {}", mark.run));
    let below = state.store.is_below_another().map_err(|error| error.to_string())?;
    Ok(worker.or_else(|| below.then(|| "a worker of a run that is kept here".to_owned())))
}

/// What was settled about a run when it was begun.
pub fn about(row: &RunRow, output: Output) -> Result<About, Exit> {
    About::read(&row.about).map_err(|why| output.refuse(Exit::Store, &why, None))
}

/// Who is at the terminal, with the roles that the project of the run gives them.
pub fn actor(project: &Path, output: Output) -> Result<Actor, Exit> {
    actor_of(project).map_err(|error| crate::cli::invalid(&[*error], output))
}

/// The same, or what is wrong with the configuration of the project.
pub fn actor_of(project: &Path) -> Result<Actor, Box<Diagnostic>> {
    let path = project.join(config::NAME);
    let config = Config::load(&path, &path.display().to_string())?;
    let name = person::name();
    let roles = config.roles_of(&name);
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
                    None => send(state, run, input, output)?,
                };
                letter = Some(sent);
                if let Some(answer) = wait(state, run, sent, output)? {
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
    Err(output.refuse(Exit::Refused, &message, Some(&format!("`skein runs {run}` shows how it went"))))
}

fn send(state: &State, run: &RunId, input: &Input, output: Output) -> Result<LetterId, Exit> {
    let body = serde_json::to_vec(input).expect("an input serialises to JSON");
    state.store.send(run, &body).map_err(|error| failed(&error, output))
}

/// The answer of the owner; none if there is no owner any more.
fn wait(state: &State, run: &RunId, letter: LetterId, output: Output) -> Result<Option<Answer>, Exit> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let answer = state.store.answered(letter, LOOK).map_err(|error| failed(&error, output))?;
        if let Some(bytes) = answer {
            return Ok(Some(understood(&bytes)));
        }
        let row = row(state, run, output)?;
        if row.head.closed || !matches!(row.owner, Owner::Other(_) | Owner::Here) {
            return Ok(None);
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
    host.resume(vec![run.clone()]).pop().unwrap_or(Ok(()))?;
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
        Told::Closed { .. } | Told::Lost { .. } | Told::SetAside { .. } | Told::Broken { .. } => {
            let _ = to.send(());
        }
    });
    (ended, gone, watcher)
}
