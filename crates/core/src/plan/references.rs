//! Check that every expression can be evaluated: its references exist, and can have a value by then.

use super::{
    expr_sites::{self, ExprSite},
    field_path::{FieldPath, PlanField},
    problem::{PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    schemas::{PropertyDeclaration, declared_names, find_declaration, is_unknown_parameter},
    survey::{ExprSpot, PlanSurvey, VisibilityError, VisibleStep},
    types::{self, SchemaTypes},
};
use crate::{
    expr::{ExprRead, ExprSpan, ReferenceRoot, StepProperty},
    ids::StepId,
    ir::{OutcomeAction, OutcomeEffect, Schema, Step, StepKindSpec},
    terms::WorkflowTerms,
};

pub(super) fn check_references(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    let types = SchemaTypes::default();
    expr_sites::visit_sites(survey.definition, &mut |site| {
        let mut site = SiteCheck { survey, site, wrong: Vec::new(), problems: &mut *problems };
        for read in site.site.expr.reads() {
            site.check_read(&read);
        }
        types::check_types(survey, &types, &site.site, &site.wrong, site.problems);
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
        let schema = types::output_schema(self.survey.definition, entry, seen.step);
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
