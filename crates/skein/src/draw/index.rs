//! A graph with its relations indexed: the members of each group, the groups inside each node, and the edges of each
//! node.

use std::collections::BTreeMap;

use skein_core::view::GraphView;

pub struct GraphIndex<'a> {
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
    pub fn new(graph: &'a GraphView) -> GraphIndex<'a> {
        let numbers: BTreeMap<&str, usize> =
            graph.nodes.iter().map(|node| node.id.as_str()).zip(0..).collect();
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
    pub fn targets(&self, node: usize) -> Vec<usize> {
        let mut targets: Vec<usize> = self.edges[node].iter().map(|(to, _)| *to).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}
