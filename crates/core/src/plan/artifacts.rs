//! Check that every artifact that is taken or exported comes from a step that has ended by then.

use std::collections::BTreeSet;

use super::{
    definition::ScopeIx,
    field_path::{FieldRef, FieldRest, PlanField},
    problem::{PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    survey::{ExprReach, ExprSpot, PlanSurvey, VisibilityError},
};
use crate::{
    ids::{ArtifactName, StepId},
    ir::{CallSpec, Step, StepKindSpec, WorkSpec},
    terms::WorkflowTerms,
};

pub(super) fn check_artifacts(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (scope, i, step) in survey.steps() {
        match &step.kind {
            StepKindSpec::Work(work) => {
                let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
                check_work(survey, spot, false, work, problems);
            }
            StepKindSpec::Call(call) => check_exports(survey, (scope, i), call, problems),
            _ => {}
        }
        if let Some(undo) = &step.undo {
            let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Own };
            check_work(survey, spot, true, &undo.work, problems);
        }
    }
}

fn check_work(survey: &PlanSurvey<'_>, spot: ExprSpot, undo: bool, work: &WorkSpec, problems: &mut ProblemCollector) {
    let at = |field, rest| {
        let field = FieldRef { undo, ..FieldRef::new(field, rest) };
        survey.spot_location(spot, field)
    };
    check_unique_names(PlanField::Gives, work.gives.iter().map(|gives| &gives.name), &at, problems);
    check_unique_names(PlanField::Takes, work.takes.iter().map(|takes| &takes.name), &at, problems);
    for (n, takes) in work.takes.iter().enumerate() {
        let at = |field| at(PlanField::Takes, FieldRest::ItemField(n, field));
        match survey.find_visible_step(spot, takes.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                let giver = survey.step_location(seen.scope, seen.step, PlanField::Gives);
                check_giver(step, &takes.artifact, at(PlanField::Artifact), Some(giver), problems);
            }
            Err(VisibilityError::NoSuchStep) => problems.push_with(ProblemCode::UnknownArtifactSource, || {
                let known = survey.definition.workflow_containing(spot.scope).names.keys();
                let message =
                    format!("there is no {} `{}` to take an artifact from", survey.terms(spot.scope).step, takes.from);
                PlanProblem::new(ProblemCode::UnknownArtifactSource, at(PlanField::From), message)
                    .with_suggestion(takes.from.as_str(), known.map(StepId::as_str))
            }),
            Err(VisibilityError::Doubtful) => {}
            Err(unseen) => {
                problems.push(not_before_problem(survey.terms(spot.scope), &takes.from, &unseen, at(PlanField::From)))
            }
        }
    }
}

/// Checks that names are unique: two artifacts of one name would be one file.
fn check_unique_names<'a>(
    field: PlanField,
    names: impl Iterator<Item = &'a ArtifactName>,
    at: &dyn Fn(PlanField, FieldRest<'static>) -> ProblemLocation,
    problems: &mut ProblemCollector,
) {
    let mut seen = BTreeSet::new();
    for (n, name) in names.enumerate() {
        if !seen.insert(name) {
            let message = format!("two artifacts are called `{name}`");
            problems.push(PlanProblem::new(ProblemCode::DuplicateArtifact, at(field, FieldRest::Item(n)), message));
        }
    }
}

fn not_before_problem(
    terms: &WorkflowTerms,
    from: &StepId,
    unseen: &VisibilityError,
    at: ProblemLocation,
) -> PlanProblem {
    let why = match unseen {
        VisibilityError::InsideEach(each) => format!("runs once for each item of `{each}`"),
        VisibilityError::SiblingLane => format!("is in a {} that runs at the same time", terms.lane),
        _ => "has not ended by then".to_owned(),
    };
    PlanProblem::new(ProblemCode::ArtifactNotBefore, at, format!("`{from}` {why}, so its artifact cannot be taken"))
}

/// Reports a step that does not give an artifact. Points to the artifacts that it gives if it is in the same workflow.
fn check_giver(
    step: &Step,
    artifact: &ArtifactName,
    at: ProblemLocation,
    giver: Option<ProblemLocation>,
    problems: &mut ProblemCollector,
) {
    let given: Vec<&ArtifactName> = match &step.kind {
        StepKindSpec::Work(work) => work.gives.iter().map(|gives| &gives.name).collect(),
        StepKindSpec::Call(call) => call.exports.iter().map(|export| &export.name).collect(),
        _ => Vec::new(),
    };
    if !given.contains(&artifact) {
        let message = format!("`{}` produces no artifact `{artifact}`", step.id);
        problems.push_with(ProblemCode::UnknownArtifact, || {
            let gives = if given.is_empty() { "it produces no artifacts" } else { "it produces these" };
            let problem = PlanProblem::new(ProblemCode::UnknownArtifact, at, message)
                .with_suggestion(artifact.as_str(), given.into_iter().map(ArtifactName::as_str));
            giver.into_iter().fold(problem, |problem, giver| problem.with_related(giver, gives))
        });
    }
}

fn check_exports(
    survey: &PlanSurvey<'_>,
    (scope, i): (ScopeIx, u32),
    call: &CallSpec,
    problems: &mut ProblemCollector,
) {
    let at = |field, rest| survey.step_location(scope, i, FieldRef::new(field, rest));
    check_unique_names(PlanField::Exports, call.exports.iter().map(|export| &export.name), &at, problems);
    let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { return };
    let spot = ExprSpot { scope: *called, step: None, reach: ExprReach::End };
    for (n, export) in call.exports.iter().enumerate() {
        let at = |field| at(PlanField::Exports, FieldRest::ItemField(n, field));
        match survey.find_visible_step(spot, export.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                check_giver(step, &export.artifact, at(PlanField::Artifact), None, problems);
            }
            Err(_) => problems.push_with(ProblemCode::UnknownExportSource, || {
                let known = survey.definition.workflow_containing(*called).names.keys();
                let message =
                    format!("`{}` has no {} `{}` to export from", call.workflow, survey.terms(scope).step, export.from);
                PlanProblem::new(ProblemCode::UnknownExportSource, at(PlanField::From), message)
                    .with_suggestion(export.from.as_str(), known.map(StepId::as_str))
            }),
        }
    }
}
