//! From a workflow to a definition: finds every error that can be known before a run, and collects advice.
//!
//! First the limits, so that no later check walks an endless structure. Then the arrays, which are built even for an
//! invalid workflow. Then one check after the other over those.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    PlanProblem, advice, artifacts, conflict_resolvers,
    definition::PlanDefinition,
    frozen_definition, library,
    library::{WorkflowLibrary, gather_called_workflows},
    numbers, order,
    problem::ProblemCollector,
    references, schemas, shape,
    survey::PlanSurvey,
    untrusted_text, worker_starts,
};
use crate::ir::Workflow;

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
    conflict_resolvers::check_conflict_resolvers(&survey, problems);
    numbers::check_numbers(&survey, problems);
    schemas::check_schemas(&survey, problems);
    library::check_calls(&survey, problems);
    artifacts::check_artifacts(&survey, problems);
    references::check_references(&survey, problems);
    advice::collect_advice(&survey, problems);
    untrusted_text::check_untrusted_text(&survey, problems);
    // For an invalid workflow, the number would be wrong.
    if !problems.has_errors() {
        worker_starts::check_worker_starts(&survey, problems);
    }
    Some(definition)
}
