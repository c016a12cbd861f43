//! Graphviz's language.

use skein_core::{
    ir::KindName,
    view::{Graph, Node, NodeKind},
};

use super::chart::{Language, chart};

pub fn dot(graph: &Graph) -> String {
    chart(graph, &Dot)
}

struct Dot;

impl Language for Dot {
    fn begin(&self) -> &'static str {
        "digraph workflow {\n    rankdir=TB;\n    compound=true;\n    node [shape=box, fontname=\"sans-serif\"];\n"
    }

    fn node(&self, number: usize, node: &Node) -> String {
        let shape = match node.kind {
            NodeKind::Step(KindName::Gate | KindName::Wait) => ", shape=hexagon",
            NodeKind::Step(KindName::Branch) => ", shape=diamond",
            NodeKind::Step(KindName::Call) => ", peripheries=2",
            NodeKind::Mark(_) => ", shape=circle",
            NodeKind::Step(_) => "",
        };
        format!("n{number} [label={}{shape}];", quoted(&node.label))
    }

    fn open(&self, group: usize, label: &str) -> String {
        format!("subgraph cluster_{group} {{ label={};", quoted(label))
    }

    fn close(&self) -> &'static str {
        "}"
    }

    fn edge(&self, from: usize, to: usize, label: Option<&str>) -> String {
        let label = label.map(|label| format!(" [label={}]", quoted(label))).unwrap_or_default();
        format!("n{from} -> n{to}{label};")
    }

    fn holds(&self, node: usize, group: usize, first: usize) -> String {
        format!("n{node} -> n{first} [lhead=cluster_{group}, style=dotted];")
    }

    fn end(&self) -> &'static str {
        "}\n"
    }
}

fn quoted(label: &str) -> String {
    let plain: String = label.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}
