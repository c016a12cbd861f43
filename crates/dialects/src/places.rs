//! From a place in the IR back to the source.
//!
//! A format says where each of its steps stands and which of its fields became which field of the IR; the rest of a
//! path is walked in the tree. Nothing is remembered for each field, so a large source costs no more than its steps.

use std::collections::BTreeMap;

use skein_core::{expr::Span, ids::StepId, plan::At};

use crate::yaml::{Node, Tree};

/// How the fields of the IR are called in a format, longest first where one begins like another. Where one has several
/// names, the first that is there is meant.
pub type Renames = &'static [(&'static str, &'static str)];

/// Where things of one workflow stand.
#[derive(Debug)]
pub struct Places {
    pub tree: Tree,
    workflow: Renames,
    step: Renames,
    /// The place to show for a step, and its node.
    steps: BTreeMap<StepId, (Span, u32)>,
    /// The steps in which the undo of others is written.
    undos: BTreeMap<StepId, StepId>,
}

impl Places {
    pub fn new(tree: Tree, workflow: Renames, step: Renames) -> Places {
        Places { tree, workflow, step, steps: BTreeMap::new(), undos: BTreeMap::new() }
    }

    /// Says where a step stands. The first place of a name is kept.
    pub fn step(&mut self, id: StepId, head: Span, node: u32) {
        self.steps.entry(id).or_insert((head, node));
    }

    /// Says that the undo of a step is a step of its own in the source.
    pub fn undo(&mut self, step: StepId, undo: StepId) {
        self.undos.insert(step, undo);
    }

    /// Where a step is written.
    pub fn node(&self, step: &StepId) -> Option<Node<'_>> {
        self.steps.get(step).map(|(_, node)| self.tree.node(*node))
    }

    pub fn locate(&self, at: &At) -> Span {
        let (step, field) = self.written_in(at);
        let (head, node, renames) = match step.and_then(|id| self.steps.get(id)) {
            Some((head, node)) => (*head, self.tree.node(*node), self.step),
            None => (self.top(), self.tree.root(), self.workflow),
        };
        let mut place = head;
        for path in renamed(field, renames) {
            match walk(node, &path) {
                Found::Whole(found) => {
                    return at.span.map_or_else(|| found.mark(), |span| found.within(span));
                }
                Found::Part(near) if place == head => place = near,
                Found::Part(_) | Found::Nothing => {}
            }
        }
        place
    }

    /// The step in which a field is written, and the field there.
    fn written_in<'a>(&'a self, at: &'a At) -> (Option<&'a StepId>, &'a str) {
        let undo = at.step.as_ref().and_then(|step| self.undos.get(step));
        match undo.zip(at.field.strip_prefix("undo.")) {
            Some((undo, field)) => (Some(undo), field),
            None => (at.step.as_ref(), &at.field),
        }
    }

    /// What to show for the workflow as a whole: its first field.
    fn top(&self) -> Span {
        let first = self.tree.root().fields().and_then(|mut fields| fields.next());
        first.map_or(self.tree.root().mark(), |field| field.key_span)
    }
}

/// The names that a field may have in the source.
fn renamed<'a>(field: &'a str, renames: Renames) -> impl Iterator<Item = String> + 'a {
    let matches = move |from: &str| {
        field.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let found = renames.iter().filter_map(move |(from, to)| Some((*from, *to, matches(from)?)));
    // The longest comes first, and the shorter ones are about something else.
    let first = found.clone().next().map(|(from, ..)| from);
    let same = found.filter(move |(from, ..)| Some(*from) == first);
    let own = first.is_none().then(|| field.to_owned());
    same.map(|(_, to, rest)| format!("{to}{rest}")).chain(own)
}

/// How much of a path is in a tree.
enum Found<'a> {
    Whole(Node<'a>),
    /// The place of the last part that is there: the key of a field, or an item.
    Part(Span),
    Nothing,
}

/// The node at a path such as `a.b[2]`, or the nearest above it.
fn walk<'a>(from: Node<'a>, path: &str) -> Found<'a> {
    let mut node = from;
    let mut last = Found::Nothing;
    for segment in path.split(['.', '[']).map(|segment| segment.trim_end_matches(']')) {
        let index = segment.parse().ok().and_then(|index: usize| node.items()?.nth(index));
        let field = node.field(segment);
        last = match (index, field) {
            (Some(item), _) => {
                node = item;
                Found::Part(item.mark())
            }
            (None, Some(field)) => {
                node = field.value;
                Found::Part(field.key_span)
            }
            (None, None) => return last,
        };
    }
    Found::Whole(node)
}
