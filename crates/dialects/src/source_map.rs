//! From a place in the IR back to the source.
//!
//! A format says where each of its steps stands and which of its fields became which field of the IR; the rest of a
//! path is walked in the tree. Nothing is remembered for each field, so a large source costs no more than its steps.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use skein_core::{expr::ExprSpan, ids::StepId, plan::ProblemLocation};

use crate::{
    source::SourceFile,
    yaml::{YamlNode, YamlTree},
};

/// How the fields of the IR are called in a format, longest first where one begins like another. Where one has several
/// names, the first that is there is meant. A `*` is any one name, the same on both sides.
pub type FieldRenames = &'static [(&'static str, &'static str)];

/// A place in some source.
pub(crate) type SourceLocation = (Arc<SourceFile>, ExprSpan);

/// Where things of one workflow stand.
#[derive(Debug)]
pub struct SourceMap {
    pub tree: YamlTree,
    workflow: FieldRenames,
    step: FieldRenames,
    /// Each step, the place to show for it, and its node.
    steps: Vec<(StepId, ExprSpan, u32)>,
    /// The numbers of those by name, once something is to be shown.
    numbers: OnceCell<HashMap<StepId, usize>>,
    /// Fields of the workflow that have no name of their own in the source: the node, and where in its text the
    /// field starts if that can be told.
    parts: BTreeMap<String, (u32, Option<u32>)>,
    /// The steps in which the undo of others is written.
    undos: BTreeMap<StepId, StepId>,
    /// Steps of which some fields are written in the step around them.
    around: BTreeMap<StepId, StepId>,
    /// Where something has been said about the document itself. A name of a list about which something was said is not
    /// in the workflow, so that those after it have other numbers there.
    said: BTreeSet<u32>,
}

impl SourceMap {
    /// Of several steps of one name, the first is meant.
    pub fn new(
        tree: YamlTree,
        steps: Vec<(StepId, ExprSpan, u32)>,
        workflow: FieldRenames,
        step: FieldRenames,
    ) -> SourceMap {
        let (parts, undos, around) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (numbers, said) = (OnceCell::new(), BTreeSet::new());
        SourceMap { tree, workflow, step, steps, numbers, parts, undos, around, said }
    }

    /// Says where reading found something to say.
    pub(crate) fn set_reported(&mut self, places: BTreeSet<u32>) {
        self.said = places;
    }

    /// A place that is one of a list of artifacts, and those before it in the list.
    pub(crate) fn find_artifacts_until(&self, at: &ProblemLocation) -> Option<(YamlNode<'_>, ExprSpan)> {
        let list = at.field.split_once('[')?.0;
        if !["takes", "gives", "exports"].contains(&list) {
            return None;
        }
        let list = self.find_node(&ProblemLocation { field: list.to_owned(), ..at.clone() })?;
        let end = self.find_node(at).map_or(list.span().end, |item| item.span().end);
        Some((list, ExprSpan { end, ..list.span() }))
    }

    /// What is written at a place, all of it.
    pub(crate) fn find_node(&self, at: &ProblemLocation) -> Option<YamlNode<'_>> {
        let (step, field) = self.resolve_step_field(at);
        let (node, renames) = match step {
            Some(step) => (self.step_node(step)?, self.step),
            None => (self.tree.root(), self.workflow),
        };
        source_field_names(field, renames).iter().find_map(|path| match walk_path(node, path, &self.said) {
            FieldPathMatch::Whole(found) => Some(found),
            FieldPathMatch::Part(_) | FieldPathMatch::Nothing => None,
        })
    }

    /// Says where a field of the workflow stands that is a part of some text.
    pub fn add_text_part(&mut self, field: String, node: u32, start: Option<u32>) {
        self.parts.insert(field, (node, start));
    }

    /// Says that the undo of a step is a step of its own in the source.
    pub fn add_undo(&mut self, step: StepId, undo: StepId) {
        self.undos.insert(step, undo);
    }

    /// Says that fields of a step can stand in the one around it.
    pub fn add_enclosing_step(&mut self, step: StepId, around: StepId) {
        self.around.insert(step, around);
    }

    /// Every step with where it is written.
    pub fn steps(&self) -> impl Iterator<Item = (&StepId, YamlNode<'_>)> {
        self.steps.iter().map(|(id, _, node)| (id, self.tree.node(*node)))
    }

    /// Where a step is written.
    pub fn step_node(&self, step: &StepId) -> Option<YamlNode<'_>> {
        self.find_step(step).map(|(_, node)| node)
    }

    /// The place to show for a step, and where it is written.
    fn find_step(&self, step: &StepId) -> Option<(ExprSpan, YamlNode<'_>)> {
        let numbers = self.numbers.get_or_init(|| {
            let backwards = self.steps.iter().enumerate().rev();
            backwards.map(|(number, (id, ..))| (id.clone(), number)).collect()
        });
        let (_, head, node) = &self.steps[*numbers.get(step)?];
        Some((*head, self.tree.node(*node)))
    }

    pub fn locate(&self, at: &ProblemLocation) -> SourceLocation {
        let (step, field) = self.resolve_step_field(at);
        let (head, node, renames) = match step.and_then(|id| self.find_step(id)) {
            Some((head, node)) => (head, node, self.step),
            None => match self.parts.get(&at.field) {
                Some((node, start)) => return locate_part(self.tree.node(*node), *start, at.span),
                None => (self.workflow_span(), self.tree.root(), self.workflow),
            },
        };
        let mut nearest = None;
        for path in source_field_names(field, renames) {
            match walk_path(node, &path, &self.said) {
                FieldPathMatch::Whole(found) => {
                    let span =
                        at.span.map_or_else(|| found.first_line_span(), |span| found.locate_part(span));
                    return (found.source().clone(), span);
                }
                FieldPathMatch::Part(near) => nearest = nearest.or(Some(near)),
                FieldPathMatch::Nothing => {}
            }
        }
        let around = || {
            let step = self.around.get(step?)?;
            let node = self.step_node(step)?;
            source_field_names(field, renames).iter().find_map(|path| {
                match walk_path(node, path, &self.said) {
                    FieldPathMatch::Whole(found) => Some((found.source().clone(), found.first_line_span())),
                    FieldPathMatch::Part(_) | FieldPathMatch::Nothing => None,
                }
            })
        };
        nearest.or_else(around).unwrap_or_else(|| (node.source().clone(), head))
    }

    /// The step in which a field is written, and the field there.
    fn resolve_step_field<'a>(&'a self, at: &'a ProblemLocation) -> (Option<&'a StepId>, &'a str) {
        let undo = at.step.as_ref().and_then(|step| self.undos.get(step));
        match undo.zip(at.field.strip_prefix("undo.")) {
            Some((undo, field)) => (Some(undo), field),
            None => (at.step.as_ref(), &at.field),
        }
    }

    /// What to show for the workflow as a whole: its first field.
    fn workflow_span(&self) -> ExprSpan {
        let first = self.tree.root().fields().and_then(|mut fields| fields.next());
        first.map_or(self.tree.root().first_line_span(), |field| field.key_span)
    }
}

fn locate_part(node: YamlNode<'_>, start: Option<u32>, span: Option<ExprSpan>) -> SourceLocation {
    let place = match (start, span) {
        (Some(by), Some(span)) => node.locate_part(ExprSpan { start: span.start + by, end: span.end + by }),
        _ => node.first_line_span(),
    };
    (node.source().clone(), place)
}

/// The names that a field may have in the source: those of the first pattern that fits.
fn source_field_names(field: &str, renames: FieldRenames) -> Vec<String> {
    let Some((first, _)) = renames.iter().find(|(from, _)| match_pattern(field, from).is_some()) else {
        return vec![field.to_owned()];
    };
    let same = renames.iter().filter(|(from, _)| from == first);
    same.filter_map(|(from, to)| {
        let (name, rest) = match_pattern(field, from)?;
        Some(format!("{}{rest}", to.replacen('*', name, 1)))
    })
    .collect()
}

/// What the `*` of a pattern stands for in a field, and what follows the pattern.
fn match_pattern<'a>(field: &'a str, pattern: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    let rest = field.strip_prefix(before)?;
    let end = if pattern.contains('*') { rest.find(['.', '[']).unwrap_or(rest.len()) } else { 0 };
    let (name, rest) = rest.split_at(end);
    let rest = rest.strip_prefix(after)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((name, rest))
}

/// How much of a path is in a tree.
enum FieldPathMatch<'a> {
    Whole(YamlNode<'a>),
    /// The place of the last part that is there: the key of a field, or an item.
    Part(SourceLocation),
    Nothing,
}

/// The node at a path such as `a.b[2]`, or the nearest above it.
fn walk_path<'a>(from: YamlNode<'a>, path: &str, said: &BTreeSet<u32>) -> FieldPathMatch<'a> {
    let mut node = from;
    let mut last = FieldPathMatch::Nothing;
    for segment in path.split(['.', '[']).map(|segment| segment.trim_end_matches(']')) {
        let index = segment.parse().ok().and_then(|index: usize| nth_item(node, index, said));
        let field = node.field(segment);
        last = match (index, field) {
            (Some(item), _) => {
                node = item;
                FieldPathMatch::Part((item.source().clone(), item.first_line_span()))
            }
            (None, Some(field)) => {
                node = field.value;
                FieldPathMatch::Part((node.source().clone(), field.key_span))
            }
            (None, None) => return last,
        };
    }
    FieldPathMatch::Whole(node)
}

/// An item by its number in the workflow, where names that could not be read are not.
fn nth_item<'a>(list: YamlNode<'a>, index: usize, said: &BTreeSet<u32>) -> Option<YamlNode<'a>> {
    // One that stands alone is read as a list of one.
    let Some(mut items) = list.items() else {
        return Some(list).filter(|_| index == 0 && list.raw_text().is_some());
    };
    let is_there = |item: &YamlNode<'_>| item.raw_text().is_none() || !said.contains(&item.span().start);
    items.by_ref().filter(is_there).nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_renamed_by_their_beginning() {
        let renames: FieldRenames = &[
            ("inputs.*.schema", "inputs.*.type"),
            ("inputs.*", "inputs.*.source"),
            ("after", "depends_on"),
            ("next", "on_approve.next"),
            ("next", "next"),
        ];
        let of = |field| source_field_names(field, renames).join(" or ");
        assert_eq!(of("inputs.url.schema"), "inputs.url.type");
        assert_eq!(of("inputs.url"), "inputs.url.source");
        assert_eq!(of("inputs.url.a[1]"), "inputs.url.source.a[1]");
        assert_eq!(of("after[2]"), "depends_on[2]");
        assert_eq!(of("afterwards"), "afterwards");
        assert_eq!(of("inputs"), "inputs");
        assert_eq!(of("next"), "on_approve.next or next");
    }
}
