//! A splitter of a stream into lines of bounded length.
//!
//! Owns the limit. Holds at most one line, and does not know its content.

use skein_core::limits;

/// The maximum length of a line. A longer line is no event of any agent.
const LINE: usize = limits::AGENT_EVENT_BYTES;

#[derive(Debug, Default)]
pub struct LineSplitter {
    line: Vec<u8>,
    /// True while the rest of a line that was too long is skipped.
    over: bool,
}

/// A line of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamLine<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl LineSplitter {
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(StreamLine<'_>)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            self.append_part(&rest[..at]);
            self.emit_line(&mut each);
            rest = &rest[at + 1..];
        }
        self.append_part(rest);
    }

    /// Ends the stream. The last line may have no line feed.
    pub fn finish(&mut self, mut each: impl FnMut(StreamLine<'_>)) {
        if self.over || !self.line.is_empty() {
            self.emit_line(&mut each);
        }
    }

    fn append_part(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > LINE {
            self.over = true;
            self.line = Vec::new();
        }
        if !self.over {
            self.line.extend_from_slice(part);
        }
    }

    fn emit_line(&mut self, each: &mut impl FnMut(StreamLine<'_>)) {
        each(if self.over { StreamLine::TooLong } else { StreamLine::Whole(&self.line) });
        self.over = false;
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<Option<String>> {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        let told = |line: StreamLine<'_>| match line {
            StreamLine::Whole(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            StreamLine::TooLong => None,
        };
        for piece in pieces {
            lines.push(piece, |line| found.push(told(line)));
        }
        lines.finish(|line| found.push(told(line)));
        found
    }

    #[test]
    fn pieces_change_nothing() {
        let wanted = vec![Some("one".to_owned()), Some(String::new()), Some("two".to_owned())];
        assert_eq!(all(&[b"one\n\ntwo"]), wanted);
        assert_eq!(all(&[b"o", b"ne\n", b"\nt", b"wo", b"\n"]), wanted);
        assert_eq!(all(&[]), Vec::new());
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_not_kept() {
        let long = vec![b'x'; LINE / 2 + 1];
        let found = all(&[b"a\n", &long, &long, &long, b"\nb\n"]);
        assert_eq!(found, [Some("a".to_owned()), None, Some("b".to_owned())]);
    }
}
