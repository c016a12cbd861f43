//! What a person should see before a run: who does what, when, with which permissions, and what it may cost.
//!
//! Owns the view of a plan, which is also its JSON, and its text. Everything in it comes from the plan itself; what is
//! not known is named as such.

mod ending;
mod estimate;
mod facts;
mod hooks;
mod rules;
mod step;
mod text;
mod turns;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use skein_core::{
    ir::Budget,
    plan::{Definition, Plan, ScopeIx},
};
use skein_host::sandbox::Enforcement;

use crate::missing_env::{self, MissingVariable};

pub use estimate::{Estimate, PerItem};
pub use facts::{few, short};
pub use hooks::HookView;
pub use step::StepView;
pub use text::text;
pub use words::kind;

use crate::{config::Config, resolve::Resolutions};

#[derive(Debug, Serialize)]
pub struct PlanView {
    pub workflow: About,
    pub parameters: Value,
    /// Parameters that were given and that the workflow does not declare. They are passed on as they are.
    pub undeclared: Vec<String>,
    pub batches: Vec<Batch>,
    pub longest_path: Longest,
    pub limits: Limits,
    /// What is done beside it, and who is told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookView>,
    pub estimate: Estimate,
    pub confined: Confined,
    /// Why steps cannot have worktrees here that want them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_worktrees: Option<String>,
    /// Variables that scripts use, that are set here, and that steps are not given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_passed: Vec<MissingVariable>,
    /// What cannot be told before the run.
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct About {
    pub id: String,
    pub name: Option<String>,
    pub version: Option<String>,
    pub description: Option<String>,
    pub dialect: String,
    /// Of the workflow with everything it calls, and these parameters.
    pub hash: String,
}

/// Steps that can start when those before have ended.
#[derive(Debug, Serialize)]
pub struct Batch {
    pub number: usize,
    pub sort: BatchSort,
    pub steps: Vec<StepView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSort {
    Gate,
    Conditional,
    Parallel,
    Sequential,
}

/// The way that can take longest. Gates and waits count as nothing.
#[derive(Debug, Serialize)]
pub struct Longest {
    pub steps: Vec<String>,
    /// If every step on it takes its whole timeout, once. None: one of them has none.
    pub time_ms: Option<u64>,
    /// Steps on it that have no timeout.
    pub without_timeout: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Limits {
    pub timeout_ms: Option<u64>,
    pub concurrency: Option<u32>,
    pub max_steps: Option<u32>,
    pub budget: Option<Budget>,
}

/// Whether steps are kept to what they may do.
#[derive(Debug, Serialize)]
pub struct Confined {
    /// How far the system keeps them to it, here.
    pub enforced: Option<Enforcement>,
    /// Why it does not.
    pub why: Option<String>,
    /// They are started all the same.
    pub allowed: bool,
}

impl PlanView {
    /// `found`: who does the work of tools here. `enforced`: how much of a sandbox this machine enforces, or why nothing.
    pub fn of(
        plan: &Plan,
        config: &Config,
        found: &Resolutions,
        enforced: Result<Enforcement, String>,
    ) -> PlanView {
        let definition = &*plan.definition;
        let root = definition.root();
        let workflow = &root.workflow;
        let scope = &workflow.scope;
        let path = definition.critical_path(root.root);
        let names = |steps: &[u32]| {
            steps.iter().map(|i| definition.scope(root.root).step(*i).id.to_string()).collect::<Vec<_>>()
        };
        let batches = Viewer { definition, config, found, called: BTreeMap::new() }.batches(root.root);
        let estimate = Estimate::of(definition, &config.estimate);
        PlanView {
            workflow: About {
                id: workflow.id.to_string(),
                name: workflow.name.clone(),
                version: workflow.version.clone(),
                description: workflow.description.clone(),
                dialect: workflow.origin.dialect.clone(),
                hash: plan.hash.to_string(),
            },
            parameters: (*plan.parameters).clone(),
            undeclared: undeclared(plan),
            longest_path: Longest {
                steps: names(&path.steps),
                time_ms: path.total.map(|total| total.0),
                without_timeout: names(&path.unknown),
            },
            limits: Limits {
                timeout_ms: scope.timeout.map(|timeout| timeout.0),
                concurrency: scope.concurrency,
                max_steps: scope.max_steps,
                budget: workflow.budget.clone(),
            },
            hooks: workflow.hooks.iter().map(|hook| HookView::new(hook, workflow, config)).collect(),
            unknown: unknown(&estimate, &batches),
            estimate,
            no_worktrees: None,
            not_passed: missing_env::find(definition, config, &missing_env::is_set_here),
            confined: Confined {
                enforced: enforced.as_ref().ok().copied(),
                why: enforced.err(),
                allowed: config.allow_unenforced.steps,
            },
            batches,
        }
    }
}

fn undeclared(plan: &Plan) -> Vec<String> {
    let declared: BTreeSet<&String> =
        plan.definition.root().workflow.inputs.properties().map(|(name, _)| name).collect();
    let given = plan.parameters.as_object().into_iter().flat_map(|given| given.keys());
    given.filter(|name| !declared.contains(name)).cloned().collect()
}

/// What cannot be told: about costs, and about secrets that the project does not name.
fn unknown(estimate: &Estimate, batches: &[Batch]) -> Vec<String> {
    let mut secrets = BTreeSet::new();
    let mut open: Vec<&Batch> = batches.iter().collect();
    while let Some(batch) = open.pop() {
        for step in &batch.steps {
            let wanted = step.work.iter().flat_map(|work| &work.secrets);
            secrets.extend(wanted.filter(|secret| secret.from.is_none()).map(|secret| secret.name.as_str()));
            open.extend(step.inside.iter().flat_map(|inner| &inner.batches));
        }
    }
    let secrets = secrets
        .into_iter()
        .map(|name| format!("where the secret `{name}` is: `[secrets]` in skein.toml does not say"));
    estimate.unknown.iter().cloned().chain(secrets).collect()
}

/// Looks at a plan from its first step to its last.
struct Viewer<'a> {
    definition: &'a Definition,
    config: &'a Config,
    found: &'a Resolutions,
    /// The step under which each called workflow has been shown. Each is shown once, since calls of calls can be more
    /// than anyone could read.
    called: BTreeMap<ScopeIx, String>,
}

impl Viewer<'_> {
    /// The batches of a scope. Recursion is bounded by the limits on nesting and calls.
    fn batches(&mut self, scope: ScopeIx) -> Vec<Batch> {
        let routed = self.definition.scope(scope).is_routed();
        let mut shown = Vec::new();
        for (number, steps) in (1..).zip(self.definition.batches(scope)) {
            let steps: Vec<StepView> = steps.iter().map(|i| StepView::of(self, scope, *i)).collect();
            shown.push(Batch { number, sort: sort(routed, &steps), steps });
        }
        shown
    }
}

fn sort(routed: bool, steps: &[StepView]) -> BatchSort {
    match steps {
        [only] if only.gate.is_some() => BatchSort::Gate,
        [only] if only.when.is_some() => BatchSort::Conditional,
        [_] => BatchSort::Sequential,
        // One cursor goes through a routed scope: of several, one is chosen.
        _ if routed => BatchSort::Conditional,
        _ => BatchSort::Parallel,
    }
}

/// The lanes of a parallel step, the items of an each, the passes of a loop, the workflow of a call.
#[derive(Debug, Serialize)]
pub struct Inner {
    pub label: String,
    pub batches: Vec<Batch>,
}
