//! What an attempt takes of others and gives to them, as files of its workspace.

use skein_core::{engine::AttemptEnd, ir::ErrorClass};

use super::{
    Shared,
    attempt::{failed, never, wrong},
    job::Job,
};
use crate::workspace::{ArtifactError, ArtifactLimits, Context, Root, RunDir, find_step, root::Identity};

/// The folders that are no part of what an attempt gives.
pub(super) fn without(shared: &Shared, context: Option<&Context>) -> Result<Vec<Identity>, AttemptEnd> {
    let own = context.map(Context::root).into_iter().chain([&shared.state]);
    own.map(Root::identity).collect::<Result<_, _>>().map_err(wrong)
}

/// Keeps what an attempt gives. Why it cannot be had, where it cannot.
pub(super) fn keep(
    shared: &Shared,
    run: &RunDir,
    job: &Job,
    from: &Root,
    context: Option<&Context>,
) -> Result<(), AttemptEnd> {
    keep_from(shared, run, job, from, &without(shared, context)?)
}

pub(super) fn keep_from(
    shared: &Shared,
    run: &RunDir,
    job: &Job,
    from: &Root,
    without: &[Identity],
) -> Result<(), AttemptEnd> {
    let kept = run.kept_bytes(shared.sizes().entry(job.run.clone()).or_default()).map_err(never)?;
    let limits = ArtifactLimits::after(kept);
    run.keep(job.attempt, from, &job.gives, without, limits).map(drop).map_err(unkept)
}

/// Puts the artifacts of others into the workspace. What to say about them in the log.
pub(super) fn take_in(run: &RunDir, folder: &Root, job: &Job) -> Result<Vec<String>, AttemptEnd> {
    let mut notes = Vec::new();
    let Some(snapshot) = &job.snapshot else { return Ok(notes) };
    let story = snapshot.story(run);
    for take in &job.takes {
        let at = find_step(&snapshot.plan, &snapshot.state, job.attempt.at.0, &take.from);
        let source = at.map(|at| story.source(at, &take.artifact)).transpose().map_err(never)?.flatten();
        let from = source.as_ref().map(|source| (source.attempt, &source.artifact));
        run.put(from, folder, &take.name).map_err(unkept)?;
        if from.is_some_and(|(_, artifact)| artifact.holds_repository()) {
            notes.push(format!(
                "the artifact `{}` of `{}` holds a git repository, which is kept but not put into the workspace: its `.git` \
                 was left out",
                take.artifact, take.from
            ));
        }
    }
    Ok(notes)
}

/// Space may come back; nothing else that is wrong with files mends itself.
pub(super) fn unkept(error: ArtifactError) -> AttemptEnd {
    match error.is_no_space() {
        true => failed(ErrorClass::Transient, error.to_string()),
        false => never(error),
    }
}
