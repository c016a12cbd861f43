//! Check that each call provides the required parameters of the called workflow and none that it forbids.

use std::collections::BTreeSet;

use super::{
    problem::{PlanProblem, ProblemCode, ProblemCollector},
    schemas::{PropertyDeclaration, declared_names, find_declaration},
    survey::PlanSurvey,
};
use crate::{
    expr::{ExprType, TypeFit},
    ir::{Schema, ScopeShape, StepKindSpec, StepScope},
};

pub(super) fn check_calls(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (scope, i, step) in survey.steps() {
        let StepKindSpec::Call(call) = &step.kind else { continue };
        let workflow = &call.workflow;
        let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { continue };
        let schema = &survey.definition.workflow_containing(*called).workflow.inputs;
        let given: BTreeSet<&str> = step.inputs.iter().map(|input| &*input.name).collect();
        for name in required_without_default(schema).filter(|name| !given.contains(name)) {
            problems.push_with(ProblemCode::MissingParameter, || {
                let message = format!("`{workflow}` needs the parameter `{name}`");
                let at = survey.step_location(scope, i, format!("inputs.{name}"));
                PlanProblem::new(ProblemCode::MissingParameter, at, message)
            });
        }
        for input in step
            .inputs
            .iter()
            .filter(|input| find_declaration(schema, &input.name) == PropertyDeclaration::Forbidden)
        {
            problems.push_with(ProblemCode::UnknownParameter, || {
                let message = format!("`{workflow}` has no parameter `{}`", input.name);
                let at = survey.step_location(scope, i, format!("inputs.{}", input.name));
                PlanProblem::new(ProblemCode::UnknownParameter, at, message)
                    .with_suggestion(&input.name, declared_names(schema))
            });
        }
        if let Some(message) =
            find_output_mismatch(workflow, &survey.definition.scope(*called).scope, &step.outputs)
        {
            problems.push(PlanProblem::new(
                ProblemCode::BorderClash,
                survey.step_location(scope, i, "outputs"),
                message,
            ));
        }
    }
}

/// Returns the reason why the output of a workflow can never match the outputs of the step that calls it.
fn find_output_mismatch(workflow: &str, scope: &StepScope, declared: &Schema) -> Option<String> {
    let wanted = ExprType::from_schema(declared.document()?);
    if scope.result.is_none() && scope.shape == ScopeShape::Graph {
        let unfit = wanted.accepts(&ExprType::Null) == TypeFit::No;
        return unfit.then(|| format!("this step expects {wanted}, but `{workflow}` returns nothing"));
    }
    let given = ExprType::from_schema(scope.outputs.document()?);
    (wanted.accepts(&given) == TypeFit::No).then(|| describe_mismatch(workflow, &wanted, &given))
}

/// Describes the first field that does not fit, if both types have fields.
fn describe_mismatch(workflow: &str, wanted: &ExprType, given: &ExprType) -> String {
    if let (ExprType::Object { fields, .. }, ExprType::Object { fields: others, .. }) = (wanted, given) {
        for (name, wanted) in fields.iter() {
            match others.get(name) {
                Some(given) if wanted.accepts(given) == TypeFit::No => {
                    return format!(
                        "this step expects {wanted} as `{name}`, but `{workflow}` returns {given}"
                    );
                }
                None if wanted.accepts(&ExprType::Null) == TypeFit::No => {
                    return format!(
                        "this step expects {wanted} as `{name}`, but `{workflow}` returns no `{name}`"
                    );
                }
                _ => {}
            }
        }
    }
    format!("this step expects {wanted}, but `{workflow}` returns {given}")
}

/// Returns the required properties that have no default.
fn required_without_default(schema: &Schema) -> impl Iterator<Item = &str> {
    let has_default =
        |name: &str| schema.property(name).is_some_and(|property| property.get("default").is_some());
    schema.required_properties().filter(move |name| !has_default(name))
}
