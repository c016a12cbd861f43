//! What failures do: retries and effects, each from the stage, else from the workflow, else from the defaults.

use skein_core::{
    ir::{Backoff, Effect, Effects, ErrorClass, Growth, Retry},
    time::Millis,
};

use crate::{
    read::Given,
    swdl::{
        defaults::{self, OnFailure},
        syntax::{RetryDef, StagePolicy, Workflow},
    },
};

/// What a stage's failure does, where that is said, and whether the stage says it itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub word: OnFailure,
    pub given: Option<Given<'a>>,
    own: bool,
}

impl<'a> Chosen<'a> {
    pub fn of(stage: &StagePolicy<'a>, source: &Workflow<'a>) -> Chosen<'a> {
        let (found, own) = match (stage.on_failure, source.policy.on_stage_failure) {
            (Some(own), _) => (Some(own), true),
            (None, global) => (global, false),
        };
        let word = found.map(|(_, word)| word).unwrap_or_default();
        Chosen { word, given: found.map(|(given, _)| given), own }
    }

    /// Of a stage that an agent does. One that its condition skips counts as done.
    pub fn effects(self) -> Effects {
        let failed = match self.word {
            OnFailure::Halt => Effect::ABORT,
            OnFailure::Rollback => Effect::UNDO,
            OnFailure::SkipDependents => Effect::SKIP_DEPENDENTS,
            OnFailure::Continue if self.own => Effect::CONTINUE,
            // Said for all stages, it lets the others go on, and not what needs this one.
            OnFailure::Continue => Effect { satisfies: false, ..Effect::CONTINUE },
        };
        Effects { skipped_by_condition: Effect::GO_ON, timed_out: failed, ..all_failed(failed) }
    }

    /// Of a gate: only an approval opens it, and nothing but an approval leaves the run in good order.
    pub fn gate_effects(self) -> Effects {
        let failed = match self.word {
            OnFailure::Halt => Effect::ABORT,
            OnFailure::Rollback => Effect::UNDO,
            OnFailure::SkipDependents | OnFailure::Continue => Effect::SKIP_DEPENDENTS,
        };
        let halted = if self.word == OnFailure::Rollback { Effect::UNDO } else { Effect::ABORT };
        Effects { timed_out: halted, ..all_failed(failed) }
    }
}

fn all_failed(failed: Effect) -> Effects {
    Effects { failed, exhausted: failed, rejected: failed, ..Effects::default() }
}

/// Retries by the first of these that says something, field by field.
pub(super) fn retry(sources: &[&RetryDef<'_>]) -> Retry {
    let attempts = first(sources, |retry| retry.max_attempts).unwrap_or(defaults::MAX_ATTEMPTS);
    // One attempt is no retry at all.
    if attempts == 1 {
        return Retry::default();
    }
    let length = |of: fn(&RetryDef<'_>) -> Option<Millis>, default| first(sources, of).unwrap_or(default);
    let backoff = Backoff {
        initial: length(|retry| retry.initial_interval, defaults::INITIAL_INTERVAL),
        growth: Growth::Exponential(
            first(sources, |retry| retry.backoff_multiplier).unwrap_or(defaults::BACKOFF_MULTIPLIER),
        ),
        max: length(|retry| retry.max_interval, defaults::MAX_INTERVAL),
        jitter: false,
    };
    let never = first(sources, |retry| retry.non_retryable_errors.clone()).unwrap_or_default();
    let mut retry = Retry::of(&defaults::RETRIED, attempts, backoff);
    retry.attempts.insert(ErrorClass::Validation, attempts.min(defaults::VALIDATION_ATTEMPTS));
    retry.never = never.into_iter().map(str::to_owned).collect();
    retry
}

fn first<'a, T>(sources: &[&RetryDef<'a>], of: impl Fn(&RetryDef<'a>) -> Option<T>) -> Option<T> {
    sources.iter().find_map(|retry| of(retry))
}
