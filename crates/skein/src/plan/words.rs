//! How parts of a workflow are put into words: workers, expressions, targets, what a failure does.

use skein_core::{
    expr::{Constant, Expr, Node, Part, Root},
    ir::{Approver, Capability, Kind, Step, Target, Worker},
};
use skein_host::crew::usual_model;

use crate::config::{self, Config};

/// Who does a piece of work, as far as the workflow and the project say.
pub fn by(worker: &Worker, config: &Config) -> String {
    match worker {
        Worker::Agent { name: Some(name), program, .. } => {
            let known = config.agents.get(name).and_then(|agent| agent.worker.as_ref());
            match program.as_ref().or(known) {
                Some(program) => format!("agent {name} on {program}"),
                None => format!("agent {name}"),
            }
        }
        Worker::Agent { program, .. } => {
            program.clone().or_else(|| config.default_worker.clone()).unwrap_or_else(|| "an agent".to_owned())
        }
        Worker::Tool { tool, .. } => format!("tool {tool}"),
        Worker::Action { action, .. } => format!("any tool for {action}"),
        Worker::Command { program, arguments } => {
            let arguments: Vec<String> = arguments.iter().map(argument).collect();
            format!("command {program} {}", arguments.join(" ")).trim_end().to_owned()
        }
        Worker::Script { text, .. } => match text.trim().lines().collect::<Vec<_>>()[..] {
            [line] => format!("script {line}"),
            ref lines => format!("script of {} lines", lines.len()),
        },
    }
}

/// What a step is, for one that has neither name nor description.
pub fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Work(work) => by(&work.worker, &Config::default()),
        Kind::Gate(gate) => format!("gate: {}", prose(&gate.message)),
        Kind::Wait(wait) => {
            let signals: Vec<String> = wait.on.iter().map(ToString::to_string).collect();
            format!("waits for {}", listed(&signals, "or"))
        }
        Kind::Branch(_) => "branch".to_owned(),
        Kind::Parallel(parallel) => format!("{} lanes side by side", parallel.lanes.len()),
        Kind::Each(each) => format!("for each of {}", expression(&each.over)),
        Kind::Loop(repeat) => format!("while {}", expression(&repeat.condition)),
        Kind::Call(call) => format!("runs the workflow {}", call.workflow),
    }
}

/// One argument of a command; quoted where it would read as several.
pub fn argument(argument: &Expr) -> String {
    match argument.as_literal().and_then(Constant::as_str) {
        Some(text) if !text.is_empty() && !text.contains(char::is_whitespace) => text.to_owned(),
        _ => expression(argument),
    }
}

/// The model of the step, then that of the agent, then the usual one where the agent has such models.
pub fn model(step: &Step, worker: &Worker, config: &Config) -> Option<String> {
    let Worker::Agent { name, model, program, .. } = worker else { return None };
    let agent = name.as_ref().and_then(|name| config.agents.get(name));
    let program = program.as_ref().or(agent.and_then(|agent| agent.worker.as_ref()));
    // Who nobody describes here is nobody's to guess.
    let program = program.or(config.default_worker.as_ref().filter(|_| agent.is_some() || name.is_none()));
    let known = model.as_ref().or(agent.and_then(|agent| agent.model.as_ref()));
    known.cloned().or_else(|| usual_model(step, program?).map(str::to_owned))
}

pub fn may(worker: &Worker) -> Vec<&'static str> {
    let (Worker::Agent { capabilities, .. } | Worker::Script { capabilities, .. }) = worker else {
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

pub fn tools(worker: &Worker) -> Vec<String> {
    match worker {
        Worker::Agent { tools, .. } => tools.clone(),
        _ => Vec::new(),
    }
}

/// Where a secret comes from, if the project says.
pub fn secret(name: &str, config: &Config) -> Option<String> {
    config.secret(name).map(|secret| match secret {
        config::Secret::Env(variable) => format!("the environment variable {variable}"),
        config::Secret::File(path) => format!("the file {path}"),
    })
}

/// An expression as it was written; what was not written as one, as JSON.
pub fn expression(expr: &Expr) -> String {
    match expr.node() {
        _ if !expr.source().trim().is_empty() => expr.source().trim().to_owned(),
        Node::Literal { value, .. } => value.value().to_string(),
        Node::Array { items, .. } => {
            let items: Vec<String> = items.iter().map(expression).collect();
            format!("[{}]", items.join(", "))
        }
        Node::Object { fields, .. } => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}: {}", expression(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Node::Ref { root, path, .. } => {
            let parts = [reference(root)].into_iter().chain(path.iter().cloned());
            parts.collect::<Vec<_>>().join(".")
        }
        _ => "an expression".to_owned(),
    }
}

/// Where a reference starts, in words that every format's readers know.
fn reference(root: &Root) -> String {
    let part = |part: &Part| match part {
        Part::Output => "output",
        Part::Status => "status",
        Part::Summary => "summary",
    };
    match root {
        Root::Step { id, part: of } => format!("steps.{id}.{}", part(of)),
        Root::Input => "input".to_owned(),
        Root::Item => "item".to_owned(),
        Root::Index => "index".to_owned(),
        Root::Context => "context".to_owned(),
        Root::Env => "env".to_owned(),
        Root::Run => "run".to_owned(),
        Root::Workflow => "workflow".to_owned(),
    }
}

/// An expression that gives text, for people.
pub fn prose(expr: &Expr) -> String {
    match expr.as_literal().and_then(Constant::as_str) {
        Some(text) => text.trim().to_owned(),
        _ => expression(expr),
    }
}

pub fn approvers(approvers: &[Approver]) -> Vec<String> {
    let name = |approver: &Approver| match approver {
        Approver::Role(role) => format!("role {role}"),
        Approver::User(user) => user.clone(),
    };
    approvers.iter().map(name).collect()
}

pub fn target(target: &Target) -> String {
    match target {
        Target::Step(id) => id.to_string(),
        Target::End => "the end".to_owned(),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}
