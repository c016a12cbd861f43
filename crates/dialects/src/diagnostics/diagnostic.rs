//! Diagnostics: the errors and warnings about a source, with their places, reasons and hints.
//!
//! Owns their data and their collection. Does not know how one is shown; that is `render`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{expr::ExprSpan, plan::Severity};

use crate::diagnostics::{Code, SourceFile};

/// An error, a warning or a note about a source.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    pub code: Code,
    pub severity: Severity,
    /// One line: the problem, with the name of the thing.
    pub message: String,
    /// The first is the place of the problem; the others are related places.
    pub labels: Vec<DiagnosticLabel>,
    /// The advice to the user.
    pub hint: Option<String>,
    pub fix: Option<SuggestedFix>,
    /// The number of problems that it stands for.
    pub count: usize,
}

/// A place in a source, and the message there.
#[derive(Debug, Clone)]
pub struct DiagnosticLabel {
    pub source: Arc<SourceFile>,
    pub span: ExprSpan,
    pub message: String,
}

/// A change to the source that fixes the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedFix {
    pub span: ExprSpan,
    pub text: String,
}

impl Diagnostic {
    /// Builds a diagnostic with the severity of its code.
    pub fn new(code: Code, source: &Arc<SourceFile>, span: ExprSpan, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: code.severity(),
            message: to_one_line(message.into()),
            labels: vec![DiagnosticLabel { source: source.clone(), span, message: String::new() }],
            hint: None,
            fix: None,
            count: 1,
        }
    }

    /// Sets the message at the primary place.
    #[must_use]
    pub fn with_label(mut self, message: impl Into<String>) -> Diagnostic {
        self.labels[0].message = message.into();
        self
    }

    /// Adds another place in the same source.
    #[must_use]
    pub fn with_related(self, span: ExprSpan, message: impl Into<String>) -> Diagnostic {
        let source = self.labels[0].source.clone();
        self.with_related_in(&source, span, message)
    }

    /// Adds another place, perhaps in another source.
    #[must_use]
    pub fn with_related_in(
        mut self,
        source: &Arc<SourceFile>,
        span: ExprSpan,
        message: impl Into<String>,
    ) -> Diagnostic {
        self.labels.push(DiagnosticLabel { source: source.clone(), span, message: message.into() });
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(to_one_line(hint.into()));
        self
    }

    #[must_use]
    pub fn with_optional_hint(mut self, hint: Option<String>) -> Diagnostic {
        self.hint = hint.or(self.hint);
        self
    }

    /// Sets a change that fixes the problem.
    #[must_use]
    pub fn with_fix(mut self, span: ExprSpan, text: impl Into<String>) -> Diagnostic {
        self.fix = Some(SuggestedFix { span, text: text.into() });
        self
    }

    /// Sets a fix that replaces one word and keeps its quotes: JSON needs them.
    #[must_use]
    pub fn with_word_fix(self, span: ExprSpan, word: &str) -> Diagnostic {
        let text = match self.labels[0].source.slice(span).chars().next() {
            Some(quote @ ('"' | '\'')) => format!("{quote}{word}{quote}"),
            _ => word.to_owned(),
        };
        self.with_fix(span, text)
    }

    /// Suggests the word that was probably meant, and sets a fix that replaces the written one.
    #[must_use]
    pub fn with_suggestion(self, span: ExprSpan, near: &str) -> Diagnostic {
        self.with_hint(format!("did you mean `{near}`?")).with_word_fix(span, near)
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns the place of the problem.
    pub fn primary_label(&self) -> &DiagnosticLabel {
        &self.labels[0]
    }
}

/// Makes a text fit for one line of a terminal: names and values from a source may be long, have line breaks, or
/// contain control characters.
fn to_one_line(text: String) -> String {
    const MOST: usize = 500;
    let is_plain = text.len() <= MOST && !text.chars().any(char::is_control);
    if is_plain {
        return text;
    }
    let end = text.char_indices().nth(MOST).map(|(end, _)| end);
    let shown = text[..end.unwrap_or(text.len())].chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.chain(end.map(|_| '…')).collect()
}

/// Returns the part of a text that a message shows.
pub(crate) fn shorten_text(text: &str) -> Cow<'_, str> {
    const MOST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]).into(),
        None if line.len() < text.trim_end().len() => format!("{line}…").into(),
        None => line.into(),
    }
}

/// The maximum number of diagnostics of one code that are kept. The others are only counted.
const KEPT: usize = 50;

/// Collects the diagnostics of one source.
#[derive(Debug)]
pub struct DiagnosticSink {
    pub source: Arc<SourceFile>,
    kept: Vec<Diagnostic>,
    counts: BTreeMap<Code, usize>,
    /// The number of diagnostics of each code that were only counted, here or by the plan.
    unkept: BTreeMap<Code, usize>,
    /// The places of the diagnostics so far, by the address of the source.
    places: BTreeSet<(Code, usize, ExprSpan)>,
    errors: bool,
}

impl DiagnosticSink {
    pub fn new(source: Arc<SourceFile>) -> DiagnosticSink {
        DiagnosticSink {
            source,
            kept: Vec::new(),
            counts: BTreeMap::new(),
            unkept: BTreeMap::new(),
            places: BTreeSet::new(),
            errors: false,
        }
    }

    /// Adds a diagnostic. Drops a second one of the same code at the same place.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let DiagnosticLabel { source, span, .. } = diagnostic.primary_label();
        let place = (diagnostic.code, Arc::as_ptr(source).addr(), *span);
        if *span != ExprSpan::default() && !self.places.insert(place) {
            return;
        }
        self.errors |= diagnostic.is_error();
        let count = self.counts.entry(diagnostic.code).or_default();
        *count += 1;
        match *count <= KEPT {
            true => self.kept.push(diagnostic),
            false => self.count_omitted(diagnostic.code, 1),
        }
    }

    /// Counts diagnostics of a code that were not kept.
    pub fn count_omitted(&mut self, code: Code, more: usize) {
        *self.unkept.entry(code).or_default() += more;
    }

    pub fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        diagnostics.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }

    /// Adds the diagnostics of another sink.
    pub fn extend_from(&mut self, other: DiagnosticSink) {
        self.extend(other.kept);
        other.unkept.into_iter().for_each(|(code, more)| self.count_omitted(code, more));
    }

    /// True if more of this code would only be counted, so that it is not worth computing suggestions.
    pub fn is_full(&self, code: Code) -> bool {
        self.counts.get(&code).is_some_and(|count| *count >= KEPT)
    }

    /// Returns the starts of the places of all diagnostics in the source itself.
    pub(crate) fn label_starts(&self) -> BTreeSet<u32> {
        let places = self.kept.iter().map(Diagnostic::primary_label);
        places.filter(|place| Arc::ptr_eq(&place.source, &self.source)).map(|place| place.span.start).collect()
    }

    /// True if a part of a source contains an error.
    pub(crate) fn has_error_in(&self, source: &Arc<SourceFile>, part: ExprSpan) -> bool {
        let is_in = |place: &DiagnosticLabel| {
            Arc::ptr_eq(&place.source, source) && part.start <= place.span.start && place.span.end <= part.end
        };
        self.kept.iter().any(|diagnostic| diagnostic.is_error() && is_in(diagnostic.primary_label()))
    }

    /// True if there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn has_errors(&self) -> bool {
        self.errors
    }

    /// Returns the diagnostics in the order of the source, then those about other sources. Where some were only
    /// counted, one more gives their number.
    pub fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|diagnostic| {
            let DiagnosticLabel { source, span, .. } = diagnostic.primary_label();
            (!Arc::ptr_eq(source, &self.source), *span)
        });
        for (code, more) in self.unkept {
            let message = format!("{more} more of these are not shown");
            let rest = Diagnostic::new(code, &self.source, ExprSpan::default(), message);
            self.kept.push(Diagnostic { count: more, ..rest });
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_can_be_shown() {
        assert_eq!(to_one_line("é `x`".to_owned()), "é `x`");
        assert_eq!(to_one_line("a\nb\u{1b}[31m".to_owned()), "a\u{fffd}b\u{fffd}[31m");
        assert_eq!(to_one_line("é".repeat(501)), format!("{}…", "é".repeat(500)));
        assert_eq!(to_one_line("é".repeat(500)), "é".repeat(500));
    }

    #[test]
    fn what_is_not_kept_is_counted() {
        let source = SourceFile::new("a.yaml", "x".repeat(100));
        let mut sink = DiagnosticSink::new(source.clone());
        for i in 0..KEPT + 3 {
            assert_eq!(sink.is_full(Code::BadYaml), i >= KEPT);
            sink.push(Diagnostic::new(Code::BadYaml, &source, ExprSpan::new(i, i + 1), "no"));
        }
        sink.push(Diagnostic::new(Code::BadYaml, &source, ExprSpan::new(3, 4), "the same place"));
        let said = sink.into_diagnostics();
        assert_eq!(said.len(), KEPT + 1);
        assert_eq!(said[KEPT].message, "3 more of these are not shown");
        assert_eq!(said.iter().map(|diagnostic| diagnostic.count).sum::<usize>(), KEPT + 3);
    }
}
