//! Graphs of numbers: components, orders, levels, closures and longest paths.
//!
//! Does not know steps. Nothing here recurses, so a chain as long as the limit on steps cannot overflow the stack.
//! Everything is linear except the closure, which has a bit for each pair.

/// Edges from each node, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexGraph {
    to: FlatLists,
}

/// Sets of nodes that can reach each other. Every edge between sets goes from a higher number to a lower.
#[derive(Debug)]
pub(super) struct GraphComponents {
    of: Vec<u32>,
    members: FlatLists,
}

/// For each node, the nodes that come before it on some path.
#[derive(Debug)]
pub(super) struct GraphClosure {
    component: Vec<u32>,
    words: usize,
    bits: Vec<u64>,
}

/// A depth-first search in progress.
struct ComponentSearch {
    index: Vec<u32>,
    low: Vec<u32>,
    open: Vec<u32>,
    is_open: Vec<bool>,
    counter: u32,
    found: GraphComponents,
}

const UNSEEN: u32 = u32::MAX;

impl IndexGraph {
    pub(super) fn new(to: impl IntoIterator<Item: IntoIterator<Item = u32>>) -> IndexGraph {
        IndexGraph { to: to.into_iter().collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.to.len()
    }

    fn nodes(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        0..u32::try_from(self.to.len()).expect("steps are limited")
    }

    pub(super) fn successors(&self, node: u32) -> &[u32] {
        self.to.get(node as usize)
    }

    /// Tarjan's algorithm, with the call stack as a list.
    pub(super) fn find_components(&self) -> GraphComponents {
        let n = self.len();
        let found = GraphComponents { of: vec![UNSEEN; n], members: FlatLists::with_capacity(n) };
        let mut search = ComponentSearch {
            index: vec![UNSEEN; n],
            low: vec![0; n],
            open: Vec::new(),
            is_open: vec![false; n],
            counter: 0,
            found,
        };
        for root in self.nodes() {
            if search.index[root as usize] == UNSEEN {
                search.explore_from(self, root);
            }
        }
        search.found
    }

    /// Returns the nodes that can be reached from one, including itself, in breadth-first order.
    pub(super) fn find_reachable(&self, from: u32) -> Vec<u32> {
        let mut seen = vec![false; self.len()];
        let mut order = Vec::new();
        if let Some(first) = seen.get_mut(from as usize) {
            *first = true;
            order.push(from);
        }
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &to in self.successors(node) {
                if !std::mem::replace(&mut seen[to as usize], true) {
                    order.push(to);
                }
            }
        }
        order
    }

    /// Returns a shortest path from a node back to itself inside its component.
    pub(super) fn find_cycle_through(&self, start: u32, components: &GraphComponents) -> Vec<u32> {
        let mut from = vec![UNSEEN; self.len()];
        let mut queue = vec![start];
        let mut next = 0;
        while let Some(&node) = queue.get(next) {
            next += 1;
            for &to in self.successors(node) {
                if to == start {
                    return trace_back(start, node, &from);
                }
                if components.component_of(to) == components.component_of(start) && from[to as usize] == UNSEEN {
                    from[to as usize] = node;
                    queue.push(to);
                }
            }
        }
        Vec::new()
    }

    /// Returns the graph without back edges, so that it has no cycle: only edges to a later breadth-first level are
    /// kept.
    pub(super) fn without_back_edges(&self, start: u32) -> IndexGraph {
        let mut level = vec![UNSEEN; self.len()];
        if let Some(first) = level.get_mut(start as usize) {
            *first = 0;
        }
        for node in self.find_reachable(start) {
            for &to in self.successors(node) {
                if level[to as usize] == UNSEEN {
                    level[to as usize] = level[node as usize] + 1;
                }
            }
        }
        let later = |node: u32, to: &u32| level[*to as usize] > level[node as usize];
        let later = &later;
        IndexGraph::new(
            self.nodes().map(|node| self.successors(node).iter().copied().filter(move |to| later(node, to))),
        )
    }

    /// Returns the nodes of an acyclic graph, each after its predecessors.
    fn topological_order(&self) -> Vec<u32> {
        let mut unmet = vec![0u32; self.len()];
        self.to.items().iter().for_each(|to| unmet[*to as usize] += 1);
        let mut order: Vec<u32> = self.nodes().filter(|node| unmet[*node as usize] == 0).collect();
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &to in self.successors(node) {
                unmet[to as usize] -= 1;
                if unmet[to as usize] == 0 {
                    order.push(to);
                }
            }
        }
        order
    }

    /// Returns the nodes of an acyclic graph by the length of the longest path to each, in order within a level.
    pub(super) fn levels(&self) -> Vec<Vec<u32>> {
        let mut level = vec![0usize; self.len()];
        for node in self.topological_order() {
            for &to in self.successors(node) {
                level[to as usize] = level[to as usize].max(level[node as usize] + 1);
            }
        }
        let mut levels = vec![Vec::new(); level.iter().max().map_or(0, |most| most + 1)];
        self.nodes().for_each(|node| levels[level[node as usize]].push(node));
        levels
    }

    /// Returns the path of an acyclic graph with the greatest sum of weights, and the sum. Of several, one with the
    /// most nodes, so that it starts and ends where a run does even if nothing there adds to the sum.
    pub(super) fn longest_path(&self, weights: &[u64]) -> (Vec<u32>, u64) {
        let mut best: Vec<(u64, u32)> = weights.iter().map(|weight| (*weight, 1)).collect();
        let mut from = vec![UNSEEN; self.len()];
        for node in self.topological_order() {
            for &to in self.successors(node) {
                let (sum, nodes) = best[node as usize];
                let way = (sum.saturating_add(weights[to as usize]), nodes + 1);
                if way > best[to as usize] {
                    best[to as usize] = way;
                    from[to as usize] = node;
                }
            }
        }
        let Some(mut node) = self.nodes().rev().max_by_key(|node| best[*node as usize]) else {
            return (Vec::new(), 0);
        };
        let total = best[node as usize].0;
        let mut path = vec![node];
        while from[node as usize] != UNSEEN {
            node = from[node as usize];
            path.push(node);
        }
        path.reverse();
        (path, total)
    }

    pub(super) fn build_closure(&self, components: &GraphComponents) -> GraphClosure {
        let count = components.members.len();
        let words = count.div_ceil(64);
        let mut closure = GraphClosure { component: components.of.clone(), words, bits: vec![0; count * words] };
        // Edges go from higher components to lower, so each is complete before its successors are visited.
        for component in (0..count).rev() {
            let members = components.members.get(component);
            if components.is_cyclic(self, component) {
                closure.set_bit(component, component);
            }
            for &to in members.iter().flat_map(|member| self.successors(*member)) {
                let to = components.component_of(to) as usize;
                if to != component {
                    closure.set_bit(to, component);
                    closure.merge_predecessors(to, component);
                }
            }
        }
        closure
    }
}

fn trace_back(start: u32, last: u32, from: &[u32]) -> Vec<u32> {
    let mut path = vec![start];
    let mut node = last;
    while node != start {
        path.push(node);
        node = from[node as usize];
    }
    path.push(start);
    path.reverse();
    path
}

impl GraphComponents {
    fn component_of(&self, node: u32) -> u32 {
        self.of[node as usize]
    }

    fn is_cyclic(&self, graph: &IndexGraph, component: usize) -> bool {
        match self.members.get(component) {
            [only] => graph.successors(*only).contains(only),
            _ => true,
        }
    }

    /// Returns the first node of each component that has a cycle, in order.
    pub(super) fn find_cycle_starts(&self, graph: &IndexGraph) -> Vec<u32> {
        let cyclic = (0..self.members.len()).filter(|component| self.is_cyclic(graph, *component));
        let mut firsts: Vec<u32> =
            cyclic.filter_map(|component| self.members.get(component).iter().min().copied()).collect();
        firsts.sort_unstable();
        firsts
    }
}

impl GraphClosure {
    /// True if there is a path from `first` to `then`. A node comes before itself only on a cycle.
    pub(super) fn is_before(&self, first: u32, then: u32) -> bool {
        let (first, then) = (self.component[first as usize] as usize, self.component[then as usize] as usize);
        self.bits[then * self.words + first / 64] & (1 << (first % 64)) != 0
    }

    fn set_bit(&mut self, of: usize, bit: usize) {
        self.bits[of * self.words + bit / 64] |= 1 << (bit % 64);
    }

    /// Adds the predecessors of `from` to those of `into`, which is a lower component.
    fn merge_predecessors(&mut self, into: usize, from: usize) {
        let (low, high) = self.bits.split_at_mut(from * self.words);
        let into = &mut low[into * self.words..][..self.words];
        into.iter_mut().zip(&high[..self.words]).for_each(|(into, from)| *into |= from);
    }
}

impl ComponentSearch {
    fn explore_from(&mut self, graph: &IndexGraph, root: u32) {
        let mut calls = vec![(root, 0usize)];
        self.enter_node(root);
        while let Some(call) = calls.last_mut() {
            let node = call.0;
            let Some(&to) = graph.successors(node).get(call.1) else {
                calls.pop();
                self.leave_node(node, calls.last().map(|call| call.0));
                continue;
            };
            call.1 += 1;
            if self.index[to as usize] == UNSEEN {
                self.enter_node(to);
                calls.push((to, 0));
            } else if self.is_open[to as usize] {
                self.low[node as usize] = self.low[node as usize].min(self.index[to as usize]);
            }
        }
    }

    fn enter_node(&mut self, node: u32) {
        self.index[node as usize] = self.counter;
        self.low[node as usize] = self.counter;
        self.counter += 1;
        self.open.push(node);
        self.is_open[node as usize] = true;
    }

    fn leave_node(&mut self, node: u32, caller: Option<u32>) {
        if let Some(caller) = caller {
            self.low[caller as usize] = self.low[caller as usize].min(self.low[node as usize]);
        }
        if self.low[node as usize] != self.index[node as usize] {
            return;
        }
        let number = u32::try_from(self.found.members.len()).expect("steps are limited");
        let start = self.open.iter().rposition(|open| *open == node).expect("an entered node is open until left");
        for member in &self.open[start..] {
            self.is_open[*member as usize] = false;
            self.found.of[*member as usize] = number;
        }
        self.found.members.push(self.open.drain(start..));
    }
}

/// Lists of numbers, one for each numbered item, in one array.
#[derive(Debug, Clone, Default)]
pub(super) struct FlatLists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl FlatLists {
    pub(super) fn with_capacity(lists: usize) -> FlatLists {
        FlatLists { ends: Vec::with_capacity(lists), items: Vec::with_capacity(lists) }
    }

    pub(super) fn push(&mut self, list: impl IntoIterator<Item = u32>) {
        self.items.extend(list);
        self.ends.push(to_u32(self.items.len()));
    }

    /// The number of lists.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.items[start as usize..self.ends[i] as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The items of all lists.
    pub(super) fn items(&self) -> &[u32] {
        &self.items
    }

    /// Returns, for each number, the lists that contain it, in order.
    pub(super) fn invert(&self) -> FlatLists {
        let mut ends = vec![0u32; self.len()];
        self.items.iter().for_each(|item| ends[*item as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        // Each end begins at the start of its list and advances to its end.
        let mut items = vec![0; self.items.len()];
        for (i, list) in self.iter().enumerate() {
            for item in list {
                let end = &mut ends[*item as usize];
                items[*end as usize] = to_u32(i);
                *end += 1;
            }
        }
        FlatLists { ends, items }
    }
}

impl<L: IntoIterator<Item = u32>> FromIterator<L> for FlatLists {
    fn from_iter<I: IntoIterator<Item = L>>(lists: I) -> FlatLists {
        let lists = lists.into_iter();
        let mut flat = FlatLists::with_capacity(lists.size_hint().0);
        lists.for_each(|list| flat.push(list));
        flat
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).expect("steps and edges are limited")
}

#[cfg(test)]
mod tests {
    use super::FlatLists;
    use super::*;

    #[test]
    fn turned_lists_say_who_holds_each() {
        let flat: FlatLists = [vec![], vec![0, 2], vec![0], vec![2]].into_iter().collect();
        let turned: Vec<Vec<u32>> = flat.invert().iter().map(<[u32]>::to_vec).collect();
        assert_eq!(turned, [vec![1, 2], vec![], vec![1, 3], vec![]]);
        assert_eq!((flat.len(), flat.items()), (4, &[0, 2, 0, 2][..]));
    }

    fn graph(edges: &[&[u32]]) -> IndexGraph {
        IndexGraph::new(edges.iter().map(|to| to.iter().copied()))
    }

    #[test]
    fn a_diamond_has_three_levels_and_its_closure() {
        let diamond = graph(&[&[1, 2], &[3], &[3], &[]]);
        assert_eq!(diamond.levels(), [vec![0], vec![1, 2], vec![3]]);
        let components = diamond.find_components();
        assert!(components.find_cycle_starts(&diamond).is_empty());
        let closure = diamond.build_closure(&components);
        assert!(closure.is_before(0, 3) && closure.is_before(2, 3));
        assert!(!closure.is_before(1, 2) && !closure.is_before(3, 0) && !closure.is_before(0, 0));
        assert_eq!(diamond.longest_path(&[1, 5, 9, 1]), (vec![0, 2, 3], 11));
    }

    #[test]
    fn a_cycle_is_found_and_everything_on_it_comes_before_everything_on_it() {
        let ring = graph(&[&[1], &[2], &[0, 3], &[]]);
        let components = ring.find_components();
        assert_eq!(components.find_cycle_starts(&ring), [0]);
        assert_eq!(ring.find_cycle_through(0, &components), [0, 1, 2, 0]);
        let closure = ring.build_closure(&components);
        assert!(closure.is_before(2, 0) && closure.is_before(0, 0) && closure.is_before(1, 3));
        assert!(!closure.is_before(3, 0));
        assert_eq!(ring.without_back_edges(0).levels(), [vec![0], vec![1], vec![2], vec![3]]);
    }

    #[test]
    fn a_long_chain_does_not_touch_the_stack() {
        let n = 100_000u32;
        let chain = IndexGraph::new((0..n).map(|i| (i + 1 < n).then_some(i + 1)));
        assert_eq!(chain.find_components().members.len(), n as usize);
        assert_eq!(chain.levels().len(), n as usize);
        assert_eq!(chain.longest_path(&vec![1; n as usize]).1, u64::from(n));
    }
}
