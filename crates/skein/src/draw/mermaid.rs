//! Mermaid: what Markdown viewers draw.

use skein_core::{
    ir::KindName,
    view::{Graph, Node, NodeKind},
};

use super::chart::{Language, chart};

pub fn mermaid(graph: &Graph) -> String {
    chart(graph, &Mermaid)
}

struct Mermaid;

impl Language for Mermaid {
    fn begin(&self) -> &'static str {
        "flowchart TD\n"
    }

    fn node(&self, number: usize, node: &Node) -> String {
        let (open, close) = match node.kind {
            NodeKind::Step(KindName::Gate | KindName::Wait) => ("{{", "}}"),
            NodeKind::Step(KindName::Branch) => ("{", "}"),
            NodeKind::Step(KindName::Call) => ("[[", "]]"),
            NodeKind::Mark(_) => ("((", "))"),
            NodeKind::Step(_) => ("[", "]"),
        };
        format!("n{number}{open}\"{}\"{close}", escaped(&node.label))
    }

    fn open(&self, group: usize, label: &str) -> String {
        format!("subgraph g{group} [\"{}\"]", escaped(label))
    }

    fn close(&self) -> &'static str {
        "end"
    }

    fn edge(&self, from: usize, to: usize, label: Option<&str>) -> String {
        let label = label.map(|label| format!("|\"{}\"|", escaped(label))).unwrap_or_default();
        format!("n{from} -->{label} n{to}")
    }

    fn holds(&self, node: usize, group: usize, _: usize) -> String {
        format!("n{node} -.-> g{group}")
    }

    fn end(&self) -> &'static str {
        ""
    }
}

/// A label is text, whatever it holds.
fn escaped(label: &str) -> String {
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
