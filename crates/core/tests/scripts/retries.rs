//! Retries: the failures that are retried, their number and their delay.

use serde_json::json;
use skein_core::{
    ir::{Backoff, BackoffGrowth, ErrorClass, Schema, StepRetry},
    time::Millis,
};

use crate::support::*;

/// The number of attempts includes the first: two attempts are one retry.
#[test]
fn attempts_count_the_first() {
    script!(graph(vec![retried(work("a"), 2)]))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .fail("a", ErrorClass::Transient)
        .done();
}

/// Without a retry policy nothing is retried.
#[test]
fn no_policy_means_no_retry() {
    script!(graph(vec![work("a")])).start().fail("a", ErrorClass::Transient).done();
}

/// A limit of one attempt allows no retry: the first failure exhausts it.
#[test]
fn a_budget_of_one_is_exhausted_at_once() {
    script!(graph(vec![retried(work("a"), 1)])).start().fail("a", ErrorClass::Transient).done();
}

/// A class that is not in the table is not retried, however many attempts are left.
#[test]
fn a_class_that_is_not_listed_is_not_retried() {
    script!(graph(vec![retried(work("a"), 9)])).start().fail("a", ErrorClass::NonRetryable).done();
}

/// Each class has its own limit, and all failures of the step count against it.
#[test]
fn the_class_of_the_last_failure_decides() {
    let step = work("a").with(|a| {
        a.policy.retry.attempts = [(ErrorClass::Transient, 3), (ErrorClass::Validation, 2)].into();
    });
    script!(graph(vec![step])).start().fail("a", ErrorClass::Transient).due().fail("a", ErrorClass::Validation).done();
}

/// An output that does not match the declared outputs is retried if the table has that class.
#[test]
fn a_bad_output_is_a_failure_of_class_validation() {
    let step = work("a").with(|a| {
        a.outputs = Schema::new(json!({"type": "object", "required": ["n"]}));
        a.policy.retry = StepRetry::for_classes(&[ErrorClass::Validation], 2, seconds(1));
    });
    script!(graph(vec![step])).start().gives("a", json!({})).due().gives("a", json!({"n": 1})).done();
}

/// Agent errors, transient and external ones are retried, timeouts and governance errors never: the last row fails.
#[test]
fn only_the_listed_classes_are_retried() {
    let classes = [ErrorClass::Transient, ErrorClass::AgentError, ErrorClass::External];
    let step = work("a").with(|a| a.policy.retry = StepRetry::for_classes(&classes, 4, seconds(5)));
    script!(graph(vec![step]))
        .start()
        .fail("a", ErrorClass::AgentError)
        .due()
        .fail("a", ErrorClass::External)
        .due()
        .times_out("a")
        .done();
}

/// A timeout of an attempt counts as an attempt and is retried if its class is listed.
#[test]
fn a_timeout_is_retried_where_it_is_listed() {
    let step = work("a").with(|a| {
        a.policy.timeout = Some(Millis::from_secs(30));
        a.policy.retry = StepRetry::for_classes(&[ErrorClass::Timeout], 2, seconds(1));
    });
    script!(graph(vec![step])).start().times_out("a").due().ok("a").done();
}

/// An error code that is never retried ends the step at once.
#[test]
fn a_code_that_is_never_retried_ends_it() {
    let step = retried(work("a"), 3).with(|a| a.policy.retry.never = vec!["auth".into()]);
    script!(graph(vec![step]))
        .start()
        .fails("a", ErrorClass::Transient, Some("net"), None)
        .due()
        .fails("a", ErrorClass::Transient, Some("auth"), None)
        .done();
}

/// The delay doubles up to the maximum.
#[test]
fn exponential_delays_double_up_to_the_maximum() {
    let backoff = Backoff {
        initial: Millis::from_secs(1),
        growth: BackoffGrowth::Exponential(2_000),
        max: Millis::from_secs(3),
        jitter: false,
    };
    let step = work("a").with(|a| a.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 4, backoff));
    script!(graph(vec![step]))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .fail("a", ErrorClass::Transient)
        .due()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// A linear delay grows by the initial delay each time.
#[test]
fn linear_delays_grow_by_the_first() {
    let backoff = Backoff {
        initial: Millis::from_secs(5),
        growth: BackoffGrowth::Linear,
        max: Millis::from_secs(60),
        jitter: false,
    };
    let step = work("a").with(|a| a.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 3, backoff));
    script!(graph(vec![step]))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// With jitter, the delay is between zero and the full delay, and the same for the same run and attempt.
#[test]
fn jitter_is_a_hash_within_the_delay() {
    let backoff = Backoff {
        initial: Millis::from_secs(10),
        growth: BackoffGrowth::Constant,
        max: Millis::from_secs(10),
        jitter: true,
    };
    let step = work("a").with(|a| a.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], 3, backoff));
    script!(graph(vec![step]))
        .start()
        .fail("a", ErrorClass::Transient)
        .due()
        .fail("a", ErrorClass::Transient)
        .due()
        .ok("a")
        .done();
}

/// The retry time that a worker reports is used if it is later than the delay.
#[test]
fn a_later_retry_at_wins() {
    script!(graph(vec![retried(work("a"), 3)]))
        .start()
        .fails("a", ErrorClass::RateLimit, None, Some(60))
        .due()
        .fails("a", ErrorClass::RateLimit, None, Some(60))
        .due()
        .ok("a")
        .done();
}

/// Nothing is retried before its time; an early wake-up has no effect.
#[test]
fn an_early_wake_does_nothing() {
    let step = retried(work("a"), 2).with(|a| a.policy.retry.backoff = seconds(10));
    script!(graph(vec![step])).start().fail("a", ErrorClass::Transient).pass(9).wake().pass(1).wake().wake().done();
}

/// A worker that stops without being told to has failed with class transient.
#[test]
fn stopping_unasked_is_a_transient_failure() {
    script!(graph(vec![retried(work("a"), 2)])).start().stops("a").due().stops("a").done();
}

/// Inputs are evaluated once per visit: a retry has the same inputs.
#[test]
fn a_retry_is_given_the_same_inputs() {
    let step = reads(retried(work("a"), 2), "n", "$input.n");
    script!(graph(vec![step])).with(json!({"n": 7})).start().fail("a", ErrorClass::Transient).due().ok("a").done();
}

/// An input that cannot be evaluated or is missing fails the step without an attempt and without a retry.
#[test]
fn a_missing_input_fails_without_an_attempt() {
    let step = reads(retried(work("a"), 3), "n", "$input.n").with(|a| a.inputs[0].required = true);
    script!(graph(vec![step])).start().done();
}

/// An input that does not match its schema fails the step before it starts.
#[test]
fn an_input_of_the_wrong_type_fails_without_an_attempt() {
    let step = reads(work("a"), "n", "$input.n").with(|a| a.inputs[0].schema = Schema::new(json!({"type": "integer"})));
    script!(graph(vec![step])).with(json!({"n": 3.5})).start().done();
}

/// Defaults of declared outputs are filled in before they are checked.
#[test]
fn output_defaults_are_filled_in() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 3}}});
    let step = work("a").with(|a| a.outputs = Schema::new(schema));
    script!(graph(vec![step])).start().gives("a", json!({"m": 1})).done();
}
