//! Whether each call gives the called workflow what it must have and nothing that it refuses.

use std::collections::BTreeSet;

use super::{
    contracts::{Says, names, says},
    problem::{Problem, ProblemCode, Problems},
    survey::Survey,
};
use crate::{
    closest::did_you_mean,
    ir::{Call, Kind, Schema},
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    for (scope, i, step) in survey.steps() {
        let Kind::Call(Call { workflow, .. }) = &step.kind else { continue };
        let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { continue };
        let schema = &survey.definition.workflow_of(*called).workflow.inputs;
        let given: BTreeSet<&str> = step.inputs.iter().map(|input| input.name.as_str()).collect();
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
                let hint = did_you_mean(&input.name, names(schema));
                Problem::new(ProblemCode::UnknownParameter, at, message).maybe_hint(hint)
            });
        }
    }
}

/// What is required and has no default that would be filled in.
fn needed(schema: &Schema) -> impl Iterator<Item = &str> {
    let has_default =
        |name: &str| schema.property(name).is_some_and(|property| property.get("default").is_some());
    schema.required().filter(move |name| !has_default(name))
}
