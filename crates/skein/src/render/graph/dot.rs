//! The language of Graphviz.

use skein_core::{
    ir::StepKindName,
    view::{GraphNode, GraphNodeKind, GraphView},
};

use super::chart::{ChartLanguage, draw_chart};

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
