//! Sources in the four formats: any bytes are read or rejected, and every diagnostic can be rendered.

use std::sync::Arc;

use skein_dialects::{
    Diagnostic, Project, SourceFile, WorkflowNotFound, WorkflowReference, check_source, load_source, render,
};

/// A project in which every called workflow exists and calls itself.
struct FuzzProject;

impl Project for FuzzProject {
    fn resolve_workflow(&self, _: &SourceFile, _: WorkflowReference<'_>) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        Ok(SourceFile::new(
            "called.yaml",
            "name: x\nversion: \"1\"\ntimeout: 1m\nsteps: {a: {workflow: ./called.yaml}}\n",
        ))
    }
}

/// Loads and checks one source, under a file name of its format.
pub fn fuzz_source(name: &str, bytes: &[u8]) {
    let source = match load_source(name, Ok(bytes.to_vec())) {
        Ok(source) => source,
        Err(diagnostic) => return assert_renders(&diagnostic),
    };
    let report = check_source(source, &FuzzProject);
    assert_eq!(report.is_valid(), report.definition.is_some());
    report.diagnostics.iter().chain(&report.notes).take(8).for_each(assert_renders);
}

fn assert_renders(diagnostic: &Diagnostic) {
    assert!(!diagnostic.message.is_empty() && !diagnostic.message.contains('\n'));
    for label in &diagnostic.labels {
        let (start, end) = (label.span.start as usize, label.span.end as usize);
        assert!(label.source.text.get(start..end).is_some(), "a span outside the source");
    }
    render::render_text(diagnostic, false);
    render::render_json(diagnostic);
}
