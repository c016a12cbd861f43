//! Telemetry of IOA runs: writes events to a file of the run and sends them to subscribed channels.
//!
//! Owns the delivery: each event is sent once, or again with the same id after a crash; the file of the run lists the
//! sent ones. All events are computed from the state, so events that a crash lost are sent when the run is resumed. A
//! thread sends them. A channel that fails is not tried again by this process.

mod ioa;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptRole, Event, JournalBatch},
    ids::RunId,
};

use super::{
    executor_context::ExecutorContext,
    hook::{HookError, send_message},
};
use crate::{
    executor_api::ActiveRun,
    notify::{self, ChannelMessage},
    run_settings::TelemetrySubscription,
    workspace::RunDir,
};

pub use self::ioa::TelemetryEvent;

/// The files in the folder of the run with the sent events and with the failures.
const TOLD: &str = "telemetry.jsonl";
const FAILED: &str = "telemetry-failed.jsonl";
/// The maximum time to send the remaining events when the process ends.
const LEAVING: Duration = Duration::from_secs(5);
/// The maximum size of the file with the sent events.
const MOST: u64 = 64 * 1024 * 1024;

/// Collects the events of runs, and sends them on a thread.
#[derive(Default)]
pub(crate) struct TelemetrySender {
    teller: Option<(Sender<TelemetryBatch>, Receiver<()>)>,
    /// The runs that this process has seen.
    known: BTreeSet<RunId>,
}

struct TelemetryBatch {
    run: RunId,
    /// The subscriptions, with the first batch of a run.
    asking: Option<Vec<TelemetrySubscription>>,
    events: Vec<TelemetryEvent>,
}

impl fmt::Debug for TelemetrySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetrySender").finish_non_exhaustive()
    }
}

impl TelemetrySender {
    /// Sends the events of a durable journal batch.
    pub fn record_batch(&mut self, shared: &Arc<ExecutorContext>, running: ActiveRun<'_>, batch: &JournalBatch) {
        let ActiveRun { run, plan, state, settings, .. } = running;
        if plan.definition.root().workflow.extensions.resource.is_none() {
            return;
        }
        let is_new = self.known.insert(run.clone());
        let (asking, events) = match is_new {
            true => (Some(settings.surroundings.telemetry.clone()), ioa::all_events(plan, state)),
            false => (None, new_events(running, batch)),
        };
        if events.is_empty() && asking.is_none() {
            return;
        }
        let to = self.teller.get_or_insert_with(|| spawn_sender(shared));
        // If the sender thread is gone, the host that resumes the run sends the events.
        let _ = to.0.send(TelemetryBatch { run: run.clone(), asking, events });
    }

    pub fn forget(&mut self, run: &RunId) {
        self.known.remove(run);
    }

    /// Waits until all events have been sent, up to a time limit.
    pub fn finish(&mut self) {
        if let Some((to, done)) = self.teller.take() {
            drop(to);
            let _ = done.recv_timeout(LEAVING);
        }
    }
}

impl TelemetrySubscription {
    pub(crate) fn wants(&self, event: &TelemetryEvent) -> bool {
        let short = event.event.rsplit('.').next().unwrap_or_default();
        self.events.iter().any(|asked| asked == "*" || asked == event.class || asked == short)
    }
}

/// The events of a batch. The sender skips those that were already sent.
fn new_events(running: ActiveRun<'_>, batch: &JournalBatch) -> Vec<TelemetryEvent> {
    let ActiveRun { plan, state, .. } = running;
    let mut events = Vec::new();
    let mut whole = false;
    for record in &batch.records {
        match &record.event {
            Event::StepEnded { at, .. } => {
                events.extend(ioa::step_events(plan, state, *at).into_iter().map(|(_, event)| event));
            }
            Event::AttemptStarted { attempt, .. } if attempt.role == AttemptRole::Main => {
                events.extend(ioa::start_event(plan, state, attempt.at).map(|(_, event)| event));
            }
            Event::StepHeld { opening, .. } => {
                events.extend(ioa::governance_event(plan, state, *opening).map(|(_, event)| event));
            }
            Event::UndoBegan { .. } | Event::RunDecided { .. } => whole = true,
            _ => {}
        }
    }
    events.extend(whole.then(|| ioa::run_events(plan, state)).into_iter().flatten());
    events
}

fn spawn_sender(shared: &Arc<ExecutorContext>) -> (Sender<TelemetryBatch>, Receiver<()>) {
    let (to, orders) = channel::<TelemetryBatch>();
    let (ended, done) = channel();
    let shared = Arc::clone(shared);
    let body = move || {
        let mut told = BTreeMap::new();
        for order in orders {
            send_batch(&shared, order, &mut told);
        }
        let _ = ended.send(());
    };
    // Without a thread nothing is sent now; the events can still be computed from the state.
    let _ = std::thread::Builder::new().name("telemetry".into()).spawn(body);
    (to, done)
}

/// The sender's data about a run.
struct RunTelemetry {
    folder: PathBuf,
    ids: BTreeSet<String>,
    asking: Vec<TelemetrySubscription>,
}

fn send_batch(shared: &ExecutorContext, order: TelemetryBatch, all: &mut BTreeMap<RunId, RunTelemetry>) {
    if let Some(asking) = order.asking {
        let Ok(run) = RunDir::create(&shared.state, &order.run) else { return };
        let ids = read_sent_ids(&run);
        all.insert(order.run.clone(), RunTelemetry { folder: run.path().to_owned(), ids, asking });
    }
    let Some(told) = all.get_mut(&order.run) else { return };
    for event in order.events {
        if !told.ids.insert(event.id.clone()) {
            continue;
        }
        let value = shared.redactor.redact_value(&json!(event));
        told.asking.retain(|asking| match asking.wants(&event).then(|| send_event(shared, asking, &event, &value)) {
            Some(Err(why)) => {
                let failed = json!({
                    "id": event.id,
                    "channel": asking.name,
                    "failed": shared.redactor.redact_str(&why.to_string()),
                });
                let _ = notify::append_line(&told.folder.join(FAILED), &failed);
                false
            }
            Some(Ok(())) | None => true,
        });
        // Written last, because the line says that the channels have been notified.
        let _ = notify::append_line(&told.folder.join(TOLD), &value);
    }
}

/// The ids of events that earlier processes sent. An incomplete line does not count.
fn read_sent_ids(run: &RunDir) -> BTreeSet<String> {
    let text = run.read_file(TOLD, MOST).unwrap_or_default();
    let lines = String::from_utf8_lossy(&text).into_owned();
    let id = |line: &str| serde_json::from_str::<Value>(line).ok()?.get("id")?.as_str().map(str::to_owned);
    lines.lines().filter_map(id).collect()
}

fn send_event(
    shared: &ExecutorContext,
    asking: &TelemetrySubscription,
    event: &TelemetryEvent,
    value: &Value,
) -> Result<(), HookError> {
    let text = |field: &str| value["payload"].get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let lines = [text("stepName"), text("failedStep"), text("error")];
    let lines: Vec<String> = lines.into_iter().filter(|text| !text.is_empty()).collect();
    let message = ChannelMessage {
        id: event.id.clone(),
        title: format!("{}: {}", text("workflowName"), event.event),
        text: lines.join(": "),
        target: None,
        body: value.clone(),
    };
    send_message(shared, &asking.channel, &message)
}
