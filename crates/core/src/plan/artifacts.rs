//! Whether every artifact that is taken or exported is given by a step that has ended by then.

use std::collections::BTreeSet;

use super::{
    definition::ScopeIx,
    problem::{At, Problem, ProblemCode, Problems},
    survey::{Reach, Spot, Survey, Unseen},
};
use crate::{
    ids::{ArtifactName, StepId},
    ir::{Call, Kind, Step, Work},
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    for (scope, i, step) in survey.steps() {
        let at = |field: &str| survey.at(scope, i, field);
        match &step.kind {
            Kind::Work(work) => {
                let spot = Spot { scope, step: Some(i), reach: Reach::Before };
                check_work(survey, spot, "", work, problems);
            }
            Kind::Call(call) => check_exports(survey, (scope, i), call, &at, problems),
            _ => {}
        }
        if let Some(undo) = &step.undo {
            let spot = Spot { scope, step: Some(i), reach: Reach::Own };
            check_work(survey, spot, "undo.", &undo.work, problems);
        }
    }
}

fn check_work(survey: &Survey<'_>, spot: Spot, prefix: &str, work: &Work, problems: &mut Problems) {
    let at = |field: &str| survey.at_spot(spot, &format!("{prefix}{field}"));
    check_once("gives", work.gives.iter().map(|gives| &gives.name), &at, problems);
    check_once("takes", work.takes.iter().map(|takes| &takes.name), &at, problems);
    for (n, takes) in work.takes.iter().enumerate() {
        let at = |field: &str| at(&format!("takes[{n}].{field}"));
        match survey.see(spot, takes.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                let giver = survey.at(seen.scope, seen.step, "gives");
                problems_of(step, &takes.artifact, at("artifact"), Some(giver), problems);
            }
            Err(Unseen::NoSuchStep) => problems.push_with(ProblemCode::UnknownArtifactSource, || {
                let known = survey.definition.workflow_of(spot.scope).names.keys();
                let message = format!("there is no step `{}` to take an artifact from", takes.from);
                Problem::new(ProblemCode::UnknownArtifactSource, at("from"), message)
                    .near(takes.from.as_str(), known.map(StepId::as_str))
            }),
            Err(Unseen::Doubtful) => {}
            Err(unseen) => problems.push(not_before(&takes.from, &unseen, at("from"))),
        }
    }
}

/// Two artifacts of one name would be one file.
fn check_once<'a>(
    field: &str,
    names: impl Iterator<Item = &'a ArtifactName>,
    at: &dyn Fn(&str) -> At,
    problems: &mut Problems,
) {
    let mut seen = BTreeSet::new();
    for (n, name) in names.enumerate() {
        if !seen.insert(name) {
            let message = format!("two artifacts are called `{name}`");
            problems.push(Problem::new(
                ProblemCode::DuplicateArtifact,
                at(&format!("{field}[{n}]")),
                message,
            ));
        }
    }
}

fn not_before(from: &StepId, unseen: &Unseen, at: At) -> Problem {
    let why = match unseen {
        Unseen::InsideEach(each) => format!("runs once for each item of `{each}`"),
        Unseen::SiblingLane => "is in a lane that runs at the same time".to_owned(),
        _ => "has not ended by then".to_owned(),
    };
    Problem::new(
        ProblemCode::ArtifactNotBefore,
        at,
        format!("`{from}` {why}, so its artifact cannot be taken"),
    )
}

/// Says so if a step does not give an artifact, and where that step says what it gives, if it is of the same workflow.
fn problems_of(step: &Step, artifact: &ArtifactName, at: At, giver: Option<At>, problems: &mut Problems) {
    let given: Vec<&ArtifactName> = match &step.kind {
        Kind::Work(work) => work.gives.iter().map(|gives| &gives.name).collect(),
        Kind::Call(call) => call.exports.iter().map(|export| &export.name).collect(),
        _ => Vec::new(),
    };
    if !given.contains(&artifact) {
        let message = format!("`{}` gives no artifact `{artifact}`", step.id);
        problems.push_with(ProblemCode::UnknownArtifact, || {
            let gives = if given.is_empty() { "it gives nothing" } else { "this is what it gives" };
            let problem = Problem::new(ProblemCode::UnknownArtifact, at, message)
                .near(artifact.as_str(), given.into_iter().map(ArtifactName::as_str));
            giver.into_iter().fold(problem, |problem, giver| problem.related(giver, gives))
        });
    }
}

fn check_exports(
    survey: &Survey<'_>,
    (scope, i): (ScopeIx, u32),
    call: &Call,
    at: &dyn Fn(&str) -> At,
    problems: &mut Problems,
) {
    check_once("exports", call.exports.iter().map(|export| &export.name), at, problems);
    let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { return };
    let spot = Spot { scope: *called, step: None, reach: Reach::End };
    for (n, export) in call.exports.iter().enumerate() {
        let at = |field: &str| at(&format!("exports[{n}].{field}"));
        match survey.see(spot, export.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                problems_of(step, &export.artifact, at("artifact"), None, problems);
            }
            Err(_) => problems.push_with(ProblemCode::UnknownExportSource, || {
                let known = survey.definition.workflow_of(*called).names.keys();
                let message = format!("`{}` has no step `{}` to export from", call.workflow, export.from);
                Problem::new(ProblemCode::UnknownExportSource, at("from"), message)
                    .near(export.from.as_str(), known.map(StepId::as_str))
            }),
        }
    }
}
