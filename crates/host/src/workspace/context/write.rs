//! Writing a context: what a step gave first, then what it says of itself, the workflow last.

use std::path::Path;

use serde::Serialize;
use skein_core::{
    engine::InstanceIx,
    ids::ArtifactName,
    ir::{Call, Kind, Step},
    view::{self, Names, StepView},
};

use super::{
    CALLED, CONVERGENCE, FILE_BYTES, META, Story, WORKFLOW, Written, convergence,
    meta::{self, ArtifactMeta, Called, Meta, Times},
    observation, summary,
};
use crate::{
    json_text::escape_invisible,
    workspace::{Found, Root, artifact::ArtifactError, root::PathError},
};

pub(super) fn all(root: &Root, story: &Story<'_>, written: &mut Written) -> Result<(), ArtifactError> {
    if story.state.instances.is_empty() || written.is_past(story) {
        return Ok(());
    }
    let names = Names::of(&story.plan.definition, story.state);
    let mut writer = Writer { story, names: &names, first: written.is_empty(), written };
    writer.instance(root, InstanceIx::ROOT, "")?;
    written.reach(story);
    Ok(())
}

struct Writer<'a> {
    story: &'a Story<'a>,
    names: &'a Names,
    /// Whether nobody here has written yet, so that what a crash left may lie about.
    first: bool,
    written: &'a mut Written,
}

impl Writer<'_> {
    /// A workflow and its steps. `path` is where its context is in the whole. Recursion is bounded by how deep calls
    /// may go.
    fn instance(&mut self, root: &Root, ix: InstanceIx, path: &str) -> Result<(), ArtifactError> {
        let story = self.story;
        self.clean(root)?;
        for at in story.steps(ix) {
            let status = story.state.step_status(at);
            if !meta::has_begun(status) || self.written.has(story, at, status) {
                continue;
            }
            let view = view::step(story.plan, story.state, self.names, at);
            let folder = root.make_folders(&view.id, false)?;
            self.step(&folder, &view, &format!("{path}{}/", view.id))?;
            self.written.add(story, at, status);
        }
        write(root, WORKFLOW, &summary::of(story, self.names, ix))?;
        Ok(())
    }

    fn clean(&self, folder: &Root) -> Result<(), PathError> {
        if self.first { folder.remove_pending() } else { Ok(()) }
    }

    fn step(&mut self, folder: &Root, view: &StepView, path: &str) -> Result<(), ArtifactError> {
        self.clean(folder)?;
        let scope = self.story.state.instance(view.at.0).scope;
        let step = self.story.plan.definition.scope(scope).step(view.at.1);
        let more = self.story.state.more(view.at);
        let times = more.map_or(Times::default(), |more| Times { started: more.started, ended: more.ended });
        let mut meta = meta::of(step, view, times);
        if let Some(main) = self.story.ledger.step(view.at).and_then(|told| told.main.as_ref()) {
            let seen = observation::of(self.story.run, main.id)?;
            meta.worker_result = meta::worker_result(view, main, seen);
            meta.worker_kind = main.by.as_deref().or(meta.worker_kind);
        }
        if let Kind::Call(call) = &step.kind {
            meta.subworkflow = self.called(folder, view, call, path)?;
        }
        self.convergence(folder, view, step)?;
        self.artifacts(folder, view, step, meta)
    }

    /// What the step gave, and then that it did. Where it has been said, it has been given.
    fn artifacts(
        &self,
        folder: &Root,
        view: &StepView,
        step: &Step,
        mut meta: Meta<'_>,
    ) -> Result<(), ArtifactError> {
        let mut sources = Vec::new();
        for (name, kind) in declared(step) {
            let source = self.story.source(view.at, name)?;
            let path = source.as_ref().map_or("", |source| source.artifact.path.as_str());
            let missing = source.as_ref().is_none_or(|source| source.artifact.found == Found::Missing);
            if meta::has_ended(view.status) {
                meta.artifacts.push(ArtifactMeta {
                    name: name.to_string(),
                    path: if missing || path.is_empty() {
                        name.to_string()
                    } else {
                        format!("{name}/{path}")
                    },
                    kind,
                    missing,
                });
                sources.push((name, source));
            }
        }
        let text = text(&meta);
        if is(folder, META, &text) && sources.iter().all(|(name, _)| folder.folder(name.as_str()).is_ok()) {
            return Ok(());
        }
        for (name, source) in &sources {
            let from = source.as_ref().map(|source| (source.attempt, &source.artifact));
            self.story.run.put_to_last(from, folder, name)?;
        }
        folder.replace(META, &text)?;
        Ok(())
    }

    fn called(
        &mut self,
        folder: &Root,
        view: &StepView,
        call: &Call,
        path: &str,
    ) -> Result<Option<Called>, ArtifactError> {
        let state = self.story.state;
        let Some(child) = state.more(view.at).and_then(|more| more.children.last().copied()) else {
            return Ok(None);
        };
        let path = format!("{path}{CALLED}");
        let inner = folder.make_folders(CALLED, false)?;
        self.instance(&inner, child, &format!("{path}/"))?;
        let instance = state.instance(child);
        let workflow = &self.story.plan.definition.workflow_of(instance.scope).workflow;
        let status = instance.end().map_or(skein_core::ir::RunStatus::Running, |end| end.status);
        Ok(Some(Called {
            path: call.workflow.clone(),
            name: workflow.name.clone().unwrap_or_else(|| workflow.id.to_string()),
            workflow_id: workflow.id.to_string(),
            status: workflow.words.run(status).to_owned(),
            context_dir: path,
            started_at: instance.started,
            completed_at: instance.ended,
        }))
    }

    fn convergence(&self, folder: &Root, view: &StepView, step: &Step) -> Result<(), PathError> {
        let check = meta::work(step).and_then(|work| work.check.as_ref());
        let Some(converges) = check.and_then(|check| check.convergence.as_ref()) else { return Ok(()) };
        let (story, id) = (self.story, step.id.as_str());
        let Some((told, more)) = story.ledger.step(view.at).zip(story.state.more(view.at)) else {
            return Ok(());
        };
        let Some(state) = convergence::state(id, converges, more, told) else { return Ok(()) };
        let folder = folder.make_folders(CONVERGENCE, false)?;
        self.clean(&folder)?;
        if let Some(raised) = convergence::transition(id, converges, told) {
            write(&folder, convergence::TRANSITION, &raised)?;
        }
        if let Some(scope) = convergence::scope(id, converges, told) {
            write(&folder, convergence::SCOPE, &scope)?;
        }
        write(&folder, convergence::STATE, &state)
    }
}

/// The artifacts that a step is to give, and what its source says they are.
fn declared(step: &Step) -> Vec<(&ArtifactName, Option<String>)> {
    match &step.kind {
        Kind::Work(work) => work.gives.iter().map(|gives| (&gives.name, gives.kind.clone())).collect(),
        Kind::Call(call) => call.exports.iter().map(|export| (&export.name, None)).collect(),
        _ => Vec::new(),
    }
}

fn text<T: Serialize>(value: &T) -> Vec<u8> {
    let text = serde_json::to_string_pretty(value).expect("what a context holds is plain data");
    let mut text = escape_invisible(&text).into_owned().into_bytes();
    text.push(b'\n');
    text
}

fn is(root: &Root, name: &str, text: &[u8]) -> bool {
    root.read(Path::new(name), FILE_BYTES).is_ok_and(|found| found == text)
}

fn write<T: Serialize>(root: &Root, name: &str, value: &T) -> Result<(), PathError> {
    let text = text(value);
    if is(root, name, &text) { Ok(()) } else { root.replace(name, &text) }
}
