//! Whether each call gives the called workflow what it must have and nothing that it refuses.

use std::collections::BTreeSet;

use super::{
    contracts::{Says, names, says},
    problem::{Problem, ProblemCode, Problems},
    survey::Survey,
};
use crate::{
    expr::{Fit, Ty},
    ir::{Kind, Schema, Scope, Shape},
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    for (scope, i, step) in survey.steps() {
        let Kind::Call(call) = &step.kind else { continue };
        let workflow = &call.workflow;
        let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { continue };
        let schema = &survey.definition.workflow_of(*called).workflow.inputs;
        let given: BTreeSet<&str> = step.inputs.iter().map(|input| &*input.name).collect();
        for name in needed(schema).filter(|name| !given.contains(name)) {
            problems.push_with(ProblemCode::MissingParameter, || {
                let message = format!("`{workflow}` needs the parameter `{name}`");
                let at = survey.at(scope, i, format!("inputs.{name}"));
                Problem::new(ProblemCode::MissingParameter, at, message)
            });
        }
        for input in step.inputs.iter().filter(|input| says(schema, &input.name) == Says::Forbidden) {
            problems.push_with(ProblemCode::UnknownParameter, || {
                let message = format!("`{workflow}` has no parameter `{}`", input.name);
                let at = survey.at(scope, i, format!("inputs.{}", input.name));
                Problem::new(ProblemCode::UnknownParameter, at, message).near(&input.name, names(schema))
            });
        }
        if let Some(message) = unfit(workflow, &survey.definition.scope(*called).scope, &step.outputs) {
            problems.push(Problem::new(ProblemCode::BorderClash, survey.at(scope, i, "outputs"), message));
        }
    }
}

/// Why what a workflow gives can never be what the step that calls it declares.
fn unfit(workflow: &str, scope: &Scope, declared: &Schema) -> Option<String> {
    let wanted = Ty::of_schema(declared.document()?);
    if scope.result.is_none() && scope.shape == Shape::Graph {
        let unfit = wanted.accepts(&Ty::Null) == Fit::No;
        return unfit.then(|| format!("this step gives {wanted}, and `{workflow}` gives nothing"));
    }
    let given = Ty::of_schema(scope.outputs.document()?);
    (wanted.accepts(&given) == Fit::No).then(|| told(workflow, &wanted, &given))
}

/// The first field that does not fit, where there are fields.
fn told(workflow: &str, wanted: &Ty, given: &Ty) -> String {
    if let (Ty::Object { fields, .. }, Ty::Object { fields: others, .. }) = (wanted, given) {
        for (name, wanted) in fields.iter() {
            match others.get(name) {
                Some(given) if wanted.accepts(given) == Fit::No => {
                    return format!("this step gives {wanted} as `{name}`, and `{workflow}` gives {given}");
                }
                None if wanted.accepts(&Ty::Null) == Fit::No => {
                    return format!(
                        "this step gives {wanted} as `{name}`, and `{workflow}` gives no `{name}`"
                    );
                }
                _ => {}
            }
        }
    }
    format!("this step gives {wanted}, and `{workflow}` gives {given}")
}

/// What is required and has no default that would be filled in.
fn needed(schema: &Schema) -> impl Iterator<Item = &str> {
    let has_default =
        |name: &str| schema.property(name).is_some_and(|property| property.get("default").is_some());
    schema.required().filter(move |name| !has_default(name))
}
