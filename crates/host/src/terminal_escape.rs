//! Escapes bytes of unknown origin, so that they are safe to print on a terminal.
//!
//! Owns the one rule for what is sent to a terminal: visible characters, new lines and tabs. Everything that could move
//! the cursor, colour, hide, reorder or make the terminal reply is escaped. Does not change what is stored.

use std::fmt::Write;

/// Escapes a stream that comes in pieces. A character that is split between pieces is joined again.
#[derive(Debug, Default)]
pub struct TerminalEscaper {
    /// The beginning of an incomplete character, at most three bytes.
    cut: Vec<u8>,
}

impl TerminalEscaper {
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.cut.is_empty() {
            return self.escape_bytes(bytes, out);
        }
        let mut whole = std::mem::take(&mut self.cut);
        whole.extend_from_slice(bytes);
        self.escape_bytes(&whole, out);
    }

    /// Ends the stream. An incomplete character is shown as its bytes.
    pub fn finish(&mut self, out: &mut String) {
        push_hex(&std::mem::take(&mut self.cut), out);
    }

    fn escape_bytes(&mut self, mut rest: &[u8], out: &mut String) {
        while !rest.is_empty() {
            let (good, bad, after) = match std::str::from_utf8(rest) {
                Ok(good) => (good, &rest[..0], &rest[..0]),
                Err(error) => {
                    let (good, from_bad) = rest.split_at(error.valid_up_to());
                    let good = std::str::from_utf8(good).unwrap_or_default();
                    let Some(length) = error.error_len() else {
                        push_text(good, out);
                        self.cut = from_bad.to_vec();
                        return;
                    };
                    let (bad, after) = from_bad.split_at(length);
                    (good, bad, after)
                }
            };
            push_text(good, out);
            push_hex(bad, out);
            rest = after;
        }
    }
}

fn push_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

fn push_text(good: &str, out: &mut String) {
    for c in good.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => out.push_str("\\r"),
            '\0'..='\x1f' | '\x7f' => push_hex(&[c as u8], out),
            c if c.is_control() || is_invisible(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// True for invisible characters that change the text around them: directions, joiners, separators, tags.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the bytes as text that is safe for a terminal.
pub fn escape_for_terminal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut escape = TerminalEscaper::default();
    escape.push(bytes, &mut out);
    escape.finish(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        let cases: [(&[u8], &str); 9] = [
            (b"plain\ttext\n", "plain\ttext\n"),
            ("naïve テスト 👍\n".as_bytes(), "naïve テスト 👍\n"),
            (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
            (b"\x1b]52;c;cm0=\x07", "\\x1b]52;c;cm0=\\x07"),
            (b"50%\r100%\r\n", "50%\\r100%\\r\n"),
            (b"a\0b\x7f", "a\\x00b\\x7f"),
            (b"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            ("a\u{202e}b\u{e0041}".as_bytes(), "a\\u{202e}b\\u{e0041}"),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(escape_for_terminal(bytes), wanted);
        }
    }

    /// A small generator, so that the cases are the same each time.
    fn noise(seed: &mut u64) -> u8 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as u8
    }

    #[test]
    fn no_bytes_whatever_send_a_control_code_and_pieces_change_nothing() {
        let mut seed = 7;
        for round in 0..2_000_usize {
            let mut bytes: Vec<u8> = (0..round % 97).map(|_| noise(&mut seed)).collect();
            // Half of them are close to dangerous sequences.
            if round % 2 == 0 {
                for chunk in bytes.chunks_mut(3) {
                    chunk[0] = [0x1b, 0xe2, 0xc2, 0x9b, 0x80][usize::from(chunk[0]) % 5];
                }
            }
            let whole = escape_for_terminal(&bytes);
            assert!(
                whole.chars().all(|c| (!c.is_control() && !is_invisible(c)) || matches!(c, '\n' | '\t')),
                "{whole:?}"
            );
            let (mut escape, mut pieces) = (TerminalEscaper::default(), String::new());
            for piece in bytes.chunks(1 + round % 4) {
                escape.push(piece, &mut pieces);
            }
            escape.finish(&mut pieces);
            assert_eq!(pieces, whole);
        }
    }
}
