//! Check that every artifact that is taken or exported comes from a step that has ended by then.

use std::collections::BTreeSet;

use super::{
    definition::ScopeIx,
    problem::{PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    survey::{ExprReach, ExprSpot, PlanSurvey, VisibilityError},
};
use crate::{
    ids::{ArtifactName, StepId},
    ir::{CallSpec, Step, StepKindSpec, WorkSpec},
};

pub(super) fn check_artifacts(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (scope, i, step) in survey.steps() {
        let at = |field: &str| survey.step_location(scope, i, field);
        match &step.kind {
            StepKindSpec::Work(work) => {
                let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
                check_work(survey, spot, "", work, problems);
            }
            StepKindSpec::Call(call) => check_exports(survey, (scope, i), call, &at, problems),
            _ => {}
        }
        if let Some(undo) = &step.undo {
            let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Own };
            check_work(survey, spot, "undo.", &undo.work, problems);
        }
    }
}

fn check_work(
    survey: &PlanSurvey<'_>,
    spot: ExprSpot,
    prefix: &str,
    work: &WorkSpec,
    problems: &mut ProblemCollector,
) {
    let at = |field: &str| survey.spot_location(spot, &format!("{prefix}{field}"));
    check_unique_names("gives", work.gives.iter().map(|gives| &gives.name), &at, problems);
    check_unique_names("takes", work.takes.iter().map(|takes| &takes.name), &at, problems);
    for (n, takes) in work.takes.iter().enumerate() {
        let at = |field: &str| at(&format!("takes[{n}].{field}"));
        match survey.find_visible_step(spot, takes.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                let giver = survey.step_location(seen.scope, seen.step, "gives");
                check_giver(step, &takes.artifact, at("artifact"), Some(giver), problems);
            }
            Err(VisibilityError::NoSuchStep) => {
                problems.push_with(ProblemCode::UnknownArtifactSource, || {
                    let known = survey.definition.workflow_containing(spot.scope).names.keys();
                    let message = format!("there is no step `{}` to take an artifact from", takes.from);
                    PlanProblem::new(ProblemCode::UnknownArtifactSource, at("from"), message)
                        .with_suggestion(takes.from.as_str(), known.map(StepId::as_str))
                })
            }
            Err(VisibilityError::Doubtful) => {}
            Err(unseen) => problems.push(not_before_problem(&takes.from, &unseen, at("from"))),
        }
    }
}

/// Checks that names are unique: two artifacts of one name would be one file.
fn check_unique_names<'a>(
    field: &str,
    names: impl Iterator<Item = &'a ArtifactName>,
    at: &dyn Fn(&str) -> ProblemLocation,
    problems: &mut ProblemCollector,
) {
    let mut seen = BTreeSet::new();
    for (n, name) in names.enumerate() {
        if !seen.insert(name) {
            let message = format!("two artifacts are called `{name}`");
            problems.push(PlanProblem::new(
                ProblemCode::DuplicateArtifact,
                at(&format!("{field}[{n}]")),
                message,
            ));
        }
    }
}

fn not_before_problem(from: &StepId, unseen: &VisibilityError, at: ProblemLocation) -> PlanProblem {
    let why = match unseen {
        VisibilityError::InsideEach(each) => format!("runs once for each item of `{each}`"),
        VisibilityError::SiblingLane => "is in a lane that runs at the same time".to_owned(),
        _ => "has not ended by then".to_owned(),
    };
    PlanProblem::new(
        ProblemCode::ArtifactNotBefore,
        at,
        format!("`{from}` {why}, so its artifact cannot be taken"),
    )
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
    at: &dyn Fn(&str) -> ProblemLocation,
    problems: &mut ProblemCollector,
) {
    check_unique_names("exports", call.exports.iter().map(|export| &export.name), at, problems);
    let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { return };
    let spot = ExprSpot { scope: *called, step: None, reach: ExprReach::End };
    for (n, export) in call.exports.iter().enumerate() {
        let at = |field: &str| at(&format!("exports[{n}].{field}"));
        match survey.find_visible_step(spot, export.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                check_giver(step, &export.artifact, at("artifact"), None, problems);
            }
            Err(_) => problems.push_with(ProblemCode::UnknownExportSource, || {
                let known = survey.definition.workflow_containing(*called).names.keys();
                let message = format!("`{}` has no step `{}` to export from", call.workflow, export.from);
                PlanProblem::new(ProblemCode::UnknownExportSource, at("from"), message)
                    .with_suggestion(export.from.as_str(), known.map(StepId::as_str))
            }),
        }
    }
}
