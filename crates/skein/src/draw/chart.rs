//! The walk over a graph that every drawing language needs; each says only how its lines look.

use std::fmt::Write;

use skein_core::view::{Graph, Node};

use super::index::Index;

/// How a language writes things. Nodes and groups are named by their numbers.
pub trait Language {
    fn begin(&self) -> &'static str;
    fn node(&self, number: usize, node: &Node) -> String;
    fn open(&self, group: usize, label: &str) -> String;
    fn close(&self) -> &'static str;
    fn edge(&self, from: usize, to: usize, label: Option<&str>) -> String;
    /// From a step to what is inside it, or to the workflow that it calls: a group, and its first node.
    fn holds(&self, node: usize, group: usize, first: usize) -> String;
    fn end(&self) -> &'static str;
}

pub fn chart(graph: &Graph, language: &dyn Language) -> String {
    let index = Index::of(graph);
    let mut chart = Chart { index: &index, language, depth: 1, text: language.begin().to_owned() };
    for (number, group) in index.workflows.iter().enumerate() {
        // The workflow itself needs no box around it.
        if number == 0 {
            index.members[*group].iter().for_each(|node| chart.node(*node));
        } else {
            chart.group(*group);
        }
    }
    for (from, edges) in index.edges.iter().enumerate() {
        for (to, label) in edges {
            chart.line(&language.edge(from, *to, *label));
        }
    }
    chart.text + language.end()
}

struct Chart<'a> {
    index: &'a Index<'a>,
    language: &'a dyn Language,
    depth: usize,
    text: String,
}

impl Chart<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{:indent$}{line}", "", indent = 4 * self.depth);
    }

    fn group(&mut self, group: usize) {
        let index = self.index;
        self.line(&self.language.open(group, &index.graph.groups[group].label));
        self.depth += 1;
        index.members[group].iter().for_each(|node| self.node(*node));
        self.depth -= 1;
        self.line(self.language.close());
    }

    fn node(&mut self, number: usize) {
        let index = self.index;
        let node = &index.graph.nodes[number];
        self.line(&self.language.node(number, node));
        for group in &index.inside[number] {
            self.group(*group);
        }
        for group in index.inside[number].iter().chain(&node.calls) {
            if let Some(first) = index.members[*group].first() {
                self.line(&self.language.holds(number, *group, *first));
            }
        }
    }
}
