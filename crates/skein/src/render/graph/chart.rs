//! Drawings in the languages of Graphviz and of Mermaid, which Markdown viewers draw. One traversal of the graph serves
//! both; each language only formats its lines.

use std::{collections::BTreeMap, fmt::Write};

use skein_core::{
    ir::StepKindName,
    view::{GraphNode, GraphNodeKind, GraphView},
};

/// The syntax of a language. Nodes and groups are named by their numbers.
pub(super) trait ChartLanguage {
    fn header(&self) -> &'static str;
    fn node_line(&self, number: usize, node: &GraphNode) -> String;
    fn group_start(&self, group: usize, label: &str) -> String;
    fn group_end(&self) -> &'static str;
    fn edge_line(&self, from: usize, to: usize, label: Option<&str>) -> String;
    /// The line from a step to its contents, or to the workflow that it calls: a group, and its first node.
    fn containment_line(&self, node: usize, group: usize, first: usize) -> String;
    fn footer(&self) -> &'static str;
}

pub(super) fn draw_chart(graph: &GraphView, language: &dyn ChartLanguage) -> String {
    let index = GraphIndex::new(graph);
    let mut chart = ChartWriter { index: &index, language, depth: 1, text: language.header().to_owned() };
    for (number, group) in index.workflows.iter().enumerate() {
        // The root workflow needs no box around it.
        if number == 0 {
            index.members[*group].iter().for_each(|node| chart.write_node(*node));
        } else {
            chart.write_group(*group);
        }
    }
    for (from, edges) in index.edges.iter().enumerate() {
        for (to, label) in edges {
            chart.write_line(&language.edge_line(from, *to, *label));
        }
    }
    chart.text + language.footer()
}

struct ChartWriter<'a> {
    index: &'a GraphIndex<'a>,
    language: &'a dyn ChartLanguage,
    depth: usize,
    text: String,
}

impl ChartWriter<'_> {
    fn write_line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{:indent$}{line}", "", indent = 4 * self.depth);
    }

    fn write_group(&mut self, group: usize) {
        let index = self.index;
        self.write_line(&self.language.group_start(group, &index.graph.groups[group].label));
        self.depth += 1;
        index.members[group].iter().for_each(|node| self.write_node(*node));
        self.depth -= 1;
        self.write_line(self.language.group_end());
    }

    fn write_node(&mut self, number: usize) {
        let index = self.index;
        let node = &index.graph.nodes[number];
        self.write_line(&self.language.node_line(number, node));
        for group in &index.inside[number] {
            self.write_group(*group);
        }
        for group in index.inside[number].iter().chain(&node.calls) {
            if let Some(first) = index.members[*group].first() {
                self.write_line(&self.language.containment_line(number, *group, *first));
            }
        }
    }
}

pub(super) struct GraphIndex<'a> {
    pub graph: &'a GraphView,
    /// The nodes of each group, in the order of the plan.
    pub members: Vec<Vec<usize>>,
    /// The groups inside each node.
    pub inside: Vec<Vec<usize>>,
    /// The edges from each node: the target, and the condition.
    pub edges: Vec<Vec<(usize, Option<&'a str>)>>,
    /// The groups that are whole workflows, the root first.
    pub workflows: Vec<usize>,
}

impl<'a> GraphIndex<'a> {
    pub(super) fn new(graph: &'a GraphView) -> GraphIndex<'a> {
        let numbers: BTreeMap<&str, usize> = graph.nodes.iter().map(|node| node.id.as_str()).zip(0..).collect();
        let mut index = GraphIndex {
            graph,
            members: vec![Vec::new(); graph.groups.len()],
            inside: vec![Vec::new(); graph.nodes.len()],
            edges: vec![Vec::new(); graph.nodes.len()],
            workflows: Vec::new(),
        };
        for (number, node) in graph.nodes.iter().enumerate() {
            index.members[node.group].push(number);
        }
        for (number, group) in graph.groups.iter().enumerate() {
            match group.inside.as_deref().and_then(|node| numbers.get(node)) {
                Some(node) => index.inside[*node].push(number),
                None => index.workflows.push(number),
            }
        }
        for edge in &graph.edges {
            if let (Some(from), Some(to)) = (numbers.get(edge.from.as_str()), numbers.get(edge.to.as_str())) {
                index.edges[*from].push((*to, edge.label.as_deref()));
            }
        }
        index
    }

    /// Returns the nodes that a node leads to, each once.
    pub(super) fn targets(&self, node: usize) -> Vec<usize> {
        let mut targets: Vec<usize> = self.edges[node].iter().map(|(to, _)| *to).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}

pub(crate) fn draw_dot(graph: &GraphView) -> String {
    draw_chart(graph, &DotLanguage)
}

struct DotLanguage;

impl ChartLanguage for DotLanguage {
    fn header(&self) -> &'static str {
        "digraph workflow {\n    rankdir=TB;\n    compound=true;\n    node [shape=box, fontname=\"sans-serif\"];\n"
    }

    fn node_line(&self, number: usize, node: &GraphNode) -> String {
        let shape = match node.kind {
            GraphNodeKind::Step(StepKindName::Gate | StepKindName::Wait) => ", shape=hexagon",
            GraphNodeKind::Step(StepKindName::Branch) => ", shape=diamond",
            GraphNodeKind::Step(StepKindName::Call) => ", peripheries=2",
            GraphNodeKind::Mark(_) => ", shape=circle",
            GraphNodeKind::Step(_) => "",
        };
        format!("n{number} [label={}{shape}];", quote_label(&node.label))
    }

    fn group_start(&self, group: usize, label: &str) -> String {
        format!("subgraph cluster_{group} {{ label={};", quote_label(label))
    }

    fn group_end(&self) -> &'static str {
        "}"
    }

    fn edge_line(&self, from: usize, to: usize, label: Option<&str>) -> String {
        let label = label.map(|label| format!(" [label={}]", quote_label(label))).unwrap_or_default();
        format!("n{from} -> n{to}{label};")
    }

    fn containment_line(&self, node: usize, group: usize, first: usize) -> String {
        format!("n{node} -> n{first} [lhead=cluster_{group}, style=dotted];")
    }

    fn footer(&self) -> &'static str {
        "}\n"
    }
}

fn quote_label(label: &str) -> String {
    let plain: String = label.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(crate) fn draw_mermaid(graph: &GraphView) -> String {
    draw_chart(graph, &MermaidLanguage)
}

struct MermaidLanguage;

impl ChartLanguage for MermaidLanguage {
    fn header(&self) -> &'static str {
        "flowchart TD\n"
    }

    fn node_line(&self, number: usize, node: &GraphNode) -> String {
        let (open, close) = match node.kind {
            GraphNodeKind::Step(StepKindName::Gate | StepKindName::Wait) => ("{{", "}}"),
            GraphNodeKind::Step(StepKindName::Branch) => ("{", "}"),
            GraphNodeKind::Step(StepKindName::Call) => ("[[", "]]"),
            GraphNodeKind::Mark(_) => ("((", "))"),
            GraphNodeKind::Step(_) => ("[", "]"),
        };
        format!("n{number}{open}\"{}\"{close}", escape_label(&node.label))
    }

    fn group_start(&self, group: usize, label: &str) -> String {
        format!("subgraph g{group} [\"{}\"]", escape_label(label))
    }

    fn group_end(&self) -> &'static str {
        "end"
    }

    fn edge_line(&self, from: usize, to: usize, label: Option<&str>) -> String {
        let label = label.map(|label| format!("|\"{}\"|", escape_label(label))).unwrap_or_default();
        format!("n{from} -->{label} n{to}")
    }

    fn containment_line(&self, node: usize, group: usize, _: usize) -> String {
        format!("n{node} -.-> g{group}")
    }

    fn footer(&self) -> &'static str {
        ""
    }
}

/// Escapes a label, so that it is always text.
fn escape_label(label: &str) -> String {
    let mut text = String::new();
    for c in label.chars() {
        match c {
            '#' => text.push_str("#35;"),
            '"' => text.push_str("#quot;"),
            '<' => text.push_str("#lt;"),
            '>' => text.push_str("#gt;"),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text
}
