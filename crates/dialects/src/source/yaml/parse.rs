//! Builds a tree from parser events: checks the accepted subset of YAML, and limits the size of the tree.

use std::{
    borrow::Cow,
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use skein_core::{expr::ExprSpan, limits};

use super::{
    error,
    node::{IndexRun, KeyLengths, YamlContent, YamlEntry, YamlText, YamlTree},
    plain,
};
use crate::diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile};

/// Parses the YAML, or JSON, in a part of a source. Reports errors and returns None.
pub fn parse_yaml(window: ExprSpan, sink: &mut DiagnosticSink) -> Option<YamlTree> {
    let source = sink.source.clone();
    let tree = match plain::parse_plain(window, &source) {
        Some(tree) => Some(tree),
        None => {
            let mut builder = YamlTreeBuilder::new(&source, window, sink);
            builder.parse_events();
            if builder.broken {
                return None;
            }
            builder.into_tree()
        }
    };
    let tree = tree.filter(|tree| !tree.root().is_null());
    if tree.is_none() {
        let start = ExprSpan { end: window.start, ..window };
        sink.push(Diagnostic::new(Code::EmptySource, &source, start, "this file is empty"));
    }
    tree
}

/// A collection that has not ended yet.
struct OpenCollection<'s> {
    number: u32,
    anchor: usize,
    sort: CollectionKind,
    /// The index of its first item or entry among those of all open collections.
    start: usize,
    /// In a mapping: the key whose value comes next.
    key: Option<(YamlText, ExprSpan)>,
    /// In a mapping of many keys: the first place of each.
    keys: HashMap<Cow<'s, str>, ExprSpan>,
    /// The number of nodes in it with all aliases expanded.
    size: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum CollectionKind {
    List,
    Map,
}

/// The maximum number of keys for a linear search. Larger mappings get a hash table.
const FEW: usize = 16;

pub(super) struct YamlTreeBuilder<'s> {
    source: &'s Arc<SourceFile>,
    window: ExprSpan,
    sink: &'s mut DiagnosticSink,
    /// The finished nodes. An open collection has an empty placeholder.
    tree: YamlTree,
    /// The items of the open lists, the innermost last. `entries` holds those of the mappings.
    items: Vec<u32>,
    entries: Vec<YamlEntry>,
    open: Vec<OpenCollection<'s>>,
    /// The node of each anchor and its size; None while it is still open.
    anchors: BTreeMap<usize, Option<(u32, usize)>>,
    root: Option<u32>,
    documents: usize,
    /// True if any node is referenced more than once.
    aliases: bool,
    /// True if a duplicate key is not reported and only sets `broken`.
    silent: bool,
    /// True after an error that ends parsing.
    pub broken: bool,
}

impl<'s> YamlTreeBuilder<'s> {
    pub(crate) fn new(
        source: &'s Arc<SourceFile>,
        window: ExprSpan,
        sink: &'s mut DiagnosticSink,
    ) -> YamlTreeBuilder<'s> {
        YamlTreeBuilder {
            source,
            window,
            sink,
            tree: YamlTree {
                sources: vec![(0, source.clone())],
                nodes: Vec::new(),
                items: Vec::new(),
                entries: Vec::new(),
                texts: Vec::new(),
                root: 0,
                corrections: OnceCell::new(),
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

    /// Creates a builder that reports nothing: its caller parses again with the other parser to get diagnostics.
    pub(crate) fn new_silent(
        source: &'s Arc<SourceFile>,
        window: ExprSpan,
        sink: &'s mut DiagnosticSink,
    ) -> YamlTreeBuilder<'s> {
        YamlTreeBuilder { silent: true, ..YamlTreeBuilder::new(source, window, sink) }
    }

    /// True if there are no errors and no diagnostics so far.
    pub(crate) fn is_clean(&self) -> bool {
        !self.broken && self.sink.is_empty()
    }

    pub(crate) fn into_tree(self) -> Option<YamlTree> {
        self.root.map(|root| YamlTree { root, ..self.tree })
    }

    pub(crate) fn parse_events(&mut self) {
        let source = self.source.clone();
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: limits::YAML_DEPTH,
            block_nesting_limit: limits::YAML_DEPTH,
            emit_unresolved_aliases: true,
        };
        for next in Parser::new_from_str_with_options(source.slice(self.window), options) {
            match next {
                Ok((event, span)) => self.handle_event(event, span),
                Err(error) => self.report_syntax_error(&error),
            }
            if self.broken {
                return;
            }
        }
    }

    fn handle_event(&mut self, event: Event<'_>, at: granit_parser::Span) {
        let span = self.to_span(at.start, at.end);
        match event {
            Event::DocumentStart(..) => self.start_document(span),
            Event::Scalar(text, style, anchor, tag) => match self.read_negation(tag.as_deref(), at, span) {
                Some(span) => {
                    self.add_scalar(YamlText::Verbatim(span), false, anchor, span);
                }
                None => {
                    self.refuse_tag(tag.as_deref(), at);
                    // A value that is tagged as text is not taken for a number as well.
                    let is_text = tag.is_some_and(|tag| tag.suffix() == "str");
                    let text = self.store_text(text.as_ref(), span);
                    self.add_scalar(text, style == ScalarStyle::Plain && !is_text, anchor, span);
                }
            },
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), at);
                self.begin_collection(CollectionKind::List, anchor, span);
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), at);
                self.begin_collection(CollectionKind::Map, anchor, span);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end_collection(span),
            Event::Alias(anchor) => self.add_alias(anchor, span),
            Event::UnresolvedAlias(name) => {
                let message = format!("there is no anchor `&{name}` before this");
                self.broken = true;
                let diagnostic = self.new_diagnostic(Code::UnknownAlias, span, message);
                self.sink.push(diagnostic.with_hint("quote a text that begins with `*`"));
            }
            _ => {}
        }
    }

    fn to_span(&self, start: Marker, end: Marker) -> ExprSpan {
        let base = self.window.start as usize;
        let byte = |marker: Marker| base + marker.byte_offset().unwrap_or_default();
        let (start, end) = (byte(start), byte(end));
        ExprSpan::new(start, end.max(start))
    }

    fn new_diagnostic(&mut self, code: Code, span: ExprSpan, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, self.source, span, message)
    }

    /// Reports an error that ends parsing.
    fn fail(&mut self, code: Code, span: ExprSpan, message: impl Into<String>) {
        self.broken = true;
        let diagnostic = self.new_diagnostic(code, span, message);
        self.sink.push(diagnostic);
    }

    fn report_syntax_error(&mut self, error: &ScanError) {
        self.broken = true;
        let span = self.to_span(*error.marker(), *error.marker());
        self.sink.push(error::diagnose_syntax(error.kind(), self.source, span));
    }

    fn start_document(&mut self, span: ExprSpan) {
        self.documents += 1;
        if self.documents > 1 {
            let message = "a second document starts here, and one file holds one workflow";
            self.fail(Code::ManyDocuments, span, message);
        }
    }

    /// Reads a condition that begins with `!`, which YAML takes for a tag. It is refused, but its meaning is clear.
    fn read_negation(&mut self, tag: Option<&Tag>, at: granit_parser::Span, scalar: ExprSpan) -> Option<ExprSpan> {
        let place = tag.and_then(|_| at.tag_span())?;
        let tag = self.to_span(place.start, place.end);
        if !self.source.slice(tag).trim_start_matches('!').starts_with(['$', '(']) {
            return None;
        }
        let span = ExprSpan { start: tag.start, end: scalar.end.max(tag.end) };
        let quoted = format!("'{}'", self.source.slice(span).trim_end().replace('\'', "''"));
        let message = "text that begins with `!` is a tag in YAML, and tags are not supported";
        let diagnostic = self.new_diagnostic(Code::TagRefused, span, message).with_hint("put it in quotes");
        self.sink.push(diagnostic.with_fix(span, quoted));
        Some(span)
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, at: granit_parser::Span) {
        if tag.is_none() {
            return;
        }
        let place = at.tag_span().unwrap_or(at);
        let span = self.to_span(place.start, place.end);
        let message = format!("the tag `{}` is not supported", self.source.slice(span).trim());
        let hint = "leave it out; quote a value to make it text";
        let diagnostic = self.new_diagnostic(Code::TagRefused, span, message).with_hint(hint);
        self.sink.push(diagnostic);
    }

    /// Returns the text of a scalar, which is nearly always a part of the source.
    fn store_text(&mut self, text: &str, span: ExprSpan) -> YamlText {
        let raw = self.source.slice(span);
        if raw == text {
            return YamlText::Verbatim(span);
        }
        let quoted = ExprSpan { start: span.start + 1, end: span.end.max(span.start + 2) - 1 };
        if raw.starts_with(['"', '\'']) && self.source.slice(quoted) == text {
            return YamlText::Verbatim(quoted);
        }
        self.tree.texts.push(text.into());
        YamlText::Own(u32::try_from(self.tree.texts.len() - 1).expect("sources are limited"))
    }

    pub(crate) fn add_scalar(&mut self, text: YamlText, plain: bool, anchor: usize, span: ExprSpan) {
        if self.wants_key() {
            return self.add_key(text, plain, span);
        }
        let number = self.add_node(YamlContent::Scalar { text, plain }, span);
        self.set_anchor(anchor, number, 1);
        self.place_node(number, 1, span);
    }

    fn wants_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.key.is_none() && open.sort == CollectionKind::Map)
    }

    fn add_key(&mut self, text: YamlText, plain: bool, span: ExprSpan) {
        let source = self.source;
        let key = key_text(text, &self.tree, source);
        if plain && key == "<<" {
            let hint = "write the fields out, or share one value with an anchor and an alias";
            let diagnostic =
                self.new_diagnostic(Code::MergeRefused, span, "merge keys (`<<`) are not supported").with_hint(hint);
            self.sink.push(diagnostic);
        }
        if let Some(first) = self.find_duplicate_key(key.clone(), span) {
            let message = format!("`{}` is defined twice", shorten_key(&key));
            let diagnostic = self.new_diagnostic(Code::DuplicateKey, span, message);
            self.sink.push(diagnostic.with_label("again here").with_related(first, "first here"));
        }
        self.open.last_mut().expect("a key is inside a mapping").key = Some((text, span));
    }

    /// Returns the place of this key in the open mapping, if it has it.
    fn find_duplicate_key(&mut self, key: Cow<'s, str>, span: ExprSpan) -> Option<ExprSpan> {
        let open = self.open.last_mut().expect("a key is inside a mapping");
        let entries = &self.entries[open.start..];
        let (tree, source) = (&self.tree, self.source);
        if entries.len() < FEW {
            let same = entries.iter().find(|entry| match entry.key {
                YamlText::Verbatim(span) if (span.end - span.start) as usize != key.len() => false,
                text => tree.text(text, source) == key,
            });
            return same.map(|entry| entry.key_span);
        }
        // It is cheaper to check all keys at the end.
        if self.silent {
            return None;
        }
        if open.keys.is_empty() {
            for entry in entries {
                open.keys.entry(key_text(entry.key, tree, source)).or_insert(entry.key_span);
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

    pub(crate) fn begin_collection(&mut self, sort: CollectionKind, anchor: usize, span: ExprSpan) {
        if self.wants_key() {
            let message = "a key must be text, and this is a list or a mapping";
            return self.fail(Code::KeyNotText, span, message);
        }
        if self.open.len() >= limits::YAML_DEPTH {
            let message = format!("this is nested more than {} levels deep", limits::YAML_DEPTH);
            return self.fail(Code::TooDeepYaml, span, message);
        }
        let number = self.add_node(YamlContent::List(IndexRun::default()), span);
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        let start = if sort == CollectionKind::List { self.items.len() } else { self.entries.len() };
        self.open.push(OpenCollection { number, anchor, sort, start, key: None, keys: HashMap::new(), size: 1 });
    }

    pub(crate) fn end_collection(&mut self, span: ExprSpan) {
        let Some(open) = self.open.pop() else { return };
        let tree = &mut self.tree;
        let data = match open.sort {
            CollectionKind::List => {
                let start = tree.items.len();
                tree.items.extend(self.items.drain(open.start..));
                YamlContent::List(IndexRun::from_start(start, &tree.items))
            }
            CollectionKind::Map => {
                self.broken |= self.silent && has_duplicate_keys(&self.entries[open.start..], tree, self.source);
                let (start, own) = (tree.entries.len(), self.entries.drain(open.start..));
                let lengths = KeyLengths::from_entries(own.as_slice(), &tree.texts);
                tree.entries.extend(own);
                YamlContent::Map(IndexRun::from_start(start, &tree.entries), lengths)
            }
        };
        let node = &mut tree.nodes[open.number as usize];
        *node = (ExprSpan { start: node.0.start, end: span.end.max(node.0.end) }, data);
        self.set_anchor(open.anchor, open.number, open.size);
        self.place_node(open.number, open.size, span);
    }

    fn add_alias(&mut self, anchor: usize, span: ExprSpan) {
        if self.wants_key() {
            return self.fail(Code::KeyNotText, span, "a key must be text, and this is an alias");
        }
        match self.anchors.get(&anchor).copied().flatten() {
            Some((number, size)) => {
                self.aliases = true;
                self.place_node(number, size, span);
            }
            None => {
                let message = format!("`{}` is inside its own anchor", self.source.slice(span));
                self.fail(Code::UnknownAlias, span, message);
            }
        }
    }

    fn add_node(&mut self, data: YamlContent, span: ExprSpan) -> u32 {
        self.tree.nodes.push((span, data));
        u32::try_from(self.tree.nodes.len() - 1).expect("sources are limited")
    }

    fn set_anchor(&mut self, anchor: usize, number: u32, size: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Some((number, size)));
        }
    }

    /// Adds a finished node to the open collection, or makes it the root.
    fn place_node(&mut self, number: u32, size: usize, at: ExprSpan) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(number);
            return;
        };
        open.size = open.size.saturating_add(size);
        let total = open.size;
        match open.sort {
            CollectionKind::List => self.items.push(number),
            CollectionKind::Map => {
                let (key, key_span) = open.key.take().expect("a value follows its key");
                self.entries.push(YamlEntry { key, key_span, value: number });
            }
        }
        if total > limits::YAML_NODES {
            let written_out = if self.aliases { " with its aliases expanded" } else { "" };
            let message = format!("this has over {} values{written_out}", limits::YAML_NODES);
            self.fail(Code::TooManyNodes, at, message);
        }
    }
}

/// Returns the text of a key, nearly always borrowed from the source.
fn key_text<'s>(key: YamlText, tree: &YamlTree, source: &'s SourceFile) -> Cow<'s, str> {
    match key {
        YamlText::Verbatim(span) => source.slice(span).into(),
        YamlText::Own(_) => tree.text(key, source).to_owned().into(),
    }
}

/// True if a large mapping has a duplicate key. In a small one, each key has been compared with those before it.
fn has_duplicate_keys(entries: &[YamlEntry], tree: &YamlTree, source: &SourceFile) -> bool {
    if entries.len() <= FEW {
        return false;
    }
    // Comparing numbers is faster than comparing texts, and the first bytes nearly always differ.
    let head = |text: &str| text.bytes().take(8).fold(0, |head, byte| head << 8 | u64::from(byte));
    let keys = entries.iter().map(|entry| tree.text(entry.key, source));
    let mut keys: Vec<(u64, &str)> = keys.map(|key| (head(key), key)).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// Shortens a key for a message.
fn shorten_key(key: &str) -> String {
    const MOST: usize = 60;
    match key.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}
