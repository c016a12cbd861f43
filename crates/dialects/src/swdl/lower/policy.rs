//! Failure handling: retries and effects, each from the stage, else from the workflow, else from the defaults.

use skein_core::{
    ir::{Backoff, BackoffGrowth, ErrorClass, OutcomeEffect, OutcomeEffects, StepRetry},
    time::Millis,
};

use crate::{
    fields::FieldValue,
    swdl::{
        defaults::{self, SwdlOnFailure},
        syntax::{RetryDef, StagePolicy, SwdlWorkflow},
    },
};

/// The choice for a stage's failure, its place, and whether the stage itself sets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnFailureChoice<'a> {
    pub word: SwdlOnFailure,
    pub given: Option<FieldValue<'a>>,
    own: bool,
}

impl<'a> OnFailureChoice<'a> {
    pub fn from_policies(stage: &StagePolicy<'a>, source: &SwdlWorkflow<'a>) -> OnFailureChoice<'a> {
        let (found, own) = match (stage.on_failure, source.policy.on_stage_failure) {
            (Some(own), _) => (Some(own), true),
            (None, global) => (global, false),
        };
        let word = found.map(|(_, word)| word).unwrap_or_default();
        OnFailureChoice { word, given: found.map(|(given, _)| given), own }
    }

    /// Returns the effects of a stage with an agent. A stage that its condition skips counts as done.
    pub fn to_effects(self) -> OutcomeEffects {
        let failed = match self.word {
            SwdlOnFailure::Halt => OutcomeEffect::ABORT,
            SwdlOnFailure::Rollback => OutcomeEffect::UNDO,
            SwdlOnFailure::SkipDependents => OutcomeEffect::SKIP_DEPENDENTS,
            SwdlOnFailure::Continue if self.own => OutcomeEffect::CONTINUE,
            // As the workflow's setting, it lets other stages continue, but not the dependents of this one.
            SwdlOnFailure::Continue => OutcomeEffect { satisfies: false, ..OutcomeEffect::CONTINUE },
        };
        OutcomeEffects {
            skipped_by_condition: OutcomeEffect::GO_ON,
            timed_out: failed,
            ..failure_effects(failed)
        }
    }

    /// Returns the effects of a gate: only an approval satisfies it, and without one the run does not succeed.
    pub fn to_gate_effects(self) -> OutcomeEffects {
        let failed = match self.word {
            SwdlOnFailure::Halt => OutcomeEffect::ABORT,
            SwdlOnFailure::Rollback => OutcomeEffect::UNDO,
            SwdlOnFailure::SkipDependents | SwdlOnFailure::Continue => OutcomeEffect::SKIP_DEPENDENTS,
        };
        let halted =
            if self.word == SwdlOnFailure::Rollback { OutcomeEffect::UNDO } else { OutcomeEffect::ABORT };
        OutcomeEffects { timed_out: halted, ..failure_effects(failed) }
    }
}

fn failure_effects(failed: OutcomeEffect) -> OutcomeEffects {
    OutcomeEffects { failed, exhausted: failed, rejected: failed, ..OutcomeEffects::default() }
}

/// Lowers retries. Each field comes from the first source that has it.
pub(super) fn lower_retry(sources: &[&RetryDef<'_>]) -> StepRetry {
    let attempts = first_defined(sources, |retry| retry.max_attempts).unwrap_or(defaults::MAX_ATTEMPTS);
    // One attempt means no retries.
    if attempts == 1 {
        return StepRetry::default();
    }
    let length =
        |of: fn(&RetryDef<'_>) -> Option<Millis>, default| first_defined(sources, of).unwrap_or(default);
    let backoff = Backoff {
        initial: length(|retry| retry.initial_interval, defaults::INITIAL_INTERVAL),
        growth: BackoffGrowth::Exponential(
            first_defined(sources, |retry| retry.backoff_multiplier).unwrap_or(defaults::BACKOFF_MULTIPLIER),
        ),
        max: length(|retry| retry.max_interval, defaults::MAX_INTERVAL),
        jitter: false,
    };
    let never = first_defined(sources, |retry| retry.non_retryable_errors.clone()).unwrap_or_default();
    let mut retry = StepRetry::for_classes(&defaults::RETRIED, attempts, backoff);
    retry.attempts.insert(ErrorClass::Validation, attempts.min(defaults::VALIDATION_ATTEMPTS));
    retry.never = never.into_iter().map(str::to_owned).collect();
    retry
}

fn first_defined<'a, T>(sources: &[&RetryDef<'a>], of: impl Fn(&RetryDef<'a>) -> Option<T>) -> Option<T> {
    sources.iter().find_map(|retry| of(retry))
}
