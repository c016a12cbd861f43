//! A drawing for a terminal: one line a step, rails from each to those that follow it.

use std::collections::{BTreeMap, BTreeSet};

use skein_core::{
    ir::KindName,
    view::{Graph, GroupKind, NodeKind},
};

use super::{index::Index, rails};
use crate::output::Paint;

/// As many names as are worth reading in one line.
const NAMED: usize = 8;

/// The whole graph; what is inside a step stands below it, indented.
pub fn ascii(graph: &Graph, paint: Paint) -> String {
    let index = Index::of(graph);
    let mut drawing = Drawing { index: &index, paint, lines: Vec::new(), back: BTreeSet::new() };
    for (number, group) in index.workflows.iter().enumerate() {
        if number > 0 {
            let heading = format!("workflow {}", graph.groups[*group].label);
            drawing.lines.extend([String::new(), paint.title(&heading)]);
        }
        drawing.group(*group, "");
    }
    drawing.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

struct Drawing<'a> {
    index: &'a Index<'a>,
    paint: Paint,
    lines: Vec<String>,
    /// Edges to an earlier step, which are told and not drawn.
    back: BTreeSet<(usize, usize)>,
}

impl Drawing<'_> {
    fn group(&mut self, group: usize, indent: &str) {
        let order = self.order(group);
        let place: BTreeMap<usize, usize> = order.iter().copied().zip(0..).collect();
        for node in &order {
            let earlier = self.index.targets(*node).into_iter().filter(|to| place.get(to) <= place.get(node));
            self.back.extend(earlier.map(|to| (*node, to)));
        }
        let down = |node: usize| {
            let targets =
                self.index.targets(node).into_iter().filter(|target| place.get(target) > place.get(&node));
            targets.collect::<Vec<_>>()
        };
        match rails::draw(&order, down) {
            Some(rows) => rows.iter().for_each(|row| self.row(row, indent)),
            None => order.iter().for_each(|node| self.listed(*node, indent)),
        }
    }

    /// Every node after those with an edge to it, else in the order of the plan. Of a circle, one comes first that leads
    /// to all of it.
    fn order(&self, group: usize) -> Vec<usize> {
        let nodes = &self.index.members[group];
        let mut waiting: BTreeMap<usize, usize> = nodes.iter().map(|node| (*node, 0)).collect();
        for target in nodes.iter().flat_map(|node| self.index.targets(*node)) {
            *waiting.entry(target).or_default() += 1;
        }
        let mut free: BTreeSet<usize> = nodes.iter().copied().filter(|node| waiting[node] == 0).collect();
        let mut order = Vec::new();
        while let Some(node) = free.pop_first().or_else(|| self.leads(&waiting)) {
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

    /// A node that none leads to but those that it leads to itself: the last from which something new can be reached.
    fn leads(&self, waiting: &BTreeMap<usize, usize>) -> Option<usize> {
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

    fn row(&mut self, row: &rails::Row, indent: &str) {
        if row.links.is_some_and(|above| !self.index.inside[above].is_empty()) {
            return;
        }
        let Some(node) = row.node else { return self.lines.push(format!("{indent}{}", row.rails)) };
        self.lines.push(format!("{indent}{}{}", row.rails, self.label(node)));
        self.inner(node, &format!("{indent}{}", row.below));
    }

    /// Where there are too many rails: each step and those that follow it.
    fn listed(&mut self, node: usize, indent: &str) {
        let targets = self.index.targets(node);
        let names: Vec<&str> =
            targets.iter().take(NAMED).map(|target| self.index.graph.nodes[*target].label.as_str()).collect();
        let more = if targets.len() > NAMED {
            format!(" and {} more", targets.len() - NAMED)
        } else {
            String::new()
        };
        let then =
            if names.is_empty() { String::new() } else { format!("  then {}{more}", names.join(", ")) };
        self.lines.push(format!("{indent}● {}{}", self.label(node), self.paint.faint(&then)));
        self.inner(node, &format!("{indent}    "));
    }

    fn inner(&mut self, node: usize, indent: &str) {
        for group in &self.index.inside[node] {
            let inner = &self.index.graph.groups[*group];
            let label = match inner.kind {
                GroupKind::Lane => format!("lane {}", inner.label),
                _ => inner.label.clone(),
            };
            self.lines.push(format!("{indent}{}", self.paint.faint(&label)));
            self.group(*group, &format!("{indent}  "));
        }
    }

    fn label(&self, node: usize) -> String {
        let drawn = &self.index.graph.nodes[node];
        let name = match drawn.kind {
            NodeKind::Mark(_) => return self.paint.faint("end"),
            NodeKind::Step(_) => self.paint.name(drawn.id.rsplit('/').next().unwrap_or(&drawn.id)),
        };
        let kind = match drawn.kind {
            NodeKind::Step(KindName::Work) | NodeKind::Mark(_) => "",
            NodeKind::Step(KindName::Gate) => " gate",
            NodeKind::Step(KindName::Wait) => " wait",
            NodeKind::Step(KindName::Branch) => " branch",
            NodeKind::Step(KindName::Parallel) => " parallel",
            NodeKind::Step(KindName::Each) => " each",
            NodeKind::Step(KindName::Loop) => " loop",
            NodeKind::Step(KindName::Call) => " call",
        };
        let called = drawn.calls.map(|group| format!(" of {}", self.index.graph.groups[group].label));
        let kind = format!("{kind}{}", called.unwrap_or_default());
        let routes: Vec<String> = self.routes(node);
        let routes = if routes.is_empty() { String::new() } else { format!("  {}", routes.join("; ")) };
        format!("{name}{}{}", self.paint.faint(&kind), self.paint.faint(&routes))
    }

    /// Where a step leads under which condition, or back to.
    fn routes(&self, node: usize) -> Vec<String> {
        let name = |to: usize| {
            let id = &self.index.graph.nodes[to].id;
            id.rsplit('/').next().unwrap_or(id).trim_start_matches('$').to_owned()
        };
        let told = |(to, label): &(usize, Option<&str>)| match label {
            Some(label) => Some(format!("{label} → {}", name(*to))),
            None => self.back.contains(&(node, *to)).then(|| format!("then → {}", name(*to))),
        };
        self.index.edges[node].iter().filter_map(told).collect()
    }
}
