//! The recursive reference: the expected result of a run when timing does not matter.
//!
//! Owns a direct evaluation of a plan by recursion over its scopes, written only from `docs/design/semantics.md`. Does
//! not know events, a state machine or a clock. If the result depends on timing, or the rules do not define it, the
//! evaluation returns a [`TimingRace`] instead of guessing; the [`acceptor`](crate::acceptor) covers those runs.
//!
//! The world of such a run interrupts nothing, cancels nothing, sends no stray signals and answers as [`WorldOutcomes`]
//! defines.

mod composite;
mod frame;
mod scopes;
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

/// Timeouts of at least this length are assumed never to be due.
pub(crate) const NEVER_DUE: Millis = Millis::from_hours(100);

/// A placeholder for a value that the rules leave open; [`matches_expected`] accepts any value in its place.
pub(crate) const ANYTHING: &str = "\u{1}anything";

/// The reason why there is no single expected result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimingRace(pub &'static str);

/// A result, unless it depends on timing.
pub(crate) type RaceResult<T> = Result<T, TimingRace>;

/// The expected result of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExpectedRun {
    pub status: RunStatus,
    /// The output of a run that succeeded.
    pub output: Value,
    pub degraded: bool,
    /// The expected steps by shown path, such as `each[3]/child`.
    pub steps: BTreeMap<String, ExpectedStep>,
    /// The shown paths of the undone steps, in order.
    pub undone: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExpectedStep {
    pub status: StepStatus,
    /// An alternative status, if the rules leave a choice.
    pub or: Option<StepStatus>,
    pub output: Value,
    /// The number of started main attempts, over all visits; for a composite, of its tries.
    pub attempts: u32,
    /// The last iteration of the last visit; 0 for steps without iterations.
    pub iterations: u32,
    pub visits: u32,
}

impl ExpectedStep {
    pub(crate) fn accepts_status(&self, status: StepStatus) -> bool {
        self.status == status || self.or == Some(status)
    }
}

/// Evaluates the expected result of this plan in this world.
pub(crate) fn evaluate_plan(plan: &Plan, world: &dyn WorldOutcomes) -> RaceResult<ExpectedRun> {
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

/// True if a value equals the expected one, where [`ANYTHING`] matches any value.
pub(crate) fn matches_expected(expected: &Value, actual: &Value) -> bool {
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

/// One evaluation of a plan.
struct ModelEvaluator<'a> {
    definition: &'a skein_core::plan::PlanDefinition,
    world: &'a dyn WorldOutcomes,
    steps: BTreeMap<String, ExpectedStep>,
    undone: Vec<String>,
    /// The cost of the whole run.
    spent: Cost,
    /// The budgets of the enclosing composites and called workflows, and the cost of each. Each budget has the cost at
    /// its last renewal.
    around: Vec<(Vec<(&'a Budget, Cost)>, Cost)>,
    /// The cost of the run when its own budget was last renewed.
    renewed: Cost,
    /// True if an expression read a value that the rules leave open.
    unclear: Cell<bool>,
}

impl ModelEvaluator<'_> {
    fn add_cost(&mut self, cost: Cost) {
        self.spent.add(cost);
        self.around.iter_mut().for_each(|(_, spent)| spent.add(cost));
    }
}

/// The class and code of a failure. No class means that the rules leave it open.
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

/// The outcome of a step.
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
