//! Telemetry of IOA runs: computes the events that IOA requires, writes them to a file of the run and sends them to
//! subscribed channels.
//!
//! Owns the names, classes and fields of the events, the correlation id of a run, and the delivery: each event is sent
//! once, or again with the same id after a crash; the file of the run lists the sent ones. All events are computed from
//! the state, so events that a crash lost are sent when the run is resumed. A thread sends them. A channel that fails
//! is not tried again by this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use serde::Serialize;
use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptRole, Event, InstanceIx, InstanceState, JournalBatch, RunState, StepAt, StepOutcome, UndoWalk,
        Waitpoint, WaitpointKind, format_utc,
    },
    ids::{RunId, format_uuid_v4},
    ir::{HoldReason, OutcomeAction, OutcomeEffect, RunStatus, Step, StepKindSpec, WorkerSpec, Workflow},
    plan::Plan,
    time::{Millis, Timestamp},
};

use crate::{
    executor::{
        ExecutorContext,
        publish::{HookError, send_message},
    },
    executor_api::ActiveRun,
    notify::{self, ChannelMessage},
    run_settings::TelemetrySubscription,
    workspace::RunDir,
};

/// The files in the folder of the run with the sent events and with the failures.
const SENT: &str = "telemetry.jsonl";
const FAILED: &str = "telemetry-failed.jsonl";
/// The maximum time to send the remaining events when the process ends.
const LEAVING: Duration = Duration::from_secs(5);
/// The maximum size of the file with the sent events.
const MOST: u64 = 64 * 1024 * 1024;

/// Collects the events of runs, and sends them on a thread.
#[derive(Default)]
pub(crate) struct TelemetrySender {
    sender: Option<(Sender<TelemetryBatch>, Receiver<()>)>,
    /// The runs that this process has seen.
    known: BTreeSet<RunId>,
}

struct TelemetryBatch {
    run: RunId,
    /// The subscriptions, with the first batch of a run.
    subscriptions: Option<Vec<TelemetrySubscription>>,
    events: Vec<TelemetryEvent>,
}

impl TelemetrySender {
    /// Sends the events of a durable journal batch.
    pub(super) fn record_batch(&mut self, shared: &Arc<ExecutorContext>, running: ActiveRun<'_>, batch: &JournalBatch) {
        let builder = TelemetryBuilder::new(running);
        if builder.workflow.extensions.resource.is_none() {
            return;
        }
        let (subscriptions, events) = match self.known.insert(running.run.clone()) {
            true => (Some(running.settings.surroundings.telemetry.clone()), builder.all_events()),
            false => (None, builder.new_events(batch)),
        };
        if events.is_empty() && subscriptions.is_none() {
            return;
        }
        let (to, _) = self.sender.get_or_insert_with(|| spawn_sender(shared));
        // If the sender thread is gone, the host that resumes the run sends the events.
        let _ = to.send(TelemetryBatch { run: running.run.clone(), subscriptions, events });
    }

    pub(super) fn forget(&mut self, run: &RunId) {
        self.known.remove(run);
    }

    /// Waits until all events have been sent, up to a time limit.
    pub(super) fn finish(&mut self) {
        if let Some((to, done)) = self.sender.take() {
            drop(to);
            let _ = done.recv_timeout(LEAVING);
        }
    }
}

impl TelemetrySubscription {
    pub(crate) fn wants(&self, event: &TelemetryEvent) -> bool {
        let short = event.event.rsplit('.').next().unwrap_or_default();
        self.events.iter().any(|name| name == "*" || name == event.class || name == short)
    }
}

fn spawn_sender(shared: &Arc<ExecutorContext>) -> (Sender<TelemetryBatch>, Receiver<()>) {
    let (to, batches) = channel();
    let (ended, done) = channel();
    let shared = Arc::clone(shared);
    let body = move || {
        let mut runs = BTreeMap::new();
        for batch in batches {
            send_batch(&shared, batch, &mut runs);
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
    /// The ids of the sent events.
    ids: BTreeSet<String>,
    /// The subscriptions whose channels work.
    subscriptions: Vec<TelemetrySubscription>,
}

fn send_batch(shared: &ExecutorContext, batch: TelemetryBatch, runs: &mut BTreeMap<RunId, RunTelemetry>) {
    if let Some(subscriptions) = batch.subscriptions {
        let Ok(run) = RunDir::create(&shared.state, &batch.run) else { return };
        let ids = read_sent_ids(&run);
        runs.insert(batch.run.clone(), RunTelemetry { folder: run.path().to_owned(), ids, subscriptions });
    }
    let Some(run) = runs.get_mut(&batch.run) else { return };
    for event in batch.events {
        if !run.ids.insert(event.id.clone()) {
            continue;
        }
        let value = shared.redactor.redact_value(&json!(event));
        run.subscriptions.retain(|subscription| {
            let sent = subscription.wants(&event).then(|| send_event(shared, subscription, &event, &value));
            let Some(Err(why)) = sent else { return true };
            let why = shared.redactor.redact_str(&why.to_string());
            let failed = json!({"id": event.id, "channel": subscription.name, "failed": why});
            let _ = notify::append_line(&run.folder.join(FAILED), &failed);
            false
        });
        // Written last, because the line says that the channels have been notified.
        let _ = notify::append_line(&run.folder.join(SENT), &value);
    }
}

/// The ids of events that earlier processes sent. An incomplete line does not count.
fn read_sent_ids(run: &RunDir) -> BTreeSet<String> {
    let text = run.read_file(SENT, MOST).unwrap_or_default();
    let lines = String::from_utf8_lossy(&text).into_owned();
    let id = |line: &str| serde_json::from_str::<Value>(line).ok()?.get("id")?.as_str().map(str::to_owned);
    lines.lines().filter_map(id).collect()
}

fn send_event(
    shared: &ExecutorContext,
    subscription: &TelemetrySubscription,
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
    send_message(shared, &subscription.channel, &message)
}
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TelemetryEvent {
    /// The id, equal each time the event is sent.
    pub id: String,
    /// `domain.kind_action`.
    pub event: String,
    /// `audit`, `trace` or `alert`.
    pub class: &'static str,
    pub timestamp: String,
    #[serde(rename = "correlationId")]
    pub correlation: String,
    pub payload: Value,
}

/// The correlation id of all events of a run, in the form of a UUID.
fn correlation_id(run: &RunId) -> String {
    let hash = blake3::hash(run.as_str().as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    format_uuid_v4(bytes)
}
type TimedEvent = (Timestamp, TelemetryEvent);

/// Builds the events of a run.
struct TelemetryBuilder<'a> {
    run: &'a RunId,
    plan: &'a Plan,
    state: &'a RunState,
    workflow: &'a Workflow,
}

impl<'a> TelemetryBuilder<'a> {
    fn new(running: ActiveRun<'a>) -> TelemetryBuilder<'a> {
        let ActiveRun { run, plan, state, .. } = running;
        TelemetryBuilder { run, plan, state, workflow: &plan.definition.root().workflow }
    }

    /// All events so far, of the run as a whole and of each step.
    fn all_events(&self) -> Vec<TelemetryEvent> {
        let count = self.state.instances.first().map_or(0, |root| root.steps.len());
        let steps = (0..).take(count).map(|step| StepAt(InstanceIx::ROOT, step));
        let begun = steps.clone().filter_map(|at| self.start_event(at));
        let ended = steps.flat_map(|at| self.step_end_events(at));
        let waitpoints = (0..).take(self.state.openings.len()).map(Waitpoint);
        let held = waitpoints.filter_map(|waitpoint| self.governance_event(waitpoint));
        let mut events: Vec<TimedEvent> = begun.chain(held).chain(ended).collect();
        // In chronological order; the run's own events come before and after them.
        events.sort_by_key(|(at, _)| *at);
        let (first, last): (Vec<_>, Vec<_>) =
            self.run_events().into_iter().partition(|event| event.event.ends_with("workflow_started"));
        first.into_iter().chain(events.into_iter().map(|(_, event)| event)).chain(last).collect()
    }

    /// The events of a batch. The sender skips those that were already sent.
    fn new_events(&self, batch: &JournalBatch) -> Vec<TelemetryEvent> {
        let (mut events, mut whole) = (Vec::new(), false);
        for record in &batch.records {
            match &record.event {
                Event::StepEnded { at, .. } => events.extend(self.step_end_events(*at)),
                Event::AttemptStarted { attempt, .. } if attempt.role == AttemptRole::Main => {
                    events.extend(self.start_event(attempt.at));
                }
                Event::StepHeld { opening, .. } => events.extend(self.governance_event(*opening)),
                Event::UndoBegan { .. } | Event::RunDecided { .. } => whole = true,
                _ => {}
            }
        }
        let run_events = whole.then(|| self.run_events()).into_iter().flatten();
        events.into_iter().map(|(_, event)| event).chain(run_events).collect()
    }

    /// The events of the run as a whole. None if it has not begun.
    fn run_events(&self) -> Vec<TelemetryEvent> {
        let Some(root) = self.root() else { return Vec::new() };
        let mut events = vec![self.build_event(
            "workflow_started",
            "audit",
            ("started", root.started),
            json!({"trigger": "manual", "domainsInvolved": self.workflow.extensions.resource}),
        )];
        let walk = self.state.walks.get(&UndoWalk::Workflow(InstanceIx::ROOT));
        if let Some(walk) = walk.filter(|walk| !walk.targets.is_empty()) {
            let steps: Vec<&str> = walk.targets.iter().map(|target| self.step(target.at).id.as_str()).collect();
            let failed = self.first_failed_step();
            let at = failed.and_then(|at| self.state.visit_state(at)?.ended).unwrap_or(root.started);
            let payload = json!({"failedStep": failed.map(|at| self.step(at).id.as_str()), "compensationSteps": steps});
            events.push(self.build_event("workflow_compensating", "alert", ("compensating", at), payload));
        }
        events.extend(self.run_end_event());
        events
    }

    /// The event for the start of an agent's work on a step.
    fn start_event(&self, at: StepAt) -> Option<TimedEvent> {
        let step = self.root_step(at)?;
        let started = self.state.visit_state(at)?.started?;
        let payload = json!({"agentName": agent_name(step)?, "stepName": step.id.as_str()});
        let part = format!("agent.{}.{}.started", at.1, self.state.step(at).visit);
        Some((started, self.build_event("agent_started", "trace", (&part, started), payload)))
    }

    /// The events for the end of a step and of its agent.
    fn step_end_events(&self, at: StepAt) -> Vec<TimedEvent> {
        let mut events = Vec::new();
        let Some(step) = self.root_step(at) else { return events };
        let (now, visit) = (self.state.step(at), self.state.visit_state(at));
        let (Some(outcome), Some(visit)) = (now.outcome, visit) else { return events };
        let Some(end) = visit.ended.filter(|_| !matches!(outcome, StepOutcome::Skipped(_))) else { return events };
        let well = outcome == StepOutcome::Succeeded;
        let took = visit.started.map_or(Millis(0), |started| end.duration_since(started));
        let error = visit.error.as_ref().map(|error| error.message.as_str());
        // A gate has no agent, and a step that never started had none yet.
        if let Some(name) = agent_name(step).filter(|_| visit.started.is_some()) {
            let mut payload =
                json!({"agentName": name, "stepName": step.id.as_str(), "durationMs": took.0, "error": error});
            payload.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
            let part = format!("agent.{}.{}.ended", at.1, now.visit);
            let (name, class) = if well { ("agent_completed", "trace") } else { ("agent_failed", "alert") };
            events.push((end, self.build_event(name, class, (&part, end), payload)));
        }
        let mut payload = json!({"stepName": step.id.as_str(), "agent": agent_name(step), "durationMs": took.0});
        if !well {
            payload["error"] = error.into();
            payload["onFailure"] = now.effect.map(failure_word).into();
        }
        let (name, class) = if well { ("workflow_step_completed", "trace") } else { ("workflow_step_failed", "alert") };
        let part = format!("step.{}.{}", at.1, now.visit);
        events.push((end, self.build_event(name, class, (&part, end), payload)));
        events
    }

    /// The event for a governance hold.
    fn governance_event(&self, waitpoint: Waitpoint) -> Option<TimedEvent> {
        let held = self.state.waitpoint(waitpoint)?;
        let step = self.root_step(held.at).filter(|_| held.kind == WaitpointKind::Hold(HoldReason::Governance))?;
        let payload = json!({"stepName": step.id.as_str(), "agent": agent_name(step), "reason": held.message});
        let part = format!("governance.{}", waitpoint.0);
        let event = self.build_event("governance_escalation_triggered", "alert", (&part, held.opened), payload);
        Some((held.opened, event))
    }

    fn step(&self, at: StepAt) -> &'a Step {
        self.plan.definition.scope(self.state.instance(at.0).scope).step(at.1)
    }

    /// A step of the workflow itself. The steps inside of others have no events.
    fn root_step(&self, at: StepAt) -> Option<&'a Step> {
        self.root().filter(|_| at.0 == InstanceIx::ROOT).map(|_| self.step(at))
    }

    /// The root instance, once the run has begun.
    fn root(&self) -> Option<&'a InstanceState> {
        self.state.instances.first().filter(|_| self.state.start.is_some())
    }

    fn build_event(
        &self,
        name: &str,
        class: &'static str,
        (part, at): (&str, Timestamp),
        payload: Value,
    ) -> TelemetryEvent {
        let resource = self.workflow.extensions.resource.as_ref();
        let domain = resource.and_then(|resource| resource.domains.first()).map_or("workflow", String::as_str);
        let mut own = json!({"workflowName": self.workflow.name.as_deref().unwrap_or(self.workflow.id.as_str())});
        if let (Value::Object(own), Value::Object(payload)) = (&mut own, payload) {
            own.extend(payload);
        }
        TelemetryEvent {
            id: format!("{}.telemetry.{part}", self.run),
            event: format!("{domain}.{name}"),
            class,
            timestamp: format_utc(at),
            correlation: correlation_id(self.run),
            payload: own,
        }
    }

    /// The first step whose failure counts against the run.
    fn first_failed_step(&self) -> Option<StepAt> {
        let steps = &self.state.instance(InstanceIx::ROOT).steps;
        let counts = |step: &skein_core::engine::StepState| {
            let bad = !matches!(step.outcome, None | Some(StepOutcome::Succeeded | StepOutcome::Skipped(_)));
            bad && step.effect.is_none_or(|effect| effect.then != OutcomeAction::GoOn)
        };
        let failed = (0..).zip(steps).filter(|(_, step)| counts(step));
        failed.map(|(i, _)| StepAt(InstanceIx::ROOT, i)).min_by_key(|at| {
            (self.state.visit_state(*at).and_then(|more| more.ended).unwrap_or(Timestamp(i64::MAX)), at.1)
        })
    }

    fn run_end_event(&self) -> Option<TelemetryEvent> {
        let end = self.state.end.as_ref()?;
        let root = self.state.instance(InstanceIx::ROOT);
        if end.status == RunStatus::Succeeded {
            let completed = root.steps.iter().filter(|step| step.outcome == Some(StepOutcome::Succeeded)).count();
            let spent = self.state.spent;
            let usd = spent.micro_usd.map(|usd| usd as f64 / 1e6);
            let payload = json!({
                "totalDurationMs": end.at.duration_since(root.started).0,
                "stepsCompleted": completed,
                "costAccumulated": {"tokens": spent.tokens, "cost": usd, "currency": "USD"},
            });
            return Some(self.build_event("workflow_completed", "audit", ("end", end.at), payload));
        }
        let failed = self.first_failed_step().map(|at| self.step(at).id.as_str());
        let payload = json!({
            "failedStep": failed,
            "failurePolicy": self.failure_policy(),
            "error": end.error.as_ref().map(|error| error.message.as_str()),
            "status": end.status.as_str(),
        });
        Some(self.build_event("workflow_failed", "alert", ("end", end.at), payload))
    }

    /// The workflow's failure policy for steps without their own.
    fn failure_policy(&self) -> &'static str {
        let scope = &self.plan.definition.root().workflow.scope;
        match (scope.retry.is_some(), scope.undo.on_timeout) {
            (true, _) => "retry",
            (false, true) => "compensate",
            (false, false) => "abort",
        }
    }
}

fn agent_name(step: &Step) -> Option<&str> {
    match &step.kind {
        StepKindSpec::Work(work) => match &work.worker {
            WorkerSpec::Agent { name, .. } => name.as_deref(),
            _ => None,
        },
        _ => None,
    }
}

fn failure_word(effect: OutcomeEffect) -> &'static str {
    match effect.then {
        OutcomeAction::Undo => "compensate",
        OutcomeAction::Abort => "abort",
        OutcomeAction::GoOn => "skip",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_is_a_uuid_and_stays_the_same() {
        let one = correlation_id(&RunId::new("r1").unwrap());
        assert_eq!(one, correlation_id(&RunId::new("r1").unwrap()));
        assert_ne!(one, correlation_id(&RunId::new("r2").unwrap()));
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!((parts, &one[14..15]), (vec![8, 4, 4, 4, 12], "4"));
    }
}
