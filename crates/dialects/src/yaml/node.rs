//! The tree and its nodes: what can be asked of each place. Refuses to report anything.

use std::sync::Arc;

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
}

/// What a node holds.
#[derive(Debug, Clone)]
pub(super) enum Data {
    Scalar {
        text: Text,
        /// Without quotes, so that it may mean a number.
        plain: bool,
    },
    List(Vec<u32>),
    Map(Vec<Entry>),
}

/// One entry of a mapping. Its key stands in the source of its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: Text,
    pub key_span: Span,
    pub value: u32,
}

/// A scalar's text: a part of the source where it stands there as it is, which is nearly always.
#[derive(Debug, Clone)]
pub(super) enum Text {
    Verbatim(Span),
    Own(Box<str>),
}

impl Text {
    pub fn new(text: &str, span: Span, source: &Source) -> Text {
        let raw = source.slice(span);
        if raw == text {
            return Text::Verbatim(span);
        }
        let quoted = Span { start: span.start + 1, end: span.end.max(span.start + 2) - 1 };
        if raw.starts_with(['"', '\'']) && source.slice(quoted) == text {
            return Text::Verbatim(quoted);
        }
        Text::Own(text.into())
    }

    /// Whether it is this text. Nearly all texts differ in length, which is known without looking.
    fn is(&self, text: &str, source: &Source) -> bool {
        match self {
            Text::Verbatim(span) => {
                (span.end - span.start) as usize == text.len() && source.slice(*span) == text
            }
            Text::Own(own) => **own == *text,
        }
    }

    pub fn of<'a>(&'a self, source: &'a Source) -> &'a str {
        match self {
            Text::Verbatim(span) => source.slice(*span),
            Text::Own(text) => text,
        }
    }
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
        let first = self.source().slice(span).lines().next().unwrap_or_default().trim_end();
        Span { start: span.start, end: span.start + Span::new(0, first.len()).end }
    }

    /// What a scalar means; none for collections.
    pub fn scalar(self) -> Option<Scalar<'a>> {
        match self.data() {
            Data::Scalar { text, plain: true } => Some(resolve(text.of(self.source()))),
            Data::Scalar { text, plain: false } => Some(Scalar::Text(text.of(self.source()))),
            Data::List(_) | Data::Map(_) => None,
        }
    }

    /// A scalar's text, whatever it means.
    pub fn raw(self) -> Option<&'a str> {
        match self.data() {
            Data::Scalar { text, .. } => Some(text.of(self.source())),
            Data::List(_) | Data::Map(_) => None,
        }
    }

    pub fn is_null(self) -> bool {
        self.scalar() == Some(Scalar::Null)
    }

    pub fn items(self) -> Option<impl ExactSizeIterator<Item = Node<'a>> + Clone> {
        match self.data() {
            Data::List(items) => Some(items.iter().map(move |number| self.tree.node(*number))),
            Data::Scalar { .. } | Data::Map(_) => None,
        }
    }

    pub fn fields(self) -> Option<impl ExactSizeIterator<Item = Field<'a>> + Clone> {
        match self.data() {
            Data::Map(entries) => Some(entries.iter().map(move |entry| self.of_entry(entry))),
            Data::Scalar { .. } | Data::List(_) => None,
        }
    }

    fn of_entry(self, entry: &'a Entry) -> Field<'a> {
        let value = self.tree.node(entry.value);
        Field { key: entry.key.of(value.source()), key_span: entry.key_span, value }
    }

    pub fn field(self, key: &str) -> Option<Field<'a>> {
        self.find(key).map(|(_, field)| field)
    }

    /// A field, and which of the mapping's it is.
    pub fn find(self, key: &str) -> Option<(usize, Field<'a>)> {
        let Data::Map(entries) = self.data() else { return None };
        let is_it = |entry: &Entry| entry.key.is(key, self.tree.node(entry.value).source());
        let place = entries.iter().position(is_it)?;
        Some((place, self.of_entry(&entries[place])))
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
                Scalar::Int(value) => Value::Number(value.into()),
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
        let Data::Scalar { text, .. } = self.data() else { return self.mark() };
        let base = match text {
            Text::Verbatim(span) => Some(span.start),
            Text::Own(text) => block_offset(text, self.source().slice(whole), part.start as usize)
                .map(|offset| whole.start + Span::new(0, offset).end - part.start),
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
