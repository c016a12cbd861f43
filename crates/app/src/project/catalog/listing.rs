//! A listing of the catalog: the entries that workflows can name, their problems, and their uses by steps of the project's
//! workflows and by other entries.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use skein_core::{
    ir::{Approver, Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec, Workflow},
    suggest::find_closest_name,
};
use skein_dialects::{CatalogKind, Diagnostic, SourceReport, check_source, render};

use crate::{
    app_error::AppError,
    project::{
        DiskProject,
        catalog::{CatalogEntry, check, has_versions, normalize_name},
        sources,
    },
};

/// The entries of a catalog, by kind.
#[derive(Debug)]
pub struct CatalogListing {
    pub project: DiskProject,
    pub kinds: Vec<CatalogKind>,
    /// The name of the entries; none: all entries.
    name: Option<String>,
    pub uses: CatalogUses,
    pub problems: Vec<Diagnostic>,
}

/// Lists the entries of a kind, or of all kinds, or finds those with a name. A word that is no kind is a name.
pub(crate) fn list_catalog(
    project: DiskProject,
    kind: Option<&str>,
    name: Option<&str>,
) -> Result<CatalogListing, AppError> {
    let all = CatalogKind::ALL.to_vec();
    match (kind.map(|word| (word, parse_kind(word))), name) {
        (None, _) => Ok(list_entries(project, all)),
        (Some((_, Some(kind))), None) => Ok(list_entries(project, vec![kind])),
        (Some((_, Some(kind))), Some(name)) => find_entries(project, vec![kind], name),
        // A name alone is looked up in all kinds.
        (Some((name, None)), None) => find_entries(project, all, name),
        (Some((word, None)), Some(_)) => {
            let words = CatalogKind::ALL.iter().map(|kind| kind.singular_and_plural().1);
            let hint = find_closest_name(word, words.clone()).map(|near| format!("did you mean `{near}`?"));
            let hint = hint.unwrap_or_else(|| format!("known kinds: {}", words.collect::<Vec<_>>().join(", ")));
            Err(AppError::usage(format!("unknown kind `{word}`")).with_hint(hint))
        }
    }
}

fn parse_kind(word: &str) -> Option<CatalogKind> {
    let mut all = CatalogKind::ALL.into_iter();
    all.find(|kind| kind.singular_and_plural().0 == word || kind.singular_and_plural().1 == word)
}

fn list_entries(project: DiskProject, kinds: Vec<CatalogKind>) -> CatalogListing {
    let uses = CatalogUses::collect_uses(&project);
    let problems = kinds.iter().flat_map(|kind| check::check_kind(&project, *kind)).collect();
    CatalogListing { project, kinds, name: None, uses, problems }
}

fn find_entries(project: DiskProject, kinds: Vec<CatalogKind>, name: &str) -> Result<CatalogListing, AppError> {
    let found: Vec<&CatalogEntry> = kinds.iter().filter_map(|kind| project.shelf(*kind).find_newest(name)).collect();
    if found.is_empty() {
        return Err(refuse_missing(&project, &kinds, name));
    }
    let uses = CatalogUses::collect_uses(&project);
    let problems = found.iter().flat_map(|entry| check::check_entry(&project, entry)).collect();
    Ok(CatalogListing { name: Some(name.to_owned()), uses, problems, kinds, project })
}

fn refuse_missing(project: &DiskProject, kinds: &[CatalogKind], name: &str) -> AppError {
    let known: Vec<String> = kinds.iter().flat_map(|kind| project.shelf(*kind).known_names()).collect();
    let what = if let [only] = kinds { only.singular_and_plural().0 } else { "name" };
    let hint = find_closest_name(name, known.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
    let hint = hint.unwrap_or_else(|| "`skein catalog` lists all entries".to_owned());
    AppError::refused(format!("there is no {what} `{name}` in the project")).with_hint(hint)
}

impl CatalogListing {
    /// Returns true if the listing is of one name.
    pub fn is_of_name(&self) -> bool {
        self.name.is_some()
    }

    /// Returns the entries of a kind.
    pub fn entries(&self, kind: CatalogKind) -> Vec<&CatalogEntry> {
        let shelf = self.project.shelf(kind);
        match &self.name {
            Some(name) => shelf.find_newest(name).into_iter().collect(),
            None => shelf.entries().iter().collect(),
        }
    }

    pub fn to_json(&self) -> Value {
        let entries = self.kinds.iter().flat_map(|kind| self.entries(*kind));
        let entries: Vec<Value> = entries.map(|entry| self.entry_to_json(entry)).collect();
        let problems: Vec<Value> = self.problems.iter().map(render::render_json).collect();
        json!({"entries": entries, "problems": problems})
    }

    fn entry_to_json(&self, entry: &CatalogEntry) -> Value {
        let use_to_json = |used: &&CatalogUse| {
            json!({"sort": used.sort.singular_and_plural().0, "name": used.by, "step": used.step,
                   "file": used.file, "line": used.line})
        };
        let name_to_json =
            |(kind, name): &(CatalogKind, String)| json!({"sort": kind.singular_and_plural().0, "name": name});
        json!({
            "sort": entry.sort.singular_and_plural().0,
            "name": entry.name,
            "also": entry.also,
            "version": entry.version,
            "kind": entry.kind,
            "description": entry.description,
            "file": self.project.display_path(&entry.path),
            "line": entry.at.line,
            "column": entry.at.column,
            "names": entry.names.iter().map(name_to_json).collect::<Vec<_>>(),
            "used_by": self.uses.find_uses(entry).iter().map(use_to_json).collect::<Vec<_>>(),
        })
    }
}

/// One place that names an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CatalogUse {
    /// The kind of the user: a workflow, or another entry of the catalog.
    pub sort: CatalogKind,
    pub by: String,
    pub step: Option<String>,
    /// The file, as shown to people.
    pub file: String,
    pub line: usize,
    /// The major version that is named, if any.
    major: Option<String>,
}

/// All uses, by the entry that is used.
#[derive(Debug, Default)]
pub struct CatalogUses(BTreeMap<(CatalogKind, String), BTreeSet<CatalogUse>>);

impl CatalogUses {
    /// Collects the uses in all workflows below the project's root, and in all entries of its catalog.
    pub(crate) fn collect_uses(project: &DiskProject) -> CatalogUses {
        let mut uses = CatalogUses::default();
        for sort in [
            CatalogKind::Tool,
            CatalogKind::Driver,
            CatalogKind::Action,
            CatalogKind::Routine,
            CatalogKind::Agent,
            CatalogKind::Governance,
        ] {
            project.shelf(sort).entries().iter().for_each(|entry| uses.add_entry(entry, project));
        }
        for path in sources::find_sources(&project.root).files {
            let Ok(source) = project.read_source(&path) else { continue };
            let report = check_source(source.clone(), project);
            if let Some(workflow) = &report.workflow {
                WorkflowUseCollector { uses: &mut uses, report: &report, workflow, file: &source.name, project }
                    .collect_workflow();
            }
        }
        uses
    }

    pub fn find_uses(&self, entry: &CatalogEntry) -> Vec<&CatalogUse> {
        let names = [Some(&entry.name), entry.also.as_ref()].into_iter().flatten();
        let all: BTreeSet<&CatalogUse> =
            names.filter_map(|name| self.0.get(&(entry.sort, normalize_name(entry.sort, name)))).flatten().collect();
        let matching = |used: &&CatalogUse| used.major.is_none() || used.major.as_deref() == entry.major_version();
        all.into_iter().filter(matching).collect()
    }

    fn add_entry(&mut self, entry: &CatalogEntry, project: &DiskProject) {
        for (sort, name) in &entry.names {
            let (file, line) = (project.display_path(&entry.path), entry.at.line);
            let used = CatalogUse { sort: entry.sort, by: entry.name.clone(), step: None, file, line, major: None };
            self.add_use(*sort, name, used);
        }
    }

    fn add_use(&mut self, sort: CatalogKind, name: &str, used: CatalogUse) {
        let major = name.rsplit_once('@').map(|(_, major)| major.to_owned());
        let used = CatalogUse { major: major.filter(|_| has_versions(sort)), ..used };
        self.0.entry((sort, normalize_name(sort, name))).or_default().insert(used);
    }
}

/// Collects the uses of one workflow.
struct WorkflowUseCollector<'a> {
    uses: &'a mut CatalogUses,
    report: &'a SourceReport,
    workflow: &'a Workflow,
    file: &'a str,
    project: &'a DiskProject,
}

impl WorkflowUseCollector<'_> {
    fn collect_workflow(&mut self) {
        let workflow = self.workflow;
        for module in &workflow.context.modules {
            self.record_use(CatalogKind::Context, module.strip_prefix("ctx:").unwrap_or(module), None);
        }
        for domain in workflow.extensions.resource.iter().flat_map(|resource| &resource.domains) {
            self.record_use(CatalogKind::Domain, domain, None);
        }
        let mut open: Vec<&StepScope> = vec![&workflow.scope];
        while let Some(scope) = open.pop() {
            for step in &scope.steps {
                self.collect_step(step);
                open.extend(step.kind.inner_scopes().into_iter().map(|inner| &**inner));
            }
        }
    }

    fn collect_step(&mut self, step: &Step) {
        match &step.kind {
            StepKindSpec::Work(work) => self.collect_work(step, work),
            StepKindSpec::Gate(gate) => {
                let roles = gate.approvers.iter().filter_map(|approver| match approver {
                    Approver::Role(role) => Some(role),
                    Approver::User(_) => None,
                });
                roles.for_each(|role| self.record_use(CatalogKind::Role, role, Some(step)));
            }
            StepKindSpec::Call(call) => {
                let path = self.project.root.join(&call.workflow);
                let called = self.project.workflows().iter().find(|named| named.path == path);
                if let Some(name) = called.map(|named| named.name.clone()) {
                    self.record_use(CatalogKind::Workflow, &name, Some(step));
                }
            }
            _ => {}
        }
        if let Some(undo) = &step.undo {
            self.collect_work(step, &undo.work);
        }
    }

    fn collect_work(&mut self, step: &Step, work: &WorkSpec) {
        work.isolation.secrets.iter().for_each(|name| self.record_use(CatalogKind::Secret, name, Some(step)));
        let check = work.check.as_ref().map(|check| &check.worker);
        let summary = work.summary.as_ref().map(|summary| &summary.worker);
        for worker in [Some(&work.worker), check, summary].into_iter().flatten() {
            match worker {
                WorkerSpec::Agent { name, tools, .. } => {
                    name.iter().for_each(|name| self.record_use(CatalogKind::Agent, name, Some(step)));
                    let skills = tools.iter().filter_map(|tool| tool.strip_prefix("skill:"));
                    skills.for_each(|skill| self.record_use(CatalogKind::Skill, skill, Some(step)));
                    let servers = tools.iter().filter_map(|tool| tool.strip_prefix("mcp:"));
                    servers.for_each(|server| self.record_use(CatalogKind::Server, server, Some(step)));
                }
                WorkerSpec::Tool { tool, pinned } => {
                    self.record_use(CatalogKind::Tool, tool, Some(step));
                    pinned.iter().for_each(|driver| self.record_use(CatalogKind::Driver, driver, Some(step)));
                }
                WorkerSpec::Action { action, pinned } => {
                    self.record_use(CatalogKind::Action, action, Some(step));
                    pinned.iter().for_each(|driver| self.record_use(CatalogKind::Driver, driver, Some(step)));
                }
                WorkerSpec::Command { .. } | WorkerSpec::Script { .. } => {}
            }
        }
    }

    fn record_use(&mut self, sort: CatalogKind, name: &str, step: Option<&Step>) {
        let line = step.and_then(|step| self.report.step_position(&step.id)).map_or(1, |at| at.line);
        let used = CatalogUse {
            sort: CatalogKind::Workflow,
            by: self.workflow.id.to_string(),
            step: step.map(|step| step.id.to_string()),
            file: self.file.to_owned(),
            line,
            major: None,
        };
        self.uses.add_use(sort, name, used);
    }
}
