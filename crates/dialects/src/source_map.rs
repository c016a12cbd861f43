//! Maps places in the IR back to the source.
//!
//! A format records the place of each step and the renames of its fields; the rest of a path is resolved in the tree.
//! Nothing is stored per field, so the cost of a large source only depends on its steps.

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

/// The source names of the IR's fields, longest first where one is a prefix of another. If a field has several names,
/// the first that exists counts. A `*` matches any one name, the same on both sides.
pub type FieldRenames = &'static [(&'static str, &'static str)];

/// A place in some source.
pub(crate) type SourceLocation = (Arc<SourceFile>, ExprSpan);

/// The places of one workflow.
#[derive(Debug)]
pub struct SourceMap {
    pub tree: YamlTree,
    workflow: FieldRenames,
    step: FieldRenames,
    /// Each step, the place that diagnostics show, and its node.
    steps: Vec<(StepId, ExprSpan, u32)>,
    /// The indexes of the steps by name, computed when first needed.
    numbers: OnceCell<HashMap<StepId, usize>>,
    /// Fields of the workflow without a name of their own in the source: the node, and the start of the field in its
    /// text if known.
    parts: BTreeMap<String, (u32, Option<u32>)>,
    /// The steps that undo others.
    undos: BTreeMap<StepId, StepId>,
    /// Steps with fields that are written in the enclosing step.
    around: BTreeMap<StepId, StepId>,
    /// The places of diagnostics about the document itself. An item of a list with a diagnostic is not in the workflow,
    /// so the items after it have other indexes there.
    said: BTreeSet<u32>,
}

impl SourceMap {
    /// Creates a map. If several steps have one name, the first counts.
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

    /// Sets the places of diagnostics from reading.
    pub(crate) fn set_reported(&mut self, places: BTreeSet<u32>) {
        self.said = places;
    }

    /// Returns the place from the start of a list of artifacts to the end of an item in it.
    pub(crate) fn find_artifacts_until(&self, at: &ProblemLocation) -> Option<(YamlNode<'_>, ExprSpan)> {
        let list = at.field.split_once('[')?.0;
        if !["takes", "gives", "exports"].contains(&list) {
            return None;
        }
        let list = self.find_node(&ProblemLocation { field: list.to_owned(), ..at.clone() })?;
        let end = self.find_node(at).map_or(list.span().end, |item| item.span().end);
        Some((list, ExprSpan { end, ..list.span() }))
    }

    /// Returns the node at a place, if it exists as a whole.
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

    /// Records the place of a workflow's field that is a part of some text.
    pub fn add_text_part(&mut self, field: String, node: u32, start: Option<u32>) {
        self.parts.insert(field, (node, start));
    }

    /// Records that the undo of a step is a step of its own in the source.
    pub fn add_undo(&mut self, step: StepId, undo: StepId) {
        self.undos.insert(step, undo);
    }

    /// Records that fields of a step can be in the enclosing step.
    pub fn add_enclosing_step(&mut self, step: StepId, around: StepId) {
        self.around.insert(step, around);
    }

    /// Returns every step with its node.
    pub fn steps(&self) -> impl Iterator<Item = (&StepId, YamlNode<'_>)> {
        self.steps.iter().map(|(id, _, node)| (id, self.tree.node(*node)))
    }

    /// Returns the node of a step.
    pub fn step_node(&self, step: &StepId) -> Option<YamlNode<'_>> {
        self.find_step(step).map(|(_, node)| node)
    }

    /// Returns the place that diagnostics show for a step, and its node.
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

    /// Returns the step that contains a field, and the name of the field there.
    fn resolve_step_field<'a>(&'a self, at: &'a ProblemLocation) -> (Option<&'a StepId>, &'a str) {
        let undo = at.step.as_ref().and_then(|step| self.undos.get(step));
        match undo.zip(at.field.strip_prefix("undo.")) {
            Some((undo, field)) => (Some(undo), field),
            None => (at.step.as_ref(), &at.field),
        }
    }

    /// Returns the place for the workflow as a whole: its first field.
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

/// Returns the names that a field may have in the source: those of the first pattern that matches.
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

/// Returns the text that the `*` of a pattern matches in a field, and the rest after the pattern.
fn match_pattern<'a>(field: &'a str, pattern: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    let rest = field.strip_prefix(before)?;
    let end = if pattern.contains('*') { rest.find(['.', '[']).unwrap_or(rest.len()) } else { 0 };
    let (name, rest) = rest.split_at(end);
    let rest = rest.strip_prefix(after)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some((name, rest))
}

/// The part of a path that exists in a tree.
enum FieldPathMatch<'a> {
    Whole(YamlNode<'a>),
    /// The place of the last segment that exists: the key of a field, or an item.
    Part(SourceLocation),
    Nothing,
}

/// Resolves a path such as `a.b[2]` to its node, or to the nearest existing place above it.
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

/// Returns an item by its index in the workflow, which does not count items that could not be read.
fn nth_item<'a>(list: YamlNode<'a>, index: usize, said: &BTreeSet<u32>) -> Option<YamlNode<'a>> {
    // A single value is read as a list of one.
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
