//! Audit records derived from the journal of a run: decisions by people and by timeouts, tools that change something,
//! secrets that are handed out or refused, overrides, and who cancelled or tampered.
//!
//! Owns which events are audited and their form. Each record follows from one event, the plan and the run settings, and
//! is appended with the row of that event. Most events lead to no record, and cost nothing.

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptInput, Event, HaltReason, JournalRecord, Publication, Refusal, StepAt,
        StepOutcome, Verdict, Waitpoint, WaitpointKind, wanted,
    },
    ir::{ErrorClass, StepKindSpec, WorkSpec, WorkerSpec},
    secret_name::to_slug,
    time::Timestamp,
};

use super::{owned_run::QueuedDecision, retry::CALLED_OFF};
use crate::{
    audit::{AuditActor, AuditEntry, AuditSubject, redact_to_hash},
    executor,
    executor_api::ActiveRun,
    recording::TIME,
    run_settings::{RunOverride, SecretDelivery, SecretGrant, ToolSettings},
};

/// An audit record before its time and event number are known.
struct AuditDraft {
    actor: AuditActor,
    action: &'static str,
    subject: AuditSubject,
    input: Value,
    output: Value,
}

impl AuditDraft {
    fn into_entry(self, at: Timestamp) -> AuditEntry {
        let AuditDraft { actor, action, subject, input, output } = self;
        AuditEntry { at, actor, action, subject, input, output }
    }
}

/// Returns the audit records of an event, with its number. The names must already include the event.
pub(crate) fn audit_event(running: ActiveRun<'_>, number: u64, record: &JournalRecord) -> Vec<AuditEntry> {
    let entry = |mut draft: AuditDraft| {
        draft.input["event"] = json!(number);
        draft.into_entry(record.at)
    };
    draft_entries(running, &record.event).into_iter().map(entry).collect()
}

/// Returns the audit record of a refused decision, for which there is no event.
pub(crate) fn audit_refused_decision(
    running: ActiveRun<'_>,
    now: Timestamp,
    attempt: &QueuedDecision,
    refusal: &Refusal,
) -> AuditEntry {
    let QueuedDecision { opening, decision, by, reason } = attempt;
    let mut input = json!({"decision": decision, "why": refusal.to_string()});
    if let Some(reason) = reason {
        input["reason"] = json!(reason);
    }
    let actor = AuditActor::from_user(by);
    let draft = match find_waitpoint(running, *opening) {
        Some((at, WaitpointKind::Hold(_))) => draft_for_step(running, at, actor, "hold.refuse", "hold", input),
        Some((at, WaitpointKind::Gate | WaitpointKind::Wait)) => {
            draft_for_step(running, at, actor, "gate.refuse", "gate", input)
        }
        None => draft_for_run(running, actor, "gate.refuse", input),
    };
    draft.into_entry(now)
}

fn draft_entries(running: ActiveRun<'_>, event: &Event) -> Vec<AuditDraft> {
    match event {
        Event::AttemptStarted { attempt, given, .. } => draft_attempt_start(running, *attempt, given.as_deref()),
        Event::AttemptEnded { attempt, end, .. } => draft_attempt_end(running, *attempt, end),
        Event::RunStarted { .. } => draft_overrides(running),
        Event::Decided { opening, decision, by, reason, .. } => {
            draft_decision(running, *opening, *decision, by, reason.as_deref())
        }
        // One of several required approvals.
        Event::Approved { opening, by, reason } => {
            draft_decision(running, *opening, Verdict::Approve, by, reason.as_deref())
        }
        Event::Escalated { opening, approvers, .. } => {
            let Some((at, kind)) = find_waitpoint(running, *opening) else { return Vec::new() };
            let (kind, action) = match kind {
                WaitpointKind::Hold(_) => ("hold", "hold.escalate"),
                WaitpointKind::Gate | WaitpointKind::Wait => ("gate", "gate.escalate"),
            };
            vec![draft_for_step(running, at, time_actor(), action, kind, json!({"approvers": approvers}))]
        }
        Event::StepEnded { at, outcome, output, .. } if is_gate(running, *at) => {
            draft_gate_expiry(running, *at, *outcome, output)
        }
        Event::InstanceHalted { why: HaltReason::Cancelled { by }, .. } if by == TIME => {
            vec![draft_for_run(running, time_actor(), "run.cancel", json!({}))]
        }
        Event::CancelAsked { by, reason } => {
            vec![draft_for_run(running, AuditActor::from_user(by), "run.cancel", json!({"reason": reason}))]
        }
        Event::PublicationEnded { item: Publication::Retry, failed: Some(why) } => {
            let by = why.strip_prefix(CALLED_OFF);
            let draft = |by| draft_for_run(running, AuditActor::from_user(by), "run.cancel", json!({"of": "retry"}));
            by.map(draft).into_iter().collect()
        }
        Event::Tampered { by, what } => {
            let actor = AuditActor::with_role(by, "worker");
            vec![draft_for_run(running, actor, "run.tamper", json!({"what": what, "refused": true}))]
        }
        _ => Vec::new(),
    }
}

/// The actor for operations of the run itself: the user who started it.
fn run_actor(running: ActiveRun<'_>) -> AuditActor {
    AuditActor::with_role(&running.settings.user, "run")
}

fn time_actor() -> AuditActor {
    AuditActor::with_role(TIME, "system")
}

fn draft_for_run(running: ActiveRun<'_>, actor: AuditActor, action: &'static str, input: Value) -> AuditDraft {
    let run = running.run.to_string();
    let subject = AuditSubject { kind: "run", name: run.clone(), path: Some(run) };
    AuditDraft { actor, action, subject, input, output: Value::Null }
}

fn draft_for_step(
    running: ActiveRun<'_>,
    at: StepAt,
    actor: AuditActor,
    action: &'static str,
    kind: &'static str,
    input: Value,
) -> AuditDraft {
    let path = Some(format!("{}/{}", running.run, running.names.step_path(at)));
    let subject = AuditSubject { kind, name: running.names.step_id(at).to_owned(), path };
    AuditDraft { actor, action, subject, input, output: Value::Null }
}

fn find_waitpoint(running: ActiveRun<'_>, opening: Waitpoint) -> Option<(StepAt, WaitpointKind)> {
    running.state.waitpoint(opening).map(|opening| (opening.at, opening.kind))
}

fn is_gate(running: ActiveRun<'_>, at: StepAt) -> bool {
    matches!(running.names.step(at).kind, StepKindSpec::Gate(_))
}

fn draft_decision(
    running: ActiveRun<'_>,
    opening: Waitpoint,
    decision: Verdict,
    by: &str,
    reason: Option<&str>,
) -> Vec<AuditDraft> {
    let Some((at, kind)) = find_waitpoint(running, opening) else { return Vec::new() };
    let (kind, action, why) = match (kind, decision) {
        (WaitpointKind::Hold(why), Verdict::Approve) => ("hold", "hold.approve", Some(why)),
        (WaitpointKind::Hold(why), Verdict::Reject) => ("hold", "hold.reject", Some(why)),
        (_, Verdict::Approve) => ("gate", "gate.approve", None),
        (_, Verdict::Reject) => ("gate", "gate.reject", None),
    };
    let actor = if by == TIME { time_actor() } else { AuditActor::from_user(by) };
    let mut input = json!({"plan": running.plan.definition.hash()});
    if let Some(reason) = reason {
        input["reason"] = json!(reason);
    }
    if let Some(why) = why {
        input["held_for"] = json!(why);
    }
    vec![draft_for_step(running, at, actor, action, kind, input)]
}

/// Drafts the record of a gate that ended because nobody answered it.
fn draft_gate_expiry(running: ActiveRun<'_>, at: StepAt, outcome: StepOutcome, output: &Value) -> Vec<AuditDraft> {
    let went_on = output["approver"] == TIME && output["decision"].is_null();
    if outcome != StepOutcome::Failed(ErrorClass::Timeout) && !went_on {
        return Vec::new();
    }
    vec![draft_for_step(running, at, time_actor(), "gate.expire", "gate", json!({}))]
}

/// Drafts the records of overrides that were set when the run was started.
fn draft_overrides(running: ActiveRun<'_>) -> Vec<AuditDraft> {
    let draft = |one: &RunOverride| {
        let path = Some(running.run.to_string());
        let subject = AuditSubject { kind: "override", name: one.name.clone(), path };
        let input = json!({"used": one.used});
        AuditDraft { actor: run_actor(running), action: "override.use", subject, input, output: Value::Null }
    };
    running.settings.overrides.iter().map(draft).collect()
}

/// Returns the worker and work of an attempt.
fn find_attempt_work(running: ActiveRun<'_>, attempt: AttemptId) -> Option<(&WorkerSpec, &WorkSpec)> {
    executor::worker_for_role(running.names.step(attempt.at), attempt.role).ok()
}

/// Returns the settings of the tool that does the work, if a tool does.
fn find_tool<'a>(running: ActiveRun<'a>, worker: &WorkerSpec) -> Option<&'a ToolSettings> {
    running.settings.tools.get(&ToolSettings::settings_key(worker)?)
}

fn draft_attempt_start(running: ActiveRun<'_>, attempt: AttemptId, given: Option<&AttemptInput>) -> Vec<AuditDraft> {
    let Some((worker, work)) = find_attempt_work(running, attempt) else { return Vec::new() };
    let tool = find_tool(running, worker);
    if tool.is_none() && work.isolation.secrets.is_empty() {
        return Vec::new();
    }
    let mut drafts = Vec::new();
    if let Some(mut call) = tool.and_then(|tool| draft_tool_call(running, attempt, tool, "tool.call")) {
        let again = wanted(running.state).runs.get(&attempt).map(|task| &*task.given);
        call.input["inputs"] = given.or(again).map_or(Value::Null, |given| redact_to_hash(&given.inputs));
        drafts.push(call);
    }
    drafts.extend(draft_secret_reveals(running, attempt, worker, work, tool));
    drafts
}

/// Drafts the record of a call of a tool that changes something.
fn draft_tool_call(
    running: ActiveRun<'_>,
    attempt: AttemptId,
    tool: &ToolSettings,
    action: &'static str,
) -> Option<AuditDraft> {
    if tool.mutates.is_empty() {
        return None;
    }
    let version = Some(&tool.version).filter(|version| !version.is_empty());
    let input = json!({"version": version, "driver": tool.driver, "mutates": tool.mutates, "attempt": attempt});
    let mut draft = draft_for_step(running, attempt.at, run_actor(running), action, "tool", input);
    draft.subject.name.clone_from(&tool.id);
    Some(draft)
}

/// Drafts the records of secrets that an attempt receives. Built-in functions and replayed attempts receive none.
fn draft_secret_reveals<'a>(
    running: ActiveRun<'a>,
    attempt: AttemptId,
    worker: &'a WorkerSpec,
    work: &'a WorkSpec,
    tool: Option<&'a ToolSettings>,
) -> impl Iterator<Item = AuditDraft> {
    let handed = running.settings.replay.is_none() && tool.is_none_or(|tool| tool.function.is_none());
    let names = work.isolation.secrets.iter().chain(tool.into_iter().flat_map(|tool| &tool.secrets));
    names.filter(move |_| handed).map(move |name| {
        let context = build_reveal_context(running, attempt, worker, tool);
        let delivery = running.settings.handing.get(name);
        let purpose = match delivery.is_some_and(|delivery| delivery.file) {
            true => "a file of the worker",
            false => "the worker's environment",
        };
        let by = find_grant_reason(delivery, &context);
        let input = json!({"attempt": attempt, "purpose": purpose, "context": context, "granted_by": by});
        let mut draft = draft_for_step(running, attempt.at, run_actor(running), "secret.reveal", "secret", input);
        draft.subject.name = to_slug(name);
        draft
    })
}

/// Returns the first reason that grants the worker a secret.
fn find_grant_reason(delivery: Option<&SecretDelivery>, context: &Value) -> String {
    let fits = |grant: &&SecretGrant| match grant {
        SecretGrant::Tool(tool) => context["tool"] == **tool,
        SecretGrant::Workflow(workflow) => context["workflow"] == **workflow,
        SecretGrant::Role(_) | SecretGrant::User(_) => true,
    };
    match delivery.and_then(|delivery| delivery.granted.iter().find(fits)) {
        Some(SecretGrant::Tool(tool)) => format!("tool:{tool}"),
        Some(SecretGrant::Workflow(workflow)) => format!("workflow:{workflow}"),
        Some(SecretGrant::Role(role)) => format!("role:{role}"),
        Some(SecretGrant::User(user)) => format!("user:{user}"),
        None => "project".to_owned(),
    }
}

/// Builds the context in which a secret is handed out.
fn build_reveal_context(
    running: ActiveRun<'_>,
    attempt: AttemptId,
    worker: &WorkerSpec,
    tool: Option<&ToolSettings>,
) -> Value {
    let scope = running.names.scope(attempt.at.0);
    let workflow = &running.plan.definition.workflow_containing(scope).workflow.id;
    let agent = match worker {
        WorkerSpec::Agent { name, program, .. } => name.as_ref().or(program.as_ref()),
        _ => None,
    };
    let mut context = json!({"workflow": workflow, "run": running.run});
    if let Some(tool) = tool {
        context["tool"] = json!(Some(&tool.id).filter(|id| !id.is_empty()));
    }
    if let Some(agent) = agent {
        context["agent"] = json!(agent);
    }
    context
}

/// Drafts the record of the end of a tool call that changes something. The details are in the journal.
fn draft_attempt_end(running: ActiveRun<'_>, attempt: AttemptId, end: &AttemptEnd) -> Vec<AuditDraft> {
    let call = find_attempt_work(running, attempt)
        .and_then(|(worker, _)| find_tool(running, worker))
        .and_then(|tool| draft_tool_call(running, attempt, tool, "tool.end"));
    let Some(mut draft) = call else { return Vec::new() };
    draft.output = match end {
        AttemptEnd::Failed { class, code, .. } => json!({"end": "failed", "class": class, "code": code}),
        AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => json!({"end": "succeeded"}),
        AttemptEnd::TimedOut => json!({"end": "timed_out"}),
        AttemptEnd::Stopped => json!({"end": "stopped"}),
        AttemptEnd::Interrupted => json!({"end": "interrupted"}),
        AttemptEnd::Blocked { reason, .. } => json!({"end": "blocked", "reason": reason}),
        AttemptEnd::Unmerged { .. } => json!({"end": "unmerged"}),
        AttemptEnd::HandedOver { to, .. } => json!({"end": "handed_over", "to": to}),
    };
    vec![draft]
}
