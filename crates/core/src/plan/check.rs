//! From a workflow to a definition: finds the workflows that it calls and every error that can be known before a run,
//! and collects advice.
//!
//! First the limits (steps, edges, nesting, calls), so that no later check walks an endless structure: a workflow over
//! a limit reaches no other check. Then the arrays, which are built even for an invalid workflow. Then one check after
//! the other over those.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    expr::{ExprType, TypeFit},
    ids::StepId,
    ir::{Schema, ScopeShape, StepKindSpec, StepScope, Workflow},
    limits,
    plan::{
        PlanProblem, advice,
        definition::{PlanDefinition, detour_targets},
        frozen_definition,
        graph::IndexGraph,
        numbers, order,
        problem::{FieldPath, PlanField, ProblemCode, ProblemCollector, ProblemLocation},
        references,
        schemas::{self, PropertyDeclaration, declared_names, find_declaration},
        shape,
        survey::PlanSurvey,
        untrusted_text,
    },
    terms::WorkflowTerms,
};

/// The result of a check.
#[derive(Debug)]
pub struct CheckedWorkflow {
    /// None if some problem is an error.
    pub definition: Option<Arc<PlanDefinition>>,
    pub problems: Vec<PlanProblem>,
}

/// Checks a workflow with everything it calls and freezes it.
pub fn check_workflow(workflow: Arc<Workflow>, library: &dyn WorkflowLibrary) -> CheckedWorkflow {
    let mut problems = ProblemCollector::default();
    let definition = gather_called_workflows(&workflow, library, &mut problems)
        .and_then(|called| freeze_definition(&workflow, &called, library, &mut problems))
        .filter(|_| !problems.has_errors());
    CheckedWorkflow { definition: definition.map(Arc::new), problems: problems.finish() }
}

fn freeze_definition(
    root: &Arc<Workflow>,
    called: &BTreeMap<String, Arc<Workflow>>,
    library: &dyn WorkflowLibrary,
    problems: &mut ProblemCollector,
) -> Option<PlanDefinition> {
    frozen_definition::check_depth(root, called, library.workflow_terms(None), problems)?;
    let definition = PlanDefinition::from_workflows(root, called);
    let survey = PlanSurvey::new(&definition, library);
    shape::check_shapes(&survey, problems);
    order::check_order(&survey, problems);
    order::check_conflict_resolvers(&survey, problems);
    numbers::check_numbers(&survey, problems);
    schemas::check_schemas(&survey, problems);
    check_call_steps(&survey, problems);
    references::check_artifacts(&survey, problems);
    references::check_references(&survey, problems);
    advice::collect_advice(&survey, problems);
    untrusted_text::check_untrusted_text(&survey, problems);
    // For an invalid workflow, the number would be wrong.
    if !problems.has_errors() {
        advice::check_worker_starts(&survey, problems);
    }
    Some(definition)
}

/// Looks up the workflows that calls name.
pub trait WorkflowLibrary {
    fn find_workflow(&self, name: &str) -> Option<Arc<Workflow>>;

    /// The known names, for suggestions.
    fn workflow_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// The terms of the format that a workflow was written in; `name` is none for the root.
    fn workflow_terms(&self, _name: Option<&str>) -> &'static WorkflowTerms {
        &WorkflowTerms::IR
    }
}

impl WorkflowLibrary for BTreeMap<String, Arc<Workflow>> {
    fn find_workflow(&self, name: &str) -> Option<Arc<Workflow>> {
        self.get(name).cloned()
    }

    fn workflow_names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}

/// No library: nothing can be called.
impl WorkflowLibrary for () {
    fn find_workflow(&self, _: &str) -> Option<Arc<Workflow>> {
        None
    }
}

/// A workflow that was found, and its calls.
struct FoundWorkflow {
    /// None for the root.
    name: Option<String>,
    workflow: Arc<Workflow>,
    /// The step that calls, and the number of the called workflow.
    calls: Vec<(StepId, u32)>,
}

/// The search for everything that a workflow calls.
struct CallSearch<'a> {
    library: &'a dyn WorkflowLibrary,
    problems: &'a mut ProblemCollector,
    found: Vec<FoundWorkflow>,
    numbers: BTreeMap<String, u32>,
    steps: usize,
    edges: usize,
}

/// Returns every workflow that the root calls, directly or not, by name. None if they cannot be walked.
fn gather_called_workflows(
    root: &Arc<Workflow>,
    library: &dyn WorkflowLibrary,
    problems: &mut ProblemCollector,
) -> Option<BTreeMap<String, Arc<Workflow>>> {
    let found = vec![FoundWorkflow { name: None, workflow: root.clone(), calls: Vec::new() }];
    let mut search = CallSearch { library, problems, found, numbers: BTreeMap::new(), steps: 0, edges: 0 };
    let mut next = 0;
    while next < search.found.len() {
        search.visit_workflow(next)?;
        next += 1;
    }
    search.check_counts();
    search.check_calls()?;
    let called = search.found.into_iter().filter_map(|found| Some((found.name?, found.workflow)));
    Some(called.collect())
}

impl CallSearch<'_> {
    /// Measures one workflow and looks up the workflows that it calls. Returns none when a limit is exceeded.
    fn visit_workflow(&mut self, number: usize) -> Option<()> {
        let workflow = self.found[number].workflow.clone();
        let mut todo: Vec<(&StepScope, usize)> = vec![(&workflow.scope, 0)];
        while let Some((scope, depth)) = todo.pop() {
            if depth > limits::NESTING {
                self.refuse_nesting(number);
                return None;
            }
            self.steps += scope.steps.len();
            for step in &scope.steps {
                self.edges += step.after.len() + usize::from(step.next.is_some()) + detour_targets(&step.kind).count();
                if let StepKindSpec::Call(call) = &step.kind {
                    self.add_call(number, &step.id, &call.workflow);
                }
                todo.extend(step.kind.inner_scopes().into_iter().map(|inner| (&**inner, depth + 1)));
            }
            if self.steps > limits::STEPS || self.edges > limits::EDGES {
                self.refuse_counts();
                return None;
            }
        }
        Some(())
    }

    fn add_call(&mut self, number: usize, step: &StepId, name: &str) {
        let known = self.numbers.get(name).copied();
        let Some(callee) = known.or_else(|| self.add_workflow(name)) else {
            let workflow = self.found[number].name.clone();
            let at = ProblemLocation {
                workflow,
                step: Some(step.clone()),
                ..ProblemLocation::from_field(PlanField::Workflow)
            };
            let library = self.library;
            self.problems.push_with(ProblemCode::UnknownWorkflow, || {
                let names = library.workflow_names();
                let message = format!("there is no workflow `{name}` to call");
                PlanProblem::new(ProblemCode::UnknownWorkflow, at, message)
                    .with_suggestion(name, names.iter().map(String::as_str))
            });
            return;
        };
        self.found[number].calls.push((step.clone(), callee));
    }

    /// Adds a called workflow. The root's own name means the root, so that recursion is reported from where it starts.
    fn add_workflow(&mut self, name: &str) -> Option<u32> {
        let root = self.found[0].workflow.clone();
        let workflow = self.library.find_workflow(name);
        let is_root = root.id.as_str() == name && workflow.as_ref().is_none_or(|found| *found == root);
        let number = if is_root {
            0
        } else {
            self.found.push(FoundWorkflow { name: Some(name.to_owned()), workflow: workflow?, calls: Vec::new() });
            u32::try_from(self.found.len() - 1).expect("steps are limited")
        };
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    fn refuse_nesting(&mut self, number: usize) {
        let at = ProblemLocation { workflow: self.found[number].name.clone(), ..ProblemLocation::default() };
        let WorkflowTerms { each, step, .. } = self.library.workflow_terms(at.workflow.as_deref());
        let message = format!("parallel, {each} and loop {step}s nest more than {} deep", limits::NESTING);
        let problem = PlanProblem::new(ProblemCode::TooDeep, at, message);
        self.problems.push(problem.with_hint("put the inner ones into a workflow of their own and call it"));
    }

    fn refuse_counts(&mut self) {
        let step = self.library.workflow_terms(None).step;
        let (code, message) = if self.steps > limits::STEPS {
            let message = format!("more than {} {step}s, called workflows included", limits::STEPS);
            (ProblemCode::TooManySteps, message)
        } else {
            (ProblemCode::TooManyEdges, format!("more than {} edges between {step}s", limits::EDGES))
        };
        self.problems
            .push(PlanProblem::new(code, ProblemLocation::default(), message).with_hint("split it into several runs"));
    }

    fn check_counts(&mut self) {
        let step = self.library.workflow_terms(None).step;
        let counts = [
            (ProblemCode::ManySteps, "", self.steps, limits::STEPS_WARN),
            (ProblemCode::ManyEdges, "edges between ", self.edges, limits::EDGES_WARN),
        ];
        for (code, what, count, warn) in counts {
            if count > warn {
                let message =
                    format!("{count} {what}{step}s, called workflows included; over {warn} is hard to follow");
                self.problems.push(PlanProblem::new(code, ProblemLocation::default(), message));
            }
        }
    }

    fn check_calls(&mut self) -> Option<()> {
        let calls = self.found.iter().map(|found| found.calls.iter().map(|call| call.1));
        let graph = IndexGraph::new(calls);
        let components = graph.find_components();
        if let Some(&first) = components.find_cycle_starts(&graph).first() {
            let cycle = graph.find_cycle_through(first, &components);
            self.refuse_recursion(&cycle);
            return None;
        }
        let depth = graph.levels().len() - 1;
        if depth > limits::CALL_DEPTH {
            let message = format!("calls nest {depth} deep; the maximum is {}", limits::CALL_DEPTH);
            self.problems.push(PlanProblem::new(ProblemCode::CallDepth, ProblemLocation::default(), message));
            return None;
        }
        if depth > limits::CALL_DEPTH_WARN {
            let message = format!("calls nest {depth} deep");
            self.problems.push(PlanProblem::new(ProblemCode::DeepCalls, ProblemLocation::default(), message));
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
        let at =
            ProblemLocation { workflow: first.name.clone(), step, ..ProblemLocation::from_field(PlanField::Workflow) };
        let terms = self.library.workflow_terms(at.workflow.as_deref());
        let message = format!("the workflow calls itself: {}", path.join(" -> "));
        let problem = PlanProblem::new(ProblemCode::Recursion, at, message);
        self.problems.push(problem.with_hint(format!("use a loop {} for repetition", terms.step)));
    }
}

fn check_call_steps(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (scope, i, step) in survey.steps() {
        let StepKindSpec::Call(call) = &step.kind else { continue };
        let workflow = &call.workflow;
        let terms = survey.terms(scope);
        let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { continue };
        let schema = &survey.definition.workflow_containing(*called).workflow.inputs;
        let given: BTreeSet<&str> = step.inputs.iter().map(|input| &*input.name).collect();
        for name in required_without_default(schema).filter(|name| !given.contains(name)) {
            problems.push_with(ProblemCode::MissingParameter, || {
                let message = format!("`{workflow}` needs the {} `{name}`", terms.parameter);
                let at = survey.step_location(scope, i, FieldPath::from(PlanField::Inputs).name(name));
                PlanProblem::new(ProblemCode::MissingParameter, at, message)
            });
        }
        for input in
            step.inputs.iter().filter(|input| find_declaration(schema, &input.name) == PropertyDeclaration::Forbidden)
        {
            problems.push_with(ProblemCode::UnknownParameter, || {
                let message = format!("`{workflow}` has no {} `{}`", terms.parameter, input.name);
                let at = survey.step_location(scope, i, FieldPath::from(PlanField::Inputs).name(&*input.name));
                PlanProblem::new(ProblemCode::UnknownParameter, at, message)
                    .with_suggestion(&input.name, declared_names(schema))
            });
        }
        if let Some(message) =
            find_output_mismatch(terms.step, workflow, &survey.definition.scope(*called).scope, &step.outputs)
        {
            problems.push(PlanProblem::new(
                ProblemCode::BorderClash,
                survey.step_location(scope, i, PlanField::Outputs),
                message,
            ));
        }
    }
}

/// Returns the reason why the output of a workflow can never match the outputs of the step that calls it.
fn find_output_mismatch(step: &str, workflow: &str, scope: &StepScope, declared: &Schema) -> Option<String> {
    let wanted = ExprType::from_schema(declared.document()?);
    if scope.result.is_none() && scope.shape == ScopeShape::Graph {
        let unfit = wanted.accepts(&ExprType::Null) == TypeFit::No;
        return unfit.then(|| format!("this {step} expects {wanted}, but `{workflow}` returns nothing"));
    }
    let given = ExprType::from_schema(scope.outputs.document()?);
    (wanted.accepts(&given) == TypeFit::No).then(|| describe_mismatch(step, workflow, &wanted, &given))
}

/// Describes the first field that does not fit, if both types have fields.
fn describe_mismatch(step: &str, workflow: &str, wanted: &ExprType, given: &ExprType) -> String {
    if let (ExprType::Object { fields, .. }, ExprType::Object { fields: others, .. }) = (wanted, given) {
        for (name, wanted) in fields.iter() {
            match others.get(name) {
                Some(given) if wanted.accepts(given) == TypeFit::No => {
                    return format!("this {step} expects {wanted} as `{name}`, but `{workflow}` returns {given}");
                }
                None if wanted.accepts(&ExprType::Null) == TypeFit::No => {
                    return format!("this {step} expects {wanted} as `{name}`, but `{workflow}` returns no `{name}`");
                }
                _ => {}
            }
        }
    }
    format!("this {step} expects {wanted}, but `{workflow}` returns {given}")
}

/// Returns the required properties that have no default.
fn required_without_default(schema: &Schema) -> impl Iterator<Item = &str> {
    let has_default = |name: &str| schema.property(name).is_some_and(|property| property.get("default").is_some());
    schema.required_properties().filter(move |name| !has_default(name))
}
