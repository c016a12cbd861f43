//! Advice: facts that a person should know before a run, although they may be intended: a wait without an end, a gate
//! that opens by itself, steps that cannot be undone. And estimates: the steps that can run in parallel, the longest
//! path, and the maximum number of workers that the run can start.
//!
//! The number of workers counts attempts, iterations, checks, summaries, undo, passes and items. Interruptions are not
//! counted. Lists of unknown length are named instead.

use std::collections::BTreeMap;

use crate::{
    expr::LiteralValue,
    ids::StepId,
    ir::{
        GateSpec, GateTimeout, OutcomeAction, OutcomeEffect, OutcomeEffects, ScopeShape, Step, StepKindSpec, StepRetry,
        UndoSpec, WorkSpec, WorkerSpec,
    },
    plan::{
        definition::{PlanDefinition, ScopeEntry, ScopeIx, WorkflowEntry},
        graph::IndexGraph,
        problem::{FieldPath, PlanField, PlanProblem, ProblemCode, ProblemCollector},
        survey::{PlanSurvey, flow_graph},
    },
    time::Millis,
};

/// Maximum number of names in one line.
const NAMED: usize = 5;

pub(super) fn collect_advice(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for entry in &survey.definition.workflows {
        check_undo(survey, entry, problems);
    }
    let root = survey.definition.root();
    if root.workflow.scope.timeout.is_none() {
        let at = survey.scope_location(root.root, PlanField::Timeout);
        let problem = PlanProblem::new(ProblemCode::NoTimeout, at, "the run has no timeout and may never end");
        problems.push(problem.with_hint("give the workflow a timeout"));
    }
    for (scope, i, step) in survey.steps() {
        let mut advice = StepAdvice { survey, scope, i, step, problems };
        advice.check_timeout();
        advice.check_kind();
    }
}

/// Adds one note for a whole workflow: in some formats every failure undoes, and few steps need it.
fn check_undo(survey: &PlanSurvey<'_>, entry: &WorkflowEntry, problems: &mut ProblemCollector) {
    let policy = &entry.workflow.scope.undo;
    let steps = || {
        let names = entry.names.values();
        names.map(|(scope, i)| (*scope, *i, survey.definition.scope(*scope).step(*i)))
    };
    let undoes = policy.on_timeout || policy.on_cancel || steps().any(|(.., step)| may_undo(&step.policy.effects));
    if !undoes {
        return;
    }
    let mut missing: Vec<(ScopeIx, u32, &Step)> =
        steps().filter(|(.., step)| matches!(step.kind, StepKindSpec::Work(_)) && step.undo.is_none()).collect();
    if missing.is_empty() {
        return;
    }
    missing.sort_unstable_by_key(|(scope, i, _)| (*scope, *i));
    let names: Vec<&str> = missing.iter().take(NAMED).map(|(.., step)| step.id.as_str()).collect();
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let message = format!("when the run is undone, there is no undo for {}{more}", names.join(", "));
    problems.push(PlanProblem::new(
        ProblemCode::NothingToUndo,
        survey.scope_location(entry.root, PlanField::Undo),
        message,
    ));
}

fn may_undo(effects: &OutcomeEffects) -> bool {
    let OutcomeEffects { incomplete, exhausted, failed, failed_by_class, rejected, timed_out, .. } = effects;
    let undoes = |effect: &OutcomeEffect| effect.then == OutcomeAction::Undo;
    [incomplete, exhausted, failed, rejected, timed_out].into_iter().any(undoes) || failed_by_class.values().any(undoes)
}

struct StepAdvice<'a> {
    survey: &'a PlanSurvey<'a>,
    scope: ScopeIx,
    i: u32,
    step: &'a Step,
    problems: &'a mut ProblemCollector,
}

impl StepAdvice<'_> {
    fn push_advice(&mut self, code: ProblemCode, field: impl Into<FieldPath>, message: String, hint: &str) {
        let problem = PlanProblem::new(code, self.survey.step_location(self.scope, self.i, field), message);
        self.problems.push(if hint.is_empty() { problem } else { problem.with_hint(hint) });
    }

    /// Returns the shortest timeout of the scopes around the step, without the callers of its workflow.
    fn outer_timeout(&self) -> Option<Millis> {
        let mut shortest: Option<Millis> = None;
        let mut at = Some(self.scope);
        while let Some(scope) = at {
            let entry = self.survey.definition.scope(scope);
            shortest = shortest.into_iter().chain(entry.scope.timeout).min();
            at = entry.parent.map(|parent| parent.0);
        }
        shortest
    }

    fn check_timeout(&mut self) {
        let policy = &self.step.policy;
        if matches!(self.step.kind, StepKindSpec::Work(_))
            && policy.timeout.is_none()
            && policy.idle_timeout.is_none()
            && self.outer_timeout().is_none()
        {
            let message = format!("`{}` has no timeout: if it hangs, so does the run", self.step.id);
            self.push_advice(
                ProblemCode::NoTimeout,
                [PlanField::Policy, PlanField::Timeout],
                message,
                "give it a timeout",
            );
        }
        let waits = match &self.step.kind {
            StepKindSpec::Gate(gate) => gate.timeout,
            StepKindSpec::Wait(wait) => wait.timeout,
            _ => None,
        };
        if let (Some(waits), Some(outer)) = (waits, self.outer_timeout())
            && waits > outer
        {
            let message = format!("`{}` may wait {waits}, but the run ends after {outer}", self.step.id);
            self.push_advice(ProblemCode::WaitOutlivesRun, PlanField::Timeout, message, "time spent waiting counts");
        }
        let outer = self.outer_timeout().filter(|outer| *outer > Millis(0));
        if let (Some(takes), Some(outer)) = (policy.timeout, outer)
            && takes > outer
            && waits.is_none()
        {
            let message = format!("`{}` may take {takes}, but the run ends after {outer}", self.step.id);
            let step = self.survey.terms(self.scope).step;
            let hint = format!("shorten the timeout of the {step}, or extend that of the run");
            self.push_advice(ProblemCode::StepOutlivesRun, [PlanField::Policy, PlanField::Timeout], message, &hint);
        }
    }

    fn check_kind(&mut self) {
        match &self.step.kind {
            StepKindSpec::Gate(gate) => self.check_gate(gate),
            StepKindSpec::Each(each) if each.parallelism.is_none() => {
                let message = format!("all items of `{}` may run at once", self.step.id);
                self.push_advice(ProblemCode::UnboundedEach, PlanField::Parallelism, message, "");
            }
            _ => {}
        }
    }

    fn check_gate(&mut self, gate: &GateSpec) {
        let id = &self.step.id;
        if self.step.when.is_some() && self.step.policy.effects.skipped_by_condition.satisfies {
            let step = self.survey.terms(self.scope).step;
            let message = format!("if its condition is false, {step}s that wait for `{id}` start without a decision");
            self.push_advice(ProblemCode::SkippedGate, PlanField::When, message, "");
        }
        if gate.on_timeout == GateTimeout::Approve {
            let message = format!("`{id}` opens by itself when nobody decides in time");
            self.push_advice(
                ProblemCode::GateOpensItself,
                PlanField::OnTimeout,
                message,
                "the host must allow it, too",
            );
        }
        if gate.approvers.is_empty() {
            let message = format!("anyone may decide `{id}`");
            self.push_advice(ProblemCode::AnyoneMayApprove, PlanField::Approvers, message, "name a role or a user");
        }
    }
}

pub(super) fn check_worker_starts(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    let starts = survey.definition.count_worker_starts(|_| true);
    if starts.most > 0 || starts.endless || !starts.items.is_empty() {
        let root = survey.definition.root().root;
        let at = survey.scope_location(root, FieldPath::default());
        let message = starts.describe_bound(survey.terms(root).step);
        problems.push(PlanProblem::new(ProblemCode::WorkerStarts, at, message));
    }
}

impl PlanDefinition {
    /// Returns the maximum number of workers, of those that `counted` selects, that a run can start.
    pub fn count_worker_starts(&self, counted: impl Fn(&WorkerSpec) -> bool) -> WorkerStarts {
        let root = self.root();
        let mut starts =
            StartCounter { definition: self, counted: &counted, done: BTreeMap::new() }.count_scope(root.root);
        if let Some(retry) = &root.workflow.scope.retry {
            starts.multiply(u64::from(retry.attempts));
        }
        starts
    }
}

/// An upper bound of worker starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerStarts {
    pub most: u64,
    /// Steps with a list of unknown length, and the number of starts that each of its items may add.
    pub items: BTreeMap<StepId, u64>,
    /// True if a cursor may come back without limit.
    pub endless: bool,
}

impl WorkerStarts {
    fn multiply(&mut self, n: u64) {
        self.most = self.most.saturating_mul(n);
        self.items.values_mut().for_each(|starts| *starts = starts.saturating_mul(n));
    }

    fn add(&mut self, other: WorkerStarts) {
        self.most = self.most.saturating_add(other.most);
        self.add_items(other);
    }

    fn add_items(&mut self, other: WorkerStarts) {
        self.endless |= other.endless;
        for (step, starts) in other.items {
            let sum = self.items.entry(step).or_default();
            *sum = sum.saturating_add(starts);
        }
    }

    fn describe_bound(&self, step: &str) -> String {
        if self.endless {
            return format!("no upper bound on worker starts: {step}s may be routed to again, without a limit");
        }
        let items: Vec<String> = self
            .items
            .iter()
            .map(|(step, starts)| format!("{} for each item of `{step}`", group_digits(*starts)))
            .collect();
        let fixed = format!("up to {} worker start{}", group_digits(self.most), if self.most == 1 { "" } else { "s" });
        if items.is_empty() { fixed } else { format!("{fixed}, and {}", items.join(", ")) }
    }
}

/// Formats a number with separators, such as `1,240`.
pub fn group_digits(n: u64) -> String {
    let digits = n.to_string();
    let mut shown = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Counts of scopes, each computed once, however often the scope is called.
struct StartCounter<'a> {
    definition: &'a PlanDefinition,
    counted: &'a dyn Fn(&WorkerSpec) -> bool,
    done: BTreeMap<ScopeIx, WorkerStarts>,
}

impl StartCounter<'_> {
    /// Recursion is bounded by the limits on nesting and calls.
    fn count_scope(&mut self, scope: ScopeIx) -> WorkerStarts {
        if let Some(count) = self.done.get(&scope) {
            return count.clone();
        }
        let entry = self.definition.scope(scope);
        let count = match entry.scope.shape {
            ScopeShape::Graph => (0..entry.len()).fold(WorkerStarts::default(), |mut sum, i| {
                sum.add(self.count_step(entry, i));
                sum
            }),
            ScopeShape::Routed { cycles, .. } => {
                count_longest_route(entry, cycles, (0..entry.len()).map(|i| self.count_step(entry, i)).collect())
            }
        };
        self.done.insert(scope, count.clone());
        count
    }

    fn count_step(&mut self, entry: &ScopeEntry, i: u32) -> WorkerStarts {
        let step = entry.step(i);
        let mut count = WorkerStarts::default();
        for inner in &entry.inner[i as usize] {
            let inner = self.count_scope(*inner);
            count.add(inner);
        }
        match &step.kind {
            StepKindSpec::Work(work) => count.most = self.count_work(step, work),
            StepKindSpec::Loop(repeat) => count.multiply(u64::from(repeat.max)),
            StepKindSpec::Each(each) => match each.over.as_literal().and_then(LiteralValue::as_array) {
                Some(list) => count.multiply(list.len() as u64),
                None => {
                    count.items.insert(step.id.clone(), count.most);
                    count.most = 0;
                }
            },
            StepKindSpec::Gate(_)
            | StepKindSpec::Wait(_)
            | StepKindSpec::Branch(_)
            | StepKindSpec::Parallel(_)
            | StepKindSpec::Call(_) => {}
        }
        if !matches!(step.kind, StepKindSpec::Work(_)) {
            count.multiply(max_attempts(&step.policy.retry));
        }
        count.most = count.most.saturating_add(step.undo.as_ref().map_or(0, |undo| self.count_undo(undo)));
        count
    }

    /// Counts the attempts of the work in all its iterations, the checks after them, and the summary.
    fn count_work(&self, step: &Step, work: &WorkSpec) -> u64 {
        let tries = max_attempts(&step.policy.retry);
        let summary = u64::from(work.summary.as_ref().is_some_and(|summary| (self.counted)(&summary.worker)));
        let iterations = work.check.as_ref().map_or(1, |check| u64::from(check.max_iterations));
        let fresh = step.policy.retry.fresh_per_iteration;
        let main = if fresh { iterations * tries } else { iterations + tries - 1 };
        let checks = work.check.as_ref().filter(|check| (self.counted)(&check.worker)).map_or(0, |_| iterations);
        u64::from((self.counted)(&work.worker)) * main + checks + summary
    }

    fn count_undo(&self, undo: &UndoSpec) -> u64 {
        if (self.counted)(&undo.work.worker) { max_attempts(&undo.retry) } else { 0 }
    }
}

/// Counts one route. All steps of a graph run, but in a routed scope only those on one route.
fn count_longest_route(entry: &ScopeEntry, cycles: bool, steps: Vec<WorkerStarts>) -> WorkerStarts {
    let weights: Vec<u64> = steps.iter().map(|count| count.most).collect();
    let mut total = WorkerStarts::default();
    total.most = match (cycles, entry.scope.max_steps) {
        (false, _) => acyclic_flow(entry).longest_path(&weights).1,
        (true, Some(most)) => weights.iter().max().map_or(0, |worst| worst.saturating_mul(u64::from(most))),
        (true, None) => {
            total.endless = true;
            0
        }
    };
    steps.into_iter().for_each(|count| total.add_items(count));
    total
}

fn max_attempts(retry: &StepRetry) -> u64 {
    u64::from(retry.attempts.values().copied().max().unwrap_or(1).max(1))
}

/// The path through a scope that can take longest, by the timeouts of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CriticalPath {
    pub steps: Vec<u32>,
    /// None if some step on the path, or inside one, has no timeout.
    pub total: Option<Millis>,
    /// The steps on the path whose duration is unknown.
    pub unknown: Vec<u32>,
}

impl PlanDefinition {
    /// Returns the steps of a scope in batches: each can start when those before it have ended. In a routed scope,
    /// where one step runs at a time, a batch is the progress of the cursor.
    pub fn step_batches(&self, scope: ScopeIx) -> Vec<Vec<u32>> {
        acyclic_flow(self.scope(scope)).levels()
    }

    /// Returns the longest path by timeouts, with one attempt and one pass of everything. Gates and waits count as
    /// zero.
    pub fn critical_path(&self, scope: ScopeIx) -> CriticalPath {
        CriticalPathSearch { definition: self, done: BTreeMap::new() }.search_scope(scope)
    }
}

/// Returns the flow of a scope's steps, without the back edges that a routed scope may have.
fn acyclic_flow(entry: &ScopeEntry) -> IndexGraph {
    let graph = flow_graph(entry);
    match entry.scope.shape {
        ScopeShape::Routed { cycles: true, .. } => graph.without_back_edges(entry.start),
        _ => graph,
    }
}

/// Paths of scopes, each computed once, however often the scope is called.
struct CriticalPathSearch<'a> {
    definition: &'a PlanDefinition,
    done: BTreeMap<ScopeIx, CriticalPath>,
}

impl CriticalPathSearch<'_> {
    /// Recursion is bounded by the limits on nesting and calls.
    fn search_scope(&mut self, scope: ScopeIx) -> CriticalPath {
        if let Some(path) = self.done.get(&scope) {
            return path.clone();
        }
        let entry = self.definition.scope(scope);
        let times: Vec<(u64, bool)> = (0..entry.len()).map(|i| self.step_time(entry, i)).collect();
        let weights: Vec<u64> = times.iter().map(|time| time.0).collect();
        let (steps, sum) = acyclic_flow(entry).longest_path(&weights);
        let unknown: Vec<u32> = steps.iter().copied().filter(|i| !times[*i as usize].1).collect();
        let total = unknown.is_empty().then_some(Millis(sum));
        let path = CriticalPath { steps, total, unknown };
        self.done.insert(scope, path.clone());
        path
    }

    /// Returns the maximum duration of a step, and whether it is known.
    fn step_time(&mut self, entry: &ScopeEntry, i: u32) -> (u64, bool) {
        let step = entry.step(i);
        let own = step.policy.timeout.map(|timeout| timeout.0);
        if matches!(step.kind, StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_)) {
            return (0, true);
        }
        if matches!(step.kind, StepKindSpec::Work(_)) {
            return own.map_or((0, false), |time| (time, true));
        }
        let inner = entry.inner[i as usize].iter().map(|scope| {
            let cap = self.definition.scope(*scope).scope.timeout.map(|timeout| timeout.0);
            let path = self.search_scope(*scope).total.map(|total| total.0);
            path.into_iter().chain(cap).min()
        });
        // Lanes run in parallel, so the longest counts; if one is unknown, so is the longest.
        let longest = inner.collect::<Vec<_>>().into_iter().try_fold(0, |most, time| Some(most.max(time?)));
        longest.into_iter().chain(own).min().map_or((0, false), |time| (time, true))
    }
}

#[cfg(test)]
mod tests {
    use super::group_digits;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_240, 1_000_000].map(group_digits), ["0", "999", "1,240", "1,000,000"]);
    }
}
