//! The view of a plan before a run: the worker, order and permissions of each step, its hooks, and the possible cost.
//!
//! Owns the view of a plan, which is also its JSON, and its text. Everything in it comes from the plan itself. An estimate
//! lists its assumptions, and unknown values are listed as such.

pub mod facts;
pub(crate) mod missing_env;
mod step;
pub mod wording;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use skein_core::{
    ir::{Budget, HookAction, HookTiming, WorkerSpec, Workflow, WorkflowHook},
    plan::{Plan, PlanDefinition, ScopeIx},
};
use skein_host::{
    executor::{NEEDED_VARIABLES, agents::fallback},
    sandbox::{SandboxEnforcement, SandboxProbeError},
};

use self::{missing_env::MissingVariable, wording::join_words};
use crate::{
    prepare::resolve::ToolResolutions,
    project::config::{self, ChannelConfig, ProjectConfig},
};

pub use facts::{list_few, shorten_text};
pub use step::PlanStepView;
pub use wording::describe_kind;

#[derive(Debug, Serialize)]
pub struct PlanView {
    pub workflow: PlanWorkflowView,
    pub parameters: Value,
    /// Parameters that were given and that the workflow does not declare. They are passed on unchanged.
    pub undeclared: Vec<String>,
    pub batches: Vec<PlanBatch>,
    pub longest_path: LongestPath,
    pub limits: PlanLimits,
    /// Programs that are started beside the run, and people who are notified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookView>,
    pub estimate: CostEstimate,
    pub confined: ConfinementView,
    /// The reason why steps cannot have the worktrees that they request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_worktrees: Option<String>,
    /// Variables that scripts use, that are set here, and that steps do not get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_passed: Vec<MissingVariable>,
    /// Values that are not known before the run.
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PlanWorkflowView {
    pub id: String,
    pub name: Option<String>,
    pub version: Option<String>,
    pub description: Option<String>,
    pub dialect: String,
    /// The hash of the workflow with everything it calls, and these parameters.
    pub hash: String,
}

/// Steps that can start when the steps of earlier batches have ended.
#[derive(Debug, Serialize)]
pub struct PlanBatch {
    pub number: usize,
    pub sort: BatchKind,
    pub steps: Vec<PlanStepView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchKind {
    Gate,
    Conditional,
    Parallel,
    Sequential,
}

/// The path that can take longest. Gates and waits count as zero.
#[derive(Debug, Serialize)]
pub struct LongestPath {
    pub steps: Vec<String>,
    /// The time if every step on it takes its whole timeout, once. None: one of them has no timeout.
    pub time_ms: Option<u64>,
    /// Steps on it that have no timeout.
    pub without_timeout: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PlanLimits {
    pub timeout_ms: Option<u64>,
    pub concurrency: Option<u32>,
    pub max_steps: Option<u32>,
    pub budget: Option<Budget>,
}

/// The confinement of steps to their permissions.
#[derive(Debug, Serialize)]
pub struct ConfinementView {
    /// The level of enforcement on this machine.
    pub enforced: Option<SandboxEnforcement>,
    /// The reason why there is no enforcement.
    pub why: Option<String>,
    /// True if steps are started without enforcement.
    pub allowed: bool,
}

impl PlanView {
    /// Builds the view. `found`: the drivers of the plan's tools. `enforced`: the sandbox enforcement of this machine,
    /// or the reason why there is none.
    pub(crate) fn from_plan(
        plan: &Plan,
        config: &ProjectConfig,
        found: &ToolResolutions,
        enforced: Result<SandboxEnforcement, SandboxProbeError>,
    ) -> PlanView {
        let definition = &*plan.definition;
        let root = definition.root();
        let workflow = &root.workflow;
        let scope = &workflow.scope;
        let path = definition.critical_path(root.root);
        let names = |steps: &[u32]| {
            steps.iter().map(|i| definition.scope(root.root).step(*i).id.to_string()).collect::<Vec<_>>()
        };
        let batches = PlanViewBuilder { definition, config, found, called: BTreeMap::new() }.build_batches(root.root);
        let estimate = CostEstimate::from_definition(definition, &config.estimate);
        PlanView {
            workflow: PlanWorkflowView {
                id: workflow.id.to_string(),
                name: workflow.name.clone(),
                version: workflow.version.clone(),
                description: workflow.description.clone(),
                dialect: workflow.origin.dialect.clone(),
                hash: plan.hash.to_string(),
            },
            parameters: (*plan.parameters).clone(),
            undeclared: find_undeclared(plan),
            longest_path: LongestPath {
                steps: names(&path.steps),
                time_ms: path.total.map(|total| total.0),
                without_timeout: names(&path.unknown),
            },
            limits: PlanLimits {
                timeout_ms: scope.timeout.map(|timeout| timeout.0),
                concurrency: scope.concurrency,
                max_steps: scope.max_steps,
                budget: workflow.budget.clone(),
            },
            hooks: workflow.hooks.iter().map(|hook| HookView::new(hook, workflow, config)).collect(),
            unknown: list_unknowns(&estimate, &batches),
            estimate,
            no_worktrees: None,
            not_passed: missing_env::find_missing_variables(definition, config, &missing_env::is_set_here),
            confined: ConfinementView {
                enforced: enforced.as_ref().ok().copied(),
                why: enforced.err().map(|error| error.0),
                allowed: config.allow_unenforced.steps,
            },
            batches,
        }
    }
}

fn find_undeclared(plan: &Plan) -> Vec<String> {
    let declared: BTreeSet<&String> =
        plan.definition.root().workflow.inputs.properties().map(|(name, _)| name).collect();
    let given = plan.parameters.as_object().into_iter().flat_map(|given| given.keys());
    given.filter(|name| !declared.contains(name)).cloned().collect()
}

/// Returns the unknown values: of the costs, and of secrets that the project does not configure.
fn list_unknowns(estimate: &CostEstimate, batches: &[PlanBatch]) -> Vec<String> {
    let mut secrets = BTreeSet::new();
    let mut open: Vec<&PlanBatch> = batches.iter().collect();
    while let Some(batch) = open.pop() {
        for step in &batch.steps {
            let wanted = step.work.iter().flat_map(|work| &work.secrets);
            secrets.extend(wanted.filter(|secret| secret.from.is_none()).map(|secret| secret.name.as_str()));
            open.extend(step.inside.iter().flat_map(|inner| &inner.batches));
        }
    }
    let secrets = secrets
        .into_iter()
        .map(|name| format!("the source of the secret `{name}`: `[secrets]` in skein.toml does not set it"));
    estimate.unknown.iter().cloned().chain(secrets).collect()
}

/// Builds the view of a plan from its first step to its last.
struct PlanViewBuilder<'a> {
    definition: &'a PlanDefinition,
    config: &'a ProjectConfig,
    found: &'a ToolResolutions,
    /// The step under which each called workflow has been shown. Each is shown once, since nested calls can be too many
    /// to read.
    called: BTreeMap<ScopeIx, String>,
}

impl PlanViewBuilder<'_> {
    /// Returns the batches of a scope. Recursion is bounded by the limits on nesting and calls.
    fn build_batches(&mut self, scope: ScopeIx) -> Vec<PlanBatch> {
        let routed = self.definition.scope(scope).is_routed();
        let mut shown = Vec::new();
        for (number, steps) in (1..).zip(self.definition.step_batches(scope)) {
            let steps: Vec<PlanStepView> = steps.iter().map(|i| PlanStepView::from_step(self, scope, *i)).collect();
            shown.push(PlanBatch { number, sort: batch_kind(routed, &steps), steps });
        }
        shown
    }
}

fn batch_kind(routed: bool, steps: &[PlanStepView]) -> BatchKind {
    match steps {
        [only] if only.gate.is_some() => BatchKind::Gate,
        [only] if only.when.is_some() => BatchKind::Conditional,
        [_] => BatchKind::Sequential,
        // One cursor moves through a routed scope: it chooses one of several steps.
        _ if routed => BatchKind::Conditional,
        _ => BatchKind::Parallel,
    }
}

/// The lanes of a parallel step, the items of an each, the passes of a loop, or the workflow of a call.
#[derive(Debug, Serialize)]
pub struct InnerBatches {
    pub label: String,
    pub batches: Vec<PlanBatch>,
}

#[derive(Debug, Serialize)]
pub struct CostEstimate {
    /// The maximum number of starts of an agent, including retries and iterations. None: there is no upper bound.
    pub agent_starts_at_most: Option<u64>,
    /// Additional starts for each item of a list whose length is unknown.
    pub per_item: Vec<ItemEstimate>,
    /// Excludes the additional starts for items.
    pub tokens_at_most: Option<u64>,
    /// None if a list of unknown length or a missing price makes it unknown.
    pub usd_at_most: Option<f64>,
    /// The assumptions behind the numbers.
    pub assumes: Vec<String>,
    /// Values that are not known before the run; shown with the other unknowns.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct ItemEstimate {
    pub step: String,
    pub agent_starts: u64,
    pub tokens: u64,
}

impl CostEstimate {
    pub(crate) fn from_definition(definition: &PlanDefinition, config: &config::EstimateConfig) -> CostEstimate {
        let starts = definition.count_worker_starts(|worker| matches!(worker, WorkerSpec::Agent { .. }));
        let per_item: Vec<ItemEstimate> = starts
            .items
            .iter()
            .filter(|(_, starts)| **starts > 0)
            .map(|(step, starts)| ItemEstimate {
                step: step.to_string(),
                agent_starts: *starts,
                tokens: starts.saturating_mul(config.tokens_per_attempt),
            })
            .collect();
        let bound = (!starts.endless).then_some(starts.most);
        let tokens = bound.map(|starts| starts.saturating_mul(config.tokens_per_attempt));
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let usd = tokens
            .filter(|_| per_item.is_empty())
            .zip(config.usd_per_million_tokens)
            .map(|(tokens, usd)| tokens as f64 / 1e6 * usd);
        let agents = bound != Some(0) || !per_item.is_empty();
        CostEstimate {
            agent_starts_at_most: bound,
            assumes: if agents { list_assumptions(definition, config) } else { Vec::new() },
            unknown: list_estimate_unknowns(
                starts.endless,
                &per_item,
                agents && config.usd_per_million_tokens.is_none(),
            ),
            per_item,
            tokens_at_most: tokens,
            usd_at_most: usd,
        }
    }
}

fn list_assumptions(definition: &PlanDefinition, config: &config::EstimateConfig) -> Vec<String> {
    let tokens = skein_core::plan::group_digits(config.tokens_per_attempt);
    let mut assumes = vec![format!("{tokens} tokens each time an agent is started")];
    assumes.extend(config.usd_per_million_tokens.map(|usd| format!("${usd} for a million tokens")));
    let steps = definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let relieved = steps.filter(|step| !fallback::named_agents(step).is_empty()).count();
    assumes.extend((relieved > 0).then(|| "that no agent takes over from another".to_owned()));
    assumes
}

fn list_estimate_unknowns(endless: bool, per_item: &[ItemEstimate], no_price: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    if endless {
        unknown.push("how often steps that routes lead back to will run".to_owned());
    }
    unknown.extend(per_item.iter().map(|item| format!("how many items `{}` will have", item.step)));
    if no_price {
        unknown.push("the price: none is set in skein.toml (`[estimate] usd_per_million_tokens`)".to_owned());
    }
    unknown
}

#[derive(Debug, Serialize)]
pub struct HookView {
    pub when: HookTiming,
    /// The command, or the recipient.
    pub does: String,
    /// The grant of the program that is started for it. None: no program is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may: Option<HookGrantView>,
}

/// The permissions of the program of a hook.
#[derive(Debug, Serialize)]
pub struct HookGrantView {
    /// The places that it writes, as text.
    pub writes: Vec<&'static str>,
    pub network: bool,
    /// The variables that it gets if the host has them.
    pub environment: Vec<String>,
}

impl HookView {
    pub(crate) fn new(hook: &WorkflowHook, workflow: &Workflow, config: &ProjectConfig) -> HookView {
        let may = HookGrantView::from_action(&hook.action, workflow, config);
        HookView { when: hook.when, does: describe_hook_action(&hook.action, config), may }
    }

    pub fn describe_hook(&self) -> String {
        let when = match self.when {
            HookTiming::Start => "when it starts",
            HookTiming::Success => "when it succeeds",
            HookTiming::Failure => "when it fails",
        };
        let may = self.may.as_ref().map(HookGrantView::describe_grant).unwrap_or_default();
        format!("{when}, {}{may}", self.does)
    }
}

impl HookGrantView {
    fn from_action(action: &HookAction, workflow: &Workflow, config: &ProjectConfig) -> Option<HookGrantView> {
        let (writes, identifiers) = match action {
            HookAction::Run { .. } => (vec!["the workspace"], Vec::new()),
            HookAction::Notify { channel, .. } => match config.find_channel(channel)?.1.kind.as_deref()? {
                ChannelConfig::COMMAND => (vec!["the workspace"], vec!["SKEIN_MESSAGE_ID"]),
                ChannelConfig::DESKTOP => (Vec::new(), vec!["SKEIN_MESSAGE_ID"]),
                _ => return None,
            },
        };
        let needed = NEEDED_VARIABLES.into_iter().map(str::to_owned);
        let own = config.pass_env.iter().chain(workflow.env.keys()).cloned();
        let identifiers = ["SKEIN_RUN_ID"].into_iter().chain(identifiers).map(str::to_owned);
        Some(HookGrantView { writes, network: true, environment: needed.chain(own).chain(identifiers).collect() })
    }

    fn describe_grant(&self) -> String {
        let writes = match &self.writes[..] {
            [] => "writes nothing".to_owned(),
            places => format!("writes in {}", join_words(places, "and")),
        };
        let network = if self.network { "has network access" } else { "has no network access" };
        format!("; it {writes}, {network}, and is given {}", join_words(&self.environment, "and"))
    }
}

fn describe_hook_action(action: &HookAction, config: &ProjectConfig) -> String {
    match action {
        HookAction::Run { program, arguments } => {
            let rest = arguments.iter().map(wording::render_argument);
            let words: Vec<String> = [program.clone()].into_iter().chain(rest).collect();
            format!("runs {}", shorten_text(&words.join(" ")))
        }
        HookAction::Notify { channel, .. } => match config.find_channel(channel) {
            Some((_, found)) => {
                let kind = found.kind.as_deref().unwrap_or("nothing yet");
                format!("notifies {} by {kind}", shorten_text(channel))
            }
            None => format!("notifies nobody: skein.toml has no channel for {}", shorten_text(channel)),
        },
    }
}
