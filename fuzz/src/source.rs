//! Sources in the four formats: whatever the bytes are, they are read or refused, and what is said can be shown.

use std::sync::Arc;

use skein_dialects::{Diagnostic, NotFound, Project, Reference, Source, check, load, render};

/// A project in which everything that is called is there, and calls itself.
struct Around;

impl Project for Around {
    fn workflow(&self, _: &Source, _: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        Ok(Source::new(
            "called.yaml",
            "name: x\nversion: \"1\"\ntimeout: 1m\nsteps: {a: {workflow: ./called.yaml}}\n",
        ))
    }
}

/// One source, under a name that is its format's.
pub fn read(name: &str, bytes: &[u8]) {
    let source = match load(name, Ok(bytes.to_vec())) {
        Ok(source) => source,
        Err(diagnostic) => return shown(&diagnostic),
    };
    let report = check(source, &Around);
    assert_eq!(report.is_valid(), report.definition.is_some());
    report.diagnostics.iter().chain(&report.notes).take(8).for_each(shown);
}

fn shown(diagnostic: &Diagnostic) {
    assert!(!diagnostic.message.is_empty() && !diagnostic.message.contains('\n'));
    for label in &diagnostic.labels {
        let (start, end) = (label.span.start as usize, label.span.end as usize);
        assert!(label.source.text.get(start..end).is_some(), "a place outside of the source");
    }
    render::human(diagnostic, false);
    render::object(diagnostic);
}
