//! Tests the limit on diagnostics of one code: the number of omitted ones is correct, wherever they come from.

use std::{fmt::Write, sync::Arc};

use skein_dialects::{Project, SourceFile, WorkflowNotFound, WorkflowReference, check_source};

/// Builds a workflow of steps that each depend on an unknown step.
fn lost(steps: usize) -> String {
    let mut text = "name: lost\nversion: \"1\"\ntimeout: 1h\nsteps:\n".to_owned();
    for i in 0..steps {
        let step = "worker: CUSTOM, instructions: make, capabilities: [READ]";
        writeln!(text, "  s{i}: {{{step}, depends_on: [nobody-{i}]}}").expect("a string can be written to");
    }
    text
}

struct Called(Arc<SourceFile>);

impl Project for Called {
    fn resolve_workflow(&self, _: &SourceFile, _: WorkflowReference<'_>) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        Ok(self.0.clone())
    }
}

fn said(source: Arc<SourceFile>, project: &dyn Project) -> (usize, Vec<String>) {
    let diagnostics = check_source(source, project).diagnostics;
    let (more, shown): (Vec<_>, Vec<_>) =
        diagnostics.iter().partition(|diagnostic| diagnostic.message.contains("not shown"));
    (shown.len(), more.into_iter().map(|diagnostic| diagnostic.message.clone()).collect())
}

#[test]
fn what_the_plan_did_not_keep_is_counted_once() {
    let of = |steps| said(SourceFile::new("lost.yaml", lost(steps)), &());
    assert_eq!(of(50), (50, Vec::new()));
    assert_eq!(of(51), (50, vec!["1 more of these are not shown".to_owned()]));
    assert_eq!(of(120), (50, vec!["70 more of these are not shown".to_owned()]));
}

#[test]
fn so_it_is_of_a_workflow_that_is_called() {
    let caller = "name: caller\nversion: \"1\"\ntimeout: 1h\nsteps:\n  only:\n    workflow: lost.yaml\n";
    let project = Called(SourceFile::new("lost.yaml", lost(120)));
    let of = said(SourceFile::new("caller.yaml", caller), &project);
    assert_eq!(of, (50, vec!["70 more of these are not shown".to_owned()]));
}
