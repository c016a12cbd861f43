//! The tree and its nodes: access to values and their places, and the types of scalars. Reports nothing.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
};

use serde_json::{Map, Number, Value};
use skein_core::expr::ExprSpan;

use crate::diagnostics::{Code, Diagnostic, SourceFile};

/// A document with its source. Nodes are numbered, and an alias is the number of its anchor's node, so that a tree is
/// never larger than its file.
#[derive(Debug)]
pub struct YamlTree {
    /// Each source, with the number of its first node; a node's source is the last that starts at or before it. A
    /// document has one source, or more after merging other trees.
    pub(super) sources: Vec<(u32, Arc<SourceFile>)>,
    pub(super) nodes: Vec<(ExprSpan, YamlContent)>,
    /// The contents of all lists; each list is a run of these. The same holds for `entries` of mappings.
    pub(super) items: Vec<u32>,
    pub(super) entries: Vec<YamlEntry>,
    /// Texts that do not occur verbatim in their source.
    pub(super) texts: Vec<Box<str>>,
    pub(super) root: u32,
    /// The intended names of misspelt keys, by the indexes of their entries. Readers record them while the tree is in
    /// use, so that every later lookup finds the fields. Unset in a tree without such keys.
    pub(super) corrections: OnceCell<RefCell<BTreeMap<usize, &'static str>>>,
}

impl YamlTree {
    /// The source of the document itself.
    pub fn source(&self) -> &Arc<SourceFile> {
        &self.sources[0].1
    }

    pub fn root(&self) -> YamlNode<'_> {
        self.node(self.root)
    }

    /// Returns a node by the number that [`YamlNode::number`] returned.
    pub fn node(&self, number: u32) -> YamlNode<'_> {
        YamlNode { tree: self, number }
    }

    /// Returns the intended name of the key of an entry, if it is misspelt.
    fn corrected_key(&self, index: usize) -> Option<&'static str> {
        self.corrections.get()?.borrow().get(&index).copied()
    }

    /// Returns the index of the entry whose misspelt key was meant as this one.
    fn find_corrected(&self, run: IndexRun, key: &str) -> Option<usize> {
        let corrections = self.corrections.get()?.borrow();
        corrections.range(run.range()).find(|(_, name)| **name == key).map(|(index, _)| *index)
    }

    pub(super) fn entries(&self, run: IndexRun) -> &[YamlEntry] {
        &self.entries[run.range()]
    }

    pub(super) fn text<'a>(&'a self, text: YamlText, source: &'a SourceFile) -> &'a str {
        match text {
            YamlText::Verbatim(span) => source.slice(span),
            YamlText::Own(number) => &self.texts[number as usize],
        }
    }
}

/// The content of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum YamlContent {
    Scalar {
        text: YamlText,
        /// True without quotes, so that it may be a number.
        plain: bool,
    },
    List(IndexRun),
    Map(IndexRun, KeyLengths),
}

/// A contiguous run in one of the arrays of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IndexRun {
    start: u32,
    len: u32,
}

impl IndexRun {
    /// The run from an index to the end.
    pub(crate) fn from_start<T>(start: usize, all: &[T]) -> IndexRun {
        let number = |at: usize| u32::try_from(at).expect("sources are limited");
        IndexRun { start: number(start), len: number(all.len() - start) }
    }

    /// The same run, shifted.
    pub(crate) fn shift_by(self, by: u32) -> IndexRun {
        IndexRun { start: self.start + by, ..self }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The lengths of the keys of a mapping, as bits. A lookup of an absent key nearly always ends here, because its length
/// does not occur.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeyLengths(u32);

impl KeyLengths {
    pub(crate) fn from_entries(entries: &[YamlEntry], texts: &[Box<str>]) -> KeyLengths {
        let bits = entries.iter().map(|entry| {
            KeyLengths::length_bit(match entry.key {
                YamlText::Verbatim(span) => (span.end - span.start) as usize,
                YamlText::Own(number) => texts[number as usize].len(),
            })
        });
        KeyLengths(bits.fold(0, |all, bit| all | bit))
    }

    fn length_bit(length: usize) -> u32 {
        1 << length.min(31)
    }

    fn may_have(self, key: &str) -> bool {
        self.0 & KeyLengths::length_bit(key.len()) != 0
    }
}

/// One entry of a mapping. Its key is in the source of its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct YamlEntry {
    pub key: YamlText,
    pub key_span: ExprSpan,
    pub value: u32,
}

/// The text of a scalar: nearly always a part of the source.
#[derive(Debug, Clone, Copy)]
pub(super) enum YamlText {
    Verbatim(ExprSpan),
    /// One of the tree's texts, by number.
    Own(u32),
}

/// One node of a tree.
#[derive(Debug, Clone, Copy)]
pub struct YamlNode<'a> {
    tree: &'a YamlTree,
    number: u32,
}

/// One entry of a mapping. Its key is in the source of its value.
#[derive(Debug, Clone, Copy)]
pub struct YamlField<'a> {
    pub key: &'a str,
    pub key_span: ExprSpan,
    pub value: YamlNode<'a>,
}

impl<'a> YamlNode<'a> {
    /// Builds a diagnostic about the node.
    pub fn diagnose(self, code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, self.source(), self.first_line_span(), message)
    }

    pub fn number(self) -> u32 {
        self.number
    }

    pub fn source(self) -> &'a Arc<SourceFile> {
        let sources = &self.tree.sources;
        if let [(_, only)] = sources.as_slice() {
            return only;
        }
        let after = sources.partition_point(|(first, _)| *first <= self.number);
        &sources[after.saturating_sub(1)].1
    }

    fn content(self) -> &'a YamlContent {
        &self.tree.nodes[self.number as usize].1
    }

    /// Returns its place. A collection can span many lines; [`YamlNode::first_line_span`] is better for diagnostics.
    pub fn span(self) -> ExprSpan {
        self.tree.nodes[self.number as usize].0
    }

    /// Returns the place of its first line, for diagnostics.
    pub fn first_line_span(self) -> ExprSpan {
        let span = self.span();
        let text = self.source().slice(span);
        let end = text.bytes().position(|byte| byte == b'\n').unwrap_or(text.len());
        ExprSpan { start: span.start, end: span.start + ExprSpan::new(0, text[..end].trim_end().len()).end }
    }

    /// Returns the value of a scalar. None for collections.
    pub fn scalar(self) -> Option<YamlScalar<'a>> {
        let YamlContent::Scalar { text, plain } = *self.content() else { return None };
        let text = self.tree.text(text, self.source());
        Some(if plain { resolve_scalar(text) } else { YamlScalar::Text(text) })
    }

    /// Returns the text of a scalar, without resolving its type.
    pub fn raw_text(self) -> Option<&'a str> {
        match *self.content() {
            YamlContent::Scalar { text, .. } => Some(self.tree.text(text, self.source())),
            YamlContent::List(_) | YamlContent::Map(..) => None,
        }
    }

    pub fn is_null(self) -> bool {
        self.scalar() == Some(YamlScalar::Null)
    }

    pub fn items(self) -> Option<impl ExactSizeIterator<Item = YamlNode<'a>> + Clone> {
        match *self.content() {
            YamlContent::List(run) => {
                Some(self.tree.items[run.range()].iter().map(move |number| self.tree.node(*number)))
            }
            YamlContent::Scalar { .. } | YamlContent::Map(..) => None,
        }
    }

    pub fn fields(self) -> Option<impl ExactSizeIterator<Item = YamlField<'a>> + Clone> {
        match *self.content() {
            YamlContent::Map(run, _) => Some(run.range().map(move |index| self.field_at(index))),
            YamlContent::Scalar { .. } | YamlContent::List(_) => None,
        }
    }

    fn field_at(self, index: usize) -> YamlField<'a> {
        let entry = &self.tree.entries[index];
        let value = self.tree.node(entry.value);
        let corrected = self.tree.corrected_key(index);
        let key = corrected.unwrap_or_else(|| self.tree.text(entry.key, value.source()));
        YamlField { key, key_span: entry.key_span, value }
    }

    pub fn field(self, key: &str) -> Option<YamlField<'a>> {
        let YamlContent::Map(run, lengths) = *self.content() else { return None };
        let find = || self.tree.entries(run).iter().position(|entry| self.is_key(entry, key));
        let written = if lengths.may_have(key) { find() } else { None };
        let index = written.map(|place| run.range().start + place).or_else(|| self.tree.find_corrected(run, key))?;
        Some(self.field_at(index))
    }

    /// Records the intended name of the misspelt key of the field at a place in the mapping. From here on, the field has
    /// this name.
    pub(crate) fn correct_key(self, place: usize, name: &'static str) {
        if let YamlContent::Map(run, _) = *self.content() {
            let corrections = self.tree.corrections.get_or_init(RefCell::default);
            corrections.borrow_mut().insert(run.range().start + place, name);
        }
    }

    fn is_key(self, entry: &YamlEntry, key: &str) -> bool {
        match entry.key {
            YamlText::Verbatim(span) if (span.end - span.start) as usize != key.len() => false,
            text => self.tree.text(text, self.tree.node(entry.value).source()) == key,
        }
    }

    pub fn get(self, key: &str) -> Option<YamlNode<'a>> {
        self.field(key).map(|field| field.value)
    }

    /// Returns the meaning of a field that is one of these words.
    pub fn find_word<T: Copy>(self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let word = self.get(key)?.raw_text()?;
        words.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
    }

    /// Returns its source text as the only field of a mapping. If it is in double quotes, the key is, too, as JSON
    /// requires.
    pub fn wrap_in_key(self, key: &str) -> String {
        let text = self.source().slice(self.span());
        let quote = if text.starts_with('"') { "\"" } else { "" };
        format!("{{{quote}{key}{quote}: {text}}}")
    }

    /// Returns a short description for messages.
    pub fn describe(self) -> String {
        match self.scalar() {
            Some(YamlScalar::Null) => "nothing".to_owned(),
            Some(YamlScalar::Bool(value)) => format!("`{value}`"),
            Some(YamlScalar::Int(_) | YamlScalar::Float(_)) => {
                format!("the number {}", self.raw_text().unwrap_or_default())
            }
            Some(YamlScalar::Text(text)) if is_beyond_64_bits(text) => {
                format!("a number beyond {}", u64::MAX)
            }
            Some(YamlScalar::Text(text)) => match text.char_indices().nth(40) {
                Some((end, _)) => format!("the text `{}…`", &text[..end]),
                None => format!("the text `{text}`"),
            },
            None if self.items().is_some() => "a list".to_owned(),
            None => "a mapping".to_owned(),
        }
    }

    /// Converts the value to JSON. The limits of the tree bound its size and depth.
    pub fn to_json(self) -> Value {
        if let Some(scalar) = self.scalar() {
            return match scalar {
                YamlScalar::Null => Value::Null,
                YamlScalar::Bool(value) => Value::Bool(value),
                YamlScalar::Int(value) => Number::from_i128(value).map_or(Value::Null, Value::Number),
                YamlScalar::Float(value) => Number::from_f64(value).map_or(Value::Null, Value::Number),
                YamlScalar::Text(text) => Value::String(text.to_owned()),
            };
        }
        if let Some(items) = self.items() {
            return items.map(YamlNode::to_json).collect();
        }
        let fields = self.fields().into_iter().flatten();
        Value::Object(fields.map(|field| (field.key.to_owned(), field.value.to_json())).collect::<Map<_, _>>())
    }

    /// Returns the node at a JSON pointer, or the nearest one above it.
    pub fn node_at(self, pointer: &str) -> YamlNode<'a> {
        let mut node = self;
        for segment in pointer.split('/').skip(1) {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            let index = segment.parse().ok().and_then(|index: usize| node.items()?.nth(index));
            match index.or_else(|| node.get(&segment)) {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node
    }

    /// Returns the place of a part of a scalar's text; the first line if it is unknown.
    pub fn locate_part(self, part: ExprSpan) -> ExprSpan {
        let whole = self.span();
        let YamlContent::Scalar { text, .. } = *self.content() else { return self.first_line_span() };
        let base = match text {
            YamlText::Verbatim(span) => Some(span.start),
            YamlText::Own(number) => {
                let (text, raw) = (&self.tree.texts[number as usize], self.source().slice(whole));
                block_offset(text, raw, part.start as usize)
                    .map(|offset| whole.start + ExprSpan::new(0, offset).end - part.start)
            }
        };
        match base {
            Some(base) => ExprSpan { start: base + part.start, end: (base + part.end).min(whole.end) },
            None => self.first_line_span(),
        }
    }
}

/// Returns the offset of a byte of a block scalar's text in its raw form, in which every line is indented.
fn block_offset(text: &str, raw: &str, offset: usize) -> Option<usize> {
    let before = text.get(..offset)?;
    let line = before.matches('\n').count();
    let column = offset - before.rfind('\n').map_or(0, |at| at + 1);
    let clean = text.split('\n').nth(line)?;
    let mut start = 0;
    for (number, indented) in raw.split('\n').enumerate() {
        if number == line {
            let indented = indented.trim_end_matches('\r');
            let indent = indented.len().checked_sub(clean.len())?;
            return (indented.get(indent..) == Some(clean)).then_some(start + indent + column);
        }
        start += indented.len() + 1;
    }
    None
}

/// Returns true if a text is an integer that does not fit in 64 bits.
fn is_beyond_64_bits(text: &str) -> bool {
    text.len() > 19 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_err()
}

/// The typed value of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum YamlScalar<'a> {
    Null,
    Bool(bool),
    /// From `i64::MIN` to `u64::MAX`, as JSON can hold it.
    Int(i128),
    Float(f64),
    Text(&'a str),
}

pub fn resolve_scalar(text: &str) -> YamlScalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => YamlScalar::Null,
        "true" | "True" | "TRUE" => YamlScalar::Bool(true),
        "false" | "False" | "FALSE" => YamlScalar::Bool(false),
        _ => parse_number(text).unwrap_or(YamlScalar::Text(text)),
    }
}

fn parse_number(text: &str) -> Option<YamlScalar<'_>> {
    // Nearly all texts end here.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let radix = |digits: &str, radix| i128::from_str_radix(digits, radix).ok().and_then(to_integer);
    if let Some(digits) = text.strip_prefix("0x").filter(|d| d.chars().all(|c| c.is_ascii_hexdigit())) {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|d| d.chars().all(|c| c.is_digit(8))) {
        return radix(digits, 8);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().and_then(to_integer);
    }
    if digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.bytes().any(|b| b.is_ascii_digit())
    {
        return parse_float(text);
    }
    None
}

/// Returns an integer that JSON can hold. A larger one stays text, so that no digit of it is lost.
fn to_integer<'a>(value: i128) -> Option<YamlScalar<'a>> {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(YamlScalar::Int(value))
}

/// Parses a finite number. Infinity and NaN are useless in a workflow and stay text.
fn parse_float(text: &str) -> Option<YamlScalar<'_>> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(YamlScalar::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema_and_nothing_older() {
        for (text, meaning) in [
            ("", YamlScalar::Null),
            ("~", YamlScalar::Null),
            ("true", YamlScalar::Bool(true)),
            ("FALSE", YamlScalar::Bool(false)),
            ("12", YamlScalar::Int(12)),
            ("-12", YamlScalar::Int(-12)),
            ("+3", YamlScalar::Int(3)),
            ("010", YamlScalar::Int(10)),
            ("0o10", YamlScalar::Int(8)),
            ("0xff", YamlScalar::Int(255)),
            ("1.5", YamlScalar::Float(1.5)),
            ("1e3", YamlScalar::Float(1000.0)),
            (".5", YamlScalar::Float(0.5)),
            ("18446744073709551615", YamlScalar::Int(18_446_744_073_709_551_615)),
            ("-9223372036854775808", YamlScalar::Int(-9_223_372_036_854_775_808)),
            ("99999999999999999999", YamlScalar::Text("99999999999999999999")),
        ] {
            assert_eq!(resolve_scalar(text), meaning, "{text:?}");
        }
        for text in ["yes", "no", "on", "1_000", "2026-01-02", ".inf", ".nan", "1.2.3", "-", ".", "0x", "5m"] {
            assert_eq!(resolve_scalar(text), YamlScalar::Text(text));
        }
    }
}
