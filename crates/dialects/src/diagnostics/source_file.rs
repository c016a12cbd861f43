//! A source: the name and text of one file, and its line starts. Does not know where the text comes from.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use skein_core::expr::ExprSpan;

/// One file as it was read.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The path as the user gave it, for messages.
    pub name: String,
    /// The name of the file within its project, independent of the working directory. Plans contain it, so that the
    /// same sources have the same hash.
    pub key: String,
    pub text: String,
    /// The start of each line, computed when first needed.
    lines: OnceLock<Vec<u32>>,
}

/// A line and a column, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    pub line: usize,
    pub column: usize,
}

impl SourceFile {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<SourceFile> {
        let (name, text) = (name.into(), text.into());
        Arc::new(SourceFile { key: name.clone(), name, text, lines: OnceLock::new() })
    }

    fn line_starts(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let breaks = memchr::memchr_iter(b'\n', self.text.as_bytes());
            std::iter::once(0).chain(breaks.map(|at| ExprSpan::new(at + 1, at + 1).start)).collect()
        })
    }

    /// Returns the same source with this key.
    pub fn with_key(self: Arc<SourceFile>, key: String) -> Arc<SourceFile> {
        Arc::new(SourceFile { key, ..Arc::unwrap_or_clone(self) })
    }

    pub fn position(&self, offset: u32) -> SourcePosition {
        let line = self.line_starts().partition_point(|start| *start <= offset);
        let start = self.line_starts()[line - 1] as usize;
        let before = self.text.get(start..offset as usize).unwrap_or_default();
        SourcePosition { line, column: before.chars().count() + 1 }
    }

    /// Returns the bytes that a span covers, clamped to the text and to character boundaries.
    pub fn byte_range(&self, span: ExprSpan) -> Range<usize> {
        let floor = |at: u32| {
            let mut at = (at as usize).min(self.text.len());
            while !self.text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = floor(span.start);
        start..floor(span.end).max(start)
    }

    /// Returns the whole lines that contain the spans, and the number of the first.
    pub fn lines_around(&self, spans: impl Iterator<Item = ExprSpan>) -> (Range<usize>, usize) {
        let ranges = spans.map(|span| self.byte_range(span));
        let whole = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default();
        let line_of = |at: usize| self.line_starts().partition_point(|start| *start as usize <= at);
        let first = line_of(whole.start);
        let end = self.line_starts().get(line_of(whole.end)).map_or(self.text.len(), |next| *next as usize);
        (self.line_starts()[first - 1] as usize..end, first)
    }

    pub fn slice(&self, span: ExprSpan) -> &str {
        let exact = self.text.get(span.start as usize..span.end as usize);
        exact.unwrap_or_else(|| &self.text[self.byte_range(span)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let source = SourceFile::new("a.yaml", "a: é\nb: 1\n");
        assert_eq!(source.position(0), SourcePosition { line: 1, column: 1 });
        assert_eq!(source.position(5), SourcePosition { line: 1, column: 5 });
        assert_eq!(source.position(6), SourcePosition { line: 2, column: 1 });
        assert_eq!(source.position(11), SourcePosition { line: 3, column: 1 });
    }

    #[test]
    fn a_span_outside_the_text_is_cut() {
        let source = SourceFile::new("a.yaml", "é");
        assert_eq!(source.byte_range(ExprSpan::new(1, 9)), 0..2);
        assert_eq!(source.slice(ExprSpan::new(0, 1)), "");
    }
}
