//! What is known of values before a run, and expressions that cannot give what is wanted of them.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    definition::{Definition, ScopeEntry},
    problem::{Problem, ProblemCode, Problems},
    references,
    sites::Site,
    survey::Survey,
};
use crate::{
    expr::{Fit, Part, Root, Span, Ty, TypeEnv},
    ir::{Kind, Schema},
};

/// What each schema promises, worked out once: every expression of a workflow may refer to its parameters.
#[derive(Default)]
pub(super) struct Types {
    /// By the address of the schema, which stays where it is while a definition is checked.
    known: RefCell<BTreeMap<usize, Ty>>,
}

impl Types {
    fn of(&self, schema: &Schema) -> Ty {
        let Some(document) = schema.document() else { return Ty::Any };
        let address = std::ptr::from_ref(document).addr();
        self.known.borrow_mut().entry(address).or_insert_with(|| Ty::of_schema(document)).clone()
    }
}

/// Says what can never work, unless something was said about that reference already.
pub(super) fn check(
    survey: &Survey<'_>,
    types: &Types,
    site: &Site<'_>,
    wrong: &[Span],
    problems: &mut Problems,
) {
    let typed = site.expr.ty(&Known { survey, types, site });
    let mut silent = !wrong.is_empty();
    for issue in typed.issues {
        if wrong.contains(&issue.span) {
            continue;
        }
        silent = true;
        let at = references::at(survey, site, &issue.at, issue.span);
        problems.push(Problem::new(ProblemCode::TypeClash, at, issue.message));
    }
    let wanted = site.wants.filter(|wants| !wants.is_empty()).map(|wants| types.of(wants)).or_else(|| {
        let over = site.field.is("over") && matches!(kind(survey, site), Some(Kind::Each(_)));
        over.then(|| Ty::Array(Box::new(Ty::Any)))
    });
    if silent {
        return;
    }
    let mut clash = |code: ProblemCode, message: String| {
        problems.push(Problem::new(code, references::at(survey, site, "", Span::default()), message));
    };
    if let Some(wanted) = wanted.filter(|wanted| wanted.accepts(&typed.ty) == Fit::No) {
        return clash(ProblemCode::TypeClash, format!("this is {}, where {wanted} is wanted", typed.ty));
    }
    let Some((name, called, schema)) = called(survey, site) else { return };
    // What is null is not given at all.
    let wanted = Ty::of_schema(schema);
    if wanted.clone().or(Ty::Null).accepts(&typed.ty) == Fit::No {
        let message = format!("this is {}, where `{called}` wants {wanted} as `{name}`", typed.ty);
        clash(ProblemCode::BorderClash, message);
    }
}

/// What a called workflow wants of an input that is given to it: its name, the workflow's, and the schema.
fn called<'a>(survey: &Survey<'a>, site: &'a Site<'_>) -> Option<(&'a str, &'a str, &'a Value)> {
    let name = site.field.input()?;
    let Kind::Call(call) = kind(survey, site)? else { return None };
    let scope = survey.definition.scope(site.spot.scope);
    let inner = scope.inner[site.spot.step? as usize].first()?;
    let schema = survey.definition.workflow_of(*inner).workflow.inputs.property(name)?;
    Some((name, &call.workflow, schema))
}

fn kind<'a>(survey: &Survey<'a>, site: &Site<'_>) -> Option<&'a Kind> {
    Some(&survey.definition.scope(site.spot.scope).step(site.spot.step?).kind)
}

/// What a step's output must look like: what it declares, or else what the called workflow does.
pub(super) fn output_schema<'a>(definition: &'a Definition, entry: &'a ScopeEntry, step: u32) -> &'a Schema {
    let own = &entry.step(step).outputs;
    match (&entry.step(step).kind, entry.inner[step as usize].first()) {
        (Kind::Call(_), Some(called)) if own.is_empty() => &definition.scope(*called).scope.outputs,
        _ => own,
    }
}

struct Known<'a> {
    survey: &'a Survey<'a>,
    types: &'a Types,
    site: &'a Site<'a>,
}

impl TypeEnv for Known<'_> {
    fn ty_of(&self, root: &Root) -> Ty {
        match root {
            Root::Input => {
                self.types.of(&self.survey.definition.workflow_of(self.site.spot.scope).workflow.inputs)
            }
            Root::Step { id, part: Part::Output } => self.output(id),
            Root::Step { part: Part::Status, .. } => Ty::String,
            Root::Step { part: Part::Summary, .. } => Ty::String.or(Ty::Null),
            Root::Index => Ty::Int,
            Root::Run => object(&[
                ("id", Ty::String),
                ("started_at", Ty::String),
                ("attempt", Ty::Int),
                ("retry_of", Ty::String.or(Ty::Null)),
            ]),
            Root::Workflow => object(&[
                ("id", Ty::String),
                ("name", Ty::String.or(Ty::Null)),
                ("version", Ty::String.or(Ty::Null)),
                ("description", Ty::String.or(Ty::Null)),
            ]),
            Root::Item | Root::Context | Root::Env => Ty::Any,
        }
    }
}

/// An object with these fields and no others.
fn object(fields: &[(&str, Ty)]) -> Ty {
    let fields = fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone()));
    Ty::Object { fields: Arc::new(fields.collect()), open: false }
}

impl Known<'_> {
    /// A step that was skipped, or that the cursor never came to, reads as null.
    fn output(&self, id: &str) -> Ty {
        let definition = self.survey.definition;
        let Some((scope, step)) = definition.workflow_of(self.site.spot.scope).names.get(id) else {
            return Ty::Any;
        };
        self.types.of(output_schema(definition, definition.scope(*scope), *step)).or(Ty::Null)
    }
}
