//! Trees put over trees: each node keeps its own source, so that what is said about a value points to the file that it
//! came from. Refuses to know which keys may be put over which.

use std::collections::BTreeMap;

use super::node::{Data, Entry, Lengths, Run, Text, Tree};

impl Tree {
    /// Takes in the nodes of another tree. Gives the number of its root in this one.
    pub fn adopt(&mut self, other: Tree) -> u32 {
        let (own, base) = (self.source().clone(), self.next());
        let number = |len: usize| u32::try_from(len).expect("sources are limited");
        let runs = (number(self.items.len()), number(self.entries.len()));
        let texts = number(self.texts.len());
        self.sources.extend(other.sources.into_iter().map(|(first, source)| (first + base, source)));
        self.nodes.extend(other.nodes.into_iter().map(|(span, data)| (span, moved(data, runs, texts))));
        self.items.extend(other.items.into_iter().map(|item| item + base));
        self.entries.extend(other.entries.into_iter().map(|entry| Entry {
            key: entry.key.moved(texts),
            value: entry.value + base,
            ..entry
        }));
        self.texts.extend(other.texts);
        // Whatever is made from here on stands for something of the document.
        self.sources.push((self.next(), own));
        other.root + base
    }

    /// One node over another: mappings are merged field by field, and anything else takes the other's place. Neither
    /// is changed, because aliases may lead to them from elsewhere.
    pub fn merged(&mut self, base: u32, over: u32) -> u32 {
        self.merged_with(base, over, &|_, _, _, _| None)
    }

    /// The same, where some fields are put over others in their own way: `special` is given the key and both values.
    pub fn merged_with(
        &mut self,
        base: u32,
        over: u32,
        special: &dyn Fn(&mut Tree, &str, u32, u32) -> Option<u32>,
    ) -> u32 {
        let (Data::Map(below, _), Data::Map(above, _)) =
            (self.nodes[base as usize].1, self.nodes[over as usize].1)
        else {
            return over;
        };
        let (mut entries, above) = (self.entries(below).to_vec(), self.entries(above).to_vec());
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (place, entry) in entries.iter().enumerate() {
            places.entry(self.key(entry)).or_insert(place);
        }
        for entry in above {
            let key = self.key(&entry);
            let Some(place) = places.get(&key).copied() else {
                entries.push(entry);
                continue;
            };
            let below = entries[place].value;
            let value =
                special(self, &key, below, entry.value).unwrap_or_else(|| self.merged(below, entry.value));
            if value == entry.value {
                entries[place] = entry;
            } else {
                entries[place].value = value;
            }
        }
        let (start, lengths) = (self.entries.len(), Lengths::of(&entries, &self.texts));
        self.entries.extend(entries);
        self.add(base, Data::Map(Run::since(start, &self.entries), lengths))
    }

    /// A list with other items in it.
    pub fn with_items(&mut self, list: u32, items: Vec<u32>) -> u32 {
        let start = self.items.len();
        self.items.extend(items);
        self.add(list, Data::List(Run::since(start, &self.items)))
    }

    /// Makes a node the document. Gives the number of the one before.
    pub fn set_root(&mut self, root: u32) -> u32 {
        std::mem::replace(&mut self.root, root)
    }

    fn key(&self, entry: &Entry) -> String {
        self.text(entry.key, self.node(entry.value).source()).to_owned()
    }

    fn next(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("sources are limited")
    }

    fn add(&mut self, like: u32, data: Data) -> u32 {
        let number = self.next();
        self.nodes.push((self.nodes[like as usize].0, data));
        number
    }
}

/// The same data behind so many items and entries, and so many texts.
fn moved(data: Data, (items, entries): (u32, u32), texts: u32) -> Data {
    match data {
        Data::Scalar { text, plain } => Data::Scalar { text: text.moved(texts), plain },
        Data::List(run) => Data::List(run.moved(items)),
        Data::Map(run, lengths) => Data::Map(run.moved(entries), lengths),
    }
}

impl Text {
    fn moved(self, by: u32) -> Text {
        match self {
            Text::Verbatim(span) => Text::Verbatim(span),
            Text::Own(number) => Text::Own(number + by),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_core::expr::Span;

    use super::*;
    use crate::{diagnostic::Sink, source::Source, yaml::parse};

    fn tree(name: &str, text: &str) -> Tree {
        let mut sink = Sink::new(Source::new(name, text));
        parse(Span::new(0, text.len()), &mut sink).expect("it is YAML")
    }

    #[test]
    fn mappings_merge_and_all_else_is_replaced() {
        let mut base = tree("base", "a: {x: 1, y: [1, 2]}\nb: text\nc: {z: 1}\n");
        let over = base.adopt(tree("over", "a: {y: [3], w: 2}\nc: 7\nd: new\n"));
        let merged = base.merged(base.root().number(), over);
        let before = base.set_root(merged);
        let wanted = json!({"a": {"x": 1, "y": [3], "w": 2}, "b": "text", "c": 7, "d": "new"});
        assert_eq!(base.root().json(), wanted);
        assert_eq!(base.node(before).json()["a"], json!({"x": 1, "y": [1, 2]}));
    }

    #[test]
    fn every_value_and_key_keeps_its_source() {
        let mut base = tree("base", "a: {x: 1, y: 2}\nb: 3\n");
        let over = base.adopt(tree("over", "# so that places differ\na: {y: 4}\nnew: 5\n"));
        let merged = base.merged(base.root().number(), over);
        base.set_root(merged);
        for field in base.root().fields().into_iter().flatten() {
            let source = field.value.source();
            assert_eq!(source.slice(field.key_span), field.key, "{}", source.name);
            assert_eq!(source.name, if field.key == "new" { "over" } else { "base" });
        }
        let of = |pointer: &str| base.root().at(pointer).source().name.clone();
        assert_eq!([of("/a/x"), of("/a/y"), of("/b")], ["base", "over", "base"]);
    }

    #[test]
    fn what_an_alias_leads_to_elsewhere_is_left_alone() {
        let mut base = tree("base", "a: &a {x: 1}\nb: *a\n");
        let over = base.adopt(tree("over", "a: {x: 2}\n"));
        let merged = base.merged(base.root().number(), over);
        base.set_root(merged);
        assert_eq!(base.root().json(), json!({"a": {"x": 2}, "b": {"x": 1}}));
    }
}
