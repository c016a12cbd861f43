//! Writes a context and clears it. The artifacts of a step are written first, then its metadata, and the workflow last.
//!
//! Owns when a step has nothing new to write, so that a write for a long run continues instead of starting again. The
//! folder is not read for that: while a run holds it, only that run writes there. Clearing it for another run removes
//! the files that the earlier run wrote, and keeps all others.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use skein_core::{
    engine::{InstanceIx, LedgerEntry, StepAt, StepPaths, VisitState},
    ids::ArtifactName,
    ir::{CallSpec, OutcomeEffect, Step, StepKindSpec, StepStatus},
    view::{self, StepView},
};

use crate::{
    json_text::escape_invisible,
    workspace::{
        ArtifactForm, RootFolder, RunDir,
        artifact::{ArtifactError, KeptFile, is_copy},
        context::{
            CALLED, CONVERGENCE, ContextFolder, ContextInput, FILE_BYTES, META, STEPS, WORKFLOW,
            documents::{self, ArtifactMeta, StepMeta, SubworkflowMeta, is_over},
        },
        root::{EntryKind, FilePathError},
    },
};

impl ContextFolder {
    /// Writes all facts that have not been written yet. Files that are equal already are not changed.
    pub fn write(&self, input: &ContextInput<'_>, written: &mut WrittenSteps) -> Result<(), ArtifactError> {
        // A later state may have been written already: attempts that start together write the context in any order.
        if input.state.instances.is_empty() || input.state.events < written.events {
            return Ok(());
        }
        let names = StepPaths::from_state(&input.plan.definition, input.state);
        let mut writer = ContextWriter { input, names: &names, first: written.events == 0, written };
        writer.write_instance(&self.root, InstanceIx::ROOT, "")?;
        written.events = input.state.events;
        Ok(())
    }

    /// Removes the files of an earlier run: its metadata, and its artifacts that are unchanged. All other files stay.
    pub fn clear(&self, written: &WrittenArtifacts) -> Result<(), FilePathError> {
        clear_workflow(&self.root, written)
    }
}

struct ContextWriter<'a> {
    input: &'a ContextInput<'a>,
    names: &'a StepPaths,
    /// True for the first write of this process, which must remove partial files of a crash.
    first: bool,
    written: &'a mut WrittenSteps,
}

impl ContextWriter<'_> {
    /// Writes a workflow and its steps. `path` is the place of its context in the whole. The recursion is bounded by
    /// the maximum depth of calls.
    fn write_instance(&mut self, root: &RootFolder, ix: InstanceIx, path: &str) -> Result<(), ArtifactError> {
        let input = self.input;
        self.remove_pending(root)?;
        for at in input.instance_steps(ix) {
            let status = input.state.step_status(at);
            if !documents::has_begun(status) || self.written.is_current(input, at, status) {
                continue;
            }
            let view = view::view_step(input.plan, input.state, self.names, at);
            let folder = root.make_folders(&view.id, false)?;
            self.write_step(&folder, &view, &format!("{path}{}/", view.id))?;
            self.written.add_step(input, at, status);
        }
        write_json(root, WORKFLOW, &documents::summarize_workflow(input, self.names, ix))?;
        Ok(())
    }

    fn remove_pending(&self, folder: &RootFolder) -> Result<(), FilePathError> {
        if self.first { folder.remove_pending() } else { Ok(()) }
    }

    fn write_step(&mut self, folder: &RootFolder, view: &StepView, path: &str) -> Result<(), ArtifactError> {
        self.remove_pending(folder)?;
        let scope = self.input.state.instance(view.at.0).scope;
        let step = self.input.plan.definition.scope(scope).step(view.at.1);
        let mut meta = documents::step_meta(step, view, self.input.state.visit_state(view.at));
        if let Some(main) = self.input.ledger.find_entry(view.at).and_then(|entry| entry.main.as_ref()) {
            let seen = self.input.run.find_attempt(main.id)?.map_or(Ok(None), |files| files.load_observation())?;
            meta.worker_result = documents::worker_result(view, main, seen);
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
            let source = self.input.find_artifact_source(view.at, name)?;
            let path = source.as_ref().map_or("", |source| source.artifact.path.as_str());
            let missing = source.as_ref().is_none_or(|source| source.artifact.found == ArtifactForm::Missing);
            if documents::has_ended(view.status) {
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
            self.input.run.put_artifact_synced(from, folder, name)?;
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
        let state = self.input.state;
        let Some(child) = state.visit_state(view.at).and_then(|more| more.children.last().copied()) else {
            return Ok(None);
        };
        let path = format!("{path}{CALLED}");
        let inner = folder.make_folders(CALLED, false)?;
        self.write_instance(&inner, child, &format!("{path}/"))?;
        let instance = state.instance(child);
        let workflow = &self.input.plan.definition.workflow_containing(instance.scope).workflow;
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
        let check = documents::step_work(step).and_then(|work| work.check.as_ref());
        let Some(converges) = check.and_then(|check| check.convergence.as_ref()) else { return Ok(()) };
        let (input, id) = (self.input, step.id.as_str());
        let Some((entry, more)) = input.ledger.find_entry(view.at).zip(input.state.visit_state(view.at)) else {
            return Ok(());
        };
        let Some(state) = documents::convergence_state(id, converges, more, entry) else { return Ok(()) };
        let folder = folder.make_folders(CONVERGENCE, false)?;
        self.remove_pending(&folder)?;
        if let Some(raised) = documents::stage_transition(id, converges, entry) {
            write_json(&folder, documents::STAGE_TRANSITION, &raised)?;
        }
        if let Some(scope) = documents::scope_violation(id, converges, entry) {
            write_json(&folder, documents::SCOPE_VIOLATION, &scope)?;
        }
        write_json(&folder, documents::CONVERGENCE_STATE, &state)
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

/// The steps of a run that have ended and were written.
#[derive(Debug, Default)]
pub struct WrittenSteps {
    /// The number of events in the state that was written last. Zero if nothing has been written yet.
    events: u64,
    steps: BTreeMap<StepAt, StepSignature>,
}

/// The data from which all metadata of a step is derived.
#[derive(Debug)]
struct StepSignature {
    status: StepStatus,
    effect: Option<OutcomeEffect>,
    more: Option<Arc<VisitState>>,
    entry: Option<Arc<LedgerEntry>>,
}

impl WrittenSteps {
    /// True if a step has not changed since it was written.
    fn is_current(&self, input: &ContextInput<'_>, at: StepAt, status: StepStatus) -> bool {
        let now = input.state.step(at);
        self.steps.get(&at).is_some_and(|sign| {
            (sign.status, sign.effect) == (status, now.effect)
                && is_same(sign.more.as_ref(), now.more.as_ref())
                && is_same(sign.entry.as_ref(), input.ledger.find_entry(at))
        })
    }

    /// Records that a step was written. A step that is active, has inner steps or waits for a conflict resolver may
    /// have more to write although it does not change itself.
    fn add_step(&mut self, input: &ContextInput<'_>, at: StepAt, status: StepStatus) {
        let now = input.state.step(at);
        let kind = &input.plan.definition.scope(input.state.instance(at.0).scope).step(at.1).kind;
        let is_settled = now.more.as_ref().is_some_and(|more| more.settler.is_some());
        if !is_over(status) || is_settled || matches!(kind, StepKindSpec::Call(_)) || !kind.inner_scopes().is_empty() {
            self.steps.remove(&at);
            return;
        }
        let (more, entry) = (now.more.clone(), input.ledger.find_entry(at).cloned());
        self.steps.insert(at, StepSignature { status, effect: now.effect, more, entry });
    }
}

/// True if both are the same object, which nobody has changed.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// The files and links that a run wrote into its context folder, by their paths within an artifact.
#[derive(Debug, Default)]
pub struct WrittenArtifacts {
    files: BTreeMap<String, Vec<KeptFile>>,
    links: BTreeSet<(String, String)>,
}

impl WrittenArtifacts {
    /// Reads the artifacts that a run kept of all its attempts.
    pub fn read(run: &RunDir) -> Result<WrittenArtifacts, ArtifactError> {
        let mut written = WrittenArtifacts::default();
        for attempt in run.list_kept_attempts()? {
            for artifact in run.find_manifest(attempt)?.into_iter().flat_map(|kept| kept.artifacts) {
                for file in artifact.files {
                    written.files.entry(file.path.clone()).or_default().push(file);
                }
                written.links.extend(artifact.links.into_iter().map(|link| (link.path, link.target)));
            }
        }
        Ok(written)
    }
}

/// Clears the context of a workflow: that of a run, or of one that a step called.
fn clear_workflow(root: &RootFolder, written: &WrittenArtifacts) -> Result<(), FilePathError> {
    root.remove_pending()?;
    for entry in root.list_entries(STEPS)? {
        let name = Path::new(&entry.name);
        if entry.thing == EntryKind::Folder && root.entry_kind(name.join(META))? == Some(EntryKind::File) {
            clear_step(&root.open_folder(name)?, written)?;
            remove_empty(root, name)?;
        }
    }
    root.remove(WORKFLOW).map(drop)
}

fn clear_step(folder: &RootFolder, written: &WrittenArtifacts) -> Result<(), FilePathError> {
    folder.remove_pending()?;
    for entry in folder.list_entries(STEPS)?.into_iter().filter(|entry| entry.thing == EntryKind::Folder) {
        let name = Path::new(&entry.name);
        let inner = folder.open_folder(name)?;
        match entry.name.to_str() {
            Some(CONVERGENCE) => {
                for file in [documents::CONVERGENCE_STATE, documents::STAGE_TRANSITION, documents::SCOPE_VIOLATION] {
                    inner.remove(file)?;
                }
            }
            Some(CALLED) => clear_workflow(&inner, written)?,
            _ => clear_artifact(&inner, &PathBuf::new(), written)?,
        }
        remove_empty(folder, name)?;
    }
    folder.remove(META).map(drop)
}

/// Removes the unchanged files and links of an artifact. The recursion is bounded by the maximum depth of artifacts:
/// deeper folders were not written by Skein.
fn clear_artifact(folder: &RootFolder, within: &Path, written: &WrittenArtifacts) -> Result<(), FilePathError> {
    if within.components().count() > skein_core::limits::ARTIFACT_DEPTH {
        return Ok(());
    }
    for entry in folder.list_entries(STEPS)? {
        let (name, path) = (Path::new(&entry.name), within.join(&entry.name));
        let Some(key) = path.to_str() else { continue };
        match entry.thing {
            EntryKind::Folder => {
                clear_artifact(&folder.open_folder(name)?, &path, written)?;
                remove_empty(folder, name)?;
            }
            EntryKind::File => {
                let kept = written.files.get(key).into_iter().flatten();
                if kept.into_iter().any(|kept| is_copy(folder, name, kept)) {
                    folder.remove(name)?;
                }
            }
            EntryKind::Link => {
                let target = folder.read_link(name)?.to_string_lossy().into_owned();
                if written.links.contains(&(key.to_owned(), target)) {
                    folder.remove(name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove_empty(parent: &RootFolder, name: &Path) -> Result<(), FilePathError> {
    if parent.open_folder(name)?.list_entries(STEPS)?.is_empty() {
        parent.remove(name)?;
    }
    Ok(())
}
