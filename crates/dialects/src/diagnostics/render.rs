//! Renders diagnostics: the source line with carets for people, an object for programs.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet};
use serde_json::{Value, json};
use skein_core::plan::Severity;

use crate::diagnostics::{Diagnostic, DiagnosticLabel, SourceFile};

/// Renders a diagnostic for people, with or without colour.
pub fn render_text(diagnostic: &Diagnostic, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let title = severity_level(diagnostic.severity).primary_title(diagnostic.message.as_str());
    let title = title.id(diagnostic.code.as_str());
    let mut main = Group::with_title(title);
    for (source, labels) in group_by_source(&diagnostic.labels) {
        // Show only the name of a source that is empty or could not be read, and of a diagnostic that stands for many.
        main = match source.text.is_empty() || diagnostic.count > 1 {
            true => main.element(Origin::path(source.name.as_str())),
            false => main.element(build_snippet(source, &labels)),
        };
    }
    let mut report = vec![];
    if let Some(hint) = &diagnostic.hint {
        match &diagnostic.fix {
            Some(fix) => {
                let source = &diagnostic.primary_label().source;
                let (part, line) = source.lines_around([fix.span].into_iter());
                let patch = Patch::new(relative_range(source.byte_range(fix.span), &part), fix.text.as_str());
                let snippet = Snippet::source(&source.text[part]).line_start(line);
                let snippet = snippet.path(source.name.as_str()).patch(patch);
                report.push(Level::HELP.secondary_title(hint.as_str()).element(snippet));
            }
            None => main = main.element(Level::HELP.message(hint.as_str())),
        }
    }
    report.insert(0, main);
    renderer.render(&report)
}

fn severity_level(severity: Severity) -> Level<'static> {
    match severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    }
}

/// Groups labels by source, the source of the problem first.
fn group_by_source(labels: &[DiagnosticLabel]) -> Vec<(&SourceFile, Vec<(usize, &DiagnosticLabel)>)> {
    let mut groups: Vec<(&SourceFile, Vec<(usize, &DiagnosticLabel)>)> = Vec::new();
    let mut seen: BTreeMap<*const SourceFile, usize> = BTreeMap::new();
    for (number, label) in labels.iter().enumerate() {
        let at = *seen.entry(Arc::as_ptr(&label.source)).or_insert_with(|| {
            groups.push((&*label.source, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push((number, label));
    }
    groups
}

fn build_snippet<'a>(
    source: &'a SourceFile,
    labels: &[(usize, &'a DiagnosticLabel)],
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    // The renderer counts the lines of its input, and most of a large source is not shown.
    let (part, line) = source.lines_around(labels.iter().map(|(_, label)| label.span));
    let annotations = labels.iter().map(|(number, label)| {
        let kind = if *number == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
        let annotation = kind.span(relative_range(source.byte_range(label.span), &part));
        match label.message.as_str() {
            "" => annotation,
            message => annotation.label(message),
        }
    });
    let annotations: Vec<_> = annotations.collect();
    Snippet::source(&source.text[part]).line_start(line).path(source.name.as_str()).annotations(annotations)
}

/// Converts a range of the source to one of a part of it.
fn relative_range(range: Range<usize>, part: &Range<usize>) -> Range<usize> {
    range.start - part.start..range.end - part.start
}

/// Renders a diagnostic for programs.
pub fn render_json(diagnostic: &Diagnostic) -> Value {
    let place = diagnostic.primary_label();
    let position = place.source.position(place.span.start);
    json!({
        "code": diagnostic.code.as_str(),
        "severity": diagnostic.severity.to_string(),
        "message": diagnostic.message,
        "file": place.source.name,
        "line": position.line,
        "column": position.column,
        "hint": diagnostic.hint,
    })
}
