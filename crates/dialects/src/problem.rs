//! What the plan says about a workflow, put at its place in the source and into the words of its format.

use skein_core::plan::{Problem, ProblemCode};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Label},
    places::Places,
};

/// Words of the IR and what a format calls them.
pub type Vocabulary = &'static [(&'static str, &'static str)];

/// Warnings of the plan that are errors in a format, and the code of that error.
pub type Stricter = &'static [(ProblemCode, Code)];

/// The code that a problem has in a format that is stricter about it than the plan.
fn made_error(problem: &Problem, stricter: Stricter) -> Option<Code> {
    stricter.iter().find(|(code, _)| *code == problem.code).map(|(_, code)| *code)
}

pub(crate) fn is_error(problem: &Problem, stricter: Stricter) -> bool {
    problem.is_error() || made_error(problem, stricter).is_some()
}

/// A problem of the plan as a diagnostic.
pub(crate) fn diagnostic(
    problem: &Problem,
    places: &Places,
    words: Vocabulary,
    stricter: Stricter,
) -> Diagnostic {
    let (source, span) = places.locate(&problem.at);
    let stricter = made_error(problem, stricter);
    let message = in_words(&problem.message, words);
    let diagnostic = Diagnostic::new(stricter.unwrap_or(code(problem.code)), &source, span, message);
    let mut diagnostic = diagnostic.maybe_hint(problem.hint.as_deref().map(|hint| in_words(hint, words)));
    if stricter.is_none() {
        diagnostic.severity = problem.severity;
    }
    for (at, message) in &problem.related {
        let ((source, span), message) = (places.locate(at), in_words(message, words));
        diagnostic.labels.push(Label { source, span, message });
    }
    diagnostic
}

/// Replaces words outside of backticks, where names from the source stand.
pub(crate) fn in_words(message: &str, words: Vocabulary) -> String {
    let parts = message.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 1 {
            return part.to_owned();
        }
        words.iter().fold(part.to_owned(), |part, (from, to)| part.replace(from, to))
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The code under which each problem is explained.
fn code(code: ProblemCode) -> Code {
    // table
    use ProblemCode as P;
    match code {
        P::EmptyWorkflow | P::EmptyScope => Code::NoSteps,
        P::DuplicateStep | P::DuplicateLane | P::DuplicateInput | P::DuplicateArtifact => Code::DuplicateName,
        P::Misplaced | P::WrongKind => Code::Misplaced,
        P::NoArms | P::TooFewLanes | P::NoSignals => Code::TooFew,
        P::UnknownDependency | P::UnknownTarget | P::UnknownStart => Code::UnknownStep,
        P::SelfDependency | P::Cycle => Code::Cycle,
        P::Unreachable => Code::Unreachable,
        P::BadLoopMax
        | P::BadParallelism
        | P::BadIterations
        | P::BadConcurrency
        | P::BadMaxSteps
        | P::BadAttempts => Code::BadNumber,
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
        P::BadName => Code::BadName,
        P::BadExpression => Code::BadExpression,
        P::BadUndo => Code::BadUndo,
        P::UndeclaredOutput => Code::UndeclaredOutput,
        P::TypeClash => Code::TypeClash,
        P::IndirectReference => Code::IndirectReference,
        P::NoTimeout => Code::NoTimeout,
        P::LongTimeout => Code::LongTimeout,
        P::WaitOutlivesRun => Code::WaitOutlivesRun,
        P::ManySteps | P::ManyEdges | P::DeepCalls => Code::QuiteBig,
        P::ManyAttempts | P::ManyIterations => Code::ManyTries,
        P::SkippedGate => Code::SkippedGate,
        P::GateOpensItself => Code::GateOpensItself,
        P::AnyoneMayApprove => Code::AnyoneMayApprove,
        P::InputMayBeMissing => Code::InputMayBeMissing,
        P::UnboundedEach => Code::UnboundedEach,
        P::NothingToUndo => Code::NothingToUndo,
        P::WorkerStarts => Code::WorkerStarts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_and_names_do_not() {
        let words: Vocabulary = &[("step", "stage")];
        assert_eq!(in_words("there is no step `my-step`", words), "there is no stage `my-step`");
    }
}
