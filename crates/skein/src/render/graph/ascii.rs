//! A drawing for a terminal: one line per step, with rails from each step to its successors. Owns the column of each rail
//! and the characters where rails meet.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    ir::StepKindName,
    view::{GraphGroupKind, GraphNodeKind, GraphView},
};

use crate::render::{graph::chart::GraphIndex, output::Paint};

/// The maximum number of names in one line.
const NAMED: usize = 8;

/// Draws the whole graph; the contents of a step are indented below it.
pub(crate) fn draw_ascii(graph: &GraphView, paint: Paint) -> String {
    let index = GraphIndex::new(graph);
    let (back, bundles) = (BTreeSet::new(), BTreeMap::new());
    let mut drawing = AsciiDrawing { index: &index, paint, lines: Vec::new(), back, bundles };
    for (number, group) in index.workflows.iter().enumerate() {
        if number > 0 {
            let heading = format!("workflow {}", graph.groups[*group].label);
            drawing.lines.extend([String::new(), paint.title(&heading)]);
        }
        drawing.draw_group(*group, "");
    }
    drawing.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

struct AsciiDrawing<'a> {
    index: &'a GraphIndex<'a>,
    paint: Paint,
    lines: Vec<String>,
    /// Edges to an earlier step, which are described in text and not drawn.
    back: BTreeSet<(usize, usize)>,
    /// Steps that are drawn as one, by the first of them.
    bundles: BTreeMap<usize, Vec<usize>>,
}

impl AsciiDrawing<'_> {
    fn draw_group(&mut self, group: usize, indent: &str) {
        let order = self.sort_nodes(group);
        let place: BTreeMap<usize, usize> = order.iter().copied().zip(0..).collect();
        for node in &order {
            let earlier = self.index.targets(*node).into_iter().filter(|to| place.get(to) <= place.get(node));
            self.back.extend(earlier.map(|to| (*node, to)));
        }
        let down = |node: usize| {
            let targets = self.index.targets(node).into_iter().filter(|target| place.get(target) > place.get(&node));
            targets.collect::<Vec<_>>()
        };
        let rows = draw_rails(&order, down).or_else(|| {
            let bundles = self.bundle_steps(&order);
            let kept: Vec<usize> = order.iter().copied().filter(|node| bundles.contains_key(node)).collect();
            let among = |node: usize| down(node).into_iter().filter(|to| bundles.contains_key(to)).collect();
            let rows = draw_rails(&kept, among)?;
            self.bundles.extend(bundles);
            Some(rows)
        });
        match rows {
            Some(rows) => rows.iter().for_each(|row| self.draw_row(row, indent)),
            None => order.iter().for_each(|node| self.draw_listed(*node, indent)),
        }
    }

    /// Bundles steps that differ only in their names: they have the same predecessors and successors, and contain
    /// nothing.
    fn bundle_steps(&self, order: &[usize]) -> BTreeMap<usize, Vec<usize>> {
        let mut sources: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for node in order {
            self.index.targets(*node).into_iter().for_each(|to| sources.entry(to).or_default().push(*node));
        }
        let mut first: BTreeMap<(Vec<usize>, Vec<usize>), usize> = BTreeMap::new();
        let mut bundles: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for node in order {
            let alike = (sources.remove(node).unwrap_or_default(), self.index.targets(*node));
            let plain = self.index.inside[*node].is_empty()
                && self.describe_routes(*node).is_empty()
                && matches!(self.index.graph.nodes[*node].kind, GraphNodeKind::Step(StepKindName::Work));
            let with = if plain { *first.entry(alike).or_insert(*node) } else { *node };
            bundles.entry(with).or_default().push(*node);
        }
        bundles
    }

    /// Sorts the nodes topologically, else in the order of the plan. A cycle starts with a node that leads to all of
    /// it.
    fn sort_nodes(&self, group: usize) -> Vec<usize> {
        let nodes = &self.index.members[group];
        let mut waiting: BTreeMap<usize, usize> = nodes.iter().map(|node| (*node, 0)).collect();
        for target in nodes.iter().flat_map(|node| self.index.targets(*node)) {
            *waiting.entry(target).or_default() += 1;
        }
        let mut free: BTreeSet<usize> = nodes.iter().copied().filter(|node| waiting[node] == 0).collect();
        let mut order = Vec::new();
        while let Some(node) = free.pop_first().or_else(|| self.find_cycle_entry(&waiting)) {
            waiting.remove(&node);
            for target in self.index.targets(node) {
                if let Some(count) = waiting.get_mut(&target) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        free.insert(target);
                    }
                }
            }
            order.push(node);
        }
        order
    }

    /// Finds a node that is reached only from nodes that it reaches itself: the last from which something new can be
    /// reached.
    fn find_cycle_entry(&self, waiting: &BTreeMap<usize, usize>) -> Option<usize> {
        let (mut reached, mut last) = (BTreeSet::new(), None);
        for node in waiting.keys() {
            if reached.contains(node) {
                continue;
            }
            last = Some(*node);
            let mut todo = vec![*node];
            while let Some(next) = todo.pop() {
                if reached.insert(next) {
                    todo.extend(self.index.targets(next).into_iter().filter(|to| waiting.contains_key(to)));
                }
            }
        }
        last
    }

    fn draw_row(&mut self, row: &RailRow, indent: &str) {
        if row.links.is_some_and(|above| !self.index.inside[above].is_empty()) {
            return;
        }
        let Some(node) = row.node else { return self.lines.push(format!("{indent}{}", row.rails)) };
        self.lines.push(format!("{indent}{}{}", row.rails, self.render_label(node)));
        self.draw_inner(node, &format!("{indent}{}", row.below));
    }

    /// Draws each step with the names of its successors, if there are too many rails.
    fn draw_listed(&mut self, node: usize, indent: &str) {
        let then = match self.list_names(&self.index.targets(node)) {
            names if names.is_empty() => names,
            names => format!("  then {names}"),
        };
        self.lines.push(format!("{indent}● {}{}", self.render_label(node), self.paint.faint(&then)));
        self.draw_inner(node, &format!("{indent}    "));
    }

    fn draw_inner(&mut self, node: usize, indent: &str) {
        for group in &self.index.inside[node] {
            let inner = &self.index.graph.groups[*group];
            let label = match inner.kind {
                GraphGroupKind::Lane => format!("lane {}", inner.label),
                _ => inner.label.clone(),
            };
            self.lines.push(format!("{indent}{}", self.paint.faint(&label)));
            self.draw_group(*group, &format!("{indent}  "));
        }
    }

    /// Returns the name of a node within its group.
    fn short_name(&self, node: usize) -> &str {
        let id = &self.index.graph.nodes[node].id;
        id.rsplit('/').next().unwrap_or(id).trim_start_matches('$')
    }

    /// Returns the names of some nodes, up to the maximum.
    fn list_names(&self, nodes: &[usize]) -> String {
        let names = nodes.iter().take(NAMED).map(|node| self.short_name(*node));
        let names = names.collect::<Vec<_>>().join(", ");
        match nodes.len().saturating_sub(NAMED) {
            0 => names,
            more => format!("{names} and {more} more"),
        }
    }

    fn render_label(&self, node: usize) -> String {
        if let Some(nodes) = self.bundles.get(&node).filter(|nodes| nodes.len() > 1) {
            let count = self.paint.faint(&format!("  {} side by side", nodes.len()));
            return format!("{}{count}", self.paint.name(&self.list_names(nodes)));
        }
        let drawn = &self.index.graph.nodes[node];
        let name = match drawn.kind {
            GraphNodeKind::Mark(_) => return self.paint.faint("end"),
            GraphNodeKind::Step(_) => self.paint.name(self.short_name(node)),
        };
        let kind = match drawn.kind {
            GraphNodeKind::Step(StepKindName::Work) | GraphNodeKind::Mark(_) => "",
            GraphNodeKind::Step(StepKindName::Gate) => " gate",
            GraphNodeKind::Step(StepKindName::Wait) => " wait",
            GraphNodeKind::Step(StepKindName::Branch) => " branch",
            GraphNodeKind::Step(StepKindName::Parallel) => " parallel",
            GraphNodeKind::Step(StepKindName::Each) => " each",
            GraphNodeKind::Step(StepKindName::Loop) => " loop",
            GraphNodeKind::Step(StepKindName::Call) => " call",
        };
        let called = drawn.calls.map(|group| format!(" of {}", self.index.graph.groups[group].label));
        let kind = format!("{kind}{}", called.unwrap_or_default());
        let routes: Vec<String> = self.describe_routes(node);
        let routes = if routes.is_empty() { String::new() } else { format!("  {}", routes.join("; ")) };
        format!("{name}{}{}", self.paint.faint(&kind), self.paint.faint(&routes))
    }

    /// Describes the edges of a step that have a condition or lead back.
    fn describe_routes(&self, node: usize) -> Vec<String> {
        let describe_edge = |(to, label): &(usize, Option<&str>)| match label {
            Some(label) => Some(format!("{label} → {}", self.short_name(*to))),
            None => self.back.contains(&(node, *to)).then(|| format!("then → {}", self.short_name(*to))),
        };
        self.index.edges[node].iter().filter_map(describe_edge).collect()
    }
}

/// A row of a drawing: its text, and the node on it, if any.
pub(super) struct RailRow {
    pub rails: String,
    /// The text of further lines of the same row.
    pub below: String,
    pub node: Option<usize>,
    /// The node above, if this row only connects it to the next node in the same column. If that node's row has further
    /// lines, they make the connection.
    pub links: Option<usize>,
}

/// Maximum number of rails side by side that can be followed by eye.
const WIDEST: usize = 24;

/// Draws nodes in an order in which every edge leads down. None if it would be too wide to read.
pub(super) fn draw_rails(order: &[usize], targets: impl Fn(usize) -> Vec<usize>) -> Option<Vec<RailRow>> {
    let mut rails = RailLayout { columns: Vec::new(), rows: Vec::new(), last: None };
    for node in order {
        let column = rails.join_rails(*node);
        let targets = targets(*node);
        // Checked before they are drawn_rails, so that a step with many successors costs little.
        if rails.columns.len() + targets.len() > WIDEST + 1 {
            return None;
        }
        rails.place_node(column, *node, !targets.is_empty());
        rails.branch_rails(column, &targets);
    }
    Some(rails.rows)
}

struct RailLayout {
    /// The target of the rail in each column.
    columns: Vec<Option<usize>>,
    rows: Vec<RailRow>,
    /// The column and the node on the last row, if any.
    last: Option<(usize, usize)>,
}

impl RailLayout {
    /// Joins all rails that lead to a node. Returns the column of the node.
    fn join_rails(&mut self, node: usize) -> usize {
        let here: Vec<usize> = (0..self.columns.len()).filter(|i| self.columns[*i] == Some(node)).collect();
        let Some((column, others)) = here.split_first() else { return self.find_free_column(0) };
        if !others.is_empty() {
            self.draw_junction(*column, others, ['├', '┴', '╯']);
            others.iter().for_each(|other| self.columns[*other] = None);
            self.trim_columns();
        } else if let Some((_, above)) = self.last.filter(|(last, _)| last == column) {
            // Without this row, two consecutive steps would look like two unrelated steps.
            let rail = |leads: &Option<usize>| if leads.is_some() { "│ " } else { "  " };
            let rails = self.columns.iter().map(rail).collect();
            self.rows.push(RailRow { rails, below: String::new(), node: None, links: Some(above) });
        }
        *column
    }

    fn find_free_column(&mut self, from: usize) -> usize {
        let free = (from..self.columns.len()).find(|i| self.columns[*i].is_none());
        free.unwrap_or_else(|| {
            self.columns.push(None);
            self.columns.len() - 1
        })
    }

    fn place_node(&mut self, column: usize, node: usize, goes_on: bool) {
        let row = |here: &'static str| {
            let rail = |(i, leads): (usize, &Option<usize>)| match leads {
                _ if i == column => here,
                Some(_) => "│ ",
                None => "  ",
            };
            self.columns.iter().enumerate().map(rail).collect()
        };
        let (rails, below) = (row("● "), row(if goes_on { "│ " } else { "  " }));
        self.rows.push(RailRow { rails, below, node: Some(node), links: None });
        self.last = Some((column, node));
    }

    fn branch_rails(&mut self, column: usize, targets: &[usize]) {
        self.columns[column] = targets.first().copied();
        let others: Vec<usize> = targets
            .iter()
            .skip(1)
            .map(|target| {
                let at = self.find_free_column(column + 1);
                self.columns[at] = Some(*target);
                at
            })
            .collect();
        if !others.is_empty() {
            self.draw_junction(column, &others, ['├', '┬', '╮']);
        }
        self.trim_columns();
    }

    /// Removes free columns at the end.
    fn trim_columns(&mut self) {
        while self.columns.last() == Some(&None) {
            self.columns.pop();
        }
    }

    /// Draws a row in which the rails of some columns join or leave the one in `column`, across the others.
    fn draw_junction(&mut self, column: usize, others: &[usize], [start, middle, end]: [char; 3]) {
        let last = others.iter().copied().max().unwrap_or(column);
        let mut rails = String::new();
        for i in 0..self.columns.len() {
            let crossed = i > column && i < last;
            rails.push(match self.columns[i] {
                _ if i == column => start,
                _ if i == last => end,
                _ if others.contains(&i) => middle,
                Some(_) if crossed => '┼',
                Some(_) => '│',
                None if crossed => '─',
                None => ' ',
            });
            rails.push(if i >= column && i < last { '─' } else { ' ' });
        }
        self.rows.push(RailRow { rails, below: String::new(), node: None, links: None });
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skein_core::view::{GraphEdge, GraphGroup, GraphNode};

    use super::*;

    fn drawn(names: &[String], edges: impl IntoIterator<Item = (usize, usize)>) -> String {
        let node = |name: &String| GraphNode {
            id: name.clone(),
            label: name.clone(),
            kind: GraphNodeKind::Step(StepKindName::Work),
            group: 0,
            calls: None,
            status: None,
            counts: BTreeMap::new(),
        };
        let edge = |(from, to): (usize, usize)| {
            let (from, to) = (names[from].clone(), names[to].clone());
            GraphEdge { from, to, label: None }
        };
        let group = GraphGroup { id: String::new(), label: "x".into(), kind: GraphGroupKind::Workflow, inside: None };
        let (nodes, edges) = (names.iter().map(node).collect(), edges.into_iter().map(edge).collect());
        draw_ascii(&GraphView { groups: vec![group], nodes, edges }, Paint(false))
    }

    #[test]
    fn many_that_differ_only_in_their_names_are_drawn_as_one() {
        let names: Vec<String> = (0..32).map(|i| format!("s{i}")).collect();
        let edges = (1..31).flat_map(|i| [(0, i), (i, 31)]);
        assert_eq!(
            drawn(&names, edges),
            "● s0\n│\n● s1, s2, s3, s4, s5, s6, s7, s8 and 22 more  30 side by side\n│\n● s31\n"
        );
    }

    #[test]
    fn many_that_differ_are_listed() {
        let names: Vec<String> = (0..60).map(|i| format!("s{i}")).collect();
        let edges = (1..30).flat_map(|i| [(0, i), (i, 30 + i)]);
        let drawn = drawn(&names, edges);
        assert!(drawn.starts_with("● s0  then s1, s2, s3, s4, s5, s6, s7, s8 and 21 more\n"), "{drawn}");
        assert!(drawn.contains("\n● s1  then s31\n"), "{drawn}");
    }

    fn drawn_rails(edges: &[&[usize]]) -> String {
        let order: Vec<usize> = (0..edges.len()).collect();
        let rows = draw_rails(&order, |node| edges[node].to_vec()).unwrap();
        let line = |row: &RailRow| {
            let name = row.node.map(|node| node.to_string()).unwrap_or_default();
            format!("{}{name}", row.rails).trim_end().to_owned()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_diamond() {
        assert_eq!(drawn_rails(&[&[1, 2], &[3], &[3], &[]]), "● 0\n├─╮\n● │ 1\n│ ● 2\n├─╯\n● 3");
    }

    #[test]
    fn a_rail_that_passes_others() {
        assert_eq!(drawn_rails(&[&[1, 2, 3], &[], &[3], &[]]), "● 0\n├─┬─╮\n● │ │ 1\n  ● │ 2\n  ├─╯\n  ● 3");
    }

    #[test]
    fn what_follows_is_told_from_what_does_not() {
        assert_eq!(drawn_rails(&[&[1], &[], &[]]), "● 0\n│\n● 1\n● 2");
        assert_eq!(drawn_rails(&[&[1, 2], &[], &[3], &[]]), "● 0\n├─╮\n● │ 1\n  ● 2\n  │\n  ● 3");
    }

    #[test]
    fn too_many_side_by_side_are_not_drawn() {
        let all: Vec<usize> = (1..=WIDEST + 1).collect();
        assert!(draw_rails(&[0], |_| all.clone()).is_none());
    }
}
