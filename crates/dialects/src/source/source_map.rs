//! Maps places in the IR back to the source.
//!
//! A format records the place of each step and the renames of its fields; the rest of a path is resolved in the tree.
//! Nothing is stored per field, so the cost of a large source only depends on its steps.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use skein_core::{
    expr::ExprSpan,
    ids::StepId,
    plan::{FieldPath, FieldSegment, PlanField, ProblemLocation},
};

use crate::{
    diagnostics::SourceFile,
    source::yaml::{YamlNode, YamlTree},
};

/// The keys that a source has for the IR's fields, longest first where one is a prefix of another. If a field has
/// several keys, the first that exists counts. A `*` in the keys stands for the name that the pattern matches.
pub(crate) type FieldRenames = &'static [(&'static [PatternSegment], &'static str)];

/// A part of the pattern of a field's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternSegment {
    Field(PlanField),
    Item(usize),
    /// One name from the source, such as that of an input.
    Name(&'static str),
    /// A name that starts so, as the last part of a pattern. The name itself stays part of the path.
    NamePrefix(&'static str),
    AnyName,
}

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
    parts: BTreeMap<FieldPath, (u32, Option<u32>)>,
    /// The steps that undo others.
    undos: BTreeMap<StepId, StepId>,
    /// Steps with fields that are written in the enclosing step.
    enclosing: BTreeMap<StepId, StepId>,
    /// The places of diagnostics about the document itself. An item of a list with a diagnostic is not in the workflow,
    /// so the items after it have other indexes there.
    reported: BTreeSet<u32>,
}

impl SourceMap {
    /// Creates a map. If several steps have one name, the first counts.
    pub fn new(
        tree: YamlTree,
        steps: Vec<(StepId, ExprSpan, u32)>,
        workflow: FieldRenames,
        step: FieldRenames,
    ) -> SourceMap {
        let (parts, undos, enclosing) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (numbers, reported) = (OnceCell::new(), BTreeSet::new());
        SourceMap { tree, workflow, step, steps, numbers, parts, undos, enclosing, reported }
    }

    /// Sets the places of diagnostics from reading.
    pub(crate) fn set_reported(&mut self, places: BTreeSet<u32>) {
        self.reported = places;
    }

    /// Returns the place from the start of a list of artifacts to the end of an item in it.
    pub(crate) fn find_artifacts_until(&self, at: &ProblemLocation) -> Option<(YamlNode<'_>, ExprSpan)> {
        let [FieldSegment::Field(list), FieldSegment::Index(_), ..] = at.field.segments() else {
            return None;
        };
        if !matches!(list, PlanField::Takes | PlanField::Gives | PlanField::Exports) {
            return None;
        }
        let list = self.find_node(&ProblemLocation { field: (*list).into(), ..at.clone() })?;
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
        source_paths(field, renames).iter().find_map(|path| match walk_path(node, path, &self.reported) {
            FieldPathMatch::Whole(found) => Some(found),
            FieldPathMatch::Part(_) | FieldPathMatch::Nothing => None,
        })
    }

    /// Records the place of a workflow's field that is a part of some text.
    pub fn add_text_part(&mut self, field: FieldPath, node: u32, start: Option<u32>) {
        self.parts.insert(field, (node, start));
    }

    /// Records that the undo of a step is a step of its own in the source.
    pub fn add_undo(&mut self, step: StepId, undo: StepId) {
        self.undos.insert(step, undo);
    }

    /// Records that fields of a step can be in the enclosing step.
    pub fn add_enclosing_step(&mut self, step: StepId, enclosing: StepId) {
        self.enclosing.insert(step, enclosing);
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
        for path in source_paths(field, renames) {
            match walk_path(node, &path, &self.reported) {
                FieldPathMatch::Whole(found) => {
                    let span = at.span.map_or_else(|| found.first_line_span(), |span| found.locate_part(span));
                    return (found.source().clone(), span);
                }
                FieldPathMatch::Part(near) => nearest = nearest.or(Some(near)),
                FieldPathMatch::Nothing => {}
            }
        }
        let in_enclosing = || {
            let step = self.enclosing.get(step?)?;
            let node = self.step_node(step)?;
            source_paths(field, renames).iter().find_map(|path| match walk_path(node, path, &self.reported) {
                FieldPathMatch::Whole(found) => Some((found.source().clone(), found.first_line_span())),
                FieldPathMatch::Part(_) | FieldPathMatch::Nothing => None,
            })
        };
        nearest.or_else(in_enclosing).unwrap_or_else(|| (node.source().clone(), head))
    }

    /// Returns the step that contains a field, and the name of the field there.
    fn resolve_step_field<'a>(&'a self, at: &'a ProblemLocation) -> (Option<&'a StepId>, &'a [FieldSegment]) {
        let undo = at.step.as_ref().and_then(|step| self.undos.get(step));
        match (undo, at.field.segments()) {
            (Some(undo), [FieldSegment::Field(PlanField::Undo), field @ ..]) if !field.is_empty() => {
                (Some(undo), field)
            }
            (_, field) => (at.step.as_ref(), field),
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

/// A path in the source: the keys that replace the beginning of a field's path, and the rest of that path.
struct SourcePath<'a> {
    keys: &'static str,
    /// The name that replaces the `*` of the keys.
    name: &'a str,
    rest: &'a [FieldSegment],
}

/// Returns the paths that a field may have in the source: those of the first pattern that matches.
fn source_paths<'a>(field: &'a [FieldSegment], renames: FieldRenames) -> Vec<SourcePath<'a>> {
    let Some((first, _)) = renames.iter().find(|(from, _)| match_pattern(field, from).is_some()) else {
        return vec![SourcePath { keys: "", name: "", rest: field }];
    };
    let same = renames.iter().filter(|(from, _)| from == first);
    same.filter_map(|(from, keys)| {
        let (name, rest) = match_pattern(field, from)?;
        Some(SourcePath { keys, name, rest })
    })
    .collect()
}

/// Returns the name that a pattern matches in a field, and the rest after the pattern.
fn match_pattern<'a>(field: &'a [FieldSegment], pattern: &[PatternSegment]) -> Option<(&'a str, &'a [FieldSegment])> {
    let (start, mut rest) = field.split_at_checked(pattern.len())?;
    let mut found = "";
    for (segment, pattern) in start.iter().zip(pattern) {
        match (segment, pattern) {
            (FieldSegment::Field(field), PatternSegment::Field(expected)) if field == expected => {}
            (FieldSegment::Index(index), PatternSegment::Item(expected)) if index == expected => {}
            (FieldSegment::Name(name), PatternSegment::Name(expected)) if name == expected => {}
            (FieldSegment::Name(name), PatternSegment::NamePrefix(prefix)) if name.starts_with(prefix) => {
                rest = &field[start.len() - 1..];
            }
            (FieldSegment::Name(name), PatternSegment::AnyName) => found = name,
            _ => return None,
        }
    }
    Some((found, rest))
}

/// The part of a path that exists in a tree.
enum FieldPathMatch<'a> {
    Whole(YamlNode<'a>),
    /// The place of the last segment that exists: the key of a field, or an item.
    Part(SourceLocation),
    Nothing,
}

/// Resolves a path to its node, or to the nearest existing place above it.
fn walk_path<'a>(from: YamlNode<'a>, path: &SourcePath<'_>, reported: &BTreeSet<u32>) -> FieldPathMatch<'a> {
    if path.keys.is_empty() && path.rest.is_empty() {
        return FieldPathMatch::Nothing;
    }
    let mut walk = SourceWalk { node: from, last: FieldPathMatch::Nothing, reported };
    let keys = path.keys.split('.').filter(|key| !key.is_empty());
    let mut keys = keys.map(|key| if key == "*" { path.name } else { key });
    let found = keys.all(|key| walk.enter_key(key))
        && path.rest.iter().all(|segment| match segment {
            FieldSegment::Field(field) => walk.enter_key(field.as_str()),
            FieldSegment::Name(name) => walk.enter_key(name),
            FieldSegment::Index(index) => walk.enter_item(*index),
        });
    if found { FieldPathMatch::Whole(walk.node) } else { walk.last }
}

/// The state of resolving a path.
struct SourceWalk<'a, 's> {
    node: YamlNode<'a>,
    last: FieldPathMatch<'a>,
    reported: &'s BTreeSet<u32>,
}

impl SourceWalk<'_, '_> {
    /// Enters a field, or the item of that number. Returns false if there is neither.
    fn enter_key(&mut self, key: &str) -> bool {
        if key.parse().is_ok_and(|index| self.enter_item(index)) {
            return true;
        }
        let Some(field) = self.node.field(key) else { return false };
        self.node = field.value;
        self.last = FieldPathMatch::Part((self.node.source().clone(), field.key_span));
        true
    }

    /// Enters an item of a list. Returns false if there is none.
    fn enter_item(&mut self, index: usize) -> bool {
        let Some(item) = nth_item(self.node, index, self.reported) else { return false };
        self.node = item;
        self.last = FieldPathMatch::Part((item.source().clone(), item.first_line_span()));
        true
    }
}

/// Returns an item by its index in the workflow, which does not count items that could not be read.
fn nth_item<'a>(list: YamlNode<'a>, index: usize, reported: &BTreeSet<u32>) -> Option<YamlNode<'a>> {
    // A single value is read as a list of one.
    let Some(mut items) = list.items() else {
        return Some(list).filter(|_| index == 0 && list.raw_text().is_some());
    };
    let is_there = |item: &YamlNode<'_>| item.raw_text().is_none() || !reported.contains(&item.span().start);
    items.by_ref().filter(is_there).nth(index)
}

#[cfg(test)]
mod tests {
    use PatternSegment::{AnyName, Field as F, Item};

    use super::*;

    #[test]
    fn fields_are_renamed_by_their_beginning() {
        let renames: FieldRenames = &[
            (&[F(PlanField::Inputs), AnyName, F(PlanField::Schema)], "inputs.*.type"),
            (&[F(PlanField::Inputs), AnyName], "inputs.*.source"),
            (&[F(PlanField::After)], "depends_on"),
            (&[F(PlanField::Shows), Item(0)], "input"),
            (&[F(PlanField::Next)], "on_approve.next"),
            (&[F(PlanField::Next)], "next"),
        ];
        let of = |field: FieldPath| {
            let paths = source_paths(field.segments(), renames).into_iter().map(|path| {
                let rest = path.rest.iter().fold(FieldPath::default(), |rest, segment| match segment {
                    FieldSegment::Field(field) => rest.field(*field),
                    FieldSegment::Index(index) => rest.item(*index),
                    FieldSegment::Name(name) => rest.name(name),
                });
                format!("{} + {rest}", path.keys.replace('*', path.name))
            });
            paths.collect::<Vec<_>>().join(" or ")
        };
        let url = || FieldPath::from(PlanField::Inputs).name("url");
        assert_eq!(of(url().field(PlanField::Schema)), "inputs.url.type + ");
        assert_eq!(of(url()), "inputs.url.source + ");
        assert_eq!(of(url().name("a").item(1)), "inputs.url.source + a[1]");
        assert_eq!(of(FieldPath::from(PlanField::After).item(2)), "depends_on + [2]");
        assert_eq!(of(FieldPath::from(PlanField::Shows).item(0)), "input + ");
        assert_eq!(of(FieldPath::from(PlanField::Shows).item(1)), " + shows[1]");
        assert_eq!(of(PlanField::Inputs.into()), " + inputs");
        assert_eq!(of(PlanField::Next.into()), "on_approve.next +  or next + ");
    }
}
