//! The language of Mermaid, which Markdown viewers draw.

use skein_core::{
    ir::StepKindName,
    view::{GraphNode, GraphNodeKind, GraphView},
};

use super::chart::{ChartLanguage, draw_chart};

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
