//! Tests misspelt fields: a source is lowered once, however deep its misspelt fields are nested.

use std::{cell::Cell, sync::Arc};

use skein_dialects::{Project, SourceFile, WorkflowNotFound, WorkflowReference, check_source};

/// A project without workflows that counts how often one is looked up.
#[derive(Default)]
struct CountingProject(Cell<usize>);

impl Project for CountingProject {
    fn resolve_workflow(&self, _: &SourceFile, _: WorkflowReference<'_>) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        self.0.set(self.0.get() + 1);
        Err(WorkflowNotFound { why: "there are none".to_owned(), known: Vec::new() })
    }
}

/// Builds an AIP-15 workflow with a step that calls another one, inside this many loops. Every field that can be
/// misspelt is.
fn nested_loops(depth: usize) -> String {
    let mut text = "---\nname: Deep\nid: deep\ndescription: Loops in loops.\nversion: 1.0.0\ninputs: {type: object}\n\
                    outputs: {type: object}\nstpes: "
        .to_owned();
    for level in 0..depth {
        text += &format!("[{{idd: loop-{level}, knd: loop, whle: 'true', max_iteratons: 2, stesp: ");
    }
    text += "[{id: call, kind: subworkflow, workfow: other}]";
    text += &"}]".repeat(depth);
    text + "\n---\n"
}

#[test]
fn a_source_with_misspelt_fields_is_lowered_once() {
    for depth in [0, 1, 5, 9] {
        let project = CountingProject::default();
        let report = check_source(SourceFile::new("WORKFLOW.md", nested_loops(depth)), &project);
        let messages: Vec<&str> = report.diagnostics.iter().map(|diagnostic| diagnostic.message.as_str()).collect();
        let misspelt = messages.iter().filter(|message| message.contains("has no field")).count();
        assert_eq!(misspelt, 2 + 5 * depth, "{messages:#?}");
        let others: Vec<&&str> = messages.iter().filter(|message| !message.contains("has no field")).collect();
        assert_eq!(others, [&"there is no workflow `other`: there are none"]);
        assert_eq!(project.0.get(), 1, "the step is lowered once");
    }
}

#[test]
fn many_misspelt_fields_are_counted() {
    let fields: String = (0..500).map(|number| format!("timeout{number}: 1h\n")).collect();
    let text = format!(
        "name: many\nversion: \"1\"\n{fields}steps: {{a: {{worker: CUSTOM, instructions: make, capabilities: [READ]}}}}\n"
    );
    let report = check_source(SourceFile::new("many.yaml", text), &());
    let count: usize = report.diagnostics.iter().map(|diagnostic| diagnostic.count).sum();
    assert_eq!(
        (count, report.diagnostics.len()),
        (500, 51),
        "the first is read as `timeout`, so that it is not missing"
    );
}
