//! Who uses what: the steps of the project's workflows, and the files of a catalog that name one another.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::ir::{Approver, Kind, Scope, Step, Work, Worker, Workflow};
use skein_dialects::{Report, Sort, check};

use super::{Entry, has_versions, plain};
use crate::{find, project::OnDisk};

/// One place where something is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// What names it: a workflow, or something else of the catalog.
    pub sort: Sort,
    pub by: String,
    pub step: Option<String>,
    /// The file, as people are shown it.
    pub file: String,
    pub line: usize,
    /// The one major version that is meant.
    major: Option<String>,
}

/// All uses, by what is used.
#[derive(Debug, Default)]
pub struct Uses(BTreeMap<(Sort, String), BTreeSet<Use>>);

impl Uses {
    /// Looks at every workflow below the project's root, and at everything in its catalog.
    pub fn of(project: &OnDisk) -> Uses {
        let mut uses = Uses::default();
        for sort in [Sort::Tool, Sort::Driver, Sort::Action, Sort::Routine, Sort::Agent, Sort::Governance] {
            project.shelf(sort).entries().iter().for_each(|entry| uses.add_entry(entry, project));
        }
        for path in find::sources(&project.root).files {
            let Ok(source) = project.source(&path) else { continue };
            let report = check(source.clone(), project);
            if let Some(workflow) = &report.workflow {
                Walk { uses: &mut uses, report: &report, workflow, file: &source.name, project }.workflow();
            }
        }
        uses
    }

    pub fn get(&self, entry: &Entry) -> Vec<&Use> {
        let names = [Some(&entry.name), entry.also.as_ref()].into_iter().flatten();
        let all: BTreeSet<&Use> =
            names.filter_map(|name| self.0.get(&(entry.sort, plain(entry.sort, name)))).flatten().collect();
        let meant = |used: &&Use| used.major.is_none() || used.major.as_deref() == entry.major();
        all.into_iter().filter(meant).collect()
    }

    fn add_entry(&mut self, entry: &Entry, project: &OnDisk) {
        for (sort, name) in &entry.names {
            let (file, line) = (project.shown(&entry.path), entry.at.line);
            let used = Use { sort: entry.sort, by: entry.name.clone(), step: None, file, line, major: None };
            self.add(*sort, name, used);
        }
    }

    fn add(&mut self, sort: Sort, name: &str, used: Use) {
        let major = name.rsplit_once('@').map(|(_, major)| major.to_owned());
        let used = Use { major: major.filter(|_| has_versions(sort)), ..used };
        self.0.entry((sort, plain(sort, name))).or_default().insert(used);
    }
}

/// One workflow, from its first step to its last.
struct Walk<'a> {
    uses: &'a mut Uses,
    report: &'a Report,
    workflow: &'a Workflow,
    file: &'a str,
    project: &'a OnDisk,
}

impl Walk<'_> {
    fn workflow(&mut self) {
        let workflow = self.workflow;
        for module in &workflow.context.modules {
            self.add(Sort::Context, module.strip_prefix("ctx:").unwrap_or(module), None);
        }
        let domains = workflow.labels.get("domainsInvolved").and_then(|list| list.as_array());
        for domain in domains.into_iter().flatten().filter_map(|domain| domain.as_str()) {
            self.add(Sort::Domain, domain, None);
        }
        let mut open: Vec<&Scope> = vec![&workflow.scope];
        while let Some(scope) = open.pop() {
            for step in &scope.steps {
                self.step(step);
                open.extend(step.kind.scopes().into_iter().map(|inner| &**inner));
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match &step.kind {
            Kind::Work(work) => self.work(step, work),
            Kind::Gate(gate) => {
                let roles = gate.approvers.iter().filter_map(|approver| match approver {
                    Approver::Role(role) => Some(role),
                    Approver::User(_) => None,
                });
                roles.for_each(|role| self.add(Sort::Role, role, Some(step)));
            }
            Kind::Call(call) => {
                let path = self.project.root.join(&call.workflow);
                let called = self.project.workflows().iter().find(|named| named.path == path);
                if let Some(name) = called.map(|named| named.name.clone()) {
                    self.add(Sort::Workflow, &name, Some(step));
                }
            }
            _ => {}
        }
        if let Some(undo) = &step.undo {
            self.work(step, &undo.work);
        }
    }

    fn work(&mut self, step: &Step, work: &Work) {
        work.isolation.secrets.iter().for_each(|name| self.add(Sort::Secret, name, Some(step)));
        let check = work.check.as_ref().map(|check| &check.worker);
        let summary = work.summary.as_ref().map(|summary| &summary.worker);
        for worker in [Some(&work.worker), check, summary].into_iter().flatten() {
            match worker {
                Worker::Agent { name, tools, .. } => {
                    name.iter().for_each(|name| self.add(Sort::Agent, name, Some(step)));
                    let skills = tools.iter().filter_map(|tool| tool.strip_prefix("skill:"));
                    skills.for_each(|skill| self.add(Sort::Skill, skill, Some(step)));
                    let servers = tools.iter().filter_map(|tool| tool.strip_prefix("mcp:"));
                    servers.for_each(|server| self.add(Sort::Server, server, Some(step)));
                }
                Worker::Tool { tool, pinned } => {
                    self.add(Sort::Tool, tool, Some(step));
                    pinned.iter().for_each(|driver| self.add(Sort::Driver, driver, Some(step)));
                }
                Worker::Action { action, pinned } => {
                    self.add(Sort::Action, action, Some(step));
                    pinned.iter().for_each(|driver| self.add(Sort::Driver, driver, Some(step)));
                }
                Worker::Command { .. } | Worker::Script { .. } => {}
            }
        }
    }

    fn add(&mut self, sort: Sort, name: &str, step: Option<&Step>) {
        let line = step.and_then(|step| self.report.position(&step.id)).map_or(1, |at| at.line);
        let used = Use {
            sort: Sort::Workflow,
            by: self.workflow.id.to_string(),
            step: step.map(|step| step.id.to_string()),
            file: self.file.to_owned(),
            line,
            major: None,
        };
        self.uses.add(sort, name, used);
    }
}
