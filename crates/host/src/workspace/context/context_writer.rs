//! The context writer: writes the artifacts of a step first, then its metadata, and the workflow last.

use std::path::Path;

use serde::Serialize;
use skein_core::{
    engine::{InstanceIx, StepPaths},
    ids::ArtifactName,
    ir::{CallSpec, Step, StepKindSpec},
    view::{self, StepView},
};

use super::{
    CALLED, CONVERGENCE, ContextInput, FILE_BYTES, META, WORKFLOW, WrittenSteps, convergence,
    meta::{self, ArtifactMeta, StepMeta, StepTimes, SubworkflowMeta},
    observation, summary,
};
use crate::{
    json_text::escape_invisible,
    workspace::{ArtifactForm, RootFolder, artifact::ArtifactError, root::FilePathError},
};

pub(super) fn write_context(
    root: &RootFolder,
    story: &ContextInput<'_>,
    written: &mut WrittenSteps,
) -> Result<(), ArtifactError> {
    if story.state.instances.is_empty() || written.is_past(story) {
        return Ok(());
    }
    let names = StepPaths::from_state(&story.plan.definition, story.state);
    let mut writer = ContextWriter { story, names: &names, first: written.is_empty(), written };
    writer.write_instance(root, InstanceIx::ROOT, "")?;
    written.mark_reached(story);
    Ok(())
}

struct ContextWriter<'a> {
    story: &'a ContextInput<'a>,
    names: &'a StepPaths,
    /// True for the first write of this process, which must remove partial files of a crash.
    first: bool,
    written: &'a mut WrittenSteps,
}

impl ContextWriter<'_> {
    /// Writes a workflow and its steps. `path` is the place of its context in the whole. The recursion is bounded by
    /// the maximum depth of calls.
    fn write_instance(&mut self, root: &RootFolder, ix: InstanceIx, path: &str) -> Result<(), ArtifactError> {
        let story = self.story;
        self.remove_pending(root)?;
        for at in story.instance_steps(ix) {
            let status = story.state.step_status(at);
            if !meta::has_begun(status) || self.written.is_current(story, at, status) {
                continue;
            }
            let view = view::view_step(story.plan, story.state, self.names, at);
            let folder = root.make_folders(&view.id, false)?;
            self.write_step(&folder, &view, &format!("{path}{}/", view.id))?;
            self.written.add_step(story, at, status);
        }
        write_json(root, WORKFLOW, &summary::summarize_workflow(story, self.names, ix))?;
        Ok(())
    }

    fn remove_pending(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        if self.first { folder.remove_pending() } else { Ok(()) }
    }

    fn write_step(&mut self, folder: &RootFolder, view: &StepView, path: &str) -> Result<(), ArtifactError> {
        self.remove_pending(folder)?;
        let scope = self.story.state.instance(view.at.0).scope;
        let step = self.story.plan.definition.scope(scope).step(view.at.1);
        let more = self.story.state.visit_state(view.at);
        let times = more.map_or(StepTimes::default(), |more| StepTimes { started: more.started, ended: more.ended });
        let mut meta = meta::step_meta(step, view, times);
        if let Some(main) = self.story.ledger.find_entry(view.at).and_then(|told| told.main.as_ref()) {
            let seen = observation::find_observation(self.story.run, main.id)?;
            meta.worker_result = meta::worker_result(view, main, seen);
            meta.worker_kind = main.by.as_deref().or(meta.worker_kind);
        }
        if let StepKindSpec::Call(call) = &step.kind {
            meta.subworkflow = self.write_subworkflow(folder, view, call, path)?;
        }
        self.write_convergence(folder, view, step)?;
        self.write_artifacts(folder, view, step, meta)
    }

    /// Writes the artifacts of the step, and then its metadata. Metadata therefore implies that the artifacts exist.
    fn write_artifacts(
        &self,
        folder: &RootFolder,
        view: &StepView,
        step: &Step,
        mut meta: StepMeta<'_>,
    ) -> Result<(), ArtifactError> {
        let mut sources = Vec::new();
        for (name, kind) in declared_artifacts(step) {
            let source = self.story.find_artifact_source(view.at, name)?;
            let path = source.as_ref().map_or("", |source| source.artifact.path.as_str());
            let missing = source.as_ref().is_none_or(|source| source.artifact.found == ArtifactForm::Missing);
            if meta::has_ended(view.status) {
                meta.artifacts.push(ArtifactMeta {
                    name: name.to_string(),
                    path: if missing || path.is_empty() { name.to_string() } else { format!("{name}/{path}") },
                    kind,
                    missing,
                });
                sources.push((name, source));
            }
        }
        let text = to_json_text(&meta);
        if has_content(folder, META, &text) && sources.iter().all(|(name, _)| folder.open_folder(name.as_str()).is_ok())
        {
            return Ok(());
        }
        for (name, source) in &sources {
            let from = source.as_ref().map(|source| (source.attempt, &source.artifact));
            self.story.run.put_artifact_synced(from, folder, name)?;
        }
        folder.replace_file(META, &text)?;
        Ok(())
    }

    fn write_subworkflow(
        &mut self,
        folder: &RootFolder,
        view: &StepView,
        call: &CallSpec,
        path: &str,
    ) -> Result<Option<SubworkflowMeta>, ArtifactError> {
        let state = self.story.state;
        let Some(child) = state.visit_state(view.at).and_then(|more| more.children.last().copied()) else {
            return Ok(None);
        };
        let path = format!("{path}{CALLED}");
        let inner = folder.make_folders(CALLED, false)?;
        self.write_instance(&inner, child, &format!("{path}/"))?;
        let instance = state.instance(child);
        let workflow = &self.story.plan.definition.workflow_containing(instance.scope).workflow;
        let status = instance.end().map_or(skein_core::ir::RunStatus::Running, |end| end.status);
        Ok(Some(SubworkflowMeta {
            path: call.workflow.clone(),
            name: workflow.name.clone().unwrap_or_else(|| workflow.id.to_string()),
            workflow_id: workflow.id.to_string(),
            status: workflow.words.run_word(status).to_owned(),
            context_dir: path,
            started_at: instance.started,
            completed_at: instance.ended,
        }))
    }

    fn write_convergence(&self, folder: &RootFolder, view: &StepView, step: &Step) -> Result<(), FilePathError> {
        let check = meta::step_work(step).and_then(|work| work.check.as_ref());
        let Some(converges) = check.and_then(|check| check.convergence.as_ref()) else { return Ok(()) };
        let (story, id) = (self.story, step.id.as_str());
        let Some((told, more)) = story.ledger.find_entry(view.at).zip(story.state.visit_state(view.at)) else {
            return Ok(());
        };
        let Some(state) = convergence::convergence_state(id, converges, more, told) else { return Ok(()) };
        let folder = folder.make_folders(CONVERGENCE, false)?;
        self.remove_pending(&folder)?;
        if let Some(raised) = convergence::stage_transition(id, converges, told) {
            write_json(&folder, convergence::TRANSITION, &raised)?;
        }
        if let Some(scope) = convergence::scope_violation(id, converges, told) {
            write_json(&folder, convergence::SCOPE, &scope)?;
        }
        write_json(&folder, convergence::STATE, &state)
    }
}

/// Returns the declared artifacts of a step, with their declared kinds.
fn declared_artifacts(step: &Step) -> Vec<(&ArtifactName, Option<String>)> {
    match &step.kind {
        StepKindSpec::Work(work) => work.gives.iter().map(|gives| (&gives.name, gives.kind.clone())).collect(),
        StepKindSpec::Call(call) => call.exports.iter().map(|export| (&export.name, None)).collect(),
        _ => Vec::new(),
    }
}

fn to_json_text<T: Serialize>(value: &T) -> Vec<u8> {
    let text = serde_json::to_string_pretty(value).expect("what a context holds is plain data");
    let mut text = escape_invisible(&text).into_owned().into_bytes();
    text.push(b'\n');
    text
}

fn has_content(root: &RootFolder, name: &str, text: &[u8]) -> bool {
    root.read_file(Path::new(name), FILE_BYTES).is_ok_and(|found| found == text)
}

fn write_json<T: Serialize>(root: &RootFolder, name: &str, value: &T) -> Result<(), FilePathError> {
    let text = to_json_text(value);
    if has_content(root, name, &text) { Ok(()) } else { root.replace_file(name, &text) }
}
