//! The terms of a format, and the conversion of the plan's problems to diagnostics in its source.

use skein_core::{
    expr::ExprSpan,
    plan::{PlanProblem, ProblemCode, Suggestion},
    terms::WorkflowTerms,
};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticLabel},
    source::SourceMap,
};

/// The terms of a format for the problems that the plan finds.
#[derive(Debug)]
pub(crate) struct DialectTerms {
    pub words: WorkflowTerms,
    /// The hint for a problem, where the format has another solution than the plan's hint.
    pub hints: &'static [(ProblemCode, &'static str)],
    /// Warnings of the plan that are errors in the format, and the code of that error.
    pub stricter: &'static [(ProblemCode, Code)],
}

impl DialectTerms {
    /// Converts a problem of the plan to a diagnostic.
    pub(crate) fn diagnose_problem(&self, problem: &PlanProblem, places: &SourceMap) -> Diagnostic {
        let (source, span) = places.locate(&problem.at);
        let stricter = self.stricter_code(problem);
        let diagnostic = Diagnostic::new(self.problem_code(problem), &source, span, &*problem.message);
        let mut diagnostic = diagnostic.with_optional_hint(self.problem_hint(problem));
        if stricter.is_none() {
            diagnostic.severity = problem.severity;
        }
        for (at, message) in &problem.related {
            let (source, span) = places.locate(at);
            diagnostic.labels.push(DiagnosticLabel { source, span, message: message.clone() });
        }
        match &problem.slip {
            Some(slip) => add_name_fix(diagnostic, slip),
            None => diagnostic,
        }
    }

    /// Returns the code of a problem in this format.
    pub(crate) fn problem_code(&self, problem: &PlanProblem) -> Code {
        self.stricter_code(problem).unwrap_or(diagnostic_code(problem.code))
    }

    pub(crate) fn is_error(&self, problem: &PlanProblem) -> bool {
        problem.is_error() || self.stricter_code(problem).is_some()
    }

    /// Returns the code of a problem in a format that is stricter about it than the plan.
    fn stricter_code(&self, problem: &PlanProblem) -> Option<Code> {
        self.stricter.iter().find(|(code, _)| *code == problem.code).map(|(_, code)| *code)
    }

    fn problem_hint(&self, problem: &PlanProblem) -> Option<String> {
        let own = self.hints.iter().find(|(code, _)| *code == problem.code).map(|(_, hint)| (*hint).to_owned());
        own.or_else(|| problem.hint.clone())
    }
}

/// Adds a fix if the wrong name occurs exactly once at the place of the diagnostic.
fn add_name_fix(diagnostic: Diagnostic, Suggestion { wrong, meant }: &Suggestion) -> Diagnostic {
    let DiagnosticLabel { source, span, .. } = diagnostic.primary_label();
    let (source, span) = (source.clone(), *span);
    let text = source.slice(span);
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut places = text.match_indices(wrong.as_str()).filter(|(at, _)| {
        let (before, after) = (&text[..*at], &text[at + wrong.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    });
    match (places.next(), places.next()) {
        (Some((at, _)), None) => {
            let start = span.start + ExprSpan::new(0, at).end;
            let end = start + ExprSpan::new(0, wrong.len()).end;
            diagnostic.with_fix(ExprSpan { start, end }, meant.clone())
        }
        _ => diagnostic,
    }
}

/// The diagnostic code of each problem.
fn diagnostic_code(code: ProblemCode) -> Code {
    // table
    use ProblemCode as P;
    match code {
        P::EmptyWorkflow | P::EmptyScope => Code::NoSteps,
        P::DuplicateStep | P::DuplicateLane | P::DuplicateInput | P::DuplicateArtifact => Code::DuplicateName,
        P::Misplaced | P::WrongKind => Code::Misplaced,
        P::NoArms | P::TooFewLanes | P::NoSignals => Code::TooFew,
        P::UnknownDependency | P::UnknownTarget | P::UnknownStart => Code::UnknownStep,
        P::SelfDependency | P::Cycle => Code::Cycle,
        P::BadSettler => Code::BadSettler,
        P::Unreachable => Code::Unreachable,
        P::BadLoopMax | P::BadParallelism | P::BadIterations | P::BadConcurrency | P::BadMaxSteps | P::BadAttempts => {
            Code::BadNumber
        }
        P::BadTimeout => Code::BadDuration,
        P::TooManySteps | P::TooManyEdges | P::TooDeep | P::BadFrozen => Code::TooBig,
        P::CallDepth => Code::CallsTooDeep,
        P::UnknownWorkflow => Code::UnknownWorkflow,
        P::Recursion => Code::Recursion,
        P::UnknownArtifactSource | P::UnknownExportSource => Code::UnknownStep,
        P::UnknownArtifact => Code::UnknownArtifact,
        P::ArtifactNotBefore | P::NotBefore | P::SelfReference => Code::NotBefore,
        P::BadSchema => Code::BadSchema,
        P::UnknownStep => Code::ReadsUnknownStep,
        P::SiblingLane | P::InsideEach => Code::OutOfSight,
        P::NoItem => Code::NoItem,
        P::UnknownParameter => Code::ReadsUnknownParameter,
        P::UnknownOutput => Code::ReadsUnknownOutput,
        P::MissingParameter => Code::MissingParameter,
        P::BadParameter => Code::BadParameter,
        P::BorderClash => Code::BorderClash,
        P::BadName => Code::BadName,
        P::BadExpression => Code::BadExpression,
        P::BadUndo => Code::BadUndo,
        P::UndeclaredOutput => Code::UndeclaredOutput,
        P::TypeClash => Code::TypeClash,
        P::IndirectReference => Code::IndirectReference,
        P::NoTimeout => Code::NoTimeout,
        P::LongTimeout => Code::LongTimeout,
        P::WaitOutlivesRun | P::StepOutlivesRun => Code::WaitOutlivesRun,
        P::ManySteps | P::ManyEdges | P::DeepCalls => Code::QuiteBig,
        P::ManyAttempts | P::ManyIterations => Code::ManyTries,
        P::SkippedGate => Code::SkippedGate,
        P::GateOpensItself => Code::GateOpensItself,
        P::AnyoneMayApprove => Code::AnyoneMayApprove,
        P::InputMayBeMissing => Code::InputMayBeMissing,
        P::UnboundedEach => Code::UnboundedEach,
        P::UntrustedText => Code::UntrustedText,
        P::NothingToUndo => Code::NothingToUndo,
        P::WorkerStarts => Code::WorkerStarts,
    }
}
