//! Owns the notation of positions inside a structured value: JSON pointers, RFC 6901.

/// Prepends a segment to the pointer `rest`.
pub(super) fn prepend_segment(segment: &str, rest: &str) -> String {
    format!("/{}{rest}", segment.replace('~', "~0").replace('/', "~1"))
}

/// Appends a segment to the pointer `base`.
pub(super) fn append_segment(base: &str, segment: &str) -> String {
    format!("{base}{}", prepend_segment(segment, ""))
}

/// Returns the first segment, unescaped, and the rest.
pub(super) fn split_first_segment(pointer: &str) -> Option<(String, &str)> {
    let tail = pointer.strip_prefix('/')?;
    let end = tail.find('/').unwrap_or(tail.len());
    let (segment, rest) = tail.split_at(end);
    Some((segment.replace("~1", "/").replace("~0", "~"), rest))
}
