//! Telemetry of IOA runs: computes the events that IOA requires, writes them to a file of the run and sends them to
//! subscribed channels.
//!
//! Owns the names, classes and fields of the events, the correlation id of a run, and the delivery: each event is sent
//! once, or again with the same id after a crash; the file of the run lists the sent ones. All events are computed from
//! the state, so events that a crash lost are sent when the run is resumed. A thread sends them. A channel that fails
//! is not tried again by this process.

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

use serde::Serialize;
use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptRole, Event, InstanceIx, JournalBatch, RunState, StepAt, StepOutcome, UndoWalk, Waitpoint,
        WaitpointKind, format_utc,
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
    pub(super) fn record_batch(&mut self, shared: &Arc<ExecutorContext>, running: ActiveRun<'_>, batch: &JournalBatch) {
        let ActiveRun { run, plan, state, settings, .. } = running;
        if plan.definition.root().workflow.extensions.resource.is_none() {
            return;
        }
        let is_new = self.known.insert(run.clone());
        let (asking, events) = match is_new {
            true => (Some(settings.surroundings.telemetry.clone()), all_events(plan, state)),
            false => (None, new_events(running, batch)),
        };
        if events.is_empty() && asking.is_none() {
            return;
        }
        let to = self.teller.get_or_insert_with(|| spawn_sender(shared));
        // If the sender thread is gone, the host that resumes the run sends the events.
        let _ = to.0.send(TelemetryBatch { run: run.clone(), asking, events });
    }

    pub(super) fn forget(&mut self, run: &RunId) {
        self.known.remove(run);
    }

    /// Waits until all events have been sent, up to a time limit.
    pub(super) fn finish(&mut self) {
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
                events.extend(step_events(plan, state, *at).into_iter().map(|(_, event)| event));
            }
            Event::AttemptStarted { attempt, .. } if attempt.role == AttemptRole::Main => {
                events.extend(start_event(plan, state, attempt.at).map(|(_, event)| event));
            }
            Event::StepHeld { opening, .. } => {
                events.extend(governance_event(plan, state, *opening).map(|(_, event)| event));
            }
            Event::UndoBegan { .. } | Event::RunDecided { .. } => whole = true,
            _ => {}
        }
    }
    events.extend(whole.then(|| run_events(plan, state)).into_iter().flatten());
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

/// One telemetry event.
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

/// All events so far, of the run as a whole and of each step.
pub(super) fn all_events(plan: &Plan, state: &RunState) -> Vec<TelemetryEvent> {
    let count = state.instances.first().map_or(0, |root| root.steps.len());
    let steps = (0..).take(count).map(|step| StepAt(InstanceIx::ROOT, step));
    let begun = steps.clone().filter_map(|at| start_event(plan, state, at));
    let ended = steps.flat_map(|at| step_events(plan, state, at));
    let openings = (0..).take(state.openings.len()).map(Waitpoint);
    let stopped = openings.filter_map(|opening| governance_event(plan, state, opening));
    let mut events: Vec<(Timestamp, TelemetryEvent)> = begun.chain(stopped).chain(ended).collect();
    // In chronological order; the run's own events come before and after them.
    events.sort_by_key(|(at, _)| *at);
    let (first, last): (Vec<_>, Vec<_>) =
        run_events(plan, state).into_iter().partition(|event| event.event.ends_with("workflow_started"));
    first.into_iter().chain(events.into_iter().map(|(_, event)| event)).chain(last).collect()
}

/// The events of the run as a whole.
pub(super) fn run_events(plan: &Plan, state: &RunState) -> Vec<TelemetryEvent> {
    let Some(of) = TelemetryBuilder::new(plan, state) else { return Vec::new() };
    let root = state.instance(InstanceIx::ROOT);
    let mut events = vec![of.build_event(
        "workflow_started",
        "audit",
        ("started", root.started),
        json!({"trigger": "manual", "domainsInvolved": of.workflow.extensions.resource}),
    )];
    if let Some(walk) = state.walks.get(&UndoWalk::Workflow(InstanceIx::ROOT)).filter(|walk| !walk.targets.is_empty()) {
        let steps: Vec<&str> = walk.targets.iter().map(|target| of.step(target.at).id.as_str()).collect();
        let failed = of.first_failed_step();
        let at = failed.and_then(|at| state.visit_state(at)?.ended).unwrap_or(root.started);
        let payload = json!({"failedStep": failed.map(|at| of.step(at).id.as_str()), "compensationSteps": steps});
        events.push(of.build_event("workflow_compensating", "alert", ("compensating", at), payload));
    }
    events.extend(of.run_end_event());
    events
}

/// The event for the start of an agent's work on a step, with its time.
pub(super) fn start_event(plan: &Plan, state: &RunState, at: StepAt) -> Option<(Timestamp, TelemetryEvent)> {
    let of = TelemetryBuilder::new(plan, state).filter(|_| at.0 == InstanceIx::ROOT)?;
    let started = state.visit_state(at)?.started?;
    let payload = json!({"agentName": agent_name(of.step(at))?, "stepName": of.step(at).id.as_str()});
    let part = format!("agent.{}.{}.started", at.1, state.step(at).visit);
    Some((started, of.build_event("agent_started", "trace", (&part, started), payload)))
}

/// The events for the end of a step and of its agent, with their times.
pub(super) fn step_events(plan: &Plan, state: &RunState, at: StepAt) -> Vec<(Timestamp, TelemetryEvent)> {
    step_end_events(plan, state, at).unwrap_or_default()
}

fn step_end_events(plan: &Plan, state: &RunState, at: StepAt) -> Option<Vec<(Timestamp, TelemetryEvent)>> {
    let of = TelemetryBuilder::new(plan, state).filter(|_| at.0 == InstanceIx::ROOT)?;
    let (step, ended, more) = (of.step(at), state.step(at), state.visit_state(at)?);
    let end = more.ended?;
    let well = match ended.outcome? {
        StepOutcome::Succeeded => true,
        StepOutcome::Skipped(_) => return None,
        _ => false,
    };
    let took = more.started.map_or(Millis(0), |started| end.duration_since(started));
    let error = more.error.as_ref().map(|error| error.message.as_str());
    let mut events = Vec::new();
    // A gate has no agent, and a step that never started had none yet.
    if let Some(name) = agent_name(step).filter(|_| more.started.is_some()) {
        let mut payload =
            json!({"agentName": name, "stepName": step.id.as_str(), "durationMs": took.0, "error": error});
        payload.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
        let part = format!("agent.{}.{}.ended", at.1, ended.visit);
        let (name, class) = if well { ("agent_completed", "trace") } else { ("agent_failed", "alert") };
        events.push((end, of.build_event(name, class, (&part, end), payload)));
    }
    let mut payload = json!({"stepName": step.id.as_str(), "agent": agent_name(step), "durationMs": took.0});
    if !well {
        payload["error"] = error.into();
        payload["onFailure"] = ended.effect.map(failure_word).into();
    }
    let (name, class) = if well { ("workflow_step_completed", "trace") } else { ("workflow_step_failed", "alert") };
    let part = format!("step.{}.{}", at.1, ended.visit);
    events.push((end, of.build_event(name, class, (&part, end), payload)));
    Some(events)
}

/// The event for a governance hold, with its time.
pub(super) fn governance_event(
    plan: &Plan,
    state: &RunState,
    opening: Waitpoint,
) -> Option<(Timestamp, TelemetryEvent)> {
    let of = TelemetryBuilder::new(plan, state)?;
    let asked = state.waitpoint(opening)?;
    if asked.at.0 != InstanceIx::ROOT || asked.kind != WaitpointKind::Hold(HoldReason::Governance) {
        return None;
    }
    let step = of.step(asked.at);
    let payload = json!({"stepName": step.id.as_str(), "agent": agent_name(step), "reason": asked.message});
    let part = format!("governance.{}", opening.0);
    let event = of.build_event("governance_escalation_triggered", "alert", (&part, asked.opened), payload);
    Some((asked.opened, event))
}

/// Builds the events of a run that has begun.
struct TelemetryBuilder<'a> {
    plan: &'a Plan,
    state: &'a RunState,
    workflow: &'a Workflow,
    run: &'a RunId,
}

impl<'a> TelemetryBuilder<'a> {
    fn new(plan: &'a Plan, state: &'a RunState) -> Option<TelemetryBuilder<'a>> {
        let (start, _) = (state.start.as_ref()?, state.instances.first()?);
        Some(TelemetryBuilder { plan, state, workflow: &plan.definition.root().workflow, run: &start.run })
    }

    fn step(&self, at: StepAt) -> &'a Step {
        self.plan.definition.scope(self.state.instance(at.0).scope).step(at.1)
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
