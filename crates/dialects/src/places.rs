//! From a place in the IR back to the source.
//!
//! A format says where each of its steps stands and which of its fields became which field of the IR; the rest of a
//! path is walked in the tree. Nothing is remembered for each field, so a large source costs no more than its steps.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{expr::Span, ids::StepId, plan::At};

use crate::{
    source::Source,
    yaml::{Node, Tree},
};

/// How the fields of the IR are called in a format, longest first where one begins like another. A `*` is any one name,
/// the same on both sides.
pub type Renames = &'static [(&'static str, &'static str)];

/// Where things of one workflow stand.
#[derive(Debug)]
pub struct Places {
    pub tree: Tree,
    workflow: Renames,
    step: Renames,
    /// The place to show for a step, and its node.
    steps: BTreeMap<StepId, (Span, u32)>,
    /// Fields of the workflow that have no name of their own in the source: the node, and where in its text the
    /// field starts if that can be told.
    parts: BTreeMap<String, (u32, Option<u32>)>,
}

impl Places {
    pub fn new(tree: Tree, workflow: Renames, step: Renames) -> Places {
        Places { tree, workflow, step, steps: BTreeMap::new(), parts: BTreeMap::new() }
    }

    /// Says where a step stands. The first place of a name is kept.
    pub fn step(&mut self, id: StepId, head: Span, node: u32) {
        self.steps.entry(id).or_insert((head, node));
    }

    /// Says where a field of the workflow stands that is a part of some text.
    pub fn part(&mut self, field: String, node: u32, start: Option<u32>) {
        self.parts.insert(field, (node, start));
    }

    pub fn locate(&self, at: &At) -> (Arc<Source>, Span) {
        let (head, node, renames) = match at.step.as_ref().and_then(|id| self.steps.get(id)) {
            Some((head, node)) => (*head, self.tree.node(*node), self.step),
            None => match self.parts.get(&at.field) {
                Some((node, start)) => return part_of(self.tree.node(*node), *start, at.span),
                None => (self.top(), self.tree.root(), self.workflow),
            },
        };
        let path = renamed(&at.field, renames);
        let Some((found, whole)) = walk(node, &path) else { return (node.source().clone(), head) };
        let span = match at.span {
            Some(span) if whole => found.within(span),
            _ => found.mark(),
        };
        (found.source().clone(), span)
    }

    /// What to show for the workflow as a whole: its first field.
    fn top(&self) -> Span {
        let first = self.tree.root().fields().and_then(|mut fields| fields.next());
        first.map_or(self.tree.root().mark(), |field| field.key_span)
    }
}

fn part_of(node: Node<'_>, start: Option<u32>, span: Option<Span>) -> (Arc<Source>, Span) {
    let place = match (start, span) {
        (Some(by), Some(span)) => node.within(Span { start: span.start + by, end: span.end + by }),
        _ => node.mark(),
    };
    (node.source().clone(), place)
}

fn renamed(field: &str, renames: Renames) -> String {
    let found = renames.iter().find_map(|(from, to)| {
        let (name, rest) = matched(field, from)?;
        Some(format!("{}{rest}", to.replacen('*', name, 1)))
    });
    found.unwrap_or_else(|| field.to_owned())
}

/// What the `*` of a pattern stands for in a field, and what follows the pattern.
fn matched<'a>(field: &'a str, pattern: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    let rest = field.strip_prefix(before)?;
    let end = if pattern.contains('*') { rest.find(['.', '[']).unwrap_or(rest.len()) } else { 0 };
    let (name, rest) = rest.split_at(end);
    let rest = rest.strip_prefix(after)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((name, rest))
}

/// The node at a path such as `a.b[2]`, or the nearest above it; and whether the whole path was there. None if not
/// even its beginning was.
fn walk<'a>(from: Node<'a>, path: &str) -> Option<(Node<'a>, bool)> {
    let mut node = from;
    let mut steps = 0;
    for segment in path.split(['.', '[']).map(|segment| segment.trim_end_matches(']')) {
        let index = segment.parse().ok().and_then(|index: usize| node.items()?.nth(index));
        match index.or_else(|| node.get(segment)) {
            Some(inner) => node = inner,
            None if steps == 0 => return None,
            None => return Some((node, false)),
        }
        steps += 1;
    }
    Some((node, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_renamed_by_their_beginning() {
        let renames: Renames =
            &[("inputs.*.schema", "inputs.*.type"), ("inputs.*", "inputs.*.source"), ("after", "depends_on")];
        let of = |field| renamed(field, renames);
        assert_eq!(of("inputs.url.schema"), "inputs.url.type");
        assert_eq!(of("inputs.url"), "inputs.url.source");
        assert_eq!(of("inputs.url.a[1]"), "inputs.url.source.a[1]");
        assert_eq!(of("after[2]"), "depends_on[2]");
        assert_eq!(of("afterwards"), "afterwards");
        assert_eq!(of("inputs"), "inputs");
    }
}
