//! What the audit tells of a run, as its journal has it: decisions of people and of time, tools that change something,
//! secrets that are handed out or refused, what was allowed beyond the usual, and who ended or tampered.
//!
//! Owns which events are told and how. Each record follows from one event, the plan and what was settled about the run, and
//! is appended with the row of that event. Most events are none of these, and cost nothing.

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, Decision, Event, Given, Halt, Opening, OpeningKind, Outcome, Publication,
        Record, Refusal, StepAt, wanted,
    },
    ir::{ErrorClass, Kind, Work, Worker},
    secret_name::slug,
    time::Time,
};

use super::{owned::DecisionAttempt, retry::CALLED_OFF};
use crate::{
    audit::{Actor, Entry, Subject, hidden},
    crew::{self, Tool},
    hands::Running,
    tape::TIME,
};

/// What a record tells of, before it is known when and of which event.
struct Told {
    actor: Actor,
    action: &'static str,
    subject: Subject,
    input: Value,
    output: Value,
}

/// The records of an event, with its number. The names have been fed with it.
pub(super) fn of(running: Running<'_>, number: u64, record: &Record) -> Vec<Entry> {
    let told = tell(running, &record.event);
    let entry = |mut told: Told| {
        told.input["event"] = json!(number);
        let Told { actor, action, subject, input, output } = told;
        Entry { at: record.at, actor, action, subject, input, output }
    };
    told.into_iter().map(entry).collect()
}

/// The record of a decision that was refused. No event tells of it.
pub(super) fn of_refused(
    running: Running<'_>,
    now: Time,
    attempt: &DecisionAttempt,
    refusal: &Refusal,
) -> Entry {
    let DecisionAttempt { opening, decision, by, reason } = attempt;
    let mut input = json!({"decision": decision, "why": refusal.to_string()});
    if let Some(reason) = reason {
        input["reason"] = json!(reason);
    }
    let actor = Actor::person(by);
    let told = match opened(running, *opening) {
        Some((at, OpeningKind::Hold(_))) => at_step(running, at, actor, "hold.refuse", "hold", input),
        Some((at, OpeningKind::Gate | OpeningKind::Wait)) => {
            at_step(running, at, actor, "gate.refuse", "gate", input)
        }
        None => of_run(running, actor, "gate.refuse", input),
    };
    let Told { actor, action, subject, input, output } = told;
    Entry { at: now, actor, action, subject, input, output }
}

fn tell(running: Running<'_>, event: &Event) -> Vec<Told> {
    match event {
        Event::AttemptStarted { attempt, given, .. } => started(running, *attempt, given.as_deref()),
        Event::AttemptEnded { attempt, end, .. } => ended(running, *attempt, end),
        Event::RunStarted { .. } => overrides(running),
        Event::Decided { opening, decision, by, reason, .. } => {
            decided(running, *opening, *decision, by, reason.as_deref()).into_iter().collect()
        }
        // One of several who have to say so.
        Event::Approved { opening, by, reason } => {
            decided(running, *opening, Decision::Approve, by, reason.as_deref()).into_iter().collect()
        }
        Event::Escalated { opening, approvers, .. } => {
            let Some((at, kind)) = opened(running, *opening) else { return Vec::new() };
            let (kind, action) = match kind {
                OpeningKind::Hold(_) => ("hold", "hold.escalate"),
                OpeningKind::Gate | OpeningKind::Wait => ("gate", "gate.escalate"),
            };
            vec![at_step(running, at, time(), action, kind, json!({"approvers": approvers}))]
        }
        Event::StepEnded { at, outcome, output, .. } if is_gate(running, *at) => {
            unanswered(running, *at, *outcome, output)
        }
        Event::InstanceHalted { why: Halt::Cancelled { by }, .. } if by == TIME => {
            vec![of_run(running, time(), "run.cancel", json!({}))]
        }
        Event::CancelAsked { by, reason } => {
            vec![of_run(running, Actor::person(by), "run.cancel", json!({"reason": reason}))]
        }
        Event::PublicationEnded { item: Publication::Retry, failed: Some(why) } => {
            let by = why.strip_prefix(CALLED_OFF);
            let told = |by| of_run(running, Actor::person(by), "run.cancel", json!({"of": "retry"}));
            by.map(told).into_iter().collect()
        }
        Event::Tampered { by, what } => {
            let actor = Actor::with_role(by, "worker");
            vec![of_run(running, actor, "run.tamper", json!({"what": what, "refused": true}))]
        }
        _ => Vec::new(),
    }
}

/// Whoever began the run, for what it does by itself.
fn itself(running: Running<'_>) -> Actor {
    Actor::with_role(running.about["user"].as_str().unwrap_or_default(), "run")
}

fn time() -> Actor {
    Actor::with_role(TIME, "system")
}

fn of_run(running: Running<'_>, actor: Actor, action: &'static str, input: Value) -> Told {
    let run = running.run.to_string();
    let subject = Subject { kind: "run", name: run.clone(), path: Some(run) };
    Told { actor, action, subject, input, output: Value::Null }
}

fn at_step(
    running: Running<'_>,
    at: StepAt,
    actor: Actor,
    action: &'static str,
    kind: &'static str,
    input: Value,
) -> Told {
    let path = Some(format!("{}/{}", running.run, running.names.step(at)));
    let subject = Subject { kind, name: running.names.id(at).to_owned(), path };
    Told { actor, action, subject, input, output: Value::Null }
}

fn opened(running: Running<'_>, opening: Opening) -> Option<(StepAt, OpeningKind)> {
    running.state.opening(opening).map(|opening| (opening.at, opening.kind))
}

fn is_gate(running: Running<'_>, at: StepAt) -> bool {
    let scope = running.plan.definition.scope(running.names.scope(at.0));
    matches!(scope.step(at.1).kind, Kind::Gate(_))
}

fn decided(
    running: Running<'_>,
    opening: Opening,
    decision: Decision,
    by: &str,
    reason: Option<&str>,
) -> Option<Told> {
    let (at, kind) = opened(running, opening)?;
    let (kind, action, why) = match (kind, decision) {
        (OpeningKind::Hold(why), Decision::Approve) => ("hold", "hold.approve", Some(why)),
        (OpeningKind::Hold(why), Decision::Reject) => ("hold", "hold.reject", Some(why)),
        (_, Decision::Approve) => ("gate", "gate.approve", None),
        (_, Decision::Reject) => ("gate", "gate.reject", None),
    };
    let actor = if by == TIME { time() } else { Actor::person(by) };
    let mut input = json!({"plan": running.plan.definition.hash()});
    if let Some(reason) = reason {
        input["reason"] = json!(reason);
    }
    if let Some(why) = why {
        input["held_for"] = json!(why);
    }
    Some(at_step(running, at, actor, action, kind, input))
}

/// A gate that ended because nobody answered it.
fn unanswered(running: Running<'_>, at: StepAt, outcome: Outcome, output: &Value) -> Vec<Told> {
    let went_on = output["approver"] == TIME && output["decision"].is_null();
    if outcome != Outcome::Failed(ErrorClass::Timeout) && !went_on {
        return Vec::new();
    }
    vec![at_step(running, at, time(), "gate.expire", "gate", json!({}))]
}

/// What was allowed or replaced when the run was begun.
fn overrides(running: Running<'_>) -> Vec<Told> {
    let all = running.about["overrides"].as_array().into_iter().flatten();
    let told = |one: &Value| {
        let name = one["name"].as_str().unwrap_or_default().to_owned();
        let subject = Subject { kind: "override", name, path: Some(running.run.to_string()) };
        let input = json!({"used": one["used"]});
        Told { actor: itself(running), action: "override.use", subject, input, output: Value::Null }
    };
    all.map(told).collect()
}

/// The work of an attempt, and who does it.
fn work(running: Running<'_>, attempt: AttemptId) -> Option<(&Worker, &Work)> {
    let scope = running.plan.definition.scope(running.names.scope(attempt.at.0));
    crew::worker_of(scope.step(attempt.at.1), attempt.role).ok()
}

/// The tool that does it as it was settled, where a tool does.
fn tool<'a>(running: Running<'a>, worker: &Worker) -> Option<&'a Value> {
    running.about["tools"].get(&Tool::key(worker)?)
}

fn started(running: Running<'_>, attempt: AttemptId, given: Option<&Given>) -> Vec<Told> {
    let Some((worker, work)) = work(running, attempt) else { return Vec::new() };
    let tool = tool(running, worker);
    if tool.is_none() && work.isolation.secrets.is_empty() {
        return Vec::new();
    }
    let mut told = Vec::new();
    if let Some(mut call) = tool.and_then(|tool| call(running, attempt, tool, "tool.call")) {
        let again = wanted(running.state).runs.get(&attempt).map(|task| &*task.given);
        call.input["inputs"] = given.or(again).map_or(Value::Null, |given| hidden(&given.inputs));
        told.push(call);
    }
    told.extend(reveals(running, attempt, worker, work, tool));
    told
}

/// A call of a tool that changes something.
fn call(running: Running<'_>, attempt: AttemptId, tool: &Value, action: &'static str) -> Option<Told> {
    let mutates = tool["mutates"].as_array().filter(|mutates| !mutates.is_empty())?;
    let input =
        json!({"version": tool["version"], "driver": tool["driver"], "mutates": mutates, "attempt": attempt});
    let mut told = at_step(running, attempt.at, itself(running), action, "tool", input);
    told.subject.name = tool["id"].as_str().unwrap_or_default().to_owned();
    Some(told)
}

/// The secrets that an attempt is handed. A function of our own, and one that is replayed, is handed none.
fn reveals<'a>(
    running: Running<'a>,
    attempt: AttemptId,
    worker: &'a Worker,
    work: &'a Work,
    tool: Option<&'a Value>,
) -> impl Iterator<Item = Told> {
    let handed = running.about["replay"].is_null() && tool.is_none_or(|tool| tool["function"].is_null());
    let of_tool = tool.and_then(|tool| tool["secrets"].as_array()).into_iter().flatten();
    let names = work.isolation.secrets.iter().map(String::as_str).chain(of_tool.filter_map(Value::as_str));
    names.filter(move |_| handed).map(move |name| {
        let context = context(running, attempt, worker, tool);
        let handing = &running.about["handing"][name];
        let purpose =
            if handing["file"] == true { "a file of the worker" } else { "the worker's environment" };
        let by = granted_by(handing, &context);
        let input = json!({"attempt": attempt, "purpose": purpose, "context": context, "granted_by": by});
        let mut told = at_step(running, attempt.at, itself(running), "secret.reveal", "secret", input);
        told.subject.name = slug(name);
        told
    })
}

/// Why a worker may have a secret: the first reason that is one for it.
fn granted_by(handing: &Value, context: &Value) -> String {
    let all = handing["granted"].as_array().into_iter().flatten();
    let mut reasons = all.filter_map(|one| one.as_object()?.iter().next());
    let fits = |(sort, name): &(&String, &Value)| match sort.as_str() {
        "tool" => context["tool"] == **name,
        "workflow" => context["workflow"] == **name,
        _ => true,
    };
    let found = reasons.find(fits);
    found.map_or_else(
        || "project".to_owned(),
        |(sort, name)| format!("{sort}:{}", name.as_str().unwrap_or_default()),
    )
}

/// For what a secret is handed out.
fn context(running: Running<'_>, attempt: AttemptId, worker: &Worker, tool: Option<&Value>) -> Value {
    let scope = running.names.scope(attempt.at.0);
    let workflow = &running.plan.definition.workflow_of(scope).workflow.id;
    let agent = match worker {
        Worker::Agent { name, program, .. } => name.as_ref().or(program.as_ref()),
        _ => None,
    };
    let mut context = json!({"workflow": workflow, "run": running.run});
    if let Some(tool) = tool {
        context["tool"] = tool["id"].clone();
    }
    if let Some(agent) = agent {
        context["agent"] = json!(agent);
    }
    context
}

/// How a call that changes something ended. What was said about it is in the journal.
fn ended(running: Running<'_>, attempt: AttemptId, end: &AttemptEnd) -> Vec<Told> {
    let call = work(running, attempt)
        .and_then(|(worker, _)| tool(running, worker))
        .and_then(|tool| call(running, attempt, tool, "tool.end"));
    let Some(mut told) = call else { return Vec::new() };
    told.output = match end {
        AttemptEnd::Failed { class, code, .. } => json!({"end": "failed", "class": class, "code": code}),
        AttemptEnd::Succeeded { .. } | AttemptEnd::Checked { .. } => json!({"end": "succeeded"}),
        AttemptEnd::TimedOut => json!({"end": "timed_out"}),
        AttemptEnd::Stopped => json!({"end": "stopped"}),
        AttemptEnd::Interrupted => json!({"end": "interrupted"}),
        AttemptEnd::Blocked { reason, .. } => json!({"end": "blocked", "reason": reason}),
        AttemptEnd::Unmerged { .. } => json!({"end": "unmerged"}),
        AttemptEnd::HandedOver { to, .. } => json!({"end": "handed_over", "to": to}),
    };
    vec![told]
}
