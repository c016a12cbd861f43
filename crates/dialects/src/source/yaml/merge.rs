//! Merges trees. Each node keeps its own source, so that diagnostics about a value point to its file. Does not know
//! which keys may be merged.

use std::collections::BTreeMap;

use super::node::{IndexRun, KeyLengths, YamlContent, YamlEntry, YamlText, YamlTree};

impl YamlTree {
    /// Adds the nodes of another tree. Returns the number of its root in this one.
    pub fn adopt_tree(&mut self, other: YamlTree) -> u32 {
        let (own, base) = (self.source().clone(), self.next_number());
        let number = |len: usize| u32::try_from(len).expect("sources are limited");
        let runs = (number(self.items.len()), number(self.entries.len()));
        let texts = number(self.texts.len());
        self.sources.extend(other.sources.into_iter().map(|(first, source)| (first + base, source)));
        self.nodes.extend(other.nodes.into_iter().map(|(span, data)| (span, shift_content(data, runs, texts))));
        self.items.extend(other.items.into_iter().map(|item| item + base));
        self.entries.extend(other.entries.into_iter().map(|entry| YamlEntry {
            key: entry.key.shift_by(texts),
            value: entry.value + base,
            ..entry
        }));
        self.texts.extend(other.texts);
        // Nodes that are added from here on belong to the document.
        self.sources.push((self.next_number(), own));
        other.root + base
    }

    /// Merges a node over another: mappings are merged field by field, and any other value is replaced. Neither node is
    /// changed, because aliases may refer to them.
    pub fn merge_nodes(&mut self, base: u32, over: u32) -> u32 {
        self.merge_nodes_with(base, over, &|_, _, _, _| None)
    }

    /// Merges a node over another. `special` gets the key and both values, and may merge some fields in its own way.
    pub fn merge_nodes_with(
        &mut self,
        base: u32,
        over: u32,
        special: &dyn Fn(&mut YamlTree, &str, u32, u32) -> Option<u32>,
    ) -> u32 {
        let (YamlContent::Map(below, _), YamlContent::Map(above, _)) =
            (self.nodes[base as usize].1, self.nodes[over as usize].1)
        else {
            return over;
        };
        let (mut entries, above) = (self.entries(below).to_vec(), self.entries(above).to_vec());
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (place, entry) in entries.iter().enumerate() {
            places.entry(self.entry_key(entry)).or_insert(place);
        }
        for entry in above {
            let key = self.entry_key(&entry);
            let Some(place) = places.get(&key).copied() else {
                entries.push(entry);
                continue;
            };
            let below = entries[place].value;
            let value = special(self, &key, below, entry.value).unwrap_or_else(|| self.merge_nodes(below, entry.value));
            if value == entry.value {
                entries[place] = entry;
            } else {
                entries[place].value = value;
            }
        }
        let (start, lengths) = (self.entries.len(), KeyLengths::from_entries(&entries, &self.texts));
        self.entries.extend(entries);
        self.add_node(base, YamlContent::Map(IndexRun::from_start(start, &self.entries), lengths))
    }

    /// Adds a copy of a list with other items.
    pub fn with_items(&mut self, list: u32, items: Vec<u32>) -> u32 {
        let start = self.items.len();
        self.items.extend(items);
        self.add_node(list, YamlContent::List(IndexRun::from_start(start, &self.items)))
    }

    /// Sets the root. Returns the number of the previous one.
    pub fn set_root(&mut self, root: u32) -> u32 {
        std::mem::replace(&mut self.root, root)
    }

    fn entry_key(&self, entry: &YamlEntry) -> String {
        self.text(entry.key, self.node(entry.value).source()).to_owned()
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("sources are limited")
    }

    fn add_node(&mut self, like: u32, data: YamlContent) -> u32 {
        let number = self.next_number();
        self.nodes.push((self.nodes[like as usize].0, data));
        number
    }
}

/// Shifts the indexes of a node's content by the numbers of items, entries and texts before it.
fn shift_content(data: YamlContent, (items, entries): (u32, u32), texts: u32) -> YamlContent {
    match data {
        YamlContent::Scalar { text, plain } => YamlContent::Scalar { text: text.shift_by(texts), plain },
        YamlContent::List(run) => YamlContent::List(run.shift_by(items)),
        YamlContent::Map(run, lengths) => YamlContent::Map(run.shift_by(entries), lengths),
    }
}

impl YamlText {
    fn shift_by(self, by: u32) -> YamlText {
        match self {
            YamlText::Verbatim(span) => YamlText::Verbatim(span),
            YamlText::Own(number) => YamlText::Own(number + by),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_core::expr::ExprSpan;

    use super::*;
    use crate::{
        diagnostics::{DiagnosticSink, SourceFile},
        source::yaml::parse_yaml,
    };

    fn tree(name: &str, text: &str) -> YamlTree {
        let mut sink = DiagnosticSink::new(SourceFile::new(name, text));
        parse_yaml(ExprSpan::new(0, text.len()), &mut sink).expect("it is YAML")
    }

    #[test]
    fn mappings_merge_and_all_else_is_replaced() {
        let mut base = tree("base", "a: {x: 1, y: [1, 2]}\nb: text\nc: {z: 1}\n");
        let over = base.adopt_tree(tree("over", "a: {y: [3], w: 2}\nc: 7\nd: new\n"));
        let merged = base.merge_nodes(base.root().number(), over);
        let before = base.set_root(merged);
        let wanted = json!({"a": {"x": 1, "y": [3], "w": 2}, "b": "text", "c": 7, "d": "new"});
        assert_eq!(base.root().to_json(), wanted);
        assert_eq!(base.node(before).to_json()["a"], json!({"x": 1, "y": [1, 2]}));
    }

    #[test]
    fn every_value_and_key_keeps_its_source() {
        let mut base = tree("base", "a: {x: 1, y: 2}\nb: 3\n");
        let over = base.adopt_tree(tree("over", "# so that places differ\na: {y: 4}\nnew: 5\n"));
        let merged = base.merge_nodes(base.root().number(), over);
        base.set_root(merged);
        for field in base.root().fields().into_iter().flatten() {
            let source = field.value.source();
            assert_eq!(source.slice(field.key_span), field.key, "{}", source.name);
            assert_eq!(source.name, if field.key == "new" { "over" } else { "base" });
        }
        let of = |pointer: &str| base.root().node_at(pointer).source().name.clone();
        assert_eq!([of("/a/x"), of("/a/y"), of("/b")], ["base", "over", "base"]);
    }

    #[test]
    fn what_an_alias_leads_to_elsewhere_is_left_alone() {
        let mut base = tree("base", "a: &a {x: 1}\nb: *a\n");
        let over = base.adopt_tree(tree("over", "a: {x: 2}\n"));
        let merged = base.merge_nodes(base.root().number(), over);
        base.set_root(merged);
        assert_eq!(base.root().to_json(), json!({"a": {"x": 2}, "b": {"x": 1}}));
    }
}
