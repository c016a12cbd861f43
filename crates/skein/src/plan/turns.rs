//! Who takes over from whom, and what each is kept to.

use serde::Serialize;
use skein_core::ir::{Capability, Step, Worker};
use skein_host::{
    agent::{May, flags},
    crew::{
        Agent,
        relay::{self, Named},
        tests_of,
    },
};

use super::words::{by, model};
use crate::config::Config;

/// One of several agents.
#[derive(Debug, Serialize)]
pub struct TurnView {
    pub by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What its own flags keep it to, inside of the wall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_to: Option<String>,
}

/// All who may do the work of a step, in their order. Nobody where there is only one.
pub fn turns(step: &Step, worker: &Worker, config: &Config) -> Vec<TurnView> {
    let names = relay::named(step);
    let Worker::Agent { name, program, capabilities, .. } = worker else { return Vec::new() };
    let others = relay::after(&Agent::key(name.as_deref(), program.as_deref()), &names);
    if others.is_empty() {
        return Vec::new();
    }
    let rights = match name.as_ref().and_then(|name| config.agents.get(name)) {
        Some(agent) if capabilities.is_empty() => &agent.capabilities,
        _ => capabilities,
    };
    let may = May::of(rights, &tests(step, config));
    let own = Named { name: name.as_deref(), program: program.as_deref() };
    let first = TurnView {
        by: by(worker, config),
        model: model(step, worker, config),
        kept_to: kept_to(own, config, &may),
    };
    let view = |named: &Named<'_>| {
        let worker = agent(*named, rights);
        TurnView {
            by: by(&worker, config),
            model: model(step, &worker, config),
            kept_to: kept_to(*named, config, &may),
        }
    };
    [first].into_iter().chain(others.iter().map(view)).collect()
}

/// An agent of the list as a worker, to be put into the same words as others.
fn agent(named: Named<'_>, rights: &[Capability]) -> Worker {
    Worker::Agent {
        name: named.name.map(str::to_owned),
        program: named.program.map(str::to_owned),
        model: None,
        capabilities: rights.to_vec(),
        instructions: None,
        tools: Vec::new(),
        max_turns: None,
        command_timeout: None,
    }
}

fn kept_to(named: Named<'_>, config: &Config, may: &May) -> Option<String> {
    let known = named.name.and_then(|name| config.agents.get(name)).and_then(|agent| agent.worker.as_deref());
    flags::kept_to(named.program.or(known).or(config.default_worker.as_deref())?, may)
}

/// What the step says are tests, or else the project.
fn tests(step: &Step, config: &Config) -> Vec<Vec<String>> {
    tests_of(step).unwrap_or_else(|| config.test_commands.clone())
}
