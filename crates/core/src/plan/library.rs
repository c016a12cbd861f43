//! The workflows that calls name: finding them, and refusing calls that never end.
//!
//! Measures each workflow on the way (steps, edges, nesting), before anything walks it: what is over a limit is
//! refused here and reaches no other check.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    definition::detours,
    graph::Graph,
    problem::{At, Problem, ProblemCode, Problems},
};
use crate::{
    ids::StepId,
    ir::{Kind, Scope, Workflow},
    limits,
};

/// Looks up the workflows that calls name.
pub trait Library {
    fn workflow(&self, name: &str) -> Option<Arc<Workflow>>;

    /// The names it knows, to guess what a wrong one meant.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Library for BTreeMap<String, Arc<Workflow>> {
    fn workflow(&self, name: &str) -> Option<Arc<Workflow>> {
        self.get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}

/// No library: nothing can be called.
impl Library for () {
    fn workflow(&self, _: &str) -> Option<Arc<Workflow>> {
        None
    }
}

/// A workflow that has been found, and what it calls.
struct Found {
    /// None for the root.
    name: Option<String>,
    workflow: Arc<Workflow>,
    /// The step that calls, and the number of what it calls.
    calls: Vec<(StepId, u32)>,
}

/// The search for everything that a workflow calls.
struct Search<'a> {
    library: &'a dyn Library,
    problems: &'a mut Problems,
    found: Vec<Found>,
    numbers: BTreeMap<String, u32>,
    steps: usize,
    edges: usize,
}

/// Every workflow that the root calls, directly or not, by name. None if it cannot be walked.
pub(super) fn gather(
    root: &Arc<Workflow>,
    library: &dyn Library,
    problems: &mut Problems,
) -> Option<BTreeMap<String, Arc<Workflow>>> {
    let found = vec![Found { name: None, workflow: root.clone(), calls: Vec::new() }];
    let mut search = Search { library, problems, found, numbers: BTreeMap::new(), steps: 0, edges: 0 };
    let mut next = 0;
    while next < search.found.len() {
        search.visit(next)?;
        next += 1;
    }
    search.check_counts();
    search.check_calls()?;
    let called = search.found.into_iter().filter_map(|found| Some((found.name?, found.workflow)));
    Some(called.collect())
}

impl Search<'_> {
    /// Measures one workflow and looks up what it calls. None when a limit is reached.
    fn visit(&mut self, number: usize) -> Option<()> {
        let workflow = self.found[number].workflow.clone();
        let mut todo: Vec<(&Scope, usize)> = vec![(&workflow.scope, 0)];
        while let Some((scope, depth)) = todo.pop() {
            if depth > limits::NESTING {
                self.refuse_nesting(number);
                return None;
            }
            self.steps += scope.steps.len();
            for step in &scope.steps {
                self.edges += step.after.len() + usize::from(step.next.is_some()) + detours(&step.kind).len();
                if let Kind::Call(call) = &step.kind {
                    self.call(number, &step.id, &call.workflow);
                }
                todo.extend(step.kind.scopes().into_iter().map(|inner| (&**inner, depth + 1)));
            }
            if self.steps > limits::STEPS || self.edges > limits::EDGES {
                self.refuse_counts();
                return None;
            }
        }
        Some(())
    }

    fn call(&mut self, number: usize, step: &StepId, name: &str) {
        let known = self.numbers.get(name).copied();
        let Some(callee) = known.or_else(|| self.add(name)) else {
            let workflow = self.found[number].name.clone();
            let at = At { workflow, step: Some(step.clone()), ..At::field("workflow") };
            let library = self.library;
            self.problems.push_with(ProblemCode::UnknownWorkflow, || {
                let names = library.names();
                let message = format!("there is no workflow `{name}` to call");
                Problem::new(ProblemCode::UnknownWorkflow, at, message)
                    .near(name, names.iter().map(String::as_str))
            });
            return;
        };
        self.found[number].calls.push((step.clone(), callee));
    }

    /// A name of the root itself means the root, so that recursion is shown from where it starts.
    fn add(&mut self, name: &str) -> Option<u32> {
        let root = self.found[0].workflow.clone();
        let workflow = self.library.workflow(name);
        let is_root = root.id.as_str() == name && workflow.as_ref().is_none_or(|found| *found == root);
        let number = if is_root {
            0
        } else {
            self.found.push(Found { name: Some(name.to_owned()), workflow: workflow?, calls: Vec::new() });
            u32::try_from(self.found.len() - 1).expect("steps are limited")
        };
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    fn refuse_nesting(&mut self, number: usize) {
        let at = At { workflow: self.found[number].name.clone(), ..At::default() };
        let message = format!("parallel, each and loop steps nest more than {} deep", limits::NESTING);
        let problem = Problem::new(ProblemCode::TooDeep, at, message);
        self.problems.push(problem.hint("put the inner ones into a workflow of their own and call it"));
    }

    fn refuse_counts(&mut self) {
        let (code, message) = if self.steps > limits::STEPS {
            (
                ProblemCode::TooManySteps,
                format!("more than {} steps, called workflows included", limits::STEPS),
            )
        } else {
            (ProblemCode::TooManyEdges, format!("more than {} edges between steps", limits::EDGES))
        };
        self.problems.push(Problem::new(code, At::default(), message).hint("split it into several runs"));
    }

    fn check_counts(&mut self) {
        let counts = [
            (ProblemCode::ManySteps, "steps", self.steps, limits::STEPS_WARN),
            (ProblemCode::ManyEdges, "edges between steps", self.edges, limits::EDGES_WARN),
        ];
        for (code, what, count, warn) in counts {
            if count > warn {
                let message =
                    format!("{count} {what}, called workflows included; over {warn} is hard to follow");
                self.problems.push(Problem::new(code, At::default(), message));
            }
        }
    }

    fn check_calls(&mut self) -> Option<()> {
        let calls = self.found.iter().map(|found| found.calls.iter().map(|call| call.1));
        let graph = Graph::new(calls);
        let components = graph.components();
        if let Some(&first) = components.cyclic(&graph).first() {
            let cycle = graph.cycle_through(first, &components);
            self.refuse_recursion(&cycle);
            return None;
        }
        let depth = graph.levels().len() - 1;
        if depth > limits::CALL_DEPTH {
            let message = format!("calls nest {depth} deep; the most is {}", limits::CALL_DEPTH);
            self.problems.push(Problem::new(ProblemCode::CallDepth, At::default(), message));
            return None;
        }
        if depth > limits::CALL_DEPTH_WARN {
            let message = format!("calls nest {depth} deep");
            self.problems.push(Problem::new(ProblemCode::DeepCalls, At::default(), message));
        }
        Some(())
    }

    fn refuse_recursion(&mut self, cycle: &[u32]) {
        let found = |number: &u32| &self.found[*number as usize];
        let shown = |number: &u32| {
            let found = found(number);
            found.name.clone().unwrap_or_else(|| found.workflow.id.to_string())
        };
        let path: Vec<String> = cycle.iter().map(shown).collect();
        let first = found(&cycle[0]);
        let step = first.calls.iter().find(|call| call.1 == cycle[1]).map(|call| call.0.clone());
        let at = At { workflow: first.name.clone(), step, ..At::field("workflow") };
        let message = format!("the workflow calls itself: {}", path.join(" -> "));
        let problem = Problem::new(ProblemCode::Recursion, at, message);
        self.problems.push(problem.hint("use a loop step for repetition"));
    }
}
