//! The artifacts that an attempt takes from other steps and gives to them, as files of its workspace.

use skein_core::{engine::AttemptEnd, ir::ErrorClass};

use super::{
    ExecutorContext,
    attempt::{failed_attempt, file_failure, non_retryable},
    attempt_spec::AttemptSpec,
};
use crate::workspace::{
    ArtifactError, ArtifactLimits, ContextFolder, RootFolder, RunDir, find_step, root::FileIdentity,
};

/// The folders that are never part of an attempt's artifacts.
pub(super) fn excluded_folders(
    shared: &ExecutorContext,
    context: Option<&ContextFolder>,
) -> Result<Vec<FileIdentity>, AttemptEnd> {
    let own = context.map(ContextFolder::root).into_iter().chain([&shared.state]);
    own.map(RootFolder::identity).collect::<Result<_, _>>().map_err(file_failure)
}

/// Keeps the artifacts of an attempt, or returns the end that explains the failure.
pub(super) fn keep_artifacts(
    shared: &ExecutorContext,
    run: &RunDir,
    job: &AttemptSpec,
    from: &RootFolder,
    context: Option<&ContextFolder>,
) -> Result<(), AttemptEnd> {
    keep_artifacts_excluding(shared, run, job, from, &excluded_folders(shared, context)?)
}

pub(super) fn keep_artifacts_excluding(
    shared: &ExecutorContext,
    run: &RunDir,
    job: &AttemptSpec,
    from: &RootFolder,
    without: &[FileIdentity],
) -> Result<(), AttemptEnd> {
    let kept =
        run.kept_bytes(shared.artifact_sizes().entry(job.run.clone()).or_default()).map_err(non_retryable)?;
    let limits = ArtifactLimits::with_used(kept);
    run.keep_artifacts(job.attempt, from, &job.gives, without, limits).map(drop).map_err(artifact_failure)
}

/// Copies the artifacts of other steps into the workspace. Returns notes for the log.
pub(super) fn import_artifacts(
    run: &RunDir,
    folder: &RootFolder,
    job: &AttemptSpec,
) -> Result<Vec<String>, AttemptEnd> {
    let mut notes = Vec::new();
    let Some(snapshot) = &job.snapshot else { return Ok(notes) };
    let story = snapshot.story(run);
    for take in &job.takes {
        let at = find_step(&snapshot.plan, &snapshot.state, job.attempt.at.0, &take.from);
        let source = at
            .map(|at| story.find_artifact_source(at, &take.artifact))
            .transpose()
            .map_err(non_retryable)?
            .flatten();
        let from = source.as_ref().map(|source| (source.attempt, &source.artifact));
        run.put_artifact(from, folder, &take.name).map_err(artifact_failure)?;
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

/// Only a full disk is worth a retry; other file errors do not resolve themselves.
pub(super) fn artifact_failure(error: ArtifactError) -> AttemptEnd {
    match error.is_no_space() {
        true => failed_attempt(ErrorClass::Transient, error.to_string()),
        false => non_retryable(error),
    }
}
