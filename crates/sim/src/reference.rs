//! The recursive reference: what must come of a run when timing does not matter.
//!
//! Owns a direct evaluation of a plan by recursion over its scopes, written from `docs/design/semantics.md` and from
//! nothing else. Knows no events, no state machine, no clock. Where the result depends on timing, or the rules do not
//! say what it is, it gives up with a [`TimingRace`] instead of guessing; for those runs there is the
//! [`acceptor`](crate::acceptor).
//!
//! The world of such a run interrupts nothing, cancels nothing, sends no stray signals and answers as
//! [`WorldOutcomes`] says.

mod composite;
mod conflict;
mod env;
mod frame;
mod graph;
mod routed;
mod undo;
mod waitpoints;
mod work;
mod workflow;

#[cfg(test)]
mod tests;

use std::{cell::Cell, collections::BTreeMap};

use serde_json::Value;
use skein_core::{
    engine::Cost,
    ir::{Budget, ErrorClass, RunStatus, StepStatus},
    plan::Plan,
    time::Millis,
};

use crate::outcome::WorldOutcomes;

/// A timeout of at least this length is taken to be never due.
pub const NEVER_DUE: Millis = Millis::from_hours(100);

/// Stands for a value that the rules leave open; [`matches`] accepts anything in its place.
pub const ANYTHING: &str = "\u{1}anything";

/// Why there is no one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimingRace(pub &'static str);

/// What must come of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedRun {
    pub status: RunStatus,
    /// Of a run that succeeded.
    pub output: Value,
    pub degraded: bool,
    /// By shown path, such as `each[3]/child`.
    pub steps: BTreeMap<String, ExpectedStep>,
    /// The shown paths of what was undone, in order.
    pub undone: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedStep {
    pub status: StepStatus,
    /// A status that would be as good, where the rules leave a choice.
    pub or: Option<StepStatus>,
    pub output: Value,
    /// Starts of main, over all visits; of a composite, its tries.
    pub attempts: u32,
    /// The last iteration of the last visit; 0 for what has none.
    pub iterations: u32,
    pub visits: u32,
}

impl ExpectedStep {
    pub fn accepts_status(&self, status: StepStatus) -> bool {
        self.status == status || self.or == Some(status)
    }
}

/// What must come of this plan in this world.
pub fn evaluate_plan(plan: &Plan, world: &dyn WorldOutcomes) -> Result<ExpectedRun, TimingRace> {
    let mut eval = ModelEvaluator {
        definition: &plan.definition,
        world,
        steps: BTreeMap::new(),
        undone: Vec::new(),
        spent: Cost::default(),
        around: Vec::new(),
        renewed: Cost::default(),
        unclear: Cell::new(false),
    };
    eval.evaluate_run(plan)
}

/// Whether a value is the expected one, with [`ANYTHING`] standing for all.
pub fn matches_expected(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(text), _) if text == ANYTHING => true,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| matches_expected(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| matches_expected(a, b)))
        }
        _ => expected == actual,
    }
}

/// One evaluation.
struct ModelEvaluator<'a> {
    definition: &'a skein_core::plan::PlanDefinition,
    world: &'a dyn WorldOutcomes,
    steps: BTreeMap<String, ExpectedStep>,
    undone: Vec<String>,
    /// What the whole run has spent.
    spent: Cost,
    /// The budgets of the composites, and of the called workflows, in which the evaluation is, and what each has spent.
    /// With each budget, what had been spent when it was last renewed.
    around: Vec<(Vec<(&'a Budget, Cost)>, Cost)>,
    /// The cost of the run when its own budget was last renewed.
    renewed: Cost,
    /// An expression read something that the rules leave open.
    unclear: Cell<bool>,
}

impl ModelEvaluator<'_> {
    fn add_cost(&mut self, cost: Cost) {
        self.spent.add(cost);
        self.around.iter_mut().for_each(|(_, spent)| spent.add(cost));
    }
}

/// Why something failed. No class: the rules do not say which.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelFailure {
    class: Option<ErrorClass>,
    code: Option<String>,
}

impl ModelFailure {
    fn new(class: ErrorClass, code: &str) -> ModelFailure {
        ModelFailure { class: Some(class), code: Some(code.to_owned()) }
    }

    fn validation(code: &str) -> ModelFailure {
        ModelFailure::new(ErrorClass::Validation, code)
    }

    fn unknown() -> ModelFailure {
        ModelFailure { class: None, code: None }
    }
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq)]
enum ModelOutcome {
    Succeeded,
    Incomplete,
    Exhausted,
    Failed(ModelFailure),
    Rejected,
    SkippedByCondition,
    SkippedByUpstream,
}
