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
    ids::StepId,
    ir::{Kind, Retry, Shape, Step, Work},
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    let root = survey.definition.root();
    let mut counts = Counts { definition: survey.definition, done: BTreeMap::new() };
    let mut count = counts.of(root.root);
    if let Some(retry) = &root.workflow.scope.retry {
        count.times(u64::from(retry.attempts));
    }
    if count.starts > 0 || count.endless || !count.items.is_empty() {
        let at = survey.at_scope(root.root, "");
        problems.push(Problem::new(ProblemCode::WorkerStarts, at, count.message()));
    }
}

/// An upper bound.
#[derive(Debug, Clone, Default)]
struct Count {
    starts: u64,
    /// Steps with a list of unknown length, and how many starts each of its items may add.
    items: BTreeMap<StepId, u64>,
    /// Whether a cursor may come back for ever.
    endless: bool,
}

impl Count {
    fn times(&mut self, n: u64) {
        self.starts = self.starts.saturating_mul(n);
        self.items.values_mut().for_each(|starts| *starts = starts.saturating_mul(n));
    }

    fn add(&mut self, other: Count) {
        self.starts = self.starts.saturating_add(other.starts);
        self.add_items(other);
    }

    fn add_items(&mut self, other: Count) {
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
            format!("up to {} worker start{}", grouped(self.starts), if self.starts == 1 { "" } else { "s" });
        if items.is_empty() { fixed } else { format!("{fixed}, and {}", items.join(", ")) }
    }
}

/// `1,240`, which a person reads at a glance.
fn grouped(n: u64) -> String {
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
    done: BTreeMap<ScopeIx, Count>,
}

impl Counts<'_> {
    /// Recursion is bounded by the limits on nesting and calls.
    fn of(&mut self, scope: ScopeIx) -> Count {
        if let Some(count) = self.done.get(&scope) {
            return count.clone();
        }
        let entry = self.definition.scope(scope);
        let steps: Vec<Count> = (0..entry.len()).map(|i| self.step(entry, i)).collect();
        let count = together(entry, steps);
        self.done.insert(scope, count.clone());
        count
    }

    fn step(&mut self, entry: &ScopeEntry, i: u32) -> Count {
        let step = entry.step(i);
        let mut count = Count::default();
        for inner in &entry.inner[i as usize] {
            let inner = self.of(*inner);
            count.add(inner);
        }
        match &step.kind {
            Kind::Work(work) => count.starts = of_work(step, work),
            Kind::Loop(repeat) => count.times(u64::from(repeat.max)),
            Kind::Each(each) => match each.over.as_literal().and_then(|list| list.as_array()) {
                Some(list) => count.times(list.len() as u64),
                None => {
                    count.items.insert(step.id.clone(), count.starts);
                    count.starts = 0;
                }
            },
            Kind::Gate(_) | Kind::Wait(_) | Kind::Branch(_) | Kind::Parallel(_) | Kind::Call(_) => {}
        }
        if !matches!(step.kind, Kind::Work(_)) {
            count.times(attempts(&step.policy.retry));
        }
        count.starts =
            count.starts.saturating_add(step.undo.as_ref().map_or(0, |undo| attempts(&undo.retry)));
        count
    }
}

/// All steps of a graph run; of a routed scope, those on one way.
fn together(entry: &ScopeEntry, steps: Vec<Count>) -> Count {
    let weights: Vec<u64> = steps.iter().map(|count| count.starts).collect();
    let mut total = Count::default();
    total.starts = match &entry.scope.shape {
        Shape::Graph => weights.iter().fold(0, |sum, starts| sum.saturating_add(*starts)),
        Shape::Routed { cycles: false, .. } => acyclic(entry).longest(&weights).1,
        Shape::Routed { cycles: true, .. } => match entry.scope.max_steps {
            Some(most) => weights.iter().max().map_or(0, |worst| worst.saturating_mul(u64::from(most))),
            None => {
                total.endless = true;
                0
            }
        },
    };
    steps.into_iter().for_each(|count| total.add_items(count));
    total
}

/// Attempts at the work in all its iterations, the checks after them, and the summary.
fn of_work(step: &Step, work: &Work) -> u64 {
    let tries = attempts(&step.policy.retry);
    let summary = u64::from(work.summary.is_some());
    let Some(check) = &work.check else { return tries + summary };
    let iterations = u64::from(check.max_iterations);
    let main =
        if step.policy.retry.fresh_per_iteration { iterations * tries } else { iterations + tries - 1 };
    main + iterations + summary
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
