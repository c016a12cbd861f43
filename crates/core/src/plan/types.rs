//! Types of values that are known before a run, and expressions that cannot have the expected type.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    definition::{PlanDefinition, ScopeEntry},
    expr_sites::ExprSite,
    field_path::PlanField,
    problem::{PlanProblem, ProblemCode, ProblemCollector},
    references,
    survey::PlanSurvey,
};
use crate::{
    expr::{ExprSpan, ExprType, ReferenceRoot, StepProperty, TypeEnv, TypeFit},
    ir::{Schema, StepKindSpec},
};

/// The type of each schema, computed once: every expression of a workflow may refer to its parameters.
#[derive(Default)]
pub(super) struct SchemaTypes {
    /// By the address of the schema, which does not move while a definition is checked.
    known: RefCell<BTreeMap<usize, ExprType>>,
}

impl SchemaTypes {
    fn schema_type(&self, schema: &Schema) -> ExprType {
        let Some(document) = schema.document() else { return ExprType::Any };
        let address = std::ptr::from_ref(document).addr();
        self.known.borrow_mut().entry(address).or_insert_with(|| ExprType::from_schema(document)).clone()
    }
}

/// Reports expressions that can never work, unless a problem with that reference has been reported.
pub(super) fn check_types(
    survey: &PlanSurvey<'_>,
    types: &SchemaTypes,
    site: &ExprSite<'_>,
    wrong: &[ExprSpan],
    problems: &mut ProblemCollector,
) {
    let typed = site.expr.infer_type(&SiteTypeEnv { survey, types, site });
    let mut silent = !wrong.is_empty();
    for issue in typed.issues {
        if wrong.contains(&issue.span) {
            continue;
        }
        silent = true;
        let at = references::site_location(survey, site, &issue.at, issue.span);
        problems.push(PlanProblem::new(ProblemCode::TypeClash, at, issue.message));
    }
    let wanted = site.wants.filter(|wants| !wants.is_empty()).map(|wants| types.schema_type(wants)).or_else(|| {
        let over =
            site.field.is_field(PlanField::Over) && matches!(step_kind(survey, site), Some(StepKindSpec::Each(_)));
        over.then(|| ExprType::Array(Box::new(ExprType::Any)))
    });
    if silent {
        return;
    }
    let mut clash = |code: ProblemCode, message: String| {
        problems.push(PlanProblem::new(
            code,
            references::site_location(survey, site, "", ExprSpan::default()),
            message,
        ));
    };
    if let Some(wanted) = wanted.filter(|wanted| wanted.accepts(&typed.ty) == TypeFit::No) {
        return clash(ProblemCode::TypeClash, format!("this is {}, but {wanted} is expected", typed.ty));
    }
    let Some((name, called, schema)) = find_called_input(survey, site) else { return };
    // A null input counts as not given.
    let wanted = ExprType::from_schema(schema);
    if wanted.clone().union(ExprType::Null).accepts(&typed.ty) == TypeFit::No {
        let message = format!("this is {}, but `{called}` expects {wanted} as `{name}`", typed.ty);
        clash(ProblemCode::BorderClash, message);
    }
}

/// Returns the parameter of a called workflow that an input sets: its name, the workflow's, and the schema.
fn find_called_input<'a>(survey: &PlanSurvey<'a>, site: &'a ExprSite<'_>) -> Option<(&'a str, &'a str, &'a Value)> {
    let name = site.field.input_name()?;
    let StepKindSpec::Call(call) = step_kind(survey, site)? else { return None };
    let scope = survey.definition.scope(site.spot.scope);
    let inner = scope.inner[site.spot.step? as usize].first()?;
    let schema = survey.definition.workflow_containing(*inner).workflow.inputs.property(name)?;
    Some((name, &call.workflow, schema))
}

fn step_kind<'a>(survey: &PlanSurvey<'a>, site: &ExprSite<'_>) -> Option<&'a StepKindSpec> {
    Some(&survey.definition.scope(site.spot.scope).step(site.spot.step?).kind)
}

/// Returns the schema of a step's output: its own, or else that of the called workflow.
pub(super) fn output_schema<'a>(definition: &'a PlanDefinition, entry: &'a ScopeEntry, step: u32) -> &'a Schema {
    let own = &entry.step(step).outputs;
    match (&entry.step(step).kind, entry.inner[step as usize].first()) {
        (StepKindSpec::Call(_), Some(called)) if own.is_empty() => &definition.scope(*called).scope.outputs,
        _ => own,
    }
}

struct SiteTypeEnv<'a> {
    survey: &'a PlanSurvey<'a>,
    types: &'a SchemaTypes,
    site: &'a ExprSite<'a>,
}

impl TypeEnv for SiteTypeEnv<'_> {
    fn ty_of(&self, root: &ReferenceRoot) -> ExprType {
        match root {
            ReferenceRoot::Input => self
                .types
                .schema_type(&self.survey.definition.workflow_containing(self.site.spot.scope).workflow.inputs),
            ReferenceRoot::Step { id, part: StepProperty::Output } => self.output_type(id),
            ReferenceRoot::Step { part: StepProperty::Status, .. } => ExprType::String,
            ReferenceRoot::Step { part: StepProperty::Summary, .. } => ExprType::String.union(ExprType::Null),
            ReferenceRoot::Index => ExprType::Int,
            ReferenceRoot::Run => closed_object(&[
                ("id", ExprType::String),
                ("started_at", ExprType::String),
                ("attempt", ExprType::Int),
                ("retry_of", ExprType::String.union(ExprType::Null)),
            ]),
            ReferenceRoot::Workflow => closed_object(&[
                ("id", ExprType::String),
                ("name", ExprType::String.union(ExprType::Null)),
                ("version", ExprType::String.union(ExprType::Null)),
                ("description", ExprType::String.union(ExprType::Null)),
            ]),
            ReferenceRoot::Item | ReferenceRoot::Context | ReferenceRoot::Env => ExprType::Any,
        }
    }
}

/// Returns the type of an object with these fields and no others.
fn closed_object(fields: &[(&str, ExprType)]) -> ExprType {
    let fields = fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone()));
    ExprType::Object { fields: Arc::new(fields.collect()), open: false }
}

impl SiteTypeEnv<'_> {
    /// Returns the type of a step's output. A step that was skipped, or that the cursor never reached, reads as null.
    fn output_type(&self, id: &str) -> ExprType {
        let definition = self.survey.definition;
        let Some((scope, step)) = definition.workflow_containing(self.site.spot.scope).names.get(id) else {
            return ExprType::Any;
        };
        self.types.schema_type(output_schema(definition, definition.scope(*scope), *step)).union(ExprType::Null)
    }
}
