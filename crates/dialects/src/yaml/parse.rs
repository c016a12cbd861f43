//! From a parser's events to a tree: what is accepted of YAML, and the limits that keep a small file from being a
//! large tree.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use skein_core::{expr::Span, limits};

use super::{
    error,
    node::{Data, Entry, Lengths, Run, Text, Tree},
    plain,
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    source::Source,
};

/// Reads the YAML, or JSON, in a part of a source. None if it cannot be read; the sink says why.
pub fn parse(window: Span, sink: &mut Sink) -> Option<Tree> {
    let source = sink.source.clone();
    let tree = match plain::parse(window, &source) {
        Some(tree) => Some(tree),
        None => {
            let mut builder = Builder::new(&source, window, sink);
            builder.run();
            if builder.broken {
                return None;
            }
            builder.tree()
        }
    };
    let tree = tree.filter(|tree| !tree.root().is_null());
    if tree.is_none() {
        let start = Span { end: window.start, ..window };
        sink.push(Diagnostic::new(Code::EmptySource, &source, start, "there is nothing in this file"));
    }
    tree
}

/// A collection whose end has not come yet.
struct Open<'s> {
    number: u32,
    anchor: usize,
    sort: Sort,
    /// Where what is in it starts among what is in all that is open.
    start: usize,
    /// In a mapping: the key that waits for its value.
    key: Option<(Text, Span)>,
    /// In a mapping of many keys: where each first stood.
    keys: HashMap<Cow<'s, str>, Span>,
    /// Nodes in it when every alias is written out.
    size: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sort {
    List,
    Map,
}

/// A mapping of no more keys is looked through, and has no table of them.
const FEW: usize = 16;

pub(super) struct Builder<'s> {
    source: &'s Arc<Source>,
    window: Span,
    sink: &'s mut Sink,
    /// What has ended. Of what is open, each collection has a node that says nothing yet.
    tree: Tree,
    /// What is in the collections that are open, the innermost last.
    items: Vec<u32>,
    entries: Vec<Entry>,
    open: Vec<Open<'s>>,
    /// The node of each anchor and its size; none while it is still open.
    anchors: BTreeMap<usize, Option<(u32, usize)>>,
    root: Option<u32>,
    documents: usize,
    /// Whether any node is there more than once.
    aliases: bool,
    /// Whether nothing is said about a key that is there twice, and it only breaks what is built.
    silent: bool,
    /// Whether nothing more can be read.
    pub broken: bool,
}

impl<'s> Builder<'s> {
    pub fn new(source: &'s Arc<Source>, window: Span, sink: &'s mut Sink) -> Builder<'s> {
        Builder {
            source,
            window,
            sink,
            tree: Tree {
                sources: vec![(0, source.clone())],
                nodes: Vec::new(),
                items: Vec::new(),
                entries: Vec::new(),
                texts: Vec::new(),
                root: 0,
            },
            items: Vec::new(),
            entries: Vec::new(),
            open: Vec::new(),
            anchors: BTreeMap::new(),
            root: None,
            documents: 0,
            aliases: false,
            silent: false,
            broken: false,
        }
    }

    /// The same for one who asks another where there is anything to say.
    pub fn silent(source: &'s Arc<Source>, window: Span, sink: &'s mut Sink) -> Builder<'s> {
        Builder { silent: true, ..Builder::new(source, window, sink) }
    }

    /// Whether there is nothing to say about what has been built.
    pub fn is_clean(&self) -> bool {
        !self.broken && self.sink.is_empty()
    }

    pub fn tree(self) -> Option<Tree> {
        self.root.map(|root| Tree { root, ..self.tree })
    }

    pub fn run(&mut self) {
        let source = self.source.clone();
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: limits::YAML_DEPTH,
            block_nesting_limit: limits::YAML_DEPTH,
            emit_unresolved_aliases: true,
        };
        for next in Parser::new_from_str_with_options(source.slice(self.window), options) {
            match next {
                Ok((event, span)) => self.event(event, span),
                Err(error) => self.syntax(&error),
            }
            if self.broken {
                return;
            }
        }
    }

    fn event(&mut self, event: Event<'_>, at: granit_parser::Span) {
        let span = self.span(at.start, at.end);
        match event {
            Event::DocumentStart(..) => self.document(span),
            Event::Scalar(text, style, anchor, tag) => match self.negation(tag.as_deref(), at, span) {
                Some(span) => {
                    self.scalar(Text::Verbatim(span), false, anchor, span);
                }
                None => {
                    self.refuse_tag(tag.as_deref(), at);
                    // What was said to be text is not taken for a number as well.
                    let is_text = tag.is_some_and(|tag| tag.suffix() == "str");
                    let text = self.text(text.as_ref(), span);
                    self.scalar(text, style == ScalarStyle::Plain && !is_text, anchor, span);
                }
            },
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), at);
                self.begin(Sort::List, anchor, span);
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), at);
                self.begin(Sort::Map, anchor, span);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::UnresolvedAlias(name) => {
                let message = format!("there is no anchor `&{name}` before this");
                self.broken = true;
                let diagnostic = self.report(Code::UnknownAlias, span, message);
                self.sink.push(diagnostic.hint("quote a text that begins with `*`"));
            }
            _ => {}
        }
    }

    fn span(&self, start: Marker, end: Marker) -> Span {
        let base = self.window.start as usize;
        let byte = |marker: Marker| base + marker.byte_offset().unwrap_or_default();
        let (start, end) = (byte(start), byte(end));
        Span::new(start, end.max(start))
    }

    fn report(&mut self, code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, self.source, span, message)
    }

    /// Says why nothing more can be read.
    fn fail(&mut self, code: Code, span: Span, message: impl Into<String>) {
        self.broken = true;
        let diagnostic = self.report(code, span, message);
        self.sink.push(diagnostic);
    }

    fn syntax(&mut self, error: &ScanError) {
        self.broken = true;
        let span = self.span(*error.marker(), *error.marker());
        self.sink.push(error::diagnostic(error.kind(), self.source, span));
    }

    fn document(&mut self, span: Span) {
        self.documents += 1;
        if self.documents > 1 {
            let message = "a second document starts here, and one file holds one workflow";
            self.fail(Code::ManyDocuments, span, message);
        }
    }

    /// A condition that begins with `!`, which YAML takes for a tag. It is refused too, but what it means is plain.
    fn negation(&mut self, tag: Option<&Tag>, at: granit_parser::Span, scalar: Span) -> Option<Span> {
        let place = tag.and_then(|_| at.tag_span())?;
        let tag = self.span(place.start, place.end);
        if !self.source.slice(tag).trim_start_matches('!').starts_with(['$', '(']) {
            return None;
        }
        let span = Span { start: tag.start, end: scalar.end.max(tag.end) };
        let quoted = format!("'{}'", self.source.slice(span).trim_end().replace('\'', "''"));
        let message = "text that begins with `!` is a tag here, and tags have no meaning";
        let diagnostic = self.report(Code::TagRefused, span, message).hint("put it in quotes");
        self.sink.push(diagnostic.fix(span, quoted));
        Some(span)
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, at: granit_parser::Span) {
        if tag.is_none() {
            return;
        }
        let place = at.tag_span().unwrap_or(at);
        let span = self.span(place.start, place.end);
        let message = format!("the tag `{}` has no meaning here", self.source.slice(span).trim());
        let hint = "leave it out; quote a value to make it text";
        let diagnostic = self.report(Code::TagRefused, span, message).hint(hint);
        self.sink.push(diagnostic);
    }

    /// A scalar's text, which is nearly always a part of the source.
    fn text(&mut self, text: &str, span: Span) -> Text {
        let raw = self.source.slice(span);
        if raw == text {
            return Text::Verbatim(span);
        }
        let quoted = Span { start: span.start + 1, end: span.end.max(span.start + 2) - 1 };
        if raw.starts_with(['"', '\'']) && self.source.slice(quoted) == text {
            return Text::Verbatim(quoted);
        }
        self.tree.texts.push(text.into());
        Text::Own(u32::try_from(self.tree.texts.len() - 1).expect("sources are limited"))
    }

    pub fn scalar(&mut self, text: Text, plain: bool, anchor: usize, span: Span) {
        if self.wants_key() {
            return self.key(text, plain, span);
        }
        let number = self.add(Data::Scalar { text, plain }, span);
        self.name(anchor, number, 1);
        self.place(number, 1, span);
    }

    fn wants_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.key.is_none() && open.sort == Sort::Map)
    }

    fn key(&mut self, text: Text, plain: bool, span: Span) {
        let source = self.source;
        let key = key_of(text, &self.tree, source);
        if plain && key == "<<" {
            let hint = "write the fields out, or name one value with an anchor and an alias";
            let diagnostic =
                self.report(Code::MergeRefused, span, "`<<` does not merge mappings here").hint(hint);
            self.sink.push(diagnostic);
        }
        if let Some(first) = self.seen(key.clone(), span) {
            let message = format!("`{}` is here twice", shortened(&key));
            let diagnostic = self.report(Code::DuplicateKey, span, message);
            self.sink.push(diagnostic.label("again here").also(first, "first here"));
        }
        self.open.last_mut().expect("a key is inside a mapping").key = Some((text, span));
    }

    /// Where the mapping that is open already has this key.
    fn seen(&mut self, key: Cow<'s, str>, span: Span) -> Option<Span> {
        let open = self.open.last_mut().expect("a key is inside a mapping");
        let entries = &self.entries[open.start..];
        let (tree, source) = (&self.tree, self.source);
        if entries.len() < FEW {
            let same = entries.iter().find(|entry| match entry.key {
                Text::Verbatim(span) if (span.end - span.start) as usize != key.len() => false,
                text => tree.text(text, source) == key,
            });
            return same.map(|entry| entry.key_span);
        }
        // It is cheaper to look at all of them at the end.
        if self.silent {
            return None;
        }
        if open.keys.is_empty() {
            for entry in entries {
                open.keys.entry(key_of(entry.key, tree, source)).or_insert(entry.key_span);
            }
        }
        match open.keys.get(&key) {
            Some(first) => Some(*first),
            None => {
                open.keys.insert(key, span);
                None
            }
        }
    }

    pub fn begin(&mut self, sort: Sort, anchor: usize, span: Span) {
        if self.wants_key() {
            let message = "a key must be text, and this is a list or a mapping";
            return self.fail(Code::KeyNotText, span, message);
        }
        if self.open.len() >= limits::YAML_DEPTH {
            let message = format!("this is nested more than {} levels deep", limits::YAML_DEPTH);
            return self.fail(Code::TooDeepYaml, span, message);
        }
        let number = self.add(Data::List(Run::default()), span);
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        let start = if sort == Sort::List { self.items.len() } else { self.entries.len() };
        self.open.push(Open { number, anchor, sort, start, key: None, keys: HashMap::new(), size: 1 });
    }

    pub fn end(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        let tree = &mut self.tree;
        let data = match open.sort {
            Sort::List => {
                let start = tree.items.len();
                tree.items.extend(self.items.drain(open.start..));
                Data::List(Run::since(start, &tree.items))
            }
            Sort::Map => {
                self.broken |= self.silent && repeats(&self.entries[open.start..], tree, self.source);
                let (start, own) = (tree.entries.len(), self.entries.drain(open.start..));
                let lengths = Lengths::of(own.as_slice(), &tree.texts);
                tree.entries.extend(own);
                Data::Map(Run::since(start, &tree.entries), lengths)
            }
        };
        let node = &mut tree.nodes[open.number as usize];
        *node = (Span { start: node.0.start, end: span.end.max(node.0.end) }, data);
        self.name(open.anchor, open.number, open.size);
        self.place(open.number, open.size, span);
    }

    fn alias(&mut self, anchor: usize, span: Span) {
        if self.wants_key() {
            return self.fail(Code::KeyNotText, span, "a key must be text, and this is an alias");
        }
        match self.anchors.get(&anchor).copied().flatten() {
            Some((number, size)) => {
                self.aliases = true;
                self.place(number, size, span);
            }
            None => {
                let message = format!("`{}` is inside what it stands for", self.source.slice(span));
                self.fail(Code::UnknownAlias, span, message);
            }
        }
    }

    fn add(&mut self, data: Data, span: Span) -> u32 {
        self.tree.nodes.push((span, data));
        u32::try_from(self.tree.nodes.len() - 1).expect("sources are limited")
    }

    fn name(&mut self, anchor: usize, number: u32, size: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Some((number, size)));
        }
    }

    /// Puts a finished node where it belongs: into the collection that is open, or at the root.
    fn place(&mut self, number: u32, size: usize, at: Span) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(number);
            return;
        };
        open.size = open.size.saturating_add(size);
        let total = open.size;
        match open.sort {
            Sort::List => self.items.push(number),
            Sort::Map => {
                let (key, key_span) = open.key.take().expect("a value follows its key");
                self.entries.push(Entry { key, key_span, value: number });
            }
        }
        if total > limits::YAML_NODES {
            let written_out = if self.aliases { " with its aliases written out" } else { "" };
            let message = format!("this has over {} values{written_out}", limits::YAML_NODES);
            self.fail(Code::TooManyNodes, at, message);
        }
    }
}

/// The text of a key, nearly always as it stands in the source.
fn key_of<'s>(key: Text, tree: &Tree, source: &'s Source) -> Cow<'s, str> {
    match key {
        Text::Verbatim(span) => source.slice(span).into(),
        Text::Own(_) => tree.text(key, source).to_owned().into(),
    }
}

/// Whether many entries have a key twice. Of few, each has been compared with those before it.
fn repeats(entries: &[Entry], tree: &Tree, source: &Source) -> bool {
    if entries.len() <= FEW {
        return false;
    }
    // Numbers are compared faster than texts, and the first bytes nearly always tell two keys apart.
    let head = |text: &str| text.bytes().take(8).fold(0, |head, byte| head << 8 | u64::from(byte));
    let keys = entries.iter().map(|entry| tree.text(entry.key, source));
    let mut keys: Vec<(u64, &str)> = keys.map(|key| (head(key), key)).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// A key as a message shows it.
fn shortened(key: &str) -> String {
    const MOST: usize = 60;
    match key.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}
