//! Secrets that a step asks for and may not have, as far as a source and its project can tell.
//!
//! Owns what is said about one that is for other tools or workflows. Whoever begins a run may have it for another reason, by
//! a role or a name; then only the run can tell.

use std::collections::BTreeMap;

use skein_core::{
    expr::Span,
    ir::{Kind, Scope, Step, Work, Worker},
    secret_name::slug,
};

use crate::{
    aip15::{Principal, Secret, secrets, tool},
    code::Code,
    diagnostic::{Diagnostic, Sink},
    lowering::Lowered,
    project::Project,
};

/// Refuses what no run could have.
pub(crate) fn check(lowered: &Lowered, project: &dyn Project, sink: &mut Sink) {
    let mut described: Option<BTreeMap<String, Secret>> = None;
    let mut open: Vec<&Scope> = vec![&lowered.workflow.scope];
    while let Some(scope) = open.pop() {
        for step in &scope.steps {
            open.extend(step.kind.scopes().into_iter().map(|inner| &**inner));
            for work in works(step) {
                let asked = asked(work, project);
                if asked.is_empty() {
                    continue;
                }
                let known = described.get_or_insert_with(|| all(project));
                let refused = asked.iter().filter_map(|name| known.get(&slug(name)));
                let refused =
                    refused.filter(|secret| secret.is_never_for(of_tool(work), lowered.workflow.id.as_str()));
                refused.for_each(|secret| sink.push(say(lowered, step, secret, sink)));
            }
        }
    }
}

fn works(step: &Step) -> impl Iterator<Item = &Work> {
    let own = match &step.kind {
        Kind::Work(work) => Some(&**work),
        _ => None,
    };
    own.into_iter().chain(step.undo.iter().map(|undo| &undo.work))
}

/// The secrets that a project describes. A file that is wrong is told of where it is checked.
fn all(project: &dyn Project) -> BTreeMap<String, Secret> {
    let files = project.secrets().into_iter();
    let read = files.flat_map(|source| secrets(source).unwrap_or_default());
    read.map(|secret| (secret.slug.clone(), secret)).collect()
}

/// What the step says, and its tool.
fn asked(work: &Work, project: &dyn Project) -> Vec<String> {
    let described = of_tool(work).and_then(|name| project.tool(name));
    let of_tool = described.and_then(|source| tool(source, project).ok()).map(|tool| tool.secrets);
    work.isolation.secrets.iter().cloned().chain(of_tool.unwrap_or_default()).collect()
}

fn of_tool(work: &Work) -> Option<&str> {
    match &work.worker {
        Worker::Tool { tool, .. } => Some(tool),
        _ => None,
    }
}

fn say(lowered: &Lowered, step: &Step, secret: &Secret, sink: &Sink) -> Diagnostic {
    let node = lowered.places.node(&step.id);
    let (source, span) = match &node {
        Some(node) => (node.source(), node.mark()),
        None => (&sink.source, Span::new(0, 0)),
    };
    let message = format!("`{}` may not have the secret `{}`: it is for others", step.id, secret.slug);
    let who: Vec<String> = secret.reveal.iter().flatten().map(ToString::to_string).collect();
    let hint = match who.is_empty() {
        true => "`access.reveal` in SECRETS.md names nobody".to_owned(),
        false => format!("`access.reveal` in SECRETS.md names {}", who.join(", ")),
    };
    Diagnostic::new(Code::SecretRefused, source, span, message).hint(hint)
}

impl Secret {
    /// Whether no person could make it be for this.
    fn is_never_for(&self, tool: Option<&str>, workflow: &str) -> bool {
        let may = |one: &Principal| match one {
            Principal::Role(_) | Principal::User(_) => true,
            Principal::Tool(_) | Principal::Workflow(_) | Principal::Cap(_) => one.is(tool, workflow),
        };
        self.reveal.as_ref().is_some_and(|reveal| !reveal.iter().any(may))
    }
}
