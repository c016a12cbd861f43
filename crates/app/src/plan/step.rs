//! One step of a plan, as people and programs see it: its worker and fallback agents, its gate or wait, its inputs, limits
//! and routes.

use serde::Serialize;
use serde_json::Value;
use skein_core::{
    engine::AttemptRole,
    ir::{
        ApprovalRuling, Budget, ErrorClass, EscalationLevel, GateSpec, InputBinding, IsolationSpec, LoopTest, OnRetry,
        Step, StepKindName, StepKindSpec, TimeoutScope, WaitSpec, WorkSpec, WorkerCapability, WorkerSpec,
    },
    plan::ScopeIx,
};
use skein_host::{
    executor::{
        AgentContextRequest, WorkspacePolicy,
        agents::{
            AgentPermissions, describe_limits,
            fallback::{self, AgentReference},
        },
    },
    run_settings::{AgentSettings, ToolServer},
};

use crate::{
    plan::{
        InnerBatches, PlanViewBuilder,
        wording::{
            OutcomeConsequence, describe_secret_source, describe_worker, list_approvers, list_capabilities, list_tools,
            render_expression, render_prose, render_target, resolve_model,
        },
    },
    prepare::resolve::{ToolResolution, ToolResolutions},
    project::config::ProjectConfig,
};

#[derive(Debug, Serialize)]
pub struct PlanStepView {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub kind: StepKindName,
    pub after: Vec<String>,
    /// The condition of the step; if it is false, the step is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The steps whose conflicts it resolves. It is skipped if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settles: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitView>,
    /// The workflow that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    /// The step under which the steps of that workflow are shown, if it is not this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_under: Option<String>,
    pub inputs: Vec<InputView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The scope of the timeout: each attempt, or all of them together.
    pub timeout_per: TimeoutScope,
    pub attempts: u32,
    /// The limit of its cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// `wait`: it waits while the account of its agent is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<&'static str>,
    /// The approvers before it starts; empty means anyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks_first: Option<Vec<String>>,
    /// The number of approvals that are needed, if it is more than one.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// The reason why it may not start at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// The approvers of a step that governance holds, level by level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalates_to: Vec<EscalationLevelView>,
    /// The approval class that applies, its source, and its effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruling: Option<ApprovalRuling>,
    /// The consequences of outcomes other than success.
    pub on_failure: OutcomeConsequence,
    pub on_timeout: OutcomeConsequence,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// The targets of the cursor, with their conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InnerBatches>,
}

/// The worker, its permissions and access, its inputs and outputs.
#[derive(Debug, Serialize)]
pub struct WorkView {
    pub by: String,
    /// The chosen driver of a tool, and the reasons against the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provided: Option<ToolResolution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The capabilities; empty if the worker's own settings determine them.
    pub may: Vec<&'static str>,
    /// The maximum number of steps of its agent in one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    pub tools: Vec<String>,
    /// The MCP servers among the tools, with the command or the URL of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerView>,
    /// Context modules that its agent gets, and the maximum tokens of memories.
    #[serde(rename = "told", skip_serializing_if = "Vec::is_empty")]
    pub context_modules: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    pub worktree: bool,
    /// True if its changes are not merged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// The step that resolves conflicts of its changes with those of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
    /// The treatment of the workspace before another attempt, if it is not kept unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_retry: Option<&'static str>,
    pub network: bool,
    pub secrets: Vec<SecretView>,
    /// Files that it must not change.
    pub protects: Vec<String>,
    /// Protected files that it may change all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotects: Vec<String>,
    /// Conditions that must hold before it counts as done.
    pub evidence: Vec<String>,
    pub takes: Vec<ArtifactInputView>,
    pub gives: Vec<ArtifactOutputView>,
    /// The worker that decides whether it is complete, and the maximum number of iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_by: Option<String>,
    /// All agents that may do it, in their order, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<FallbackAgentView>,
}

/// The approvers on one level, and their time limit.
#[derive(Debug, Serialize)]
pub struct EscalationLevelView {
    pub approvers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

fn build_level_view(level: &EscalationLevel) -> EscalationLevelView {
    EscalationLevelView {
        approvers: list_approvers(&level.approvers),
        timeout_ms: level.timeout.map(|timeout| timeout.0),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_one(quorum: &u32) -> bool {
    *quorum == 1
}

/// An input, with its value if that is known before the run, or its expression.
#[derive(Debug, Serialize)]
pub struct InputView {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct ServerView {
    pub name: String,
    pub at: String,
}

#[derive(Debug, Serialize)]
pub struct SecretView {
    pub name: String,
    /// None: the project does not set it.
    pub from: Option<String>,
}

/// A file of another step.
#[derive(Debug, Serialize)]
pub struct ArtifactInputView {
    pub artifact: String,
    pub from: String,
    #[serde(rename = "as")]
    pub name: String,
}

/// A file that is kept.
#[derive(Debug, Serialize)]
pub struct ArtifactOutputView {
    pub artifact: String,
    pub path: String,
}

#[derive(Debug, Serialize)]
pub struct CheckView {
    pub by: String,
    pub iterations: u32,
}

#[derive(Debug, Serialize)]
pub struct GateView {
    pub message: String,
    pub shows: Vec<String>,
    /// Any one of them can decide; empty means anyone.
    pub approvers: Vec<String>,
    /// The number of approvals that are needed, if it is more than one.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    pub timeout_ms: Option<u64>,
    pub on_timeout: OutcomeConsequence,
    pub on_reject: OutcomeConsequence,
}

#[derive(Debug, Serialize)]
pub struct WaitView {
    pub signals: Vec<String>,
    pub timeout_ms: Option<u64>,
    pub on_timeout: OutcomeConsequence,
}

#[derive(Debug, Serialize)]
pub struct RouteView {
    pub when: String,
    pub next: String,
}

impl PlanStepView {
    pub(super) fn from_step(viewer: &mut PlanViewBuilder<'_>, scope: ScopeIx, i: u32) -> PlanStepView {
        let config = viewer.config;
        let entry = viewer.definition.scope(scope);
        let step = entry.step(i);
        let policy = &step.policy;
        let called = entry.inner[i as usize].first().filter(|_| matches!(step.kind, StepKindSpec::Call(_)));
        PlanStepView {
            id: step.id.to_string(),
            name: step.name.clone(),
            description: step.description.clone(),
            kind: step.kind.name(),
            after: step.after.iter().map(ToString::to_string).collect(),
            when: step.when.as_ref().map(render_expression),
            settles: entry.steps_resolved_by(i).iter().map(|of| entry.step(*of).id.to_string()).collect(),
            work: match &step.kind {
                StepKindSpec::Work(work) => {
                    let workflow = &viewer.definition.workflow_containing(scope).workflow;
                    let wanted = AgentContextRequest::from_step(workflow, step, &work.worker, AttemptRole::Main);
                    Some(WorkView::from_work(step, work, wanted, config, viewer.found))
                }
                _ => None,
            },
            gate: build_gate_view(step),
            wait: build_wait_view(step),
            calls: match &step.kind {
                StepKindSpec::Call(call) => Some(call.workflow.clone()),
                _ => None,
            },
            shown_under: called.and_then(|called| viewer.called.get(called).cloned()),
            inputs: step.inputs.iter().map(build_input_view).collect(),
            timeout_ms: policy.timeout.map(|timeout| timeout.0),
            timeout_per: policy.timeout_per,
            attempts: policy.retry.attempts.values().copied().max().unwrap_or(1),
            budget: policy.budget.clone(),
            quota: waits_for_account(step).then_some("wait"),
            asks_first: policy.approval.as_ref().map(|hold| match policy.escalation.first() {
                Some(level) if hold.escalates => list_approvers(&level.approvers),
                _ => list_approvers(&hold.approvers),
            }),
            quorum: policy.approval.as_ref().map_or(1, |hold| hold.quorum),
            denied: policy.denied.clone(),
            escalates_to: policy.escalation.iter().map(build_level_view).collect(),
            ruling: policy.ruling.clone(),
            on_failure: OutcomeConsequence::from_effect(policy.effects.failed),
            on_timeout: OutcomeConsequence::from_effect(policy.effects.timed_out),
            undo: step.undo.as_ref().map(|undo| describe_worker(&undo.work.worker, config)),
            routes: build_route_views(step),
            inside: build_inner_batches(viewer, scope, i),
        }
    }
}

impl WorkView {
    fn from_work(
        step: &Step,
        work: &WorkSpec,
        wanted: AgentContextRequest,
        config: &ProjectConfig,
        found: &ToolResolutions,
    ) -> WorkView {
        let keeping = WorkspacePolicy::from_step(step);
        let IsolationSpec { workspace, worktree, no_network, secrets, protect, unprotect } = &*work.isolation;
        let tool = found.find_resolution(&work.worker).and_then(|found| found.bound.as_ref());
        let of_tool = tool.into_iter().flat_map(|tool| &tool.secrets);
        let secret = |name: &String| SecretView { name: name.clone(), from: describe_secret_source(name, config) };
        WorkView {
            by: describe_worker(&work.worker, config),
            provided: found.find_resolution(&work.worker).cloned(),
            model: resolve_model(step, &work.worker, config),
            may: list_capabilities(&work.worker),
            max_steps: match &work.worker {
                WorkerSpec::Agent { max_turns, .. } => *max_turns,
                _ => None,
            },
            tools: list_tools(&work.worker),
            servers: build_server_views(&work.worker, config),
            context_modules: wanted.modules,
            memory_tokens: wanted.memory.map(|memory| memory.max_tokens),
            workspace: workspace.clone(),
            worktree: *worktree,
            stays: *worktree && keeping.apart,
            settled_by: step.policy.settled_by.as_ref().map(ToString::to_string),
            on_retry: match keeping.on_retry {
                OnRetry::Keep => None,
                OnRetry::Reset => Some("reset"),
                OnRetry::KeepAndTell => Some("keep_and_tell"),
            },
            network: !no_network,
            secrets: secrets.iter().chain(of_tool).map(secret).collect(),
            protects: protect.clone(),
            unprotects: unprotect.clone(),
            evidence: work.evidence.iter().map(ToString::to_string).collect(),
            takes: build_artifact_inputs(work),
            gives: build_artifact_outputs(work),
            check: work.check.as_ref().map(|check| CheckView {
                by: describe_worker(&check.worker, config),
                iterations: check.max_iterations,
            }),
            summary_by: work.summary.as_ref().map(|summary| describe_worker(&summary.worker, config)),
            agents: build_fallback_views(step, &work.worker, config),
        }
    }
}

/// Returns true if an agent does a part of the work and waits while its account is limited.
fn waits_for_account(step: &Step) -> bool {
    let StepKindSpec::Work(work) = &step.kind else { return false };
    let is_agent = |worker: &WorkerSpec| matches!(worker, WorkerSpec::Agent { .. });
    let has_agent = is_agent(&work.worker) || work.check.iter().any(|check| is_agent(&check.worker));
    has_agent && step.policy.holds.contains_key(&ErrorClass::RateLimit)
}

/// Returns the MCP servers that the configuration defines.
fn build_server_views(worker: &WorkerSpec, config: &ProjectConfig) -> Vec<ServerView> {
    let named =
        list_tools(worker).into_iter().filter_map(|tool| tool.strip_prefix(ToolServer::SORT).map(str::to_owned));
    let view = |name: String| {
        let server = config.mcp.get(&name)?;
        let at = server.url.clone().unwrap_or_else(|| server.command.join(" "));
        Some(ServerView { name, at })
    };
    named.filter_map(view).collect()
}

fn build_artifact_inputs(work: &WorkSpec) -> Vec<ArtifactInputView> {
    let take = |taken: &skein_core::ir::InputArtifact| ArtifactInputView {
        artifact: taken.artifact.to_string(),
        from: taken.from.to_string(),
        name: taken.name.to_string(),
    };
    work.takes.iter().map(take).collect()
}

fn build_artifact_outputs(work: &WorkSpec) -> Vec<ArtifactOutputView> {
    let give = |given: &skein_core::ir::OutputArtifact| ArtifactOutputView {
        artifact: given.name.to_string(),
        path: given.path.clone(),
    };
    work.gives.iter().map(give).collect()
}

fn build_input_view(binding: &InputBinding) -> InputView {
    let value = binding.value.as_literal().map(|value| value.to_value().into_owned());
    let from = value.is_none().then(|| render_expression(&binding.value));
    InputView { name: binding.name.to_string(), value, from }
}

fn build_gate_view(step: &Step) -> Option<GateView> {
    let StepKindSpec::Gate(gate) = &step.kind else { return None };
    let GateSpec { message, shows, approvers, quorum, timeout, on_reject, .. } = &**gate;
    let effects = &step.policy.effects;
    Some(GateView {
        message: render_prose(message),
        shows: shows.iter().map(render_prose).collect(),
        approvers: list_approvers(approvers),
        quorum: *quorum,
        timeout_ms: timeout.map(|timeout| timeout.0),
        on_timeout: OutcomeConsequence::from_gate_timeout(gate, effects.timed_out),
        on_reject: match on_reject {
            Some(to) => OutcomeConsequence::Go(render_target(to)),
            None => OutcomeConsequence::from_effect(effects.rejected),
        },
    })
}

fn build_wait_view(step: &Step) -> Option<WaitView> {
    let StepKindSpec::Wait(wait) = &step.kind else { return None };
    let WaitSpec { on, timeout, on_timeout } = &**wait;
    Some(WaitView {
        signals: on.iter().map(ToString::to_string).collect(),
        timeout_ms: timeout.map(|timeout| timeout.0),
        on_timeout: OutcomeConsequence::from_wait_timeout(on_timeout, step.policy.effects.timed_out),
    })
}

/// Returns the targets of a step that does not simply continue. The view of a gate contains its targets for timeout and
/// rejection.
fn build_route_views(step: &Step) -> Vec<RouteView> {
    let route = |when: &str, next| RouteView { when: when.to_owned(), next: render_target(next) };
    match &step.kind {
        StepKindSpec::Branch(branch) => {
            let arms = branch.arms.iter().map(|arm| route(&render_expression(&arm.when), &arm.next));
            arms.chain([route("else", &branch.default)]).collect()
        }
        StepKindSpec::Gate(gate) if gate.on_approve.is_some() => {
            gate.on_approve.iter().map(|to| route("approved", to)).collect()
        }
        _ => step.next.iter().map(|to| route("then", to)).collect(),
    }
}

fn build_inner_batches(viewer: &mut PlanViewBuilder<'_>, scope: ScopeIx, i: u32) -> Vec<InnerBatches> {
    let definition = viewer.definition;
    let entry = definition.scope(scope);
    let labels: Vec<String> = match &entry.step(i).kind {
        StepKindSpec::Parallel(parallel) => parallel.lanes.iter().map(|lane| format!("lane {}", lane.id)).collect(),
        StepKindSpec::Each(each) => {
            let at_once = match each.parallelism {
                None => "all at once".to_owned(),
                Some(1) => "one after another".to_owned(),
                Some(n) => format!("{n} at once"),
            };
            vec![format!("for each of {}, {at_once}", render_expression(&each.over))]
        }
        StepKindSpec::Loop(repeat) => {
            let word = if repeat.test == LoopTest::After { "again while" } else { "while" };
            vec![format!("{word} {}, at most {} times", render_expression(&repeat.condition), repeat.max)]
        }
        StepKindSpec::Call(_) => {
            let called = entry.inner_scope(i, 0);
            if viewer.called.contains_key(&called) {
                return Vec::new();
            }
            viewer.called.insert(called, entry.step(i).id.to_string());
            let workflow = &definition.workflow_containing(called).workflow;
            vec![format!("workflow {}", workflow.name.as_deref().unwrap_or(workflow.id.as_str()))]
        }
        _ => Vec::new(),
    };
    let inner = |(label, which)| InnerBatches { label, batches: viewer.build_batches(entry.inner_scope(i, which)) };
    labels.into_iter().zip(0..).map(inner).collect()
}

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
pub(crate) fn build_fallback_views(step: &Step, worker: &WorkerSpec, config: &ProjectConfig) -> Vec<FallbackAgentView> {
    let names = fallback::named_agents(step);
    let WorkerSpec::Agent { name, program, capabilities, .. } = worker else { return Vec::new() };
    let key = AgentSettings::settings_key(name.as_deref(), program.as_deref());
    let fallbacks = fallback::fallback_agents(&key, &names);
    if fallbacks.is_empty() {
        return Vec::new();
    }
    let rights = match name.as_ref().and_then(|name| config.agents.get(name)) {
        Some(agent) if capabilities.is_empty() => &agent.capabilities,
        _ => capabilities,
    };
    let may = AgentPermissions::from_capabilities(rights, &find_test_commands(step, config));
    let view = |worker: &WorkerSpec, agent: AgentReference<'_>| FallbackAgentView {
        by: describe_worker(worker, config),
        model: resolve_model(step, worker, config),
        kept_to: describe_flags(agent, config, &may),
    };
    let first = view(worker, AgentReference { name: name.as_deref(), program: program.as_deref() });
    let rest = fallbacks.iter().map(|agent| view(&agent_worker(*agent, rights), *agent));
    [first].into_iter().chain(rest).collect()
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
