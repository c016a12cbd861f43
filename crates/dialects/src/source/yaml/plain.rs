//! A fast path for plain YAML: block mappings and lists with values of one line.
//!
//! Most of a large source is such lines, and a parser for all of YAML reads every character of them many times.
//! Produces exactly the events of the parser. Gives up on anything that is not certainly plain and on anything that
//! needs a diagnostic: then the parser reads everything from the start, so that all diagnostics come from the parser.

use std::sync::Arc;

use skein_core::expr::ExprSpan;

use super::{
    node::{YamlText, YamlTree},
    parse::{CollectionKind, YamlTreeBuilder},
};
use crate::diagnostics::{DiagnosticSink, SourceFile};

/// The maximum length of a key here. The parser refuses keys that are much longer.
const LONGEST_KEY: usize = 255;

/// Parses the YAML in a part of a source. None if it is not all plain, or if it needs a diagnostic.
pub(super) fn parse_plain(window: ExprSpan, source: &Arc<SourceFile>) -> Option<YamlTree> {
    let mut sink = DiagnosticSink::new(source.clone());
    let mut builder = YamlTreeBuilder::new_silent(source, window, &mut sink);
    read_plain(source.slice(window), window.start, &mut builder)?;
    let is_clean = builder.is_clean();
    builder.into_tree().filter(|_| is_clean)
}

/// Reads a whole text. None if it is not plain; the contents of the builder are then useless.
fn read_plain(text: &str, start: u32, builder: &mut YamlTreeBuilder<'_>) -> Option<()> {
    let bytes = text.as_bytes();
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n');
    // Without an early exit inside of a chunk, the compiler can vectorize the loop.
    if !bytes.chunks(256).all(|some| some.iter().fold(true, |all, byte| all & is_plain(byte))) {
        return None;
    }
    let mut reader = PlainReader { text, bytes, start, at: 0, open: Vec::new(), pending: false, builder };
    while let Some(column) = reader.next_line() {
        reader.read_line(column)?;
    }
    reader.finish()
}

struct PlainReader<'t, 'b, 's> {
    text: &'t str,
    bytes: &'t [u8],
    /// The offset of the text in its source.
    start: u32,
    at: usize,
    /// The open block collections, outermost first.
    open: Vec<OpenBlock>,
    /// True if a key expects its value on the lines below it.
    pending: bool,
    builder: &'b mut YamlTreeBuilder<'s>,
}

#[derive(Clone, Copy, PartialEq)]
struct OpenBlock {
    column: usize,
    is_list: bool,
}

impl PlainReader<'_, '_, '_> {
    fn peek(&self) -> u8 {
        // The end of the text counts as a line break.
        self.bytes.get(self.at).copied().unwrap_or(b'\n')
    }

    fn peek_next(&self) -> u8 {
        self.bytes.get(self.at + 1).copied().unwrap_or(b'\n')
    }

    fn to_span(&self, from: usize, to: usize) -> ExprSpan {
        let ExprSpan { start, end } = ExprSpan::new(from, to);
        ExprSpan { start: self.start + start, end: self.start + end }
    }

    fn skip_spaces(&mut self) {
        while self.peek() == b' ' {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        if self.bytes.get(self.at) == Some(&b'\n') {
            self.at += 1;
            return;
        }
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        self.at += rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
    }

    /// Moves to the first character of the next line that is not blank or a comment. Returns its column; None at the
    /// end.
    fn next_line(&mut self) -> Option<usize> {
        while self.at < self.bytes.len() {
            let line = self.at;
            self.skip_spaces();
            match self.peek() {
                b'\n' | b'#' => self.skip_line(),
                _ => return Some(self.at - line),
            }
        }
        None
    }

    fn read_line(&mut self, column: usize) -> Option<()> {
        let line = self.at - column;
        let is_list = self.peek() == b'-' && self.peek_next() == b' ';
        self.enter_block(OpenBlock { column, is_list })?;
        if !is_list {
            return self.read_entry();
        }
        self.at += 1;
        self.skip_spaces();
        let is_entry = self.find_key_end().is_some_and(|end| is_colon(self.bytes, end));
        if is_entry {
            self.begin_block(OpenBlock { column: self.at - line, is_list: false })?;
            return self.read_entry();
        }
        self.read_value()
    }

    /// Closes the blocks that end before this line, or opens the one that begins with it.
    fn enter_block(&mut self, block: OpenBlock) -> Option<()> {
        let innermost = self.open.last().map(|open| open.column);
        let opens = match innermost {
            None => block.column == 0,
            Some(column) => self.pending && block.column > column,
        };
        if opens {
            self.pending = false;
            return self.begin_block(block);
        }
        if self.pending {
            return None;
        }
        while self.open.last().is_some_and(|open| open.column > block.column) {
            self.end_block();
        }
        (self.open.last() == Some(&block)).then_some(())
    }

    fn begin_block(&mut self, block: OpenBlock) -> Option<()> {
        self.open.push(block);
        self.begin_collection(block.is_list, self.at)
    }

    fn begin_collection(&mut self, is_list: bool, from: usize) -> Option<()> {
        let sort = if is_list { CollectionKind::List } else { CollectionKind::Map };
        self.builder.begin_collection(sort, 0, self.to_span(from, self.at));
        (self.builder.is_clean()).then_some(())
    }

    fn end_block(&mut self) {
        self.open.pop();
        self.builder.end_collection(self.to_span(self.at, self.at));
    }

    fn finish(mut self) -> Option<()> {
        if self.pending || self.open.is_empty() {
            return None;
        }
        while !self.open.is_empty() {
            self.end_block();
        }
        Some(())
    }

    /// Returns the end of the key that starts here, if it can be one.
    fn find_key_end(&self) -> Option<usize> {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let starts = rest.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let length = || rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        starts.then(length).filter(|length| *length <= LONGEST_KEY).map(|length| self.at + length)
    }

    /// Reads a key of a block mapping and the rest of its line.
    fn read_entry(&mut self) -> Option<()> {
        let end = self.find_key_end().filter(|end| is_colon(self.bytes, *end))?;
        self.add_scalar(end, true);
        self.at = end + 1;
        self.skip_spaces();
        // A space or the end of the line follows the colon, so a `#` here begins a comment.
        if matches!(self.peek(), b'\n' | b'#') {
            self.pending = true;
            self.skip_line();
            return Some(());
        }
        self.read_value()
    }

    /// Reads a value on one line, with only a comment after it.
    fn read_value(&mut self) -> Option<()> {
        match self.peek() {
            b'[' | b'{' => self.read_flow()?,
            b'"' | b'\'' => self.read_quoted()?,
            byte if starts_plain(byte) => {
                let end = self.find_plain_end()?;
                self.add_scalar(end, true);
            }
            _ => return None,
        }
        let end = self.at;
        self.skip_spaces();
        let is_over = self.peek() == b'\n' || self.peek() == b'#' && self.at > end;
        self.skip_line();
        (is_over && self.builder.is_clean()).then_some(())
    }

    /// Adds the text from here to `end` as a scalar, without its quotes.
    fn add_scalar(&mut self, end: usize, plain: bool) {
        let from = std::mem::replace(&mut self.at, end);
        let text = if plain { self.to_span(from, end) } else { self.to_span(from + 1, end - 1) };
        self.builder.add_scalar(YamlText::Verbatim(text), plain, 0, self.to_span(from, end));
    }

    /// Returns the end of unquoted text: the end of the line, or a comment.
    fn find_plain_end(&self) -> Option<usize> {
        let (mut at, mut end) = (self.at, self.at);
        loop {
            match self.bytes.get(at).copied().unwrap_or(b'\n') {
                b'\n' => return Some(end),
                b'#' if at > end => return Some(end),
                b':' if is_colon(self.bytes, at) => return None,
                b' ' => at += 1,
                _ => {
                    at += 1;
                    end = at;
                }
            }
        }
    }

    /// Reads quoted text without escapes.
    fn read_quoted(&mut self) -> Option<()> {
        let quote = self.peek();
        let inside = &self.bytes[self.at + 1..];
        let length = inside.iter().position(|byte| *byte == quote || matches!(byte, b'\n' | b'\\'))?;
        let end = self.at + 1 + length + 1;
        // Two single quotes are an escape.
        if inside[length] != quote || self.bytes.get(end) == Some(&quote) {
            return None;
        }
        self.add_scalar(end, false);
        Some(())
    }

    /// Reads a list or a mapping on one line. The builder's depth limit bounds the recursion.
    fn read_flow(&mut self) -> Option<()> {
        let (is_list, from) = (self.peek() == b'[', self.at);
        let close = if is_list { b']' } else { b'}' };
        self.at += 1;
        self.begin_collection(is_list, from)?;
        self.skip_spaces();
        while self.peek() != close {
            if !is_list {
                self.read_flow_key()?;
            }
            self.read_flow_value()?;
            self.skip_spaces();
            match self.peek() {
                b',' => self.at += 1,
                byte if byte == close => break,
                _ => return None,
            }
            self.skip_spaces();
            // Refuse a trailing comma.
            if self.peek() == close {
                return None;
            }
        }
        self.at += 1;
        self.builder.end_collection(self.to_span(self.at - 1, self.at));
        Some(())
    }

    fn read_flow_key(&mut self) -> Option<()> {
        let end = self.find_key_end().filter(|end| self.bytes.get(*end..*end + 2) == Some(b": "))?;
        self.add_scalar(end, true);
        self.at = end + 1;
        self.skip_spaces();
        Some(())
    }

    fn read_flow_value(&mut self) -> Option<()> {
        match self.peek() {
            b'[' | b'{' => self.read_flow(),
            b'"' | b'\'' => self.read_quoted(),
            byte if starts_plain(byte) => {
                let is_part = |byte: &u8| starts_plain(*byte) || matches!(byte, b' ' | b'-' | b'+' | b'*');
                let rest = &self.text[self.at..];
                let length = rest.bytes().position(|byte| !is_part(&byte)).unwrap_or(rest.len());
                self.add_scalar(self.at + rest[..length].trim_end().len(), true);
                Some(())
            }
            _ => None,
        }
    }
}

/// True if a colon ends a key here.
fn is_colon(bytes: &[u8], at: usize) -> bool {
    bytes.get(at) == Some(&b':') && matches!(bytes.get(at + 1), None | Some(b' ' | b'\n'))
}

/// True for characters that certainly start text without quotes.
fn starts_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'$' | b'(' | b')')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Parses a text with the parser. None if there are diagnostics.
    fn parsed(source: &Arc<SourceFile>) -> Option<YamlTree> {
        let mut sink = DiagnosticSink::new(source.clone());
        let mut builder = YamlTreeBuilder::new(source, whole(source), &mut sink);
        builder.parse_events();
        let tree = if builder.broken { None } else { builder.into_tree() };
        tree.filter(|_| sink.is_empty())
    }

    fn whole(source: &SourceFile) -> ExprSpan {
        ExprSpan::new(0, source.text.len())
    }

    /// True if a text is plain. Asserts that the parser then yields the same tree.
    fn agrees(text: &str) -> bool {
        let source = SourceFile::new("a.yaml", text);
        let Some(plain) = parse_plain(whole(&source), &source) else { return false };
        let parsed = parsed(&source).unwrap_or_else(|| panic!("the parser refuses {text:?}"));
        let shown = |tree: YamlTree| format!("{:?}", (tree.root, tree.nodes, tree.items, tree.entries, tree.texts));
        assert_eq!(shown(plain), shown(parsed), "{text}");
        true
    }

    #[test]
    fn plain_lines_are_read_as_the_parser_reads_them() {
        for text in [
            "a: 1",
            "a: 1\n",
            "a: 1\n\n\n",
            "# first\na: b c  # after\n  # between\nb: 'x # y'\n# last",
            "a:\n  b:\n    c: 1\n  d: 2\ne: 3\n",
            "a:\n  - b\n  - c: 1\n    d: 2\n  -   e: 1\n      f: 2\ng: h",
            "- a\n- b: c\n- http://x/y:z\n",
            "a: [b, c d, \"e f\", 'g', [h], {i: j}]  # k\nl: {m: [n], o: {p: q}}\nr: []\ns: { }\n",
            "a: x:y z#w\nb: (c) $d/e\n",
            "a:   # a comment\n    b: 1\nc: \"\"\nd: ''\n",
        ] {
            assert!(agrees(text), "{text:?} is plain");
        }
    }

    #[test]
    fn all_else_is_left_to_the_parser() {
        for text in [
            "", "\n", "a", "a:\n", "a:\nb: 1\n", "a: b: c\n", "a: b\n  c\n", "a: &x 1\n", "a: *x\n", "a: !t 1\n",
            "a: |\n  b\n", "a: >\n  b\n", "a: \"b\\n\"\n", "a: 'b''c'\n", "a: \"b\n  c\"\n", "a: [b,\n  c]\n",
            "a: [b, ]\n", "a: [b: c]\n", "a: {b}\n", "a:\n- b\n", "- - a\n", "-\n  a: 1\n", "---\na: 1\n",
            "a: 1\n...\n", "%YAML 1.2\n---\na: 1\n", "a: 1\na: 2\n", "<<: 1\n", "a: b\n c: d\n", "  a: 1\n", "a:\tb\n",
            "a: b\r\n", "\u{e9}: 1\n", "'a': 1\n", "? a\n", "a: [b\n", "a: 'b' c\n", "a: [b]c\n", "a: - b\n",
            "a: @b\n", "a: \"b\"# c\n", "a: [\"b\": c]\n",
        ] {
            assert!(!agrees(text), "{text:?} is not plain");
        }
        assert!(!agrees(&format!("{}: 1\n", "a".repeat(LONGEST_KEY + 1))));
    }

    #[test]
    fn every_source_of_ours_is_read_alike_and_so_is_each_with_some_damage() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut folders = vec![root.join("examples"), root.join("crates/dialects/tests/inputs")];
        let (mut read, mut plain) = (0, 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the folder is there") {
                let path = entry.expect("it can be read").path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(text) = std::fs::read_to_string(&path)
                    && path.extension().is_some_and(|ending| ending == "yaml" || ending == "md")
                {
                    (read, plain) = (read + 1, plain + damaged(&text));
                }
            }
        }
        assert!(read > 100 && plain > 500, "{read} sources, {plain} of them plain");
    }

    /// Checks a text, its beginning, and variants with characters removed, inserted or replaced. Returns the number of
    /// plain variants.
    fn damaged(text: &str) -> usize {
        let lines: Vec<&str> = text.lines().filter(|line| !line.ends_with(['|', '>', ':'])).collect();
        let short = lines.iter().take(30).map(|line| format!("{line}\n")).collect::<String>();
        let mut plain = usize::from(agrees(text)) + usize::from(agrees(&short));
        let places = short.char_indices().map(|(at, _)| at).step_by(1 + short.len() / 40);
        for (number, at) in places.enumerate() {
            let (before, after) = short.split_at(at);
            let rest: String = after.chars().skip(1).collect();
            let other =
                [" ", ":", "- ", "#", "\n", ",", "'", "\"", "  ", "[", "]", "{", "}", ": ", " #", "a", "&a ", "?"]
                    [number % 18];
            for text in [
                before.to_owned(),
                format!("{before}{rest}"),
                format!("{before}{other}{after}"),
                format!("{before}{other}{rest}"),
            ] {
                plain += usize::from(agrees(&text));
            }
        }
        plain
    }
}
