//! Checks access to secrets, as far as a source and its project allow.
//!
//! Owns the diagnostics about secrets that are restricted to other tools or workflows. If a secret names roles or
//! users, only the run can decide.

use std::collections::BTreeMap;

use skein_core::{
    expr::ExprSpan,
    ir::{Step, StepKindSpec, StepScope, WorkSpec, WorkerSpec},
    secret_name::to_slug,
};

use crate::{
    catalog::{Project, SecretDeclaration, SecretPrincipal, read_secrets, read_tool},
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    lowering::LoweredSource,
};

/// Refuses secrets that no run of the workflow could get.
pub(crate) fn check_secret_access(lowered: &LoweredSource, project: &dyn Project, sink: &mut DiagnosticSink) {
    let mut described: Option<BTreeMap<String, SecretDeclaration>> = None;
    let mut open: Vec<&StepScope> = vec![&lowered.workflow.scope];
    while let Some(scope) = open.pop() {
        for step in &scope.steps {
            open.extend(step.kind.inner_scopes().into_iter().map(|inner| &**inner));
            for work in step_works(step) {
                let asked = requested_secrets(work, project);
                if asked.is_empty() {
                    continue;
                }
                let known = described.get_or_insert_with(|| read_all_secrets(project));
                let refused = asked.iter().filter_map(|name| known.get(&to_slug(name)));
                let refused =
                    refused.filter(|secret| secret.is_never_for(tool_name(work), lowered.workflow.id.as_str()));
                refused.for_each(|secret| sink.push(diagnose_refused_secret(lowered, step, secret, sink)));
            }
        }
    }
}

fn step_works(step: &Step) -> impl Iterator<Item = &WorkSpec> {
    let own = match &step.kind {
        StepKindSpec::Work(work) => Some(&**work),
        _ => None,
    };
    own.into_iter().chain(step.undo.iter().map(|undo| &undo.work))
}

/// Reads the secrets that a project describes. Errors in the files are reported where they are checked.
fn read_all_secrets(project: &dyn Project) -> BTreeMap<String, SecretDeclaration> {
    let files = project.secret_sources().into_iter();
    let read = files.flat_map(|source| read_secrets(source).unwrap_or_default());
    read.map(|secret| (secret.slug.clone(), secret)).collect()
}

/// Returns the secrets of the step and of its tool.
fn requested_secrets(work: &WorkSpec, project: &dyn Project) -> Vec<String> {
    let described = tool_name(work).and_then(|name| project.find_tool(name));
    let of_tool = described.and_then(|source| read_tool(source, project).ok()).map(|tool| tool.secrets);
    work.isolation.secrets.iter().cloned().chain(of_tool.unwrap_or_default()).collect()
}

fn tool_name(work: &WorkSpec) -> Option<&str> {
    match &work.worker {
        WorkerSpec::Tool { tool, .. } => Some(tool),
        _ => None,
    }
}

fn diagnose_refused_secret(
    lowered: &LoweredSource,
    step: &Step,
    secret: &SecretDeclaration,
    sink: &DiagnosticSink,
) -> Diagnostic {
    let node = lowered.places.step_node(&step.id);
    let (source, span) = match &node {
        Some(node) => (node.source(), node.first_line_span()),
        None => (&sink.source, ExprSpan::new(0, 0)),
    };
    let message = format!("`{}` may not use the secret `{}`: it is restricted to others", step.id, secret.slug);
    let who: Vec<String> = secret.reveal.iter().flatten().map(ToString::to_string).collect();
    let hint = match who.is_empty() {
        true => "`access.reveal` in SECRETS.md names nobody".to_owned(),
        false => format!("`access.reveal` in SECRETS.md names {}", who.join(", ")),
    };
    Diagnostic::new(Code::SecretRefused, source, span, message).with_hint(hint)
}

impl SecretDeclaration {
    /// True if no principal that starts a run could get it.
    fn is_never_for(&self, tool: Option<&str>, workflow: &str) -> bool {
        let may = |one: &SecretPrincipal| match one {
            SecretPrincipal::Role(_) | SecretPrincipal::User(_) => true,
            SecretPrincipal::Tool(_) | SecretPrincipal::Workflow(_) | SecretPrincipal::Cap(_) => {
                one.matches(tool, workflow)
            }
        };
        self.reveal.as_ref().is_some_and(|reveal| !reveal.iter().any(may))
    }
}
