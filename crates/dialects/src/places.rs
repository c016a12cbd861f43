//! From a place in the IR back to the source.
//!
//! A format says where each of its steps stands and which of its fields became which field of the IR; the rest of a
//! path is walked in the tree. Nothing is remembered for each field, so a large source costs no more than its steps.

use std::collections::BTreeMap;

use skein_core::{expr::Span, ids::StepId, plan::At};

use crate::yaml::{Node, Tree};

/// How the fields of the IR are called in a format, longest first where one begins like another.
pub type Renames = &'static [(&'static str, &'static str)];

/// Where things of one workflow stand.
#[derive(Debug)]
pub struct Places {
    pub tree: Tree,
    workflow: Renames,
    step: Renames,
    /// The place to show for a step, and its node.
    steps: BTreeMap<StepId, (Span, u32)>,
}

impl Places {
    pub fn new(tree: Tree, workflow: Renames, step: Renames) -> Places {
        Places { tree, workflow, step, steps: BTreeMap::new() }
    }

    /// Says where a step stands. The first place of a name is kept.
    pub fn step(&mut self, id: StepId, head: Span, node: u32) {
        self.steps.entry(id).or_insert((head, node));
    }

    pub fn locate(&self, at: &At) -> Span {
        let (head, node, renames) = match at.step.as_ref().and_then(|id| self.steps.get(id)) {
            Some((head, node)) => (*head, self.tree.node(*node), self.step),
            None => (self.top(), self.tree.root(), self.workflow),
        };
        let path = renamed(&at.field, renames);
        match walk(node, &path) {
            Found::Whole(found) => at.span.map_or_else(|| found.mark(), |span| found.within(span)),
            Found::Part(near) => near,
            Found::Nothing => head,
        }
    }

    /// What to show for the workflow as a whole: its first field.
    fn top(&self) -> Span {
        let first = self.tree.root().fields().and_then(|mut fields| fields.next());
        first.map_or(self.tree.root().mark(), |field| field.key_span)
    }
}

fn renamed(field: &str, renames: Renames) -> String {
    let matches =
        |from: &str| field.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let found = renames.iter().find_map(|(from, to)| matches(from).map(|rest| format!("{to}{rest}")));
    found.unwrap_or_else(|| field.to_owned())
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
