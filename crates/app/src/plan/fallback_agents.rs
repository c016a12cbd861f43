//! Fallback agents: the order in which agents take over, and the limits of each.

use serde::Serialize;
use skein_core::ir::{Step, WorkerCapability, WorkerSpec};
use skein_host::{
    executor::agents::{
        AgentPermissions, describe_limits,
        fallback::{self, AgentReference},
    },
    run_settings::AgentSettings,
};

use super::wording::{describe_worker, resolve_model};
use crate::project::config::ProjectConfig;

/// One of several agents.
#[derive(Debug, Serialize)]
pub struct FallbackAgentView {
    pub by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The limits that its own flags set, inside of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_to: Option<String>,
}

/// Returns all agents of a step, in their order. Empty if there is only one.
pub fn build_fallback_views(step: &Step, worker: &WorkerSpec, config: &ProjectConfig) -> Vec<FallbackAgentView> {
    let names = fallback::named_agents(step);
    let WorkerSpec::Agent { name, program, capabilities, .. } = worker else { return Vec::new() };
    let others = fallback::fallback_agents(&AgentSettings::settings_key(name.as_deref(), program.as_deref()), &names);
    if others.is_empty() {
        return Vec::new();
    }
    let rights = match name.as_ref().and_then(|name| config.agents.get(name)) {
        Some(agent) if capabilities.is_empty() => &agent.capabilities,
        _ => capabilities,
    };
    let may = AgentPermissions::from_capabilities(rights, &find_test_commands(step, config));
    let own = AgentReference { name: name.as_deref(), program: program.as_deref() };
    let first = FallbackAgentView {
        by: describe_worker(worker, config),
        model: resolve_model(step, worker, config),
        kept_to: describe_flags(own, config, &may),
    };
    let view = |named: &AgentReference<'_>| {
        let worker = agent_worker(*named, rights);
        FallbackAgentView {
            by: describe_worker(&worker, config),
            model: resolve_model(step, &worker, config),
            kept_to: describe_flags(*named, config, &may),
        }
    };
    [first].into_iter().chain(others.iter().map(view)).collect()
}

/// Returns an agent of the list as a worker, so that it is described like others.
fn agent_worker(named: AgentReference<'_>, rights: &[WorkerCapability]) -> WorkerSpec {
    WorkerSpec::Agent {
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

fn describe_flags(named: AgentReference<'_>, config: &ProjectConfig, may: &AgentPermissions) -> Option<String> {
    let known = named.name.and_then(|name| config.agents.get(name)).and_then(|agent| agent.worker.as_deref());
    describe_limits(named.program.or(known).or(config.default_worker.as_deref())?, may)
}

/// Returns the test commands of the step, or else those of the project.
fn find_test_commands(step: &Step, config: &ProjectConfig) -> Vec<Vec<String>> {
    step.extensions.skein.test_commands.clone().unwrap_or_else(|| config.test_commands.clone())
}
