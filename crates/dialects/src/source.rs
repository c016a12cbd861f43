//! A source: one file's name and text, and where its lines are. Refuses to know how the text was come by.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use skein_core::expr::Span;

/// One file as it was read.
#[derive(Debug, Clone)]
pub struct Source {
    /// What people are shown: the path as they gave it.
    pub name: String,
    /// What it is called within its project, wherever the project is looked at from. Plans hold it, so that the same
    /// sources have the same hash.
    pub key: String,
    pub text: String,
    /// Where each line starts, once something is to be shown.
    lines: OnceLock<Vec<u32>>,
}

/// A line and a column, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Source {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        let (name, text) = (name.into(), text.into());
        Arc::new(Source { key: name.clone(), name, text, lines: OnceLock::new() })
    }

    fn lines(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let breaks = memchr::memchr_iter(b'\n', self.text.as_bytes());
            std::iter::once(0).chain(breaks.map(|at| Span::new(at + 1, at + 1).start)).collect()
        })
    }

    /// The same source, under this key.
    pub fn keyed(self: Arc<Source>, key: String) -> Arc<Source> {
        Arc::new(Source { key, ..Arc::unwrap_or_clone(self) })
    }

    pub fn position(&self, offset: u32) -> Position {
        let line = self.lines().partition_point(|start| *start <= offset);
        let start = self.lines()[line - 1] as usize;
        let before = self.text.get(start..offset as usize).unwrap_or_default();
        Position { line, column: before.chars().count() + 1 }
    }

    /// The bytes that a span covers, kept within the text and between characters.
    pub fn range(&self, span: Span) -> Range<usize> {
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

    /// The whole lines that hold all of some spans, and the number of the first.
    pub fn lines_around(&self, spans: impl Iterator<Item = Span>) -> (Range<usize>, usize) {
        let ranges = spans.map(|span| self.range(span));
        let whole = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default();
        let line_of = |at: usize| self.lines().partition_point(|start| *start as usize <= at);
        let first = line_of(whole.start);
        let end = self.lines().get(line_of(whole.end)).map_or(self.text.len(), |next| *next as usize);
        (self.lines()[first - 1] as usize..end, first)
    }

    pub fn slice(&self, span: Span) -> &str {
        let exact = self.text.get(span.start as usize..span.end as usize);
        exact.unwrap_or_else(|| &self.text[self.range(span)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let source = Source::new("a.yaml", "a: é\nb: 1\n");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.position(5), Position { line: 1, column: 5 });
        assert_eq!(source.position(6), Position { line: 2, column: 1 });
        assert_eq!(source.position(11), Position { line: 3, column: 1 });
    }

    #[test]
    fn a_span_outside_the_text_is_cut() {
        let source = Source::new("a.yaml", "é");
        assert_eq!(source.range(Span::new(1, 9)), 0..2);
        assert_eq!(source.slice(Span::new(0, 1)), "");
    }
}
