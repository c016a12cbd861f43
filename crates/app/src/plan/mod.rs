//! The view of a plan before a run: the worker, order and permissions of each step, and the possible cost.
//!
//! Owns the view of a plan, which is also its JSON, and its text. Everything in it comes from the plan itself; unknown
//! values are listed as such.

mod consequence;
mod estimate;
pub mod facts;
mod fallback_agents;
mod hooks;
pub mod missing_env;
mod rules;
mod step;
pub mod wording;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use skein_core::{
    ir::Budget,
    plan::{Plan, PlanDefinition, ScopeIx},
};
use skein_host::sandbox::{SandboxEnforcement, SandboxProbeError};

pub use estimate::{CostEstimate, ItemEstimate};
pub use facts::{list_few, shorten_text};
pub use hooks::HookView;
pub use step::PlanStepView;
pub use wording::describe_kind;

use self::missing_env::MissingVariable;
use crate::{prepare::resolve::ToolResolutions, project::config::ProjectConfig};

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
    pub fn from_plan(
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
