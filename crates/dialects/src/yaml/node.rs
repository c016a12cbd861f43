//! The tree and its nodes: what can be asked of each place. Refuses to report anything.

use std::{ops::Range, sync::Arc};

use serde_json::{Map, Number, Value};
use skein_core::expr::Span;

use super::scalar::{Scalar, resolve};
use crate::source::Source;

/// A document, kept with its source. Nodes are numbered, and an alias is the number of its anchor's node, so that a
/// tree is never larger than its file.
#[derive(Debug)]
pub struct Tree {
    /// Each source, with the number of its first node; a node's source is the last that starts at or before it. A
    /// document has one, and more once other trees have been merged into it.
    pub(super) sources: Vec<(u32, Arc<Source>)>,
    pub(super) nodes: Vec<(Span, Data)>,
    /// What all lists and mappings hold, each a run of these.
    pub(super) items: Vec<u32>,
    pub(super) entries: Vec<Entry>,
    /// Texts that are not a part of their source.
    pub(super) texts: Vec<Box<str>>,
    pub(super) root: u32,
}

impl Tree {
    /// The source of the document itself.
    pub fn source(&self) -> &Arc<Source> {
        &self.sources[0].1
    }

    pub fn root(&self) -> Node<'_> {
        self.node(self.root)
    }

    /// A node by the number that [`Node::number`] gave.
    pub fn node(&self, number: u32) -> Node<'_> {
        Node { tree: self, number }
    }

    /// Gives the field whose key stands at a place another name, so that it is read as that one.
    pub fn rename(&mut self, key: Span, name: &str) {
        let Some(at) = self.entries.iter().position(|entry| entry.key_span == key) else { return };
        self.entries[at].key = Text::Own(u32::try_from(self.texts.len()).expect("sources are limited"));
        self.texts.push(name.into());
        for (_, data) in &mut self.nodes {
            if let Data::Map(run, lengths) = data
                && run.range().contains(&at)
            {
                lengths.0 |= Lengths::bit(name.len());
            }
        }
    }

    pub(super) fn entries(&self, run: Run) -> &[Entry] {
        &self.entries[run.range()]
    }

    pub(super) fn text<'a>(&'a self, text: Text, source: &'a Source) -> &'a str {
        match text {
            Text::Verbatim(span) => source.slice(span),
            Text::Own(number) => &self.texts[number as usize],
        }
    }
}

/// What a node holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Data {
    Scalar {
        text: Text,
        /// Without quotes, so that it may mean a number.
        plain: bool,
    },
    List(Run),
    Map(Run, Lengths),
}

/// Neighbours in one of the arrays of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    start: u32,
    len: u32,
}

impl Run {
    /// Those from a place to the end.
    pub fn since<T>(start: usize, all: &[T]) -> Run {
        let number = |at: usize| u32::try_from(at).expect("sources are limited");
        Run { start: number(start), len: number(all.len() - start) }
    }

    /// The same, behind so many others.
    pub fn moved(self, by: u32) -> Run {
        Run { start: self.start + by, ..self }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// How long the keys of a mapping are, as bits: most keys that are not there are of another length than all that are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lengths(u32);

impl Lengths {
    pub fn of(entries: &[Entry], texts: &[Box<str>]) -> Lengths {
        let bits = entries.iter().map(|entry| {
            Lengths::bit(match entry.key {
                Text::Verbatim(span) => (span.end - span.start) as usize,
                Text::Own(number) => texts[number as usize].len(),
            })
        });
        Lengths(bits.fold(0, |all, bit| all | bit))
    }

    fn bit(length: usize) -> u32 {
        1 << length.min(31)
    }

    fn may_have(self, key: &str) -> bool {
        self.0 & Lengths::bit(key.len()) != 0
    }
}

/// One entry of a mapping. Its key stands in the source of its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub key: Text,
    pub key_span: Span,
    pub value: u32,
}

/// A scalar's text: a part of the source where it stands there as it is, which is nearly always.
#[derive(Debug, Clone, Copy)]
pub(super) enum Text {
    Verbatim(Span),
    /// One of the tree's texts, by number.
    Own(u32),
}

/// One node of a tree.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    tree: &'a Tree,
    number: u32,
}

/// One entry of a mapping. Its key stands in the source of its value.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    pub key: &'a str,
    pub key_span: Span,
    pub value: Node<'a>,
}

impl<'a> Node<'a> {
    pub fn number(self) -> u32 {
        self.number
    }

    pub fn source(self) -> &'a Arc<Source> {
        let sources = &self.tree.sources;
        if let [(_, only)] = sources.as_slice() {
            return only;
        }
        let after = sources.partition_point(|(first, _)| *first <= self.number);
        &sources[after.saturating_sub(1)].1
    }

    fn data(self) -> &'a Data {
        &self.tree.nodes[self.number as usize].1
    }

    /// Where it is. A collection's place can be many lines; [`Node::mark`] is better to point at.
    pub fn span(self) -> Span {
        self.tree.nodes[self.number as usize].0
    }

    /// Its first line, as a place to point at.
    pub fn mark(self) -> Span {
        let span = self.span();
        let text = self.source().slice(span);
        let end = text.bytes().position(|byte| byte == b'\n').unwrap_or(text.len());
        Span { start: span.start, end: span.start + Span::new(0, text[..end].trim_end().len()).end }
    }

    /// What a scalar means; none for collections.
    pub fn scalar(self) -> Option<Scalar<'a>> {
        let Data::Scalar { text, plain } = *self.data() else { return None };
        let text = self.tree.text(text, self.source());
        Some(if plain { resolve(text) } else { Scalar::Text(text) })
    }

    /// A scalar's text, whatever it means.
    pub fn raw(self) -> Option<&'a str> {
        match *self.data() {
            Data::Scalar { text, .. } => Some(self.tree.text(text, self.source())),
            Data::List(_) | Data::Map(..) => None,
        }
    }

    pub fn is_null(self) -> bool {
        self.scalar() == Some(Scalar::Null)
    }

    pub fn items(self) -> Option<impl ExactSizeIterator<Item = Node<'a>> + Clone> {
        match *self.data() {
            Data::List(run) => {
                Some(self.tree.items[run.range()].iter().map(move |number| self.tree.node(*number)))
            }
            Data::Scalar { .. } | Data::Map(..) => None,
        }
    }

    pub fn fields(self) -> Option<impl ExactSizeIterator<Item = Field<'a>> + Clone> {
        match *self.data() {
            Data::Map(run, _) => Some(self.tree.entries(run).iter().map(move |entry| self.of_entry(entry))),
            Data::Scalar { .. } | Data::List(_) => None,
        }
    }

    fn of_entry(self, entry: &'a Entry) -> Field<'a> {
        let value = self.tree.node(entry.value);
        Field { key: self.tree.text(entry.key, value.source()), key_span: entry.key_span, value }
    }

    pub fn field(self, key: &str) -> Option<Field<'a>> {
        self.find(key).map(|(_, field)| field)
    }

    /// A field, and which of the mapping's it is.
    pub fn find(self, key: &str) -> Option<(usize, Field<'a>)> {
        let Data::Map(run, lengths) = *self.data() else { return None };
        if !lengths.may_have(key) {
            return None;
        }
        let entries = self.tree.entries(run);
        let place = entries.iter().position(|entry| self.is_key(entry, key))?;
        Some((place, self.of_entry(&entries[place])))
    }

    fn is_key(self, entry: &Entry, key: &str) -> bool {
        match entry.key {
            Text::Verbatim(span) if (span.end - span.start) as usize != key.len() => false,
            text => self.tree.text(text, self.tree.node(entry.value).source()) == key,
        }
    }

    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.field(key).map(|field| field.value)
    }

    /// What it would be as the one field of a mapping, written as it is written now: where it is in double quotes, its
    /// key is, too, as JSON wants it.
    pub fn under(self, key: &str) -> String {
        let text = self.source().slice(self.span());
        let quote = if text.starts_with('"') { "\"" } else { "" };
        format!("{{{quote}{key}{quote}: {text}}}")
    }

    /// In a few words, for messages: what it is.
    pub fn describe(self) -> String {
        match self.scalar() {
            Some(Scalar::Null) => "nothing".to_owned(),
            Some(Scalar::Bool(value)) => format!("`{value}`"),
            Some(Scalar::Int(_) | Scalar::Float(_)) => {
                format!("the number {}", self.raw().unwrap_or_default())
            }
            Some(Scalar::Text(text)) if is_beyond_64_bits(text) => {
                format!("a number beyond {}", u64::MAX)
            }
            Some(Scalar::Text(text)) => match text.char_indices().nth(40) {
                Some((end, _)) => format!("the text `{}…`", &text[..end]),
                None => format!("the text `{text}`"),
            },
            None if self.items().is_some() => "a list".to_owned(),
            None => "a mapping".to_owned(),
        }
    }

    /// The value as JSON. Its size is limited when the tree is made, its depth by the same.
    pub fn json(self) -> Value {
        if let Some(scalar) = self.scalar() {
            return match scalar {
                Scalar::Null => Value::Null,
                Scalar::Bool(value) => Value::Bool(value),
                Scalar::Int(value) => Number::from_i128(value).map_or(Value::Null, Value::Number),
                Scalar::Float(value) => Number::from_f64(value).map_or(Value::Null, Value::Number),
                Scalar::Text(text) => Value::String(text.to_owned()),
            };
        }
        if let Some(items) = self.items() {
            return items.map(Node::json).collect();
        }
        let fields = self.fields().into_iter().flatten();
        Value::Object(fields.map(|field| (field.key.to_owned(), field.value.json())).collect::<Map<_, _>>())
    }

    /// The node that a JSON pointer names from here, or the nearest one above it.
    pub fn at(self, pointer: &str) -> Node<'a> {
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

    /// Where a part of a scalar's text stands in the source; all of it where that cannot be told.
    pub fn within(self, part: Span) -> Span {
        let whole = self.span();
        let Data::Scalar { text, .. } = *self.data() else { return self.mark() };
        let base = match text {
            Text::Verbatim(span) => Some(span.start),
            Text::Own(number) => {
                let (text, raw) = (&self.tree.texts[number as usize], self.source().slice(whole));
                block_offset(text, raw, part.start as usize)
                    .map(|offset| whole.start + Span::new(0, offset).end - part.start)
            }
        };
        match base {
            Some(base) => Span { start: base + part.start, end: (base + part.end).min(whole.end) },
            None => self.mark(),
        }
    }
}

/// Where a byte of a block scalar's text stands in its raw form, in which every line is indented.
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

/// Returns true if a text is an integer that 64 bits do not hold.
fn is_beyond_64_bits(text: &str) -> bool {
    text.len() > 19 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_err()
}
