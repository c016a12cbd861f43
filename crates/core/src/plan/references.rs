//! Check that every reference exists and can have a value by then: the references of expressions, with their types as
//! far as they are known before a run, and the artifacts that steps take or export.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    expr::{ExprRead, ExprSpan, ExprType, ReferenceRoot, StepProperty, TypeEnv, TypeFit},
    ids::{ArtifactName, StepId},
    ir::{CallSpec, OutcomeAction, OutcomeEffect, Schema, Step, StepKindSpec, WorkSpec},
    plan::{
        definition::{PlanDefinition, ScopeEntry, ScopeIx},
        problem::{
            FieldPath, FieldRef, FieldRest, PlanField, PlanProblem, ProblemCode, ProblemCollector, ProblemLocation,
        },
        schemas::{PropertyDeclaration, declared_names, find_declaration, is_unknown_parameter},
        survey::{self, ExprReach, ExprSite, ExprSpot, PlanSurvey, VisibilityError, VisibleStep},
    },
    terms::WorkflowTerms,
};

pub(super) fn check_references(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    let types = SchemaTypes::default();
    survey::visit_sites(survey.definition, &mut |site| {
        let mut site = SiteCheck { survey, site, wrong: Vec::new(), problems: &mut *problems };
        for read in site.site.expr.reads() {
            site.check_read(&read);
        }
        check_types(survey, &types, &site.site, &site.wrong, site.problems);
    });
}

struct SiteCheck<'a> {
    survey: &'a PlanSurvey<'a>,
    site: ExprSite<'a>,
    /// References with a reported problem, so that their types are not reported, too.
    wrong: Vec<ExprSpan>,
    problems: &'a mut ProblemCollector,
}

impl<'a> SiteCheck<'a> {
    fn terms(&self) -> &'static WorkflowTerms {
        self.survey.terms(self.site.spot.scope)
    }

    fn read_location(&self, read: &ExprRead<'_>) -> ProblemLocation {
        site_location(self.survey, &self.site, &read.at, read.span)
    }

    fn push_problem(
        &mut self,
        read: &ExprRead<'_>,
        code: ProblemCode,
        make: impl FnOnce(PlanProblem) -> PlanProblem,
        message: String,
    ) {
        self.wrong.push(read.span);
        let at = self.read_location(read);
        self.problems.push_with(code, || make(PlanProblem::new(code, at, message)));
    }

    fn check_read(&mut self, read: &ExprRead<'_>) {
        match read.root {
            ReferenceRoot::Input => self.check_input(read),
            ReferenceRoot::Step { id, part } => self.check_step(read, id, *part),
            ReferenceRoot::Item | ReferenceRoot::Index if !self.survey.has_item(self.site.spot.scope) => {
                let WorkflowTerms { step, an_each, .. } = self.terms();
                let message = format!("there is no item here: only {step}s inside {an_each} have one");
                self.push_problem(read, ProblemCode::NoItem, |problem| problem, message);
            }
            ReferenceRoot::Item
            | ReferenceRoot::Index
            | ReferenceRoot::Context
            | ReferenceRoot::Env
            | ReferenceRoot::Run
            | ReferenceRoot::Workflow => {}
        }
    }

    fn check_input(&mut self, read: &ExprRead<'_>) {
        let schema = &self.survey.definition.workflow_containing(self.site.spot.scope).workflow.inputs;
        let Some(name) = read.path.first() else { return };
        if is_unknown_parameter(schema, name) {
            let message = format!("there is no {} `{name}`", self.terms().parameter);
            let hint = |problem: PlanProblem| problem.with_suggestion(name, declared_names(schema));
            self.push_problem(read, ProblemCode::UnknownParameter, hint, message);
        }
    }

    fn check_step(&mut self, read: &ExprRead<'_>, id: &str, part: StepProperty) {
        match self.survey.find_visible_step(self.site.spot, id) {
            Ok(seen) => {
                self.add_remarks(read, seen);
                if part == StepProperty::Output {
                    self.check_output(read, seen);
                }
            }
            Err(VisibilityError::Doubtful) => {}
            Err(unseen) => self.report_unseen(read, id, &unseen),
        }
    }

    fn report_unseen(&mut self, read: &ExprRead<'_>, id: &str, unseen: &VisibilityError) {
        let terms = self.terms();
        let (code, message) = match unseen {
            VisibilityError::NoSuchStep => (ProblemCode::UnknownStep, format!("there is no {} `{id}`", terms.step)),
            VisibilityError::Itself => (ProblemCode::SelfReference, format!("`{id}` reads itself before it has run")),
            VisibilityError::Around => {
                (ProblemCode::SelfReference, format!("`{id}` contains this and has not ended yet"))
            }
            VisibilityError::NotBefore | VisibilityError::Doubtful => {
                (ProblemCode::NotBefore, format!("this reads `{id}` but never runs after it"))
            }
            VisibilityError::SiblingLane => {
                (ProblemCode::SiblingLane, format!("`{id}` is in another {} that runs at the same time", terms.lane))
            }
            VisibilityError::InsideEach(each) => (
                ProblemCode::InsideEach,
                format!("`{id}` runs once for each item of `{each}`, so it has no single result here"),
            ),
        };
        let (survey, spot) = (self.survey, self.site.spot);
        let known = &survey.definition.workflow_containing(spot.scope).names;
        let hint = |problem: PlanProblem| match unseen {
            VisibilityError::NoSuchStep => problem.with_suggestion(id, known.keys().map(StepId::as_str)),
            unseen => problem.with_optional_hint(unseen_hint(survey, spot, id, unseen)),
        };
        self.push_problem(read, code, hint, message);
    }

    fn check_output(&mut self, read: &ExprRead<'_>, seen: VisibleStep) {
        let Some(name) = read.path.first() else { return };
        let entry = self.survey.definition.scope(seen.scope);
        let step = entry.step(seen.step);
        let schema = output_schema(self.survey.definition, entry, seen.step);
        // If the output itself has a field `outputs`, the path continues inside that field.
        if read.lenient_outputs && schema.property("outputs").is_some() {
            return;
        }
        let code = match find_declaration(schema, name) {
            PropertyDeclaration::Forbidden => ProblemCode::UnknownOutput,
            PropertyDeclaration::Nothing => ProblemCode::UndeclaredOutput,
            PropertyDeclaration::Yes | PropertyDeclaration::Allowed => return,
        };
        let message = format!("`{}` does not declare the output `{name}`", step.id);
        let declared = self.survey.step_location(seen.scope, seen.step, PlanField::Outputs);
        let what = if declared_names(schema).next().is_some() { "declared here" } else { "it declares none" };
        let hint = |problem: PlanProblem| {
            problem
                .with_optional_hint(describe_declared(schema))
                .with_suggestion(name, declared_names(schema))
                .with_related(declared, what)
        };
        self.push_problem(read, code, hint, message);
    }

    /// Reports references that work but that a person should know about.
    fn add_remarks(&mut self, read: &ExprRead<'_>, seen: VisibleStep) {
        let entry = self.survey.definition.scope(seen.scope);
        let step = entry.step(seen.step);
        if seen.indirect {
            let message = format!("`{}` is only an indirect dependency", step.id);
            let problem = PlanProblem::new(ProblemCode::IndirectReference, self.read_location(read), message);
            self.problems.push(problem.with_hint("depend on it directly, so that later edits keep the order"));
        }
        if self.site.required && may_fail_and_go_on(step) {
            let reader = self.survey.spot_location(self.site.spot, FieldPath::default()).step;
            let reader = reader.as_ref().map_or("this", StepId::as_str);
            let message = format!(
                "`{reader}` starts even if `{}` fails, and then fails because this required input is missing",
                step.id
            );
            let goes_on = self.survey.step_location(seen.scope, seen.step, [PlanField::Policy, PlanField::Effects]);
            let problem = PlanProblem::new(ProblemCode::InputMayBeMissing, self.read_location(read), message);
            let problem = problem.with_related(goes_on, "if it fails, the run goes on");
            let hint = "make the input optional, or let the failure stop the run";
            self.problems.push(problem.with_hint(hint));
        }
    }
}

fn unseen_hint(survey: &PlanSurvey<'_>, spot: ExprSpot, id: &str, unseen: &VisibilityError) -> Option<String> {
    match unseen {
        VisibilityError::NotBefore => {
            let entry = survey.definition.scope(spot.scope);
            let step = entry.step(spot.step?);
            let can_wait = entry.by_id.contains_key(id) && !entry.is_routed();
            can_wait.then(|| format!("make `{}` depend on it", step.id))
        }
        VisibilityError::SiblingLane => Some(format!("read it after the parallel {}", survey.terms(spot.scope).step)),
        VisibilityError::InsideEach(each) => Some(format!("read `{each}`, which has every item's result")),
        VisibilityError::NoSuchStep | VisibilityError::Itself | VisibilityError::Around | VisibilityError::Doubtful => {
            None
        }
    }
}

/// Returns a location inside a site. Spans only have a meaning in the outermost text.
pub(super) fn site_location(
    survey: &PlanSurvey<'_>,
    site: &ExprSite<'_>,
    pointer: &str,
    span: ExprSpan,
) -> ProblemLocation {
    ProblemLocation {
        span: (span != ExprSpan::default()).then_some(span),
        ..survey.spot_location(site.spot, FieldPath::from(site.field).pointer(pointer))
    }
}

fn describe_declared(schema: &Schema) -> Option<String> {
    let known: Vec<&str> = declared_names(schema).take(8).collect();
    (!known.is_empty()).then(|| format!("it declares {}", known.join(", ")))
}

fn may_fail_and_go_on(step: &Step) -> bool {
    let goes_on = |effect: &OutcomeEffect| effect.then == OutcomeAction::GoOn && effect.satisfies;
    let effects = &step.policy.effects;
    matches!(
        step.kind,
        StepKindSpec::Work(_)
            | StepKindSpec::Call(_)
            | StepKindSpec::Parallel(_)
            | StepKindSpec::Each(_)
            | StepKindSpec::Loop(_)
    ) && (goes_on(&effects.failed) || effects.failed_by_class.values().any(goes_on))
}

/// The type of each schema, computed once: every expression of a workflow may refer to its parameters.
#[derive(Default)]
struct SchemaTypes {
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
fn check_types(
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
        let at = site_location(survey, site, &issue.at, issue.span);
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
        problems.push(PlanProblem::new(code, site_location(survey, site, "", ExprSpan::default()), message));
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

pub(super) fn check_artifacts(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (scope, i, step) in survey.steps() {
        match &step.kind {
            StepKindSpec::Work(work) => {
                let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
                check_work_artifacts(survey, spot, false, work, problems);
            }
            StepKindSpec::Call(call) => check_exports(survey, (scope, i), call, problems),
            _ => {}
        }
        if let Some(undo) = &step.undo {
            let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Own };
            check_work_artifacts(survey, spot, true, &undo.work, problems);
        }
    }
}

fn check_work_artifacts(
    survey: &PlanSurvey<'_>,
    spot: ExprSpot,
    undo: bool,
    work: &WorkSpec,
    problems: &mut ProblemCollector,
) {
    let at = |field, rest| {
        let field = FieldRef { undo, ..FieldRef::new(field, rest) };
        survey.spot_location(spot, field)
    };
    check_unique_names(PlanField::Gives, work.gives.iter().map(|gives| &gives.name), &at, problems);
    check_unique_names(PlanField::Takes, work.takes.iter().map(|takes| &takes.name), &at, problems);
    for (n, takes) in work.takes.iter().enumerate() {
        let at = |field| at(PlanField::Takes, FieldRest::ItemField(n, field));
        match survey.find_visible_step(spot, takes.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                let giver = survey.step_location(seen.scope, seen.step, PlanField::Gives);
                check_giver(step, &takes.artifact, at(PlanField::Artifact), Some(giver), problems);
            }
            Err(VisibilityError::NoSuchStep) => problems.push_with(ProblemCode::UnknownArtifactSource, || {
                let known = survey.definition.workflow_containing(spot.scope).names.keys();
                let message =
                    format!("there is no {} `{}` to take an artifact from", survey.terms(spot.scope).step, takes.from);
                PlanProblem::new(ProblemCode::UnknownArtifactSource, at(PlanField::From), message)
                    .with_suggestion(takes.from.as_str(), known.map(StepId::as_str))
            }),
            Err(VisibilityError::Doubtful) => {}
            Err(unseen) => {
                problems.push(not_before_problem(survey.terms(spot.scope), &takes.from, &unseen, at(PlanField::From)))
            }
        }
    }
}

/// Checks that names are unique: two artifacts of one name would be one file.
fn check_unique_names<'a>(
    field: PlanField,
    names: impl Iterator<Item = &'a ArtifactName>,
    at: &dyn Fn(PlanField, FieldRest<'static>) -> ProblemLocation,
    problems: &mut ProblemCollector,
) {
    let mut seen = BTreeSet::new();
    for (n, name) in names.enumerate() {
        if !seen.insert(name) {
            let message = format!("two artifacts are called `{name}`");
            problems.push(PlanProblem::new(ProblemCode::DuplicateArtifact, at(field, FieldRest::Item(n)), message));
        }
    }
}

fn not_before_problem(
    terms: &WorkflowTerms,
    from: &StepId,
    unseen: &VisibilityError,
    at: ProblemLocation,
) -> PlanProblem {
    let why = match unseen {
        VisibilityError::InsideEach(each) => format!("runs once for each item of `{each}`"),
        VisibilityError::SiblingLane => format!("is in a {} that runs at the same time", terms.lane),
        _ => "has not ended by then".to_owned(),
    };
    PlanProblem::new(ProblemCode::ArtifactNotBefore, at, format!("`{from}` {why}, so its artifact cannot be taken"))
}

/// Reports a step that does not give an artifact. Points to the artifacts that it gives if it is in the same workflow.
fn check_giver(
    step: &Step,
    artifact: &ArtifactName,
    at: ProblemLocation,
    giver: Option<ProblemLocation>,
    problems: &mut ProblemCollector,
) {
    let given: Vec<&ArtifactName> = match &step.kind {
        StepKindSpec::Work(work) => work.gives.iter().map(|gives| &gives.name).collect(),
        StepKindSpec::Call(call) => call.exports.iter().map(|export| &export.name).collect(),
        _ => Vec::new(),
    };
    if !given.contains(&artifact) {
        let message = format!("`{}` produces no artifact `{artifact}`", step.id);
        problems.push_with(ProblemCode::UnknownArtifact, || {
            let gives = if given.is_empty() { "it produces no artifacts" } else { "it produces these" };
            let problem = PlanProblem::new(ProblemCode::UnknownArtifact, at, message)
                .with_suggestion(artifact.as_str(), given.into_iter().map(ArtifactName::as_str));
            giver.into_iter().fold(problem, |problem, giver| problem.with_related(giver, gives))
        });
    }
}

fn check_exports(
    survey: &PlanSurvey<'_>,
    (scope, i): (ScopeIx, u32),
    call: &CallSpec,
    problems: &mut ProblemCollector,
) {
    let at = |field, rest| survey.step_location(scope, i, FieldRef::new(field, rest));
    check_unique_names(PlanField::Exports, call.exports.iter().map(|export| &export.name), &at, problems);
    let Some(called) = survey.definition.scope(scope).inner[i as usize].first() else { return };
    let spot = ExprSpot { scope: *called, step: None, reach: ExprReach::End };
    for (n, export) in call.exports.iter().enumerate() {
        let at = |field| at(PlanField::Exports, FieldRest::ItemField(n, field));
        match survey.find_visible_step(spot, export.from.as_str()) {
            Ok(seen) => {
                let step = survey.definition.scope(seen.scope).step(seen.step);
                check_giver(step, &export.artifact, at(PlanField::Artifact), None, problems);
            }
            Err(_) => problems.push_with(ProblemCode::UnknownExportSource, || {
                let known = survey.definition.workflow_containing(*called).names.keys();
                let message =
                    format!("`{}` has no {} `{}` to export from", call.workflow, survey.terms(scope).step, export.from);
                PlanProblem::new(ProblemCode::UnknownExportSource, at(PlanField::From), message)
                    .with_suggestion(export.from.as_str(), known.map(StepId::as_str))
            }),
        }
    }
}
