//! The results that an attempt takes from other steps and gives to them.
//!
//! Owns the artifacts as files of the workspace, and the text about earlier results for an agent: as values, Markdown or
//! raw text, with a summary and a log. The values themselves are always complete in the inputs file.

use serde_json::Value;
use skein_core::{
    engine::{AttemptId, AttemptRole},
    expr::{ExprRead, ReferenceRoot, StepProperty},
    ids::StepId,
    ir::{HandoffFormat, HandoffSpec, InputArtifact, OutputArtifact, Step, WorkSpec},
};

use super::{
    AttemptContext,
    command::to_plain_text,
    non_retryable,
    spec::{RunStateSnapshot, planned_step},
};
use crate::{
    executor::{ExecutorContext, attempt::StageError},
    executor_api::ActiveRun,
    workspace::{ArtifactLimits, AttemptDir, ContextFolder, RootFolder, find_step, root::FileIdentity},
};

/// The maximum number of bytes from the end of a log that are handed on.
const LOG: u64 = 256 * 1024;

/// The results of one step that are handed to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepHandoff {
    pub from: StepId,
    pub format: HandoffFormat,
    /// The inputs that read only this step.
    pub inputs: Vec<String>,
    pub summary: Option<String>,
    /// The attempt whose log is handed on.
    pub log: Option<AttemptId>,
}

/// The files and results that an attempt exchanges with other steps.
#[derive(Debug)]
pub(crate) struct AttemptHandoff {
    /// The artifacts of other steps that it takes.
    pub takes: Vec<InputArtifact>,
    pub gives: Vec<OutputArtifact>,
    /// The results of earlier steps that are handed to it.
    pub results: Vec<StepHandoff>,
    /// The folder in which steps of the run hand files to one another.
    pub context: Option<String>,
    /// The state of the run at the start, if something needs it.
    pub snapshot: Option<Box<RunStateSnapshot>>,
}

impl AttemptHandoff {
    /// Only the main attempt takes, gives and reads results.
    pub(crate) fn new(running: ActiveRun<'_>, step: &Step, work: &WorkSpec, attempt: AttemptId) -> AttemptHandoff {
        let context = running.settings.context_directory(running.plan).map(str::to_owned);
        let (takes, gives, results) = match attempt.role {
            AttemptRole::Main => (work.takes.clone(), work.gives.clone(), collect_handoffs(running, step, attempt)),
            AttemptRole::Check | AttemptRole::Summary | AttemptRole::Undo => Default::default(),
        };
        let needed = !takes.is_empty() || context.is_some();
        let snapshot = needed.then(|| Box::new(RunStateSnapshot::capture(running)));
        AttemptHandoff { takes, gives, results, context, snapshot }
    }
}

/// Collects the handoffs of the steps that a step depends on or reads.
fn collect_handoffs(running: ActiveRun<'_>, step: &Step, attempt: AttemptId) -> Vec<StepHandoff> {
    let ActiveRun { plan, state, ledger, .. } = running;
    let reads: Vec<(&str, Vec<ExprRead<'_>>)> =
        step.inputs.iter().map(|binding| (&*binding.name, binding.value.reads())).collect();
    let mut steps: Vec<StepId> = step.after.clone();
    for (id, _) in reads.iter().flat_map(|(_, reads)| reads.iter().filter_map(referenced_step)) {
        if let Ok(id) = StepId::new(id)
            && !steps.contains(&id)
        {
            steps.push(id);
        }
    }
    let handed = steps.into_iter().filter_map(|from| {
        let at = find_step(plan, state, attempt.at.0, &from)?;
        let HandoffSpec { format, include_run_log } = planned_step(running, at).extensions.handoff.unwrap_or_default();
        let mut references = reads.iter().flat_map(|(_, reads)| reads.iter().filter_map(referenced_step));
        let reads_summary = references.any(|(id, part)| id == from.as_str() && part == StepProperty::Summary);
        let summary = state.visit_state(at).and_then(|more| more.summary.clone()).filter(|_| !reads_summary);
        let log = ledger.last_attempt(at).filter(|_| include_run_log);
        let only = |reads: &Vec<ExprRead<'_>>| {
            let own = |read| referenced_step(read) == Some((from.as_str(), StepProperty::Output));
            !reads.is_empty() && reads.iter().all(own)
        };
        let inputs = reads.iter().filter(|(_, reads)| only(reads)).map(|(name, _)| (*name).to_owned());
        Some(StepHandoff { format, inputs: inputs.collect(), summary, log, from })
    });
    handed.filter(|handed| handed.has_content()).collect()
}

fn referenced_step<'a>(read: &ExprRead<'a>) -> Option<(&'a str, StepProperty)> {
    match read.root {
        ReferenceRoot::Step { id, part } => Some((id, *part)),
        _ => None,
    }
}

impl StepHandoff {
    /// True if there is content beyond the inputs.
    fn has_content(&self) -> bool {
        let other = self.format != HandoffFormat::Structured && !self.inputs.is_empty();
        other || self.summary.is_some() || self.log.is_some()
    }

    /// True if an input is presented in another form than as a value.
    pub(crate) fn formats_input(&self, input: &str) -> bool {
        self.format != HandoffFormat::Structured && self.inputs.iter().any(|own| own == input)
    }

    fn log_name(&self) -> String {
        format!("{}.log", self.from)
    }

    /// The path of the log that the worker may read, if it exists.
    pub(crate) fn find_log(&self, files: &AttemptDir) -> Option<std::path::PathBuf> {
        let path = files.handed_path().join(self.log_name());
        (self.log.is_some() && path.is_file()).then_some(path)
    }
}

/// Copies the logs to the place where the worker can read them. A missing log is skipped.
pub(crate) fn copy_logs(AttemptContext { job, run, files, .. }: &AttemptContext) {
    for one in &job.handoff.results {
        let Some(attempt) = one.log else { continue };
        let found = run.find_attempt(attempt).ok().flatten();
        let bytes = found.and_then(|from| from.read_tail(false, LOG).ok());
        if let Some(bytes) = bytes {
            let _ = files.hand_file(&one.log_name(), &bytes);
        }
    }
}
pub(crate) fn render_markdown(value: &Value) -> String {
    let one = |value: &Value| match value {
        Value::String(text) => text.replace('\n', "\n  "),
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            items.iter().map(|item| format!("- {}", one(item))).collect::<Vec<_>>().join("\n")
        }
        Value::Object(fields) if !fields.is_empty() => {
            let lines = fields.iter().map(|(name, value)| format!("- **{name}**: {}", one(value)));
            lines.collect::<Vec<_>>().join("\n")
        }
        Value::Null => "nothing".to_owned(),
        other => to_plain_text(other),
    }
}

/// The folders that are never part of an attempt's artifacts.
pub(crate) fn excluded_folders(
    shared: &ExecutorContext,
    context: Option<&ContextFolder>,
) -> Result<Vec<FileIdentity>, StageError> {
    let own = context.map(ContextFolder::root).into_iter().chain([&shared.state]);
    Ok(own.map(RootFolder::identity).collect::<Result<_, _>>()?)
}

/// Keeps the artifacts of an attempt, or returns the end that explains the failure.
pub(crate) fn keep_artifacts(
    AttemptContext { shared, job, run, .. }: &AttemptContext,
    from: &RootFolder,
    without: &[FileIdentity],
) -> Result<(), StageError> {
    let kept = run.kept_bytes(shared.artifact_sizes().entry(job.run.clone()).or_default()).map_err(non_retryable)?;
    let limits = ArtifactLimits::with_used(kept);
    run.keep_artifacts(job.attempt, from, &job.handoff.gives, without, limits)?;
    Ok(())
}

/// Copies the artifacts of other steps into the workspace. Returns notes for the log.
pub(crate) fn import_artifacts(attempt: &AttemptContext, folder: &RootFolder) -> Result<Vec<String>, StageError> {
    let AttemptContext { job, run, .. } = attempt;
    let mut notes = Vec::new();
    let Some(snapshot) = &job.handoff.snapshot else { return Ok(notes) };
    let story = snapshot.story(run);
    for take in &job.handoff.takes {
        let at = find_step(&snapshot.plan, &snapshot.state, job.attempt.at.0, &take.from);
        let source =
            at.map(|at| story.find_artifact_source(at, &take.artifact)).transpose().map_err(non_retryable)?.flatten();
        let from = source.as_ref().map(|source| (source.attempt, &source.artifact));
        run.put_artifact(from, folder, &take.name)?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_as_markdown() {
        assert_eq!(render_markdown(&json!("# As it is\n")), "# As it is\n");
        assert_eq!(render_markdown(&json!(["a", "b\nc", {"x": 1}])), "- a\n- b\n  c\n- {\"x\":1}");
        assert_eq!(render_markdown(&json!({"risks": 2, "none": null})), "- **risks**: 2\n- **none**: nothing");
        assert_eq!((render_markdown(&json!(null)), render_markdown(&json!([]))), ("nothing".into(), "[]".into()));
    }
}
