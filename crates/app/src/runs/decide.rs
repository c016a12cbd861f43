//! Answers to a run that waits: decisions at a gate or a hold, and signals.
//!
//! Other users of the machine leave their decisions in the inbox beside the state folder, and the processes of its owner
//! take them from there. Owns the authorship of such a decision: its author is the owner of the file that contains it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use rustix::process::geteuid;
use serde_json::Value;
use skein_core::{
    engine::{RunInput, StepAt, Verdict, Waitpoint, format_utc},
    ids::{RunId, SignalName},
    suggest::did_you_mean,
    time::Millis,
    view::{self, WaitpointView, WaitpointViewKind},
};
use skein_host::{
    audit::AuditActor,
    decision_inbox::{DecisionInbox, DecisionReply, DecisionRequest, ReceivedRequest},
    host::RequestAnswer,
    identity::{group_number, user_name},
    run_settings::RunSettings,
    store::{RunRow, SqliteStore, Store, WaitpointRow},
};

use crate::{
    app::App,
    app_error::AppError,
    project::config::ProjectConfig,
    runs::{
        follow::FileChangeWatcher,
        send_input::{self, DeliveryReport},
    },
    state::{RunLookup, StateHandle, refuse_shortened},
};

/// The result of a decision.
#[derive(Debug)]
pub enum DecisionOutcome {
    Delivered(Box<DeliveredDecision>),
    /// The owner of the state folder, who is another user, has taken the decision.
    TakenByOwner {
        message: String,
    },
    /// The decision is applied when the owner of the state folder, who is another user, resumes the run.
    LeftForOwner {
        folder: PathBuf,
    },
}

/// A decision that a run has recorded.
#[derive(Debug)]
pub struct DeliveredDecision {
    pub report: DeliveryReport,
    pub step: String,
    pub by: String,
    /// The waitpoint, if it is still open because more approvals are needed.
    pub missing_approvals: Option<WaitpointView>,
}

/// Decides at a gate or a hold; without a step, at the only one of the run.
pub fn decide_run(app: &App, request: &DecisionRequest) -> Result<DecisionOutcome, AppError> {
    if let Some(inbox) = find_foreign_inbox(app) {
        return Ok(match leave_decision(&inbox, request)? {
            Some(message) => DecisionOutcome::TakenByOwner { message },
            None => DecisionOutcome::LeftForOwner { folder: inbox.folder().to_owned() },
        });
    }
    let (state, row) = app.open_run(&request.run)?;
    refuse_shortened(&row)?;
    let word = match request.decision {
        Verdict::Approve => "approve",
        Verdict::Reject => "reject",
    };
    let step = request.step.as_ref().map_or(String::new(), |step| format!(" `{step}`"));
    send_input::require_person(&state, &row.run, &format!("{word}{step}"))?;
    let open = find_waitpoint(&state, &row, request.step.as_deref())?;
    let by = send_input::load_current_actor(&send_input::read_run_settings(&row)?)?;
    let name = by.name.clone();
    let (decision, reason) = (request.decision, request.reason.clone());
    let input = RunInput::Decide { opening: open.opening, decision, by, reason };
    let delivery = send_input::send_input(app, &state, &row.run, &input)?;
    let missing_approvals = match decision {
        Verdict::Approve => find_open_approvals(&state, &row, open.opening)?,
        Verdict::Reject => None,
    };
    let report = DeliveryReport::new(&state, &row, delivery);
    let delivered = DeliveredDecision { report, step: open.step, by: name, missing_approvals };
    Ok(DecisionOutcome::Delivered(Box::new(delivered)))
}

/// A signal to a run.
#[derive(Debug)]
pub struct SignalRequest {
    /// The run id, or a unique prefix of it.
    pub run: String,
    pub event: String,
    pub payload: Value,
    /// The path of the step that receives it. None: all steps that wait for it.
    pub step: Option<String>,
}

/// Sends a signal to a run.
pub fn signal_run(app: &App, request: SignalRequest) -> Result<DeliveryReport, AppError> {
    let SignalRequest { run, event, payload, step } = request;
    let (state, row) = app.open_run(&run)?;
    refuse_shortened(&row)?;
    send_input::require_person(&state, &row.run, &format!("send the signal `{event}`"))?;
    let name = find_signal(&state, &row, &event)?;
    let to = step.as_deref().map(|step| find_waiting_step(&state, &row, step)).transpose()?;
    let input = RunInput::Signal { name, payload: Arc::new(payload), to };
    let delivery = send_input::send_input(app, &state, &row.run, &input)?;
    Ok(DeliveryReport::new(&state, &row, delivery))
}

/// Returns the waitpoint if it is still open because more approvals are needed.
fn find_open_approvals(
    state: &StateHandle,
    row: &RunRow,
    waitpoint: Waitpoint,
) -> Result<Option<WaitpointView>, AppError> {
    let run = state.load_run(row)?;
    if run.state().waitpoint(waitpoint).is_none_or(|waitpoint| waitpoint.closed || waitpoint.quorum < 2) {
        return Ok(None);
    }
    Ok(view::view_waitpoint(run.state(), run.names(), waitpoint))
}

/// Finds the selected gate or hold.
fn find_waitpoint(state: &StateHandle, row: &RunRow, step: Option<&str>) -> Result<WaitpointRow, AppError> {
    if let Some(found) = send_input::find_decision_waitpoint(row, step) {
        return Ok(found.clone());
    }
    let open: Vec<&WaitpointRow> = send_input::decision_waitpoints(row).collect();
    if let Some(step) = step {
        return Err(refuse_not_open(state, row, step, &open)?);
    }
    if open.is_empty() {
        let message = format!("nothing in run `{}` waits for a decision", row.run);
        return Err(AppError::refused(message));
    }
    let steps: Vec<String> = open.iter().take(5).map(|open| format!("`{}`", open.step)).collect();
    let message = format!("{} steps of run `{}` wait for a decision", open.len(), row.run);
    Err(AppError::usage(message).with_hint(format!("name one of {}", steps.join(", "))))
}

/// Refuses a step that cannot be decided: it was already, it waits for something else, or it does not exist.
fn refuse_not_open(
    state: &StateHandle,
    row: &RunRow,
    step: &str,
    open: &[&WaitpointRow],
) -> Result<AppError, AppError> {
    let run = state.load_run(row)?;
    let last = run.state().openings.iter().rfind(|waitpoint| run.names().step_path(waitpoint.at) == step);
    let (message, hint) = match last.and_then(|last| last.decided.as_ref()) {
        Some((by, at)) => (format!("`{step}` was decided already, by {by} at {}", format_utc(*at)), None),
        None if row.open.iter().any(|open| open.step == step) => (
            format!("`{step}` waits for a signal, not for a decision"),
            Some("`skein signal RUN EVENT` sends one".to_owned()),
        ),
        None => {
            let hint = did_you_mean(step, open.iter().map(|open| open.step.as_str()));
            let all = || open.iter().take(5).map(|open| format!("`{}`", open.step)).collect::<Vec<_>>();
            let hint = hint.or_else(|| (!open.is_empty()).then(|| format!("steps that wait: {}", all().join(", "))));
            (format!("no step `{step}` of run `{}` waits for a decision", row.run), hint)
        }
    };
    Ok(AppError::refused(message).with_optional_hint(hint))
}

/// Finds the signal, if any step of the workflow waits for it.
fn find_signal(state: &StateHandle, row: &RunRow, event: &str) -> Result<SignalName, AppError> {
    let plan = state.load_plan(row)?;
    let signals = &plan.definition.signals;
    let found = signals.iter().find(|name| name.as_str() == event);
    found.cloned().ok_or_else(|| {
        let hint = did_you_mean(event, signals.iter().map(SignalName::as_str));
        let all = || signals.iter().take(5).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let hint = hint.or_else(|| (!signals.is_empty()).then(|| format!("it waits for {}", all())));
        let message = format!("no step of run `{}` ever waits for `{event}`", row.run);
        AppError::refused(message).with_optional_hint(hint)
    })
}

/// Finds the step with this path that waits for a signal.
fn find_waiting_step(state: &StateHandle, row: &RunRow, step: &str) -> Result<StepAt, AppError> {
    let run = state.load_run(row)?;
    let open = view::view_run(run.plan(), run.state()).waiting_for;
    let mut waits = open.iter().filter(|waitpoint| waitpoint.kind == WaitpointViewKind::Wait);
    if let Some(found) = waits.clone().rfind(|waitpoint| waitpoint.step == step) {
        return Ok(found.at);
    }
    let hint = did_you_mean(step, waits.by_ref().map(|waitpoint| waitpoint.step.as_str()));
    let message = format!("no step `{step}` of run `{}` waits for a signal", row.run);
    Err(AppError::refused(message).with_optional_hint(hint))
}

/// Time that a user waits for the reply to a decision.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time that the run has to decide.
const DECIDING: Duration = Duration::from_secs(5);
/// Tolerance for file times, which are less exact than the times of the journal.
const SLACK: Millis = Millis::from_secs(1);

/// Takes decisions of other users until it is dropped. Dropping it waits for the replies to requests that were already
/// taken: the run may end because of such a decision, and its author must still get a reply.
#[must_use = "dropping the receiver stops it"]
#[derive(Debug, Default)]
pub(crate) struct DecisionReceiver {
    stopped: Arc<Mutex<bool>>,
}

impl Drop for DecisionReceiver {
    fn drop(&mut self) {
        *lock_stopped(&self.stopped) = true;
    }
}

/// The receiving thread holds this lock from taking requests to sending their replies.
fn lock_stopped(stopped: &Mutex<bool>) -> MutexGuard<'_, bool> {
    stopped.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to take decisions of other users, if the project of a run names a group for them.
pub(crate) fn receive_decisions(app: &App, state: &StateHandle, project: &Path) -> DecisionReceiver {
    let receiver = DecisionReceiver::default();
    let inbox = DecisionInbox::new(&state.path);
    let Some(group) = ProjectConfig::load_valid(project).approval.group else {
        let _ = inbox.close();
        return receiver;
    };
    let opened = match group_number(&group) {
        Some(number) => inbox.open_to_group(number).map_err(|error| error.to_string()),
        None => Err("there is no such group".to_owned()),
    };
    if let Err(why) = opened {
        let place = inbox.folder().display();
        app.warn(&format!("other users cannot decide: `{place}` cannot be given to the group `{group}`: {why}"));
        return receiver;
    }
    let (store, path) = (Arc::downgrade(&state.store), state.path.clone());
    let stopped = Arc::clone(&receiver.stopped);
    // If the thread cannot be started, other users cannot decide, but the owner still can.
    let _ = thread::Builder::new().name("inbox".into()).spawn(move || serve_inbox(&inbox, &store, &path, &stopped));
    receiver
}

fn serve_inbox(inbox: &DecisionInbox, store: &Weak<SqliteStore>, path: &Path, stopped: &Mutex<bool>) {
    let Ok(changes) = FileChangeWatcher::watch_folder(inbox.folder()) else { return };
    loop {
        let Some(store) = store.upgrade() else { return };
        let state = StateHandle { path: path.to_owned(), store };
        let replying = lock_stopped(stopped);
        if *replying {
            return;
        }
        for received in inbox.take_requests() {
            let reply = answer_request(&state, &received);
            let _ = inbox.send_reply(&received.id, &reply);
        }
        drop((replying, state));
        changes.wait_for_change();
    }
}

/// Passes a request to the run, and returns the reply.
fn answer_request(state: &StateHandle, received: &ReceivedRequest) -> DecisionReply {
    let user = user_name(received.uid);
    match try_decide(state, received, &user) {
        Ok(message) => DecisionReply { done: true, message },
        Err(DecisionRefusal { message, audited: true, .. }) => DecisionReply { done: false, message },
        Err(DecisionRefusal { message, run, .. }) => {
            // The refusal is sent even if it cannot be recorded for lack of space.
            let actor = AuditActor::from_user(&user);
            let _ = send_input::record_refusal(state, run.as_ref(), actor, "decide by the inbox", &message);
            DecisionReply { done: false, message }
        }
    }
}

/// A refused request.
struct DecisionRefusal {
    message: String,
    run: Option<RunId>,
    /// True if the run itself refused it, which the audit already contains.
    audited: bool,
}

fn try_decide(state: &StateHandle, received: &ReceivedRequest, user: &str) -> Result<String, DecisionRefusal> {
    let refuse = |message: String| DecisionRefusal { message, run: None, audited: false };
    let request = received.request.as_ref().map_err(|why| refuse(format!("the request is refused: {why}")))?;
    let row = match state.look_up_run(&request.run).map_err(|error| refuse(error.to_string()))? {
        RunLookup::One(row) => row,
        RunLookup::None { .. } => return Err(refuse(format!("there is no run `{}`", request.run))),
        RunLookup::Several(_) => {
            return Err(refuse(format!("`{}` matches several runs", request.run)));
        }
    };
    let of_run = |message: String| DecisionRefusal { message, run: Some(row.run.clone()), audited: false };
    let open = send_input::find_decision_waitpoint(&row, request.step.as_deref()).ok_or_else(|| {
        let step = request.step.as_ref().map_or(String::new(), |step| format!(" `{step}`"));
        of_run(format!("found no single step{step} of run `{}` that waits for a decision", row.run))
    })?;
    if received.at.saturating_add(SLACK) < open.since {
        return Err(of_run(format!("this decision was made before `{}` asked for one", open.step)));
    }
    let settings = RunSettings::from_json(&row.about).map_err(|error| of_run(error.to_string()))?;
    let by = send_input::load_actor(&settings, user.to_owned()).map_err(|error| of_run(error.message.clone()))?;
    let reason = request.reason.clone();
    let input = RunInput::Decide { opening: open.opening, decision: request.decision, by, reason };
    send_decision(state, &row.run, &input, &open.step, request.decision)
}

fn send_decision(
    state: &StateHandle,
    run: &RunId,
    input: &RunInput,
    step: &str,
    decision: Verdict,
) -> Result<String, DecisionRefusal> {
    let refuse = |message: String, audited| DecisionRefusal { message, run: Some(run.clone()), audited };
    let sent = state.send_request(run, input).map_err(|error| refuse(error.to_string(), false))?;
    let answer = state.store.wait_for_answer(sent, DECIDING).map_err(|error| refuse(error.to_string(), false))?;
    let Some(bytes) = answer else {
        return Ok(format!("no process is executing run {run}; `{step}` is decided when its owner resumes the run"));
    };
    match send_input::parse_answer(&bytes) {
        RequestAnswer::Done => {
            let word = if decision == Verdict::Approve { "approved" } else { "rejected" };
            Ok(format!("{word} `{step}` of run {run}"))
        }
        RequestAnswer::Refused(refusal) => Err(refuse(format!("run `{run}` refuses: {refusal}"), true)),
        RequestAnswer::Unreadable(why) => Err(refuse(why, false)),
    }
}

/// Finds the inbox that this user has to use: that of a state folder of another user, if it accepts decisions.
pub(crate) fn find_foreign_inbox(app: &App) -> Option<DecisionInbox> {
    let path = app.state_path();
    let owner = fs::metadata(&path).ok()?.uid();
    let inbox = DecisionInbox::new(&path);
    (owner != geteuid().as_raw() && inbox.folder().is_dir()).then_some(inbox)
}

/// Leaves a decision for the owner of the state folder, and waits for the reply. None: there is none yet, and the
/// decision is applied when the owner resumes the run.
pub(crate) fn leave_decision(inbox: &DecisionInbox, request: &DecisionRequest) -> Result<Option<String>, AppError> {
    // Watches before the request is left, so that no reply is missed.
    let changes = FileChangeWatcher::watch_folder(&inbox.answers_folder())
        .map_err(|error| AppError::bug(format!("cannot watch the inbox for replies: {error}")))?;
    let id = inbox.submit_request(request).map_err(|error| {
        let place = inbox.folder().display();
        AppError::refused(format!("cannot leave a decision in `{place}`: {error}"))
            .with_hint("`[approval] group` in skein.toml names the group whose members may decide")
    })?;
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        match inbox.find_reply(&id) {
            Some(DecisionReply { done: true, message }) => return Ok(Some(message)),
            Some(DecisionReply { done: false, message }) => return Err(AppError::refused(message)),
            None => changes.wait_for_change(),
        }
    }
    Ok(None)
}
