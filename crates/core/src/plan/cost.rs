//! How many workers a run can start at most, as one number for a person.
//!
//! Counts attempts, iterations, checks, summaries, undo, passes and items. Interruptions are not counted, nor lists
//! of which the length is not known: those are named instead.

use std::collections::BTreeMap;

use super::{
    definition::{Definition, ScopeEntry, ScopeIx},
    path::acyclic,
    problem::{Problem, ProblemCode, Problems},
    survey::Survey,
};
use crate::{
    expr::Constant,
    ids::StepId,
    ir::{Kind, Retry, Shape, Step, Undo, Work, Worker},
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    let starts = survey.definition.starts(|_| true);
    if starts.most > 0 || starts.endless || !starts.items.is_empty() {
        let at = survey.at_scope(survey.definition.root().root, "");
        problems.push(Problem::new(ProblemCode::WorkerStarts, at, starts.message()));
    }
}

impl Definition {
    /// How many workers of some sort a run can start.
    pub fn starts(&self, counted: impl Fn(&Worker) -> bool) -> Starts {
        let root = self.root();
        let mut starts = Counts { definition: self, counted: &counted, done: BTreeMap::new() }.of(root.root);
        if let Some(retry) = &root.workflow.scope.retry {
            starts.times(u64::from(retry.attempts));
        }
        starts
    }
}

/// An upper bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Starts {
    pub most: u64,
    /// Steps with a list of unknown length, and how many starts each of its items may add.
    pub items: BTreeMap<StepId, u64>,
    /// Whether a cursor may come back for ever.
    pub endless: bool,
}

impl Starts {
    fn times(&mut self, n: u64) {
        self.most = self.most.saturating_mul(n);
        self.items.values_mut().for_each(|starts| *starts = starts.saturating_mul(n));
    }

    fn add(&mut self, other: Starts) {
        self.most = self.most.saturating_add(other.most);
        self.add_items(other);
    }

    fn add_items(&mut self, other: Starts) {
        self.endless |= other.endless;
        for (step, starts) in other.items {
            let sum = self.items.entry(step).or_default();
            *sum = sum.saturating_add(starts);
        }
    }

    fn message(&self) -> String {
        if self.endless {
            return "no upper bound of worker starts: steps may be routed to again, and nothing limits how often".into();
        }
        let items: Vec<String> = self
            .items
            .iter()
            .map(|(step, starts)| format!("{} for each item of `{step}`", grouped(*starts)))
            .collect();
        let fixed =
            format!("up to {} worker start{}", grouped(self.most), if self.most == 1 { "" } else { "s" });
        if items.is_empty() { fixed } else { format!("{fixed}, and {}", items.join(", ")) }
    }
}

/// `1,240`, which a person reads at a glance.
pub fn grouped(n: u64) -> String {
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

/// Counts of scopes, each worked out once, however often it is called.
struct Counts<'a> {
    definition: &'a Definition,
    counted: &'a dyn Fn(&Worker) -> bool,
    done: BTreeMap<ScopeIx, Starts>,
}

impl Counts<'_> {
    /// Recursion is bounded by the limits on nesting and calls.
    fn of(&mut self, scope: ScopeIx) -> Starts {
        if let Some(count) = self.done.get(&scope) {
            return count.clone();
        }
        let entry = self.definition.scope(scope);
        let count = match entry.scope.shape {
            Shape::Graph => (0..entry.len()).fold(Starts::default(), |mut sum, i| {
                sum.add(self.step(entry, i));
                sum
            }),
            Shape::Routed { cycles, .. } => {
                on_one_way(entry, cycles, (0..entry.len()).map(|i| self.step(entry, i)).collect())
            }
        };
        self.done.insert(scope, count.clone());
        count
    }

    fn step(&mut self, entry: &ScopeEntry, i: u32) -> Starts {
        let step = entry.step(i);
        let mut count = Starts::default();
        for inner in &entry.inner[i as usize] {
            let inner = self.of(*inner);
            count.add(inner);
        }
        match &step.kind {
            Kind::Work(work) => count.most = self.of_work(step, work),
            Kind::Loop(repeat) => count.times(u64::from(repeat.max)),
            Kind::Each(each) => match each.over.as_literal().and_then(Constant::as_array) {
                Some(list) => count.times(list.len() as u64),
                None => {
                    count.items.insert(step.id.clone(), count.most);
                    count.most = 0;
                }
            },
            Kind::Gate(_) | Kind::Wait(_) | Kind::Branch(_) | Kind::Parallel(_) | Kind::Call(_) => {}
        }
        if !matches!(step.kind, Kind::Work(_)) {
            count.times(attempts(&step.policy.retry));
        }
        count.most = count.most.saturating_add(step.undo.as_ref().map_or(0, |undo| self.of_undo(undo)));
        count
    }

    /// Attempts at the work in all its iterations, the checks after them, and the summary.
    fn of_work(&self, step: &Step, work: &Work) -> u64 {
        let tries = attempts(&step.policy.retry);
        let summary = u64::from(work.summary.as_ref().is_some_and(|summary| (self.counted)(&summary.worker)));
        let iterations = work.check.as_ref().map_or(1, |check| u64::from(check.max_iterations));
        let fresh = step.policy.retry.fresh_per_iteration;
        let main = if fresh { iterations * tries } else { iterations + tries - 1 };
        let checks =
            work.check.as_ref().filter(|check| (self.counted)(&check.worker)).map_or(0, |_| iterations);
        u64::from((self.counted)(&work.worker)) * main + checks + summary
    }

    fn of_undo(&self, undo: &Undo) -> u64 {
        if (self.counted)(&undo.work.worker) { attempts(&undo.retry) } else { 0 }
    }
}

/// All steps of a graph run; of a routed scope, those on one way.
fn on_one_way(entry: &ScopeEntry, cycles: bool, steps: Vec<Starts>) -> Starts {
    let weights: Vec<u64> = steps.iter().map(|count| count.most).collect();
    let mut total = Starts::default();
    total.most = match (cycles, entry.scope.max_steps) {
        (false, _) => acyclic(entry).longest(&weights).1,
        (true, Some(most)) => weights.iter().max().map_or(0, |worst| worst.saturating_mul(u64::from(most))),
        (true, None) => {
            total.endless = true;
            0
        }
    };
    steps.into_iter().for_each(|count| total.add_items(count));
    total
}

fn attempts(retry: &Retry) -> u64 {
    u64::from(retry.attempts.values().copied().max().unwrap_or(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_240, 1_000_000].map(grouped), ["0", "999", "1,240", "1,000,000"]);
    }
}
