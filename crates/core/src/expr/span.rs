//! Owns positions in expression text. Does not know lines, columns or files.

use serde::{Deserialize, Serialize};

/// Byte offsets, start inclusive and end exclusive, into the text that was parsed.
///
/// Encoded as `[start, end]`. Both are zero for a node built by a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct ExprSpan {
    pub start: u32,
    pub end: u32,
}

impl ExprSpan {
    /// Creates a span. Offsets past the four gigabytes that a span can express are clamped; texts are far shorter.
    pub fn new(start: usize, end: usize) -> Self {
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        ExprSpan { start: clamp(start), end: clamp(end) }
    }

    pub fn extend_to(self, other: ExprSpan) -> Self {
        ExprSpan { start: self.start, end: other.end }
    }

    /// The part of `text` that this span covers, if it lies within `text` and between characters.
    pub fn slice_text(self, text: &str) -> Option<&str> {
        text.get(self.start as usize..self.end as usize)
    }
}

impl From<(u32, u32)> for ExprSpan {
    fn from((start, end): (u32, u32)) -> Self {
        ExprSpan { start, end }
    }
}

impl From<ExprSpan> for (u32, u32) {
    fn from(span: ExprSpan) -> Self {
        (span.start, span.end)
    }
}

impl std::fmt::Display for ExprSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
