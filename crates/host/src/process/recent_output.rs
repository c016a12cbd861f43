//! The most recent output of a worker, for a live display and for error messages.
//!
//! Owns a few kibibytes. Never grows, whatever the stream does.

use skein_core::limits;

use crate::terminal_escape::escape_for_terminal;

/// The number of bytes kept.
const BYTES: usize = 8 * 1024;
/// The part that an error message shows.
const TAIL_LINES: usize = 12;
const TAIL_BYTES: usize = 2 * 1024;
const LINE_BYTES: usize = 512;
/// The maximum that is passed to another worker.
const RECENT_BYTES: usize = limits::CHECK_OUTPUT_BYTES;

#[derive(Debug, Default)]
pub(super) struct RecentOutput {
    bytes: Vec<u8>,
}

/// Returns the last `most` bytes, starting at the beginning of a character if possible.
fn last_bytes(bytes: &[u8], most: usize) -> &[u8] {
    let mut from = bytes.len().saturating_sub(most);
    let near = bytes.len().min(from + 3);
    while from > 0 && from < near && (0x80..0xc0).contains(&bytes[from]) {
        from += 1;
    }
    &bytes[from..]
}

impl RecentOutput {
    pub(super) fn push(&mut self, piece: &[u8]) {
        let piece = &piece[piece.len().saturating_sub(BYTES)..];
        let over = (self.bytes.len() + piece.len()).saturating_sub(BYTES);
        self.bytes.drain(..over);
        self.bytes.extend_from_slice(piece);
    }

    /// The last complete line that is not blank.
    pub(super) fn last_line(&self) -> Option<String> {
        let end = self.bytes.iter().rposition(|b| *b == b'\n')?;
        let mut lines = self.bytes[..end].rsplit(|b| *b == b'\n');
        let line = lines.find(|line| !line.trim_ascii().is_empty())?;
        let line = line.trim_ascii_end();
        // The beginning of a line says most.
        let line = escape_for_terminal(&line[..line.len().min(LINE_BYTES)]);
        Some(line)
    }

    /// The last complete lines within a few kibibytes, safe to show.
    pub(super) fn recent_lines(&self) -> String {
        let all = self.bytes.trim_ascii_end();
        let mut bytes = last_bytes(all, RECENT_BYTES);
        if bytes.len() < all.len()
            && let Some(end) = bytes.iter().position(|b| *b == b'\n')
        {
            bytes = &bytes[end + 1..];
        }
        escape_for_terminal(bytes)
    }

    /// The last lines, safe to show.
    pub(super) fn tail_lines(&self) -> String {
        let bytes = last_bytes(self.bytes.trim_ascii_end(), TAIL_BYTES);
        let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        lines[from..].iter().map(|line| escape_for_terminal(line.trim_ascii_end())).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_is_told() {
        let mut recent = RecentOutput::default();
        assert_eq!(recent.last_line(), None);
        recent.push(b"one\ntw");
        assert_eq!(recent.last_line().as_deref(), Some("one"));
        recent.push(b"o\r\n\n  \nthree");
        assert_eq!(recent.last_line().as_deref(), Some("two"));
        recent.push(&[b'x'; 100_000]);
        assert_eq!(recent.last_line(), None);
    }

    #[test]
    fn the_tail_is_short_and_safe() {
        let mut recent = RecentOutput::default();
        for n in 0..10_000 {
            recent.push(format!("line {n} \x1b[1m\n").as_bytes());
        }
        let tail = recent.tail_lines();
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.ends_with("line 9999 \\x1b[1m"), "{tail}");
        let more = recent.recent_lines();
        assert!(more.starts_with("line ") && more.ends_with(&tail) && more.lines().count() > 100, "{more}");
        recent.push("é".repeat(100_000).as_bytes());
        assert!(recent.tail_lines().chars().all(|c| c == 'é'));
        assert!(recent.tail_lines().len() <= TAIL_BYTES);
        assert!(recent.recent_lines().len() <= RECENT_BYTES);
        assert!(recent.bytes.len() <= BYTES && recent.bytes.capacity() <= 4 * BYTES);
    }
}
