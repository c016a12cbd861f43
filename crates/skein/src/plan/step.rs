//! One step of a plan as people see it.

use serde::Serialize;
use serde_json::Value;
use skein_core::{
    engine::Role,
    ir::{
        Binding, Budget, ErrorClass, Gate, Isolation, Kind, KindName, Level, LoopTest, Per, Ruling, Step,
        Wait, Work, Worker,
    },
    plan::ScopeIx,
};
use skein_host::{
    agent::Server,
    crew::{Keeping, OnRetry, Wanted},
};

use super::{
    Inner, Viewer,
    ending::Ending,
    turns::{TurnView, turns},
    words::{approvers, by, expression, may, model, prose, secret, target, tools},
};
use crate::{
    config::Config,
    resolve::{Resolution, Resolutions},
};

#[derive(Debug, Serialize)]
pub struct StepView {
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub kind: KindName,
    pub after: Vec<String>,
    /// What must be true, or it is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The steps whose conflicts it settles. It is skipped where there are none.
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
    /// The step under which the inside of that workflow is shown, if it is not this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_under: Option<String>,
    pub inputs: Vec<InputView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether the timeout is for each attempt, or for all of them together.
    pub timeout_per: Per,
    pub attempts: u32,
    /// The limit of its cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// `wait`: it waits while the account of its agent is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<&'static str>,
    /// Who is asked before it starts; nobody named means anyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks_first: Option<Vec<String>>,
    /// How many of them have to approve, where one does not do.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// Why it may not start at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
    /// Who is asked about what governance holds, one after the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalates_to: Vec<LevelView>,
    /// Which class of approval holds, who says so, and what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
    /// What each end that is no success does.
    pub on_failure: Ending,
    pub on_timeout: Ending,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Where the cursor goes, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Inner>,
}

/// Who does it, what they may do and reach, what they are given and leave.
#[derive(Debug, Serialize)]
pub struct WorkView {
    pub by: String,
    /// Which driver does the work of a tool, and why the others do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provided: Option<Resolution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it may do; none named where the worker's own settings say.
    pub may: Vec<&'static str>,
    /// The most steps that its agent may take in one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    pub tools: Vec<String>,
    /// The servers among them, and how each is started or where it is asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerView>,
    /// Context modules that its agent is told, and how many tokens of what is remembered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    pub worktree: bool,
    /// Whether what is changed there is not merged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// The step that settles it when its changes do not fit those of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
    /// What becomes of the workspace before it is tried again, if it is not kept as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_retry: Option<&'static str>,
    pub network: bool,
    pub secrets: Vec<SecretView>,
    /// What it must leave as it is.
    pub protects: Vec<String>,
    /// Protected files that it may change all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unprotects: Vec<String>,
    /// What must be so before it counts as done.
    pub evidence: Vec<String>,
    pub takes: Vec<TakeView>,
    pub gives: Vec<GiveView>,
    /// Who decides whether it is complete, and how often it may be done again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_by: Option<String>,
    /// All who may do it, in their order, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<TurnView>,
}

/// Who is asked on one level, and for how long.
#[derive(Debug, Serialize)]
pub struct LevelView {
    pub approvers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

fn level(level: &Level) -> LevelView {
    LevelView { approvers: approvers(&level.approvers), timeout_ms: level.timeout.map(|timeout| timeout.0) }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it so")]
fn is_one(quorum: &u32) -> bool {
    *quorum == 1
}

/// An input, with its value if that is known before the run, or what it is worked out from.
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
    /// None: the project does not say.
    pub from: Option<String>,
}

/// A file of another step.
#[derive(Debug, Serialize)]
pub struct TakeView {
    pub artifact: String,
    pub from: String,
    #[serde(rename = "as")]
    pub name: String,
}

/// A file that is kept.
#[derive(Debug, Serialize)]
pub struct GiveView {
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
    /// Any one of them; nobody named means anyone.
    pub approvers: Vec<String>,
    /// How many of them have to approve, where one does not do.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    pub timeout_ms: Option<u64>,
    pub on_timeout: Ending,
    pub on_reject: Ending,
}

#[derive(Debug, Serialize)]
pub struct WaitView {
    pub signals: Vec<String>,
    pub timeout_ms: Option<u64>,
    pub on_timeout: Ending,
}

#[derive(Debug, Serialize)]
pub struct RouteView {
    pub when: String,
    pub next: String,
}

impl StepView {
    pub(super) fn of(viewer: &mut Viewer<'_>, scope: ScopeIx, i: u32) -> StepView {
        let config = viewer.config;
        let entry = viewer.definition.scope(scope);
        let step = entry.step(i);
        let policy = &step.policy;
        let called = entry.inner[i as usize].first().filter(|_| matches!(step.kind, Kind::Call(_)));
        StepView {
            id: step.id.to_string(),
            name: step.name.clone(),
            description: step.description.clone(),
            kind: step.kind.name(),
            after: step.after.iter().map(ToString::to_string).collect(),
            when: step.when.as_ref().map(expression),
            settles: entry.settles(i).iter().map(|of| entry.step(*of).id.to_string()).collect(),
            work: match &step.kind {
                Kind::Work(work) => {
                    let workflow = &viewer.definition.workflow_of(scope).workflow;
                    let wanted = Wanted::of(workflow, step, &work.worker, Role::Main);
                    Some(WorkView::of(step, work, wanted, config, viewer.found))
                }
                _ => None,
            },
            gate: gate(step),
            wait: wait(step),
            calls: match &step.kind {
                Kind::Call(call) => Some(call.workflow.clone()),
                _ => None,
            },
            shown_under: called.and_then(|called| viewer.called.get(called).cloned()),
            inputs: step.inputs.iter().map(input).collect(),
            timeout_ms: policy.timeout.map(|timeout| timeout.0),
            timeout_per: policy.timeout_per,
            attempts: policy.retry.attempts.values().copied().max().unwrap_or(1),
            budget: policy.budget.clone(),
            quota: waits_for_account(step).then_some("wait"),
            asks_first: policy.approval.as_ref().map(|hold| match policy.escalation.first() {
                Some(level) if hold.escalates => approvers(&level.approvers),
                _ => approvers(&hold.approvers),
            }),
            quorum: policy.approval.as_ref().map_or(1, |hold| hold.quorum),
            denied: policy.denied.clone(),
            escalates_to: policy.escalation.iter().map(level).collect(),
            ruling: policy.ruling.clone(),
            on_failure: Ending::of(policy.effects.failed),
            on_timeout: Ending::of(policy.effects.timed_out),
            undo: step.undo.as_ref().map(|undo| by(&undo.work.worker, config)),
            routes: routes(step),
            inside: inside(viewer, scope, i),
        }
    }
}

impl WorkView {
    fn of(step: &Step, work: &Work, wanted: Wanted, config: &Config, found: &Resolutions) -> WorkView {
        let keeping = Keeping::of(step);
        let Isolation { workspace, worktree, no_network, secrets, protect, unprotect } = &*work.isolation;
        let tool = found.get(&work.worker).and_then(|found| found.bound.as_ref());
        let of_tool = tool.into_iter().flat_map(|tool| &tool.secrets);
        let secret = |name: &String| SecretView { name: name.clone(), from: secret(name, config) };
        WorkView {
            by: by(&work.worker, config),
            provided: found.get(&work.worker).cloned(),
            model: model(step, &work.worker, config),
            may: may(&work.worker),
            max_steps: match &work.worker {
                Worker::Agent { max_turns, .. } => *max_turns,
                _ => None,
            },
            tools: tools(&work.worker),
            servers: servers(&work.worker, config),
            told: wanted.modules,
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
            takes: takes(work),
            gives: gives(work),
            check: work
                .check
                .as_ref()
                .map(|check| CheckView { by: by(&check.worker, config), iterations: check.max_iterations }),
            summary_by: work.summary.as_ref().map(|summary| by(&summary.worker, config)),
            agents: turns(step, &work.worker, config),
        }
    }
}

/// Returns true if an agent does a part of the work and waits while its account is limited.
fn waits_for_account(step: &Step) -> bool {
    let Kind::Work(work) = &step.kind else { return false };
    let is_agent = |worker: &Worker| matches!(worker, Worker::Agent { .. });
    let has_agent = is_agent(&work.worker) || work.check.iter().any(|check| is_agent(&check.worker));
    has_agent && step.policy.holds.contains_key(&ErrorClass::RateLimit)
}

/// The servers of tools that the configuration describes.
fn servers(worker: &Worker, config: &Config) -> Vec<ServerView> {
    let named =
        tools(worker).into_iter().filter_map(|tool| tool.strip_prefix(Server::SORT).map(str::to_owned));
    let view = |name: String| {
        let server = config.mcp.get(&name)?;
        let at = server.url.clone().unwrap_or_else(|| server.command.join(" "));
        Some(ServerView { name, at })
    };
    named.filter_map(view).collect()
}

fn takes(work: &Work) -> Vec<TakeView> {
    let take = |taken: &skein_core::ir::ArtifactIn| TakeView {
        artifact: taken.artifact.to_string(),
        from: taken.from.to_string(),
        name: taken.name.to_string(),
    };
    work.takes.iter().map(take).collect()
}

fn gives(work: &Work) -> Vec<GiveView> {
    let give = |given: &skein_core::ir::ArtifactOut| GiveView {
        artifact: given.name.to_string(),
        path: given.path.clone(),
    };
    work.gives.iter().map(give).collect()
}

fn input(binding: &Binding) -> InputView {
    let value = binding.value.as_literal().map(|value| value.value().into_owned());
    let from = value.is_none().then(|| expression(&binding.value));
    InputView { name: binding.name.to_string(), value, from }
}

fn gate(step: &Step) -> Option<GateView> {
    let Kind::Gate(gate) = &step.kind else { return None };
    let Gate { message, shows, approvers: who, quorum, timeout, on_reject, .. } = &**gate;
    let effects = &step.policy.effects;
    Some(GateView {
        message: prose(message),
        shows: shows.iter().map(prose).collect(),
        approvers: approvers(who),
        quorum: *quorum,
        timeout_ms: timeout.map(|timeout| timeout.0),
        on_timeout: Ending::of_gate(gate, effects.timed_out),
        on_reject: match on_reject {
            Some(to) => Ending::Go(target(to)),
            None => Ending::of(effects.rejected),
        },
    })
}

fn wait(step: &Step) -> Option<WaitView> {
    let Kind::Wait(wait) = &step.kind else { return None };
    let Wait { on, timeout, on_timeout } = &**wait;
    Some(WaitView {
        signals: on.iter().map(ToString::to_string).collect(),
        timeout_ms: timeout.map(|timeout| timeout.0),
        on_timeout: Ending::of_wait(on_timeout, step.policy.effects.timed_out),
    })
}

/// Where a step leads that does not simply go on. What a gate does when it is late or rejected is told there.
fn routes(step: &Step) -> Vec<RouteView> {
    let route = |when: &str, next| RouteView { when: when.to_owned(), next: target(next) };
    match &step.kind {
        Kind::Branch(branch) => {
            let arms = branch.arms.iter().map(|arm| route(&expression(&arm.when), &arm.next));
            arms.chain([route("else", &branch.default)]).collect()
        }
        Kind::Gate(gate) if gate.on_approve.is_some() => {
            gate.on_approve.iter().map(|to| route("approved", to)).collect()
        }
        _ => step.next.iter().map(|to| route("then", to)).collect(),
    }
}

fn inside(viewer: &mut Viewer<'_>, scope: ScopeIx, i: u32) -> Vec<Inner> {
    let definition = viewer.definition;
    let entry = definition.scope(scope);
    let labels: Vec<String> = match &entry.step(i).kind {
        Kind::Parallel(parallel) => parallel.lanes.iter().map(|lane| format!("lane {}", lane.id)).collect(),
        Kind::Each(each) => {
            let at_once = match each.parallelism {
                None => "all at once".to_owned(),
                Some(1) => "one after another".to_owned(),
                Some(n) => format!("{n} at once"),
            };
            vec![format!("for each of {}, {at_once}", expression(&each.over))]
        }
        Kind::Loop(repeat) => {
            let asked = if repeat.test == LoopTest::After { "again while" } else { "while" };
            vec![format!("{asked} {}, at most {} times", expression(&repeat.condition), repeat.max)]
        }
        Kind::Call(_) => {
            let called = entry.inner(i, 0);
            if viewer.called.contains_key(&called) {
                return Vec::new();
            }
            viewer.called.insert(called, entry.step(i).id.to_string());
            let workflow = &definition.workflow_of(called).workflow;
            vec![format!("workflow {}", workflow.name.as_deref().unwrap_or(workflow.id.as_str()))]
        }
        _ => Vec::new(),
    };
    let inner = |(label, which)| Inner { label, batches: viewer.batches(entry.inner(i, which)) };
    labels.into_iter().zip(0..).map(inner).collect()
}
