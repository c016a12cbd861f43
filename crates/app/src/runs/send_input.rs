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
use skein_core::{
    engine::{DecisionActor, RunInput},
    ids::RunId,
    ir::RunStatus,
};
use skein_dialects::Diagnostic;
use skein_host::{
    audit::{self, AuditEntry, AuditSubject},
    clock::Clock,
    executor::ProcessExecutor,
    host::{Host, HostEvent, HostWatcher, RequestAnswer, ResumeError, WorkerCapacity},
    identity::{IdentityError, check_identity, current_user},
    process::{StateMark, find_worker_mark},
    run_settings::RunSettings,
    secret::Secrets,
    store::{ClaimError, InboxRequestId, RunOwner, RunRow, StateRegistry, Store, StoreError, WaitpointRow},
};

use crate::{
    app::App,
    app_error::{AppError, AppErrorKind},
    project::config::{self, ProjectConfig},
    runs::recording,
    state::{StateHandle, quarantine_kind, refuse_claim},
};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputDelivery {
    /// The owner of the run, which continues it.
    ByOwner,
    /// This process, which released the run again.
    Here,
    /// This process, and the input ended the run.
    AndEnded,
}

/// The state of a run after an input.
#[derive(Debug)]
pub struct DeliveryReport {
    pub run: RunId,
    pub status: RunStatus,
    pub delivery: InputDelivery,
}

impl DeliveryReport {
    pub(crate) fn new(state: &StateHandle, row: &RunRow, delivery: InputDelivery) -> DeliveryReport {
        let now = state.store.find_run(&row.run).ok().flatten();
        let status = now.map_or(row.head.status, |row| row.head.status);
        DeliveryReport { run: row.run.clone(), status, delivery }
    }
}

/// Refuses inputs that a worker sends to a run, and reports the attempt to the run.
pub(crate) fn require_person(state: &StateHandle, run: &RunId, action: &str) -> Result<(), AppError> {
    let message = match find_worker(state) {
        Ok(None) => return refuse_unidentified(state, run, action),
        Ok(Some(worker)) => {
            report_tampering(state, run, &worker, action);
            format!("this was requested by {worker}, and only people outside of runs can decide")
        }
        Err(error) => format!("cannot check whether a worker requested this: {}", error.message),
    };
    Err(AppError::refused(message))
}

/// Refuses requests from a user namespace, where the name of the user means nothing, and records them in the audit.
fn refuse_unidentified(state: &StateHandle, run: &RunId, action: &str) -> Result<(), AppError> {
    let Err(why) = check_user(state) else { return Ok(()) };
    let why = why.to_string();
    let actor = audit::AuditActor::with_role(&current_user(), "unidentified");
    record_refusal(state, Some(run), actor, action, &why)?;
    let hint = "run the command outside of the namespace; in a container whose users are all mapped, `skein doctor --trust-state` accepts it";
    Err(AppError::refused(format!("cannot identify the user: {why}")).with_hint(hint))
}

/// Records in the audit that a request to a run was refused before it reached the run.
pub(crate) fn record_refusal(
    state: &StateHandle,
    run: Option<&RunId>,
    actor: audit::AuditActor,
    action: &str,
    why: &str,
) -> Result<(), StoreError> {
    let name = run.map_or_else(String::new, ToString::to_string);
    let subject = AuditSubject { kind: "run", path: run.map(ToString::to_string), name };
    let (at, input) = (Clock::new().now(), json!({"what": action, "why": why}));
    state.store.append_audit(&[AuditEntry { at, actor, action: "run.refuse", subject, input, output: Value::Null }])
}

/// Checks that the user of this process is the one that the system knows outside of namespaces.
fn check_user(state: &StateHandle) -> Result<(), IdentityError> {
    check_identity(StateRegistry::from_environment().user_map(&state.path).as_deref())
}

/// Sends a request to the present or next owner of the run. Does not wait for an answer.
fn report_tampering(state: &StateHandle, run: &RunId, worker: &str, action: &str) {
    let input = RunInput::Tampered { by: worker.to_owned(), what: action.to_owned() };
    // If it cannot be stored, the worker is refused all the same.
    let _ = state.send_request(run, &input);
}

/// Returns true if a person uses this process: no worker started it, and its user can be identified.
pub(crate) fn is_person(state: &StateHandle) -> bool {
    find_worker(state).is_ok_and(|worker| worker.is_none()) && check_user(state).is_ok()
}

/// Returns the worker that started this process, or that this process is.
fn find_worker(state: &StateHandle) -> Result<Option<String>, AppError> {
    let mark = StateMark::from_directory(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    let worker = find_worker_mark(&mark).map(|mark| format!("a worker of run {}", mark.run));
    let below = state.store.is_below_another()?;
    Ok(worker.or_else(|| below.then(|| "a worker of a run that is kept here".to_owned())))
}

/// Returns the gates and holds of a run that wait for a decision.
pub(crate) fn decision_waitpoints(row: &RunRow) -> impl DoubleEndedIterator<Item = &WaitpointRow> {
    row.open.iter().filter(|open| open.kind != "wait")
}

/// Finds the gate or hold of a step, or the only one of the run. None: there is none, or more than one.
pub(crate) fn find_decision_waitpoint<'a>(row: &'a RunRow, step: Option<&str>) -> Option<&'a WaitpointRow> {
    let mut open = decision_waitpoints(row);
    match step {
        Some(step) => open.rfind(|open| open.step == step),
        None => open.next().filter(|_| open.next().is_none()),
    }
}

/// Returns the settings that were fixed when the run was started.
pub(crate) fn read_run_settings(row: &RunRow) -> Result<RunSettings, AppError> {
    RunSettings::from_json(&row.about).map_err(|error| AppError::store(error.to_string()))
}

/// Returns the user of this process, with their roles in a run, or the error in the configuration of the project. The
/// user has a role if the project granted it when the run was started and still grants it: neither a change during the
/// run nor an old run extends it.
pub(crate) fn load_current_actor(settings: &RunSettings) -> Result<DecisionActor, Box<Diagnostic>> {
    load_actor(settings, current_user())
}

/// Returns the same for a user of this name.
pub(crate) fn load_actor(settings: &RunSettings, name: String) -> Result<DecisionActor, Box<Diagnostic>> {
    let path = settings.project.join(config::NAME);
    let config = ProjectConfig::load(&path, &path.display().to_string())?;
    let mut roles = config.user_roles(&name);
    if let Some(begun) = &settings.roles {
        let begun = config::find_roles(begun, &name);
        roles.retain(|role| begun.contains(role));
    }
    Ok(DecisionActor { name, roles })
}

/// Sends an input, and waits until it is processed and durable.
pub fn send_input(app: &App, state: &StateHandle, run: &RunId, input: &RunInput) -> Result<InputDelivery, AppError> {
    let mut request = None;
    for _ in 0..TRIES {
        let row = state.find_run(run)?;
        if row.head.closed || row.quarantined.is_some() {
            return refuse_ended(state, &row, request);
        }
        match row.owner {
            RunOwner::Other(_) | RunOwner::Here => {
                let sent = match request {
                    Some(sent) => sent,
                    None => send_request(state, &row, input)?,
                };
                request = Some(sent);
                if let Some(answer) = wait_for_answer(state, &row, sent, input)? {
                    return check_answer(run, answer, InputDelivery::ByOwner);
                }
            }
            RunOwner::Nobody | RunOwner::Dead(_) => match deliver_here(state, run, input, request) {
                Ok((taken, answer)) => {
                    recording::record_decisions(&*state.store, run, &*app.observer);
                    return check_answer(run, answer, taken);
                }
                Err(ResumeError::Claim(ClaimError::Owned(_))) => {}
                Err(error) => return Err(refuse_claim(run, error)),
            },
        }
    }
    let message = format!("the owner of run `{run}` keeps changing; try again");
    Err(AppError::refused(message))
}

/// Returns the answer to a run that has ended, perhaps because of this input.
fn refuse_ended(state: &StateHandle, row: &RunRow, request: Option<InboxRequestId>) -> Result<InputDelivery, AppError> {
    let run = &row.run;
    let read = |request| state.store.wait_for_answer(request, Duration::ZERO).map_err(AppError::from);
    if let Some(bytes) = request.map(read).transpose()?.flatten() {
        return check_answer(run, parse_answer(&bytes), InputDelivery::ByOwner);
    }
    let message = match &row.quarantined {
        Some(why) => format!("run `{run}` was set aside: {why}"),
        None => format!("run `{run}` is over: {}", row.head.native_status),
    };
    let kind = row.quarantined.as_deref().map_or(AppErrorKind::Refused, quarantine_kind);
    Err(AppError::new(kind, message).with_hint(format!("`skein runs {run}` shows how it went")))
}

fn send_request(state: &StateHandle, row: &RunRow, input: &RunInput) -> Result<InboxRequestId, AppError> {
    state.send_request(&row.run, input).map_err(|error| match (&error, input) {
        (StoreError::NoSpace, RunInput::Cancel { .. }) => stop_without_record(state, row),
        _ => error.into(),
    })
}

/// Stops the workers of a run whose cancellation cannot be recorded for lack of space: its owner releases it.
fn stop_without_record(state: &StateHandle, row: &RunRow) -> AppError {
    let run = &row.run;
    let was_sent = match &row.owner {
        RunOwner::Other(owner) => state.store.ask_to_leave(owner, run),
        RunOwner::Here | RunOwner::Nobody | RunOwner::Dead(_) => false,
    };
    let done = match was_sent {
        true if wait_until_left(state, run) => "its owner has stopped its workers and released it",
        true => "its owner was told to stop its workers, and has not done so yet",
        false => "its owner cannot be reached; Ctrl-C or SIGTERM stops it",
    };
    let message = format!("disk full: cannot record that run `{run}` is cancelled; {done}");
    let hint = format!("free some space, then `skein cancel {run}`");
    AppError::store(message).with_hint(hint)
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
    request: InboxRequestId,
    input: &RunInput,
) -> Result<Option<RequestAnswer>, AppError> {
    let (run, begun) = (&row.run, Instant::now());
    let is_cancel = matches!(input, RunInput::Cancel { .. });
    while begun.elapsed() < PATIENCE {
        let answer = state.store.wait_for_answer(request, LOOK)?;
        if let Some(bytes) = answer {
            return Ok(Some(parse_answer(&bytes)));
        }
        let now = state.find_run(run)?;
        if now.head.closed || !matches!(now.owner, RunOwner::Other(_) | RunOwner::Here) {
            return Ok(None);
        }
        if is_cancel && begun.elapsed() >= FULL_DISK_PATIENCE && state.store.is_full() {
            return Err(stop_without_record(state, &now));
        }
    }
    let message = format!("the owner of run `{run}` does not answer; the request stays in its inbox");
    Err(AppError::refused(message))
}

pub(crate) fn parse_answer(bytes: &[u8]) -> RequestAnswer {
    serde_json::from_slice(bytes).unwrap_or_else(|error| RequestAnswer::Unreadable(error.to_string()))
}

fn check_answer(run: &RunId, answer: RequestAnswer, taken: InputDelivery) -> Result<InputDelivery, AppError> {
    match answer {
        RequestAnswer::Done => Ok(taken),
        RequestAnswer::Refused(refusal) => Err(AppError::refused(format!("run `{run}` refuses: {refusal}"))),
        RequestAnswer::Unreadable(why) => {
            let message = format!("the owner of run `{run}` cannot read this request: {why}");
            let hint = "it may be of another version of Skein";
            Err(AppError::refused(message).with_hint(hint))
        }
    }
}

/// Claims the run, sends the input, and releases the run. Nothing is started meanwhile, because there are no workers.
fn deliver_here(
    state: &StateHandle,
    run: &RunId,
    input: &RunInput,
    request: Option<InboxRequestId>,
) -> Result<(InputDelivery, RequestAnswer), ResumeError> {
    let broken = |why: String| ResumeError::Store(StoreError::Failed(why));
    let executor =
        ProcessExecutor::new(&state.path, Secrets::default(), None).map_err(|error| broken(error.to_string()))?;
    let store: Arc<dyn Store> = state.store.clone();
    let (ended, gone, watcher) = watch_ending();
    let host = Host::new(store, Box::new(executor), WorkerCapacity { workers: 0 }, watcher);
    host.resume_runs(vec![run.clone()]).pop().unwrap_or(Ok(0))?;
    let answer = match request {
        // The request is in the inbox, which this process owns now.
        Some(request) => state.store.wait_for_answer(request, PATIENCE)?.map(|bytes| parse_answer(&bytes)),
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
    let watcher: HostWatcher = Box::new(move |event| match event {
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
