//! Recordings, as commands have to do with them: what people decide is recorded and said again, and how it went is told.
//!
//! Owns the thread that does so beside the runs of this process. What workers do is recorded and replayed by the host.

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
    executor::RunSettings,
    executor_api::ActiveRun,
    host::{Host, HostEvent, HostWatcher, RunLoader},
    recording::{
        RecordedAnswer, RecordedDecision, Recording, RecordingError, collect_decisions, is_recorded_hold,
        read_markers, recorded_waitpoint,
    },
    store::Store,
    workspace::{RootFolder, RunDir},
};

use crate::{
    exit::Exit,
    output::{CliOutput, OutputFormat},
};

/// Who says what was recorded.
const REPLAY: &str = "replay";

/// Something to do beside a run.
#[derive(Debug)]
enum RecordingTask {
    /// What people decided in it so far is to be recorded.
    Record(RunId),
    /// It asks something that may have been answered when it was recorded.
    Answer(Box<ReplayQuestion>),
    /// Tell when all that was asked before is done.
    Flush(Sender<()>),
}

#[derive(Debug)]
struct ReplayQuestion {
    run: RunId,
    tape: PathBuf,
    /// Which try at the whole run.
    whole: u32,
    step: String,
    at: StepAt,
    /// Which question of that step it is, from 0.
    nth: usize,
    opening: Waitpoint,
    approvers: Vec<Approver>,
}

/// The thread, by what is said to it.
#[derive(Debug, Clone)]
pub struct RecordingThread(Sender<RecordingTask>);

impl RecordingThread {
    /// What is told of runs is listened to on its way. The thread begins with [`RecordingQueue::serve`].
    pub fn new(mut inner: HostWatcher) -> (RecordingThread, HostWatcher, RecordingQueue) {
        let (to, inbox) = channel();
        let tell = to.clone();
        let watcher: HostWatcher = Box::new(move |told| {
            if let HostEvent::Row { running, batch } = &told {
                let wanted = collect_tasks(*running, &batch.records);
                // Whoever does not listen any more has ended.
                wanted.into_iter().for_each(|wanted| drop(tell.send(wanted)));
            }
            inner(told);
        });
        (RecordingThread(to), watcher, RecordingQueue(inbox))
    }

    /// Waits until all that happened so far is recorded.
    pub fn flush(&self) {
        let (done, wait) = channel();
        if self.0.send(RecordingTask::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }
}

/// What a row makes to do.
fn collect_tasks(running: ActiveRun<'_>, records: &[JournalRecord]) -> Vec<RecordingTask> {
    let path = |name: &str| running.about.get(name).and_then(Value::as_str).map(PathBuf::from);
    let answers =
        |event: &Event| matches!(event, Event::Decided { .. } | Event::SignalTaken { .. } | Event::Closed);
    let mut wanted = Vec::new();
    if path("record").is_some() && records.iter().any(|record| answers(&record.event)) {
        wanted.push(RecordingTask::Record(running.run.clone()));
    }
    if let Some(tape) = path(REPLAY) {
        let asked = records.iter().filter_map(|record| recorded_waitpoint(&record.event));
        wanted.extend(asked.map(|(at, opening)| {
            RecordingTask::Answer(Box::new(ReplayQuestion::new(running, &tape, at, opening)))
        }));
    }
    wanted
}

impl ReplayQuestion {
    fn new(running: ActiveRun<'_>, tape: &Path, at: StepAt, opening: Waitpoint) -> ReplayQuestion {
        let step = running.names.step_path(at);
        let before = running.state.openings.iter().take(opening.0 as usize);
        let nth =
            before.filter(|other| is_recorded(other) && running.names.step_path(other.at) == step).count();
        let approvers = running.state.waitpoint(opening).map(|one| one.approvers.clone()).unwrap_or_default();
        let whole = running.state.start.as_ref().map_or(1, |start| start.attempt);
        let (run, tape) = (running.run.clone(), tape.to_owned());
        ReplayQuestion { run, tape, whole, step, at, nth, opening, approvers }
    }

    /// What was answered to the same question.
    fn find_answer<'a>(&self, all: &'a [RecordedDecision]) -> Option<&'a RecordedDecision> {
        all.iter().filter(|one| one.whole == self.whole && one.step == self.step).nth(self.nth)
    }

    /// What was answered then, as it is said now. None: nobody answered.
    fn to_inputs(&self, recorded: &RecordedDecision) -> Vec<RunInput> {
        let decide = |decision, name: &str, reason: Option<&String>| {
            let roles = self.approvers.iter().filter_map(|approver| match approver {
                Approver::Role(role) => Some(role.clone()),
                Approver::User(_) => None,
            });
            let by = DecisionActor { name: name.to_owned(), roles: roles.collect() };
            RunInput::Decide { opening: self.opening, decision, by, reason: reason.cloned() }
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

/// Whether a question is one of those that are recorded: the same as [`asks`] says of its event.
fn is_recorded(opening: &WaitpointState) -> bool {
    match opening.kind {
        WaitpointKind::Gate | WaitpointKind::Wait => true,
        WaitpointKind::Hold(reason) => is_recorded_hold(reason, opening.deadline.is_some()),
    }
}

/// What is said to the thread.
#[derive(Debug)]
pub struct RecordingQueue(Receiver<RecordingTask>);

impl RecordingQueue {
    /// Does what is asked for, until nobody is left to ask. `someone`: a person is there who answers what was not recorded.
    pub fn serve_tasks(self, store: Arc<dyn Store>, host: Weak<Host>, someone: bool, output: CliOutput) {
        let body = move || {
            for wanted in &self.0 {
                match wanted {
                    RecordingTask::Record(run) => record_decisions(&*store, &run, output),
                    RecordingTask::Answer(asked) => {
                        let Some(host) = host.upgrade() else { return };
                        replay_answer(&host, &asked, someone);
                    }
                    RecordingTask::Flush(done) => drop(done.send(())),
                }
            }
        };
        // Without a thread nothing is flushed either, and what is missing is told when it is replayed.
        let _ = std::thread::Builder::new().name("tape".into()).spawn(body);
    }
}

/// Records what people decided in a run so far, if it is one that is recorded.
pub fn record_decisions(store: &dyn Store, run: &RunId, output: CliOutput) {
    if let Err(why) = try_record_decisions(store, run) {
        output.warn(&format!("what was decided is not recorded: {why}"));
    }
}

fn try_record_decisions(store: &dyn Store, run: &RunId) -> Result<(), String> {
    let Some(row) = store.find_run(run).map_err(|error| error.to_string())? else { return Ok(()) };
    let Some(tape) = RunSettings::from_json(&row.about)?.record else { return Ok(()) };
    let tape = Recording::open(&tape).map_err(|error| error.to_string())?;
    let plan = RunLoader::new(store).load_plan(&row).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    let read = store.read_journal(run, 0, &mut |batch| {
        records.extend(batch.records);
        true
    });
    read.map_err(|error| error.to_string())?;
    tape.write_decisions(collect_decisions(&plan, records.iter())).map_err(|error| error.to_string())
}

/// Says what was said when it was recorded. What was not is for a person, and where there is none the run ends.
fn replay_answer(host: &Host, asked: &ReplayQuestion, someone: bool) {
    let recorded = Recording::open(&asked.tape).and_then(|tape| tape.read_decisions());
    let problem = match recorded {
        Ok(all) => match asked.find_answer(&all) {
            Some(recorded) => match send_all_inputs(host, asked, recorded) {
                Some(Err(refusal)) => {
                    format!("what was decided at `{}` is refused now: {refusal}", asked.step)
                }
                Some(Ok(())) | None => return,
            },
            None if someone => return,
            None => format!("`{}` asks for a decision that was not recorded", asked.step),
        },
        Err(error) => error.to_string(),
    };
    let input = RunInput::Cancel { by: REPLAY.to_owned(), reason: Some(problem) };
    let _ = host.send_input(&asked.run, input);
}

/// Says all that belongs to one answer, up to what is refused. None: nothing was to be said, or nobody has the run.
fn send_all_inputs(
    host: &Host,
    asked: &ReplayQuestion,
    recorded: &RecordedDecision,
) -> Option<Result<(), Refusal>> {
    let mut last = None;
    for input in asked.to_inputs(recorded) {
        last = Some(host.send_input(&asked.run, input)?);
        if matches!(last, Some(Err(_))) {
            break;
        }
    }
    last
}

/// A folder for a recording, before anything is recorded in it.
pub fn create_recording(path: &Path, plan: &Plan, output: CliOutput) -> Result<PathBuf, Exit> {
    let workflow = &plan.definition.root().workflow;
    let about = json!({
        "id": workflow.id.to_string(),
        "version": workflow.version,
        "dialect": workflow.origin.dialect,
    });
    recording_path(Recording::create(path, &about), output)
}

/// A recording that is there.
pub fn open_recording(path: &Path, output: CliOutput) -> Result<PathBuf, Exit> {
    recording_path(Recording::open(path), output)
}

fn recording_path(tape: Result<Recording, RecordingError>, output: CliOutput) -> Result<PathBuf, Exit> {
    let tape = tape.map_err(|error| error.to_string());
    let whole = tape.and_then(|tape| std::fs::canonicalize(tape.path()).map_err(|error| error.to_string()));
    whole.map_err(|why| output.refuse(Exit::Refused, &why, None))
}

/// How recording or replaying went.
#[derive(Debug)]
pub struct RecordingSummary {
    replayed: bool,
    folder: PathBuf,
    attempts: usize,
    /// What is not recorded whole, or was not as it was recorded.
    problems: Vec<String>,
    /// What was recorded and not asked for.
    unasked: Vec<String>,
}

impl RecordingSummary {
    /// Of a run that is over, and of those that it retried. None: it was neither recorded nor replayed.
    pub fn from_runs(about: &RunSettings, state: &Path, runs: &[RunId]) -> Option<RecordingSummary> {
        let (folder, replayed) = match (&about.record, &about.replay) {
            (Some(folder), _) => (folder.clone(), false),
            (None, Some(folder)) => (folder.clone(), true),
            (None, None) => return None,
        };
        let (mut places, mut problems) = (BTreeSet::new(), Vec::new());
        for run in runs {
            let kept = RootFolder::open(state).and_then(|state| read_markers(&RunDir::open(&state, run)?));
            // A run without a folder has had no attempt.
            for marker in kept.unwrap_or_default() {
                problems.extend(marker.problem.map(|problem| problem.trim_end().to_owned()));
                places.insert(marker.place);
            }
        }
        let all = Recording::open(&folder).and_then(|tape| tape.list_entries()).unwrap_or_default();
        let unasked = all.into_iter().filter(|place| replayed && !places.contains(place)).collect();
        Some(RecordingSummary { replayed, folder, attempts: places.len(), problems, unasked })
    }

    pub fn to_json(&self) -> (&'static str, Value) {
        let RecordingSummary { folder, attempts, problems, unasked, .. } = self;
        match self.replayed {
            true => (
                "replayed",
                json!({"from": folder, "attempts": attempts, "differs": problems, "unasked": unasked}),
            ),
            false => ("recorded", json!({"to": folder, "attempts": attempts, "not_whole": problems})),
        }
    }

    /// Tells people, and says how the command ends.
    pub fn print_summary(&self, exit: Exit, output: CliOutput) -> Exit {
        let RecordingSummary { folder, attempts, problems, unasked, .. } = self;
        if output.format == OutputFormat::Human {
            let s = if *attempts == 1 { "" } else { "s" };
            output.print_text(&match self.replayed {
                true => format!(
                    "replayed {attempts} attempt{s} from {}: nothing was started or spent, and what it cost is what was recorded\n",
                    folder.display()
                ),
                false => format!("recorded {attempts} attempt{s} in {}\n", folder.display()),
            });
        }
        if !output.is_json() {
            let word = if self.replayed { "not as it was recorded" } else { "not recorded whole" };
            problems.iter().for_each(|problem| output.warn(&format!("{word}: {problem}")));
            if !unasked.is_empty() {
                output.warn(&format!("recorded and not asked for: {}", unasked.join(", ")));
            }
        }
        match (problems.is_empty(), exit) {
            (false, Exit::Done) => Exit::Failed,
            _ => exit,
        }
    }
}
