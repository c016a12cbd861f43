//! Owns how a place inside a structured value is written: JSON pointers, RFC 6901.

/// The pointer `rest`, seen from one level further out.
pub(super) fn prepend_segment(segment: &str, rest: &str) -> String {
    format!("/{}{rest}", segment.replace('~', "~0").replace('/', "~1"))
}

/// The pointer `base`, one level further in.
pub(super) fn append_segment(base: &str, segment: &str) -> String {
    format!("{base}{}", prepend_segment(segment, ""))
}

/// The first segment in plain text, and what is left.
pub(super) fn split_first_segment(pointer: &str) -> Option<(String, &str)> {
    let tail = pointer.strip_prefix('/')?;
    let end = tail.find('/').unwrap_or(tail.len());
    let (segment, rest) = tail.split_at(end);
    Some((segment.replace("~1", "/").replace("~0", "~"), rest))
}
