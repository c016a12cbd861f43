//! Recordings of runs: records the decisions of people, repeats them in a replay, and summarises the result.
//!
//! Owns the thread that does so beside the runs of this process. The host records and replays the work of workers.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        DecisionActor, Event, JournalRecord, Refusal, RunInput, StepAt, Verdict, Waitpoint, WaitpointKind,
        WaitpointState,
    },
    ids::RunId,
    ir::Approver,
    plan::Plan,
};
use skein_host::{
    executor_api::ActiveRun,
    host::{Host, HostEvent, HostWatcher, RunLoader},
    recording::{
        RecordedAnswer, RecordedDecision, Recording, RecordingError, collect_decisions, is_recorded_hold, read_markers,
        recorded_waitpoint,
    },
    run_settings::RunSettings,
    store::Store,
    workspace::{RootFolder, RunDir},
};

use crate::{app::OperationObserver, app_error::AppError, runs::send_input};

/// The user name under which recorded decisions are sent.
const REPLAY: &str = "replay";

/// A task of the recording thread.
#[derive(Debug)]
enum RecordingTask {
    /// Record the decisions that people have made in the run so far.
    Record(RunId),
    /// Answer a question of a replayed run from the recording.
    Answer(Box<ReplayQuestion>),
    /// Report when all earlier tasks are done.
    Flush(Sender<()>),
}

#[derive(Debug)]
struct ReplayQuestion {
    run: RunId,
    recording: PathBuf,
    /// The number of the attempt at the whole run.
    whole: u32,
    step: String,
    at: StepAt,
    /// The index of this question among those of the step, from 0.
    nth: usize,
    waitpoint: Waitpoint,
    approvers: Vec<Approver>,
}

/// Handle of the recording thread: sends tasks to it.
#[derive(Debug, Clone)]
pub(crate) struct RecordingThread(Sender<RecordingTask>);

impl RecordingThread {
    /// Wraps the watcher to see its messages first. The thread is started by [`RecordingQueue::serve_tasks`].
    pub(crate) fn new(mut inner: HostWatcher) -> (RecordingThread, HostWatcher, RecordingQueue) {
        let (to, inbox) = channel();
        let tell = to.clone();
        let watcher: HostWatcher = Box::new(move |event| {
            if let HostEvent::Row { running, batch } = &event {
                let wanted = collect_tasks(*running, &batch.records);
                // Sending fails only if the thread has ended.
                wanted.into_iter().for_each(|wanted| drop(tell.send(wanted)));
            }
            inner(event);
        });
        (RecordingThread(to), watcher, RecordingQueue(inbox))
    }

    /// Waits until everything that has happened so far is recorded.
    pub(crate) fn flush(&self) {
        let (done, wait) = channel();
        if self.0.send(RecordingTask::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}

/// Returns the tasks that follow from a row of the journal.
fn collect_tasks(running: ActiveRun<'_>, records: &[JournalRecord]) -> Vec<RecordingTask> {
    let answers = |event: &Event| matches!(event, Event::Decided { .. } | Event::SignalTaken { .. } | Event::Closed);
    let mut wanted = Vec::new();
    if running.settings.record.is_some() && records.iter().any(|record| answers(&record.event)) {
        wanted.push(RecordingTask::Record(running.run.clone()));
    }
    if let Some(recording) = &running.settings.replay {
        let question = records.iter().filter_map(|record| recorded_waitpoint(&record.event));
        wanted.extend(question.map(|(at, waitpoint)| {
            RecordingTask::Answer(Box::new(ReplayQuestion::new(running, recording, at, waitpoint)))
        }));
    }
    wanted
}

impl ReplayQuestion {
    fn new(running: ActiveRun<'_>, recording: &Path, at: StepAt, waitpoint: Waitpoint) -> ReplayQuestion {
        let step = running.names.step_path(at);
        let before = running.state.openings.iter().take(waitpoint.0 as usize);
        let nth = before.filter(|other| is_recorded(other) && running.names.step_path(other.at) == step).count();
        let approvers = running.state.waitpoint(waitpoint).map(|one| one.approvers.clone()).unwrap_or_default();
        let whole = running.state.start.as_ref().map_or(1, |start| start.attempt);
        let (run, recording) = (running.run.clone(), recording.to_owned());
        ReplayQuestion { run, recording, whole, step, at, nth, waitpoint, approvers }
    }

    /// Finds the recorded answer to the same question.
    fn find_answer<'a>(&self, all: &'a [RecordedDecision]) -> Option<&'a RecordedDecision> {
        all.iter().filter(|one| one.whole == self.whole && one.step == self.step).nth(self.nth)
    }

    /// Returns the inputs that repeat a recorded answer. Empty: nobody answered.
    fn to_inputs(&self, recorded: &RecordedDecision) -> Vec<RunInput> {
        let decide = |decision, name: &str, reason: Option<&String>| {
            let roles = self.approvers.iter().filter_map(|approver| match approver {
                Approver::Role(role) => Some(role.clone()),
                Approver::User(_) => None,
            });
            let by = DecisionActor { name: name.to_owned(), roles: roles.collect() };
            RunInput::Decide { opening: self.waitpoint, decision, by, reason: reason.cloned() }
        };
        let last = |decision| {
            let (by, reason) = (recorded.by.as_deref().unwrap_or_default(), recorded.reason.as_ref());
            Some(decide(decision, by, reason))
        };
        let before = recorded.after.iter().map(|name| decide(Verdict::Approve, name, None));
        let answer = match &recorded.answer {
            RecordedAnswer::Approve => last(Verdict::Approve),
            RecordedAnswer::Reject => last(Verdict::Reject),
            RecordedAnswer::Signal { name, payload } => {
                Some(RunInput::Signal { name: name.clone(), payload: payload.clone(), to: Some(self.at) })
            }
            RecordedAnswer::Nobody => None,
        };
        before.chain(answer).collect()
    }
}

/// Returns true if a waitpoint is of a recorded kind. Consistent with [`recorded_waitpoint`], which judges its event.
fn is_recorded(waitpoint: &WaitpointState) -> bool {
    match waitpoint.kind {
        WaitpointKind::Gate | WaitpointKind::Wait => true,
        WaitpointKind::Hold(reason) => is_recorded_hold(reason, waitpoint.deadline.is_some()),
    }
}

/// The queue of tasks of the recording thread.
#[derive(Debug)]
pub(crate) struct RecordingQueue(Receiver<RecordingTask>);

impl RecordingQueue {
    /// Starts the thread that does the tasks until all senders are gone. `someone`: a person is there to answer
    /// questions that were not recorded.
    pub(crate) fn serve_tasks(
        self,
        store: Arc<dyn Store>,
        host: Weak<Host>,
        someone: bool,
        observer: Arc<dyn OperationObserver>,
    ) {
        let body = move || {
            for wanted in &self.0 {
                match wanted {
                    RecordingTask::Record(run) => record_decisions(&*store, &run, &*observer),
                    RecordingTask::Answer(question) => {
                        let Some(host) = host.upgrade() else { return };
                        replay_answer(&host, &question, someone);
                    }
                    RecordingTask::Flush(done) => drop(done.send(())),
                }
            }
        };
        // Without the thread `flush` does nothing either; a replay then reports the missing decisions.
        let _ = std::thread::Builder::new().name("recording".into()).spawn(body);
    }
}

/// Records the decisions that people have made in a run so far, if it is recorded.
pub(crate) fn record_decisions(store: &dyn Store, run: &RunId, observer: &dyn OperationObserver) {
    if let Err(error) = try_record_decisions(store, run) {
        observer.warn(&format!("decisions were not recorded: {}", error.message));
    }
}

fn try_record_decisions(store: &dyn Store, run: &RunId) -> Result<(), AppError> {
    let Some(row) = store.find_run(run)? else { return Ok(()) };
    let Some(folder) = send_input::read_run_settings(&row)?.record else { return Ok(()) };
    let recording = Recording::open(&folder).map_err(|error| AppError::store(error.to_string()))?;
    let plan = RunLoader::new(store).load_plan(&row)?;
    let mut records = Vec::new();
    store.read_journal(run, 0, &mut |batch| {
        records.extend(batch.records);
        true
    })?;
    let written = recording.write_decisions(collect_decisions(&plan, records.iter()));
    written.map_err(|error| AppError::store(error.to_string()))
}

/// Sends the recorded answer. A question without one is left to a person; without a person the run is cancelled.
fn replay_answer(host: &Host, question: &ReplayQuestion, someone: bool) {
    let recorded = Recording::open(&question.recording).and_then(|recording| recording.read_decisions());
    let problem = match recorded {
        Ok(all) => match question.find_answer(&all) {
            Some(recorded) => match send_all_inputs(host, question, recorded) {
                Some(Err(refusal)) => {
                    format!("the recorded decision at `{}` was refused: {refusal}", question.step)
                }
                Some(Ok(())) | None => return,
            },
            None if someone => return,
            None => format!("`{}` asks for a decision that was not recorded", question.step),
        },
        Err(error) => error.to_string(),
    };
    let input = RunInput::Cancel { by: REPLAY.to_owned(), reason: Some(problem) };
    let _ = host.send_input(&question.run, input);
}

/// Sends all inputs of one answer, up to the first that is refused. None: there was nothing to send, or no process has
/// the run.
fn send_all_inputs(host: &Host, question: &ReplayQuestion, recorded: &RecordedDecision) -> Option<Result<(), Refusal>> {
    let mut last = None;
    for input in question.to_inputs(recorded) {
        last = Some(host.send_input(&question.run, input)?);
        if matches!(last, Some(Err(_))) {
            break;
        }
    }
    last
}

/// Creates the folder of a recording.
pub(crate) fn create_recording(path: &Path, plan: &Plan) -> Result<PathBuf, AppError> {
    let workflow = &plan.definition.root().workflow;
    let identity = json!({
        "id": workflow.id.to_string(),
        "version": workflow.version,
        "dialect": workflow.origin.dialect,
    });
    recording_path(Recording::create(path, &identity))
}

/// Opens an existing recording.
pub(crate) fn open_recording(path: &Path) -> Result<PathBuf, AppError> {
    recording_path(Recording::open(path))
}

fn recording_path(recording: Result<Recording, RecordingError>) -> Result<PathBuf, AppError> {
    let recording = recording.map_err(|error| AppError::refused(error.to_string()))?;
    std::fs::canonicalize(recording.path()).map_err(|error| AppError::refused(error.to_string()))
}

/// The result of recording or replaying.
#[derive(Debug)]
pub struct RecordingSummary {
    pub replayed: bool,
    pub folder: PathBuf,
    pub attempts: usize,
    /// Attempts that were recorded incompletely, or that differ from the recording.
    pub problems: Vec<String>,
    /// Recorded attempts that the replay did not use.
    pub unused: Vec<String>,
}

impl RecordingSummary {
    /// Summarises an ended run and the runs that it retried. None: it was neither recorded nor replayed.
    pub(crate) fn from_runs(settings: &RunSettings, state: &Path, runs: &[RunId]) -> Option<RecordingSummary> {
        let (folder, replayed) = match (&settings.record, &settings.replay) {
            (Some(folder), _) => (folder.clone(), false),
            (None, Some(folder)) => (folder.clone(), true),
            (None, None) => return None,
        };
        let (mut places, mut problems) = (BTreeSet::new(), Vec::new());
        for run in runs {
            let markers = RootFolder::open(state).and_then(|state| read_markers(&RunDir::open(&state, run)?));
            // A run without a folder has had no attempt.
            for marker in markers.unwrap_or_default() {
                problems.extend(marker.problem.map(|problem| problem.trim_end().to_owned()));
                places.insert(marker.place);
            }
        }
        let all = Recording::open(&folder).and_then(|recording| recording.list_entries()).unwrap_or_default();
        let unused = all.into_iter().filter(|place| replayed && !places.contains(place)).collect();
        Some(RecordingSummary { replayed, folder, attempts: places.len(), problems, unused })
    }

    pub fn to_json(&self) -> (&'static str, Value) {
        let RecordingSummary { folder, attempts, problems, unused, .. } = self;
        match self.replayed {
            true => ("replayed", json!({"from": folder, "attempts": attempts, "differs": problems, "unasked": unused})),
            false => ("recorded", json!({"to": folder, "attempts": attempts, "not_whole": problems})),
        }
    }
}
