//! One step of a plan as people see it.

use serde::Serialize;
use skein_core::{
    ir::{
        Approver, Capability, Effect, Gate, GateTimeout, Kind, KindName, Step, Then, Verdict, Wait,
        WaitTimeout, Work, Worker,
    },
    plan::{Definition, ScopeIx},
};

use super::{Inner, Named, batches};

#[derive(Debug, Serialize)]
pub struct StepView {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub kind: KindName,
    /// Who does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it may do; none named where the worker's own settings say.
    pub may: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    pub network: bool,
    pub secrets: Vec<String>,
    pub after: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Each input and the expression that gives it.
    pub inputs: Named,
    /// Each file it is given and the step that it is from.
    pub takes: Named,
    /// Each file it leaves and where.
    pub gives: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    pub attempts: u32,
    /// Who decides whether it is complete, and how often it may be done again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitView>,
    /// Whether a person is asked before it starts.
    pub asks_first: bool,
    pub on_failure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// The workflow that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Inner>,
}

#[derive(Debug, Serialize)]
pub struct CheckView {
    pub by: String,
    pub iterations: u32,
}

#[derive(Debug, Serialize)]
pub struct GateView {
    pub message: String,
    pub approvers: Vec<String>,
    pub timeout_ms: Option<u64>,
    pub on_timeout: &'static str,
}

#[derive(Debug, Serialize)]
pub struct WaitView {
    pub signals: Vec<String>,
    pub timeout_ms: Option<u64>,
    pub on_timeout: &'static str,
}

/// Where a branch leads, and when.
#[derive(Debug, Serialize)]
pub struct RouteView {
    pub when: String,
    pub next: String,
}

impl StepView {
    pub fn of(definition: &Definition, scope: ScopeIx, i: u32) -> StepView {
        let step = definition.scope(scope).step(i);
        let work = match &step.kind {
            Kind::Work(work) => Some(&**work),
            _ => None,
        };
        let isolation = work.map(|work| &work.isolation);
        StepView {
            id: step.id.to_string(),
            name: step.name.clone(),
            description: step.description.clone(),
            kind: step.kind.name(),
            by: work.map(|work| by(&work.worker)),
            model: work.and_then(|work| model(&work.worker)),
            may: work.map(may).unwrap_or_default(),
            workspace: isolation.and_then(|isolation| isolation.workspace.clone()),
            network: isolation.is_none_or(|isolation| !isolation.no_network),
            secrets: isolation.map(|isolation| isolation.secrets.clone()).unwrap_or_default(),
            after: step.after.iter().map(ToString::to_string).collect(),
            when: step.when.as_ref().map(|when| when.source().to_owned()),
            inputs: step
                .inputs
                .iter()
                .map(|input| (input.name.clone(), input.value.source().to_owned()))
                .collect(),
            takes: work.map(takes).unwrap_or_default(),
            gives: work.map(gives).unwrap_or_default(),
            timeout_ms: step.policy.timeout.map(|timeout| timeout.0),
            attempts: step.policy.retry.attempts.values().copied().max().unwrap_or(1),
            check: work
                .and_then(|work| work.check.as_ref())
                .map(|check| CheckView { by: by(&check.worker), iterations: check.max_iterations }),
            gate: gate(step),
            waits_for: wait(step),
            asks_first: step.policy.approval.is_some(),
            on_failure: on_failure(step.policy.effects.failed),
            undo: step.undo.as_ref().map(|undo| by(&undo.work.worker)),
            calls: calls(step),
            routes: routes(step),
            inside: inside(definition, scope, i),
        }
    }
}

pub fn by(worker: &Worker) -> String {
    match worker {
        Worker::Agent { name: Some(name), .. } => format!("agent {name}"),
        Worker::Agent { program: Some(program), .. } => program.clone(),
        Worker::Agent { .. } => "an agent".to_owned(),
        Worker::Tool { tool, .. } => format!("tool {tool}"),
        Worker::Action { action, .. } => format!("any tool for {action}"),
        Worker::Command { program, arguments } => {
            let arguments: Vec<&str> = arguments.iter().map(|argument| argument.source()).collect();
            format!("command {program} {}", arguments.join(" ")).trim_end().to_owned()
        }
        Worker::Script { text, .. } => match text.trim().lines().collect::<Vec<_>>()[..] {
            [line] => format!("script `{line}`"),
            ref lines => format!("script of {} lines", lines.len()),
        },
    }
}

fn model(worker: &Worker) -> Option<String> {
    match worker {
        Worker::Agent { model, .. } => model.clone(),
        _ => None,
    }
}

fn may(work: &Work) -> Vec<&'static str> {
    let (Worker::Agent { capabilities, .. } | Worker::Script { capabilities, .. }) = &work.worker else {
        return Vec::new();
    };
    let word = |capability: &Capability| match capability {
        Capability::Read => "read",
        Capability::Edit => "edit",
        Capability::RunTests => "run tests",
        Capability::RunCommands => "run commands",
    };
    capabilities.iter().map(word).collect()
}

fn takes(work: &Work) -> Named {
    work.takes.iter().map(|artifact| (artifact.name.to_string(), artifact.from.to_string())).collect()
}

fn gives(work: &Work) -> Named {
    work.gives.iter().map(|artifact| (artifact.name.to_string(), artifact.path.clone())).collect()
}

fn gate(step: &Step) -> Option<GateView> {
    let Kind::Gate(Gate { message, approvers, timeout, on_timeout, .. }) = &step.kind else { return None };
    let name = |approver: &Approver| match approver {
        Approver::Role(role) => format!("role {role}"),
        Approver::User(user) => user.clone(),
    };
    Some(GateView {
        message: message.source().to_owned(),
        approvers: approvers.iter().map(name).collect(),
        timeout_ms: timeout.map(|timeout| timeout.0),
        on_timeout: match on_timeout {
            GateTimeout::Expire => "fails",
            GateTimeout::Reject => "counts as rejected",
            GateTimeout::Approve => "opens by itself",
            GateTimeout::Cancel => "cancels the run",
            GateTimeout::Go(_) => "goes another way",
            GateTimeout::Escalate { .. } => "asks others",
        },
    })
}

fn wait(step: &Step) -> Option<WaitView> {
    let Kind::Wait(Wait { on, timeout, on_timeout }) = &step.kind else { return None };
    Some(WaitView {
        signals: on.iter().map(ToString::to_string).collect(),
        timeout_ms: timeout.map(|timeout| timeout.0),
        on_timeout: match on_timeout {
            WaitTimeout::Expire => "fails",
            WaitTimeout::Cancel => "cancels the run",
            WaitTimeout::Continue => "goes on",
            WaitTimeout::Go(_) => "goes another way",
        },
    })
}

fn on_failure(effect: Effect) -> &'static str {
    match effect {
        Effect { then: Then::Abort, .. } => "the run stops",
        Effect { then: Then::Undo, .. } => "the run stops and is undone",
        Effect { as_skipped: true, .. } => "it counts as skipped",
        Effect { satisfies: true, .. } => "the others go on",
        Effect { verdict: Verdict::Failed, .. } => "what depends on it is skipped, and the run fails",
        Effect { .. } => "what depends on it is skipped",
    }
}

fn calls(step: &Step) -> Option<String> {
    match &step.kind {
        Kind::Call(call) => Some(call.workflow.clone()),
        _ => None,
    }
}

fn routes(step: &Step) -> Vec<RouteView> {
    use skein_core::ir::Target;
    let Kind::Branch(branch) = &step.kind else { return Vec::new() };
    let name = |target: &Target| match target {
        Target::Step(id) => id.to_string(),
        Target::End => "the end".to_owned(),
    };
    let arms =
        branch.arms.iter().map(|arm| RouteView { when: arm.when.source().to_owned(), next: name(&arm.next) });
    arms.chain([RouteView { when: "else".to_owned(), next: name(&branch.default) }]).collect()
}

fn inside(definition: &Definition, scope: ScopeIx, i: u32) -> Vec<Inner> {
    let entry = definition.scope(scope);
    let labels: Vec<String> = match &entry.step(i).kind {
        Kind::Parallel(parallel) => parallel.lanes.iter().map(|lane| format!("lane {}", lane.id)).collect(),
        Kind::Each(each) => {
            let at_once = each.parallelism.map_or("all at once".to_owned(), |n| format!("{n} at once"));
            vec![format!("for each of {}, {at_once}", each.over.source())]
        }
        Kind::Loop(repeat) => {
            vec![format!("while {}, at most {} times", repeat.condition.source(), repeat.max)]
        }
        _ => Vec::new(),
    };
    let inner = labels.into_iter().zip(0..);
    inner.map(|(label, which)| Inner { label, batches: batches(definition, entry.inner(i, which)) }).collect()
}
