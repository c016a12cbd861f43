//! The wording of parts of a workflow: workers, expressions, targets, approvers, and the consequences of outcomes other
//! than success.

use std::fmt;

use serde::Serialize;
use skein_core::{
    expr::{Expr, ExprNode, LiteralValue, ReferenceRoot, StepProperty},
    ir::{
        Approver, GateSpec, GateTimeout, OutcomeAction, OutcomeEffect, RouteTarget, RunImpact, Step, StepKindSpec,
        WaitTimeout, WorkerCapability, WorkerSpec,
    },
};
use skein_host::executor::default_agent_model;

use crate::project::config::{self, ProjectConfig};

/// Describes a worker, as far as the workflow and the project define it.
pub(crate) fn describe_worker(worker: &WorkerSpec, config: &ProjectConfig) -> String {
    match worker {
        WorkerSpec::Agent { name: Some(name), program, .. } => {
            let known = config.agents.get(name).and_then(|agent| agent.worker.as_ref());
            match program.as_ref().or(known) {
                Some(program) => format!("agent {name} on {program}"),
                None => format!("agent {name}"),
            }
        }
        WorkerSpec::Agent { program, .. } => {
            program.clone().or_else(|| config.default_worker.clone()).unwrap_or_else(|| "an agent".to_owned())
        }
        WorkerSpec::Tool { tool, .. } => format!("tool {tool}"),
        WorkerSpec::Action { action, .. } => format!("any tool for {action}"),
        WorkerSpec::Command { program, arguments } => {
            let arguments: Vec<String> = arguments.iter().map(render_argument).collect();
            format!("command {program} {}", arguments.join(" ")).trim_end().to_owned()
        }
        WorkerSpec::Script { text, .. } => match text.trim().lines().collect::<Vec<_>>()[..] {
            [line] => format!("script {line}"),
            ref lines => format!("script of {} lines", lines.len()),
        },
    }
}

/// Describes a step that has neither name nor description.
pub fn describe_kind(kind: &StepKindSpec) -> String {
    match kind {
        StepKindSpec::Work(work) => describe_worker(&work.worker, &ProjectConfig::default()),
        StepKindSpec::Gate(gate) => format!("gate: {}", render_prose(&gate.message)),
        StepKindSpec::Wait(wait) => {
            let signals: Vec<String> = wait.on.iter().map(ToString::to_string).collect();
            format!("waits for {}", join_words(&signals, "or"))
        }
        StepKindSpec::Branch(_) => "branch".to_owned(),
        StepKindSpec::Parallel(parallel) => format!("{} lanes side by side", parallel.lanes.len()),
        StepKindSpec::Each(each) => format!("for each of {}", render_expression(&each.over)),
        StepKindSpec::Loop(repeat) => format!("while {}", render_expression(&repeat.condition)),
        StepKindSpec::Call(call) => format!("runs the workflow {}", call.workflow),
    }
}

/// Renders one argument of a command; quoted if it would read as several.
pub(crate) fn render_argument(argument: &Expr) -> String {
    match argument.as_literal().and_then(LiteralValue::as_str) {
        Some(text) if !text.is_empty() && !text.contains(char::is_whitespace) => text.to_owned(),
        _ => render_expression(argument),
    }
}

/// Returns the model of the step, else that of the agent, else the default of the agent's program, if it has one.
pub(crate) fn resolve_model(step: &Step, worker: &WorkerSpec, config: &ProjectConfig) -> Option<String> {
    let WorkerSpec::Agent { name, model, program, .. } = worker else { return None };
    let agent = name.as_ref().and_then(|name| config.agents.get(name));
    let program = program.as_ref().or(agent.and_then(|agent| agent.worker.as_ref()));
    // The program of an agent that is not configured is unknown.
    let program = program.or(config.default_worker.as_ref().filter(|_| agent.is_some() || name.is_none()));
    let known = model.as_ref().or(agent.and_then(|agent| agent.model.as_ref()));
    known.cloned().or_else(|| default_agent_model(step, program?).map(str::to_owned))
}

pub(crate) fn list_capabilities(worker: &WorkerSpec) -> Vec<&'static str> {
    let (WorkerSpec::Agent { capabilities, .. } | WorkerSpec::Script { capabilities, .. }) = worker else {
        return Vec::new();
    };
    let word = |capability: &WorkerCapability| match capability {
        WorkerCapability::Read => "read",
        WorkerCapability::Edit => "edit",
        WorkerCapability::RunTests => "run tests",
        WorkerCapability::RunCommands => "run commands",
    };
    capabilities.iter().map(word).collect()
}

pub(crate) fn list_tools(worker: &WorkerSpec) -> Vec<String> {
    match worker {
        WorkerSpec::Agent { tools, .. } => tools.clone(),
        _ => Vec::new(),
    }
}

/// Describes the source of a secret, if the project sets it.
pub(crate) fn describe_secret_source(name: &str, config: &ProjectConfig) -> Option<String> {
    config.find_secret(name).map(|secret| match secret {
        config::SecretSourceConfig::Env(variable) => format!("the environment variable {variable}"),
        config::SecretSourceConfig::File(path) => format!("the file {path}"),
    })
}

/// Renders an expression as it was written, or as JSON if it has no source text.
pub(crate) fn render_expression(expr: &Expr) -> String {
    match expr.node() {
        _ if !expr.source().trim().is_empty() => expr.source().trim().to_owned(),
        ExprNode::Literal { value, .. } => value.to_value().to_string(),
        ExprNode::Array { items, .. } => {
            let items: Vec<String> = items.iter().map(render_expression).collect();
            format!("[{}]", items.join(", "))
        }
        ExprNode::Object { fields, .. } => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}: {}", render_expression(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        ExprNode::Ref { root, path, .. } => {
            let parts = [render_reference(root)].into_iter().chain(path.iter().cloned());
            parts.collect::<Vec<_>>().join(".")
        }
        _ => "an expression".to_owned(),
    }
}

/// Renders the root of a reference, in words that readers of every format know.
fn render_reference(root: &ReferenceRoot) -> String {
    let part = |part: &StepProperty| match part {
        StepProperty::Output => "output",
        StepProperty::Status => "status",
        StepProperty::Summary => "summary",
    };
    match root {
        ReferenceRoot::Step { id, part: of } => format!("steps.{id}.{}", part(of)),
        ReferenceRoot::Input => "input".to_owned(),
        ReferenceRoot::Item => "item".to_owned(),
        ReferenceRoot::Index => "index".to_owned(),
        ReferenceRoot::Context => "context".to_owned(),
        ReferenceRoot::Env => "env".to_owned(),
        ReferenceRoot::Run => "run".to_owned(),
        ReferenceRoot::Workflow => "workflow".to_owned(),
    }
}

/// Renders an expression that gives text, for people.
pub(crate) fn render_prose(expr: &Expr) -> String {
    match expr.as_literal().and_then(LiteralValue::as_str) {
        Some(text) => text.trim().to_owned(),
        _ => render_expression(expr),
    }
}

pub(crate) fn list_approvers(approvers: &[Approver]) -> Vec<String> {
    let name = |approver: &Approver| match approver {
        Approver::Role(role) => format!("role {role}"),
        Approver::User(user) => user.clone(),
    };
    approvers.iter().map(name).collect()
}

pub(crate) fn render_target(target: &RouteTarget) -> String {
    match target {
        RouteTarget::Step(id) => id.to_string(),
        RouteTarget::End => "the end".to_owned(),
    }
}

/// Joins words: `a`, `a and b`, `a, b and c`.
pub fn join_words(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// Formats a length of time.
pub fn format_length(ms: u64) -> String {
    skein_core::time::Millis(ms).to_string()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeConsequence {
    Stop,
    StopAndUndo,
    CountAsSkipped,
    GoOn,
    SkipDependents,
    SkipDependentsAndFail,
    Cancel,
    Reject,
    Approve,
    /// Continue at a step, or at the end.
    Go(String),
    /// These people are asked.
    Escalate(Vec<String>),
}

impl OutcomeConsequence {
    /// Returns the consequence of an outcome that is not a success.
    pub(crate) fn from_effect(effect: OutcomeEffect) -> OutcomeConsequence {
        match effect {
            OutcomeEffect { then: OutcomeAction::Abort, .. } => OutcomeConsequence::Stop,
            OutcomeEffect { then: OutcomeAction::Undo, .. } => OutcomeConsequence::StopAndUndo,
            OutcomeEffect { as_skipped: true, .. } => OutcomeConsequence::CountAsSkipped,
            OutcomeEffect { satisfies: true, .. } => OutcomeConsequence::GoOn,
            OutcomeEffect { verdict: RunImpact::Failed, .. } => OutcomeConsequence::SkipDependentsAndFail,
            OutcomeEffect { .. } => OutcomeConsequence::SkipDependents,
        }
    }

    /// Returns the consequence of a gate that nobody decides in time.
    pub(crate) fn from_gate_timeout(gate: &GateSpec, expired: OutcomeEffect) -> OutcomeConsequence {
        match &gate.on_timeout {
            GateTimeout::Expire => OutcomeConsequence::from_effect(expired),
            GateTimeout::Reject => OutcomeConsequence::Reject,
            GateTimeout::Approve => OutcomeConsequence::Approve,
            GateTimeout::Cancel => OutcomeConsequence::Cancel,
            GateTimeout::Go(to) => OutcomeConsequence::Go(render_target(to)),
            GateTimeout::Escalate { .. } => {
                OutcomeConsequence::Escalate(list_approvers(gate.escalation_approvers().unwrap_or_default()))
            }
        }
    }

    /// Returns the consequence of a wait whose signal does not arrive in time.
    pub(crate) fn from_wait_timeout(timeout: &WaitTimeout, expired: OutcomeEffect) -> OutcomeConsequence {
        match timeout {
            WaitTimeout::Expire => OutcomeConsequence::from_effect(expired),
            WaitTimeout::Cancel => OutcomeConsequence::Cancel,
            WaitTimeout::Continue => OutcomeConsequence::GoOn,
            WaitTimeout::Go(to) => OutcomeConsequence::Go(render_target(to)),
        }
    }
}

impl fmt::Display for OutcomeConsequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutcomeConsequence::Stop => "the run stops",
            OutcomeConsequence::StopAndUndo => "the run stops and is undone",
            OutcomeConsequence::CountAsSkipped => "it counts as skipped",
            OutcomeConsequence::GoOn => "the run continues",
            OutcomeConsequence::SkipDependents => "its dependents are skipped",
            OutcomeConsequence::SkipDependentsAndFail => "its dependents are skipped, and the run fails",
            OutcomeConsequence::Cancel => "the run is cancelled",
            OutcomeConsequence::Reject => "it counts as rejected",
            OutcomeConsequence::Approve => "it is approved automatically",
            OutcomeConsequence::Go(to) => return write!(f, "it goes to {to}"),
            OutcomeConsequence::Escalate(to) if to.is_empty() => {
                "it waits for the same time again, when nobody may decide, and the run is cancelled"
            }
            OutcomeConsequence::Escalate(to) => {
                let approvers = join_words(to, "or");
                return write!(f, "it asks {approvers} for the same time again, then the run is cancelled");
            }
        })
    }
}
