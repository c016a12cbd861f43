//! Sending an input to a run: as a request to the owner of the run, or, if no process owns it, by claiming it for that
//! one input and releasing it again.
//!
//! Owns the check of who may send an input: a worker cannot decide anything about runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    config::{self, ProjectConfig},
    state::{StateHandle, quarantine_kind, refuse_claim, refuse_store_error},
};
use skein_core::{
    engine::{DecisionActor, RunInput},
    ids::RunId,
};
use skein_dialects::Diagnostic;
use skein_host::{
    audit::{self, AuditEntry, AuditSubject},
    clock::Clock,
    executor::{ProcessExecutor, RunSettings},
    host::{Host, HostEvent, HostWatcher, RequestAnswer, ResumeError, WorkerCapacity},
    identity::{IdentityError, check_identity, current_user},
    process::{StateMark, find_worker_mark},
    secret::Secrets,
    store::{ClaimError, InboxRequestId, RunOwner, RunRow, StateRegistry, Store, StoreError, WaitpointRow},
};

use crate::{output::CliOutput, recording};

/// Time that an owner has to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that an owner has to record a cancel on a full disk before its workers are stopped without a record.
const FULL_DISK_PATIENCE: Duration = Duration::from_secs(5);
/// Time that an owner has to release a run.
const LEAVING: Duration = Duration::from_secs(5);
const LOOK_WHILE_LEAVING: Duration = Duration::from_millis(20);
/// Interval of the checks whether the owner is still alive.
const LOOK: Duration = Duration::from_secs(1);
/// Number of owner changes after which the input is given up.
const TRIES: usize = 10;

/// The process that took an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputDelivery {
    /// The owner of the run, which continues it.
    ByOwner,
    /// This process, which released the run again.
    Here,
    /// This process, and the input ended the run.
    AndEnded,
}

/// Refuses inputs that a worker sends to a run, and reports the attempt to the run.
pub fn require_person(state: &StateHandle, run: &RunId, what: &str) -> Result<(), AppError> {
    let message = match find_worker(state) {
        Ok(None) => return refuse_unidentified(state, run, what),
        Ok(Some(who)) => {
            report_tampering(state, run, &who, what);
            format!("this was requested by {who}, and only people outside of runs can decide")
        }
        Err(why) => format!("cannot check whether a worker requested this: {why}"),
    };
    Err(AppError::new(AppErrorKind::Refused, &message, None))
}

/// Refuses requests from a user namespace, where the name of the user means nothing, and records them in the audit.
fn refuse_unidentified(state: &StateHandle, run: &RunId, what: &str) -> Result<(), AppError> {
    let Err(why) = check_user(state) else { return Ok(()) };
    let why = why.to_string();
    let actor = audit::AuditActor::with_role(&current_user(), "unidentified");
    record_refusal(state, Some(run), actor, what, &why).map_err(|error| refuse_store_error(&error))?;
    let hint = "run the command outside of the namespace; in a container whose users are all mapped, `skein doctor --trust-state` accepts it";
    Err(AppError::new(AppErrorKind::Refused, &format!("cannot identify the user: {why}"), Some(hint)))
}

/// Records in the audit that a request to a run was refused before it reached the run.
pub fn record_refusal(
    state: &StateHandle,
    run: Option<&RunId>,
    actor: audit::AuditActor,
    what: &str,
    why: &str,
) -> Result<(), StoreError> {
    let name = run.map_or_else(String::new, ToString::to_string);
    let subject = AuditSubject { kind: "run", path: run.map(ToString::to_string), name };
    let (at, input) = (Clock::new().now(), json!({"what": what, "why": why}));
    state.store.append_audit(&[AuditEntry {
        at,
        actor,
        action: "run.refuse",
        subject,
        input,
        output: Value::Null,
    }])
}

/// Checks that the user of this process is the one that the system knows outside of namespaces.
fn check_user(state: &StateHandle) -> Result<(), IdentityError> {
    check_identity(StateRegistry::from_environment().user_map(&state.path).as_deref())
}

/// Sends a request to the present or next owner of the run. Does not wait for an answer.
fn report_tampering(state: &StateHandle, run: &RunId, who: &str, what: &str) {
    let input = RunInput::Tampered { by: who.to_owned(), what: what.to_owned() };
    let body = serde_json::to_vec(&input).expect("an input serialises to JSON");
    // If it cannot be stored, the worker is refused all the same.
    let _ = state.store.send_request(run, &body);
}

/// Returns true if a person uses this process: no worker started it, and its user can be identified.
pub fn is_person(state: &StateHandle) -> bool {
    find_worker(state).is_ok_and(|worker| worker.is_none()) && check_user(state).is_ok()
}

/// Returns the worker that started this process, or that this process is.
fn find_worker(state: &StateHandle) -> Result<Option<String>, String> {
    let mark = StateMark::from_directory(&state.path).map_err(|error| error.to_string())?;
    let worker = find_worker_mark(&mark).map(|mark| format!("a worker of run {}", mark.run));
    let below = state.store.is_below_another().map_err(|error| error.to_string())?;
    Ok(worker.or_else(|| below.then(|| "a worker of a run that is kept here".to_owned())))
}

/// Returns the gates and holds of a run that wait for a decision.
pub fn decision_waitpoints(row: &RunRow) -> impl DoubleEndedIterator<Item = &WaitpointRow> {
    row.open.iter().filter(|open| open.kind != "wait")
}

/// Finds the gate or hold of a step, or the only one of the run. None: there is none, or more than one.
pub fn find_decision_waitpoint<'a>(row: &'a RunRow, step: Option<&str>) -> Option<&'a WaitpointRow> {
    let mut open = decision_waitpoints(row);
    match step {
        Some(step) => open.rfind(|open| open.step == step),
        None => open.next().filter(|_| open.next().is_none()),
    }
}

/// Returns the settings that were fixed when the run was started.
pub fn read_run_settings(row: &RunRow) -> Result<RunSettings, AppError> {
    RunSettings::from_json(&row.about).map_err(|why| AppError::new(AppErrorKind::Store, &why, None))
}

/// Returns the user of this process, with their roles in a run.
pub fn current_actor(about: &RunSettings) -> Result<DecisionActor, AppError> {
    load_current_actor(about).map_err(|error| AppError::invalid_source(vec![*error]))
}

/// Returns the same, or the error in the configuration of the project. The user has a role if the project granted it
/// when the run was started and still grants it: neither a change during the run nor an old run extends it.
pub fn load_current_actor(about: &RunSettings) -> Result<DecisionActor, Box<Diagnostic>> {
    load_actor(about, current_user())
}

/// Returns the same for a user of this name.
pub fn load_actor(about: &RunSettings, name: String) -> Result<DecisionActor, Box<Diagnostic>> {
    let path = about.project.join(config::NAME);
    let config = ProjectConfig::load(&path, &path.display().to_string())?;
    let mut roles = config.user_roles(&name);
    if let Some(begun) = &about.roles {
        let begun = config::find_roles(begun, &name);
        roles.retain(|role| begun.contains(role));
    }
    Ok(DecisionActor { name, roles })
}

/// Sends an input, and waits until it is processed and durable.
pub fn send_input(
    state: &StateHandle,
    run: &RunId,
    input: &RunInput,
    output: CliOutput,
) -> Result<InputDelivery, AppError> {
    let mut letter = None;
    for _ in 0..TRIES {
        let row = find_run_row(state, run)?;
        if row.head.closed || row.quarantined.is_some() {
            return refuse_ended(state, &row, letter);
        }
        match row.owner {
            RunOwner::Other(_) | RunOwner::Here => {
                let sent = match letter {
                    Some(sent) => sent,
                    None => send_request(state, &row, input)?,
                };
                letter = Some(sent);
                if let Some(answer) = wait_for_answer(state, &row, sent, input)? {
                    return check_answer(run, answer, InputDelivery::ByOwner);
                }
            }
            RunOwner::Nobody | RunOwner::Dead(_) => match deliver_here(state, run, input, letter) {
                Ok((taken, answer)) => {
                    recording::record_decisions(&*state.store, run, output);
                    return check_answer(run, answer, taken);
                }
                Err(ResumeError::Claim(ClaimError::Owned(_))) => {}
                Err(error) => return Err(refuse_claim(run, &error)),
            },
        }
    }
    let message = format!("the owner of run `{run}` keeps changing; try again");
    Err(AppError::new(AppErrorKind::Refused, &message, None))
}

fn find_run_row(state: &StateHandle, run: &RunId) -> Result<RunRow, AppError> {
    let row = state.store.find_run(run).map_err(|error| refuse_store_error(&error))?;
    row.ok_or_else(|| AppError::new(AppErrorKind::Refused, &format!("there is no run `{run}`"), None))
}

/// Returns the answer to a run that has ended, perhaps because of this input.
fn refuse_ended(
    state: &StateHandle,
    row: &RunRow,
    letter: Option<InboxRequestId>,
) -> Result<InputDelivery, AppError> {
    let run = &row.run;
    let read = |letter| {
        state.store.wait_for_answer(letter, Duration::ZERO).map_err(|error| refuse_store_error(&error))
    };
    if let Some(bytes) = letter.map(read).transpose()?.flatten() {
        return check_answer(run, parse_answer(&bytes), InputDelivery::ByOwner);
    }
    let message = match &row.quarantined {
        Some(why) => format!("run `{run}` was set aside: {why}"),
        None => format!("run `{run}` is over: {}", row.head.native_status),
    };
    let kind = row.quarantined.as_deref().map_or(AppErrorKind::Refused, quarantine_kind);
    Err(AppError::new(kind, &message, Some(&format!("`skein runs {run}` shows how it went"))))
}

fn send_request(state: &StateHandle, row: &RunRow, input: &RunInput) -> Result<InboxRequestId, AppError> {
    let body = serde_json::to_vec(input).expect("an input serialises to JSON");
    state.store.send_request(&row.run, &body).map_err(|error| match (&error, input) {
        (StoreError::NoSpace, RunInput::Cancel { .. }) => stop_without_record(state, row),
        _ => refuse_store_error(&error),
    })
}

/// Stops the workers of a run whose cancellation cannot be recorded for lack of space: its owner releases it.
fn stop_without_record(state: &StateHandle, row: &RunRow) -> AppError {
    let run = &row.run;
    let asked = match &row.owner {
        RunOwner::Other(owner) => state.store.ask_to_leave(owner, run),
        RunOwner::Here | RunOwner::Nobody | RunOwner::Dead(_) => false,
    };
    let done = match asked {
        true if wait_until_left(state, run) => "its owner has stopped its workers and released it",
        true => "its owner was told to stop its workers, and has not done so yet",
        false => "its owner cannot be reached; Ctrl-C or SIGTERM stops it",
    };
    let message = format!("disk full: cannot record that run `{run}` is cancelled; {done}");
    let hint = format!("free some space, then `skein cancel {run}`");
    AppError::new(AppErrorKind::Store, &message, Some(&hint))
}

/// Waits a moment until no living process owns a run. Returns true if that is the case.
fn wait_until_left(state: &StateHandle, run: &RunId) -> bool {
    let until = Instant::now() + LEAVING;
    let is_owned = || {
        let row = state.store.find_run(run).ok().flatten();
        row.is_none_or(|row| matches!(row.owner, RunOwner::Other(_) | RunOwner::Here))
    };
    while is_owned() && Instant::now() < until {
        std::thread::sleep(LOOK_WHILE_LEAVING);
    }
    !is_owned()
}

/// Returns the answer of the owner; none if there is no owner any more.
fn wait_for_answer(
    state: &StateHandle,
    row: &RunRow,
    letter: InboxRequestId,
    input: &RunInput,
) -> Result<Option<RequestAnswer>, AppError> {
    let (run, begun) = (&row.run, Instant::now());
    let is_cancel = matches!(input, RunInput::Cancel { .. });
    while begun.elapsed() < PATIENCE {
        let answer = state.store.wait_for_answer(letter, LOOK).map_err(|error| refuse_store_error(&error))?;
        if let Some(bytes) = answer {
            return Ok(Some(parse_answer(&bytes)));
        }
        let now = self::find_run_row(state, run)?;
        if now.head.closed || !matches!(now.owner, RunOwner::Other(_) | RunOwner::Here) {
            return Ok(None);
        }
        if is_cancel && begun.elapsed() >= FULL_DISK_PATIENCE && state.store.is_full() {
            return Err(stop_without_record(state, &now));
        }
    }
    let message = format!("the owner of run `{run}` does not answer; the request stays in its inbox");
    Err(AppError::new(AppErrorKind::Refused, &message, None))
}

fn parse_answer(bytes: &[u8]) -> RequestAnswer {
    serde_json::from_slice(bytes).unwrap_or_else(|error| RequestAnswer::Unreadable(error.to_string()))
}

fn check_answer(run: &RunId, answer: RequestAnswer, taken: InputDelivery) -> Result<InputDelivery, AppError> {
    match answer {
        RequestAnswer::Done => Ok(taken),
        RequestAnswer::Refused(refusal) => {
            Err(AppError::new(AppErrorKind::Refused, &format!("run `{run}` refuses: {refusal}"), None))
        }
        RequestAnswer::Unreadable(why) => {
            let message = format!("the owner of run `{run}` cannot read this request: {why}");
            let hint = "it may be of another version of Skein";
            Err(AppError::new(AppErrorKind::Refused, &message, Some(hint)))
        }
    }
}

/// Claims the run, sends the input, and releases the run. Nothing is started meanwhile, because there are no workers.
fn deliver_here(
    state: &StateHandle,
    run: &RunId,
    input: &RunInput,
    letter: Option<InboxRequestId>,
) -> Result<(InputDelivery, RequestAnswer), ResumeError> {
    let broken = |why: String| ResumeError::Store(StoreError::Failed(why));
    let crew = ProcessExecutor::new(&state.path, Secrets::default(), None)
        .map_err(|error| broken(error.to_string()))?;
    let store: Arc<dyn Store> = state.store.clone();
    let (ended, gone, watcher) = watch_ending();
    let host = Host::new(store, Box::new(crew), WorkerCapacity { workers: 0 }, watcher);
    host.resume_runs(vec![run.clone()]).pop().unwrap_or(Ok(0))?;
    let answer = match letter {
        // The request is in the inbox, which this process owns now.
        Some(letter) => state.store.wait_for_answer(letter, PATIENCE)?.map(|bytes| parse_answer(&bytes)),
        None => host.send_input(run, input.clone()).map(|result| RequestAnswer::from(&result)),
    };
    let answer = answer.unwrap_or_else(|| RequestAnswer::Unreadable("it was not processed".to_owned()));
    let ended = ended.load(Ordering::Acquire);
    if ended {
        // The hooks of its end need no workers, and a run that has ended should not wait for another process.
        let _ = gone.recv_timeout(PATIENCE);
    }
    host.leave_runs(std::slice::from_ref(run));
    Ok((if ended { InputDelivery::AndEnded } else { InputDelivery::Here }, answer))
}

/// Returns a flag that is set when a run has ended, a channel that signals that the host has dropped it, and the
/// watcher.
fn watch_ending() -> (Arc<AtomicBool>, Receiver<()>, HostWatcher) {
    let ended = Arc::new(AtomicBool::new(false));
    let (to, gone) = channel();
    let seen = Arc::clone(&ended);
    let watcher: HostWatcher = Box::new(move |told| match told {
        HostEvent::Row { running, .. } => seen.store(running.state.end.is_some(), Ordering::Release),
        HostEvent::NoSpace { .. } | HostEvent::Retries { .. } => {}
        HostEvent::Closed { .. }
        | HostEvent::Left { .. }
        | HostEvent::Lost { .. }
        | HostEvent::SetAside { .. }
        | HostEvent::Broken { .. } => {
            let _ = to.send(());
        }
    });
    (ended, gone, watcher)
}
