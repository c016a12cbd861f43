//! Numbers at the edges of their ranges.

use skein_core::{
    ir::{Backoff, CompletionCheck, ErrorClass, RunRetry, Step, StepKindSpec, StepRetry, WorkerSpec},
    limits,
    plan::ProblemCode,
    time::Millis,
};

use super::support::*;

/// For each number: true if it is refused, and true if there is a warning.
fn refused<N: Copy>(code: ProblemCode, warning: ProblemCode, ns: &[N], make: impl Fn(N) -> Step) -> Vec<(bool, bool)> {
    let of = |n| (has(routed(vec![make(n)]), code), has(routed(vec![make(n)]), warning));
    ns.iter().map(|n| of(*n)).collect()
}

const NO: (bool, bool) = (false, false);
const WARNED: (bool, bool) = (false, true);
const REFUSED: (bool, bool) = (true, false);

#[test]
fn bad_loop_max() {
    let make = |max| repeat("l", "$input.more == true", max, vec![work("a")]);
    let (warn, hard) = (limits::ITERATIONS_WARN, limits::ITERATIONS);
    assert_eq!(
        refused(
            ProblemCode::BadLoopMax,
            ProblemCode::ManyIterations,
            &[0, 1, warn, warn + 1, hard - 1, hard, hard + 1],
            make
        ),
        [REFUSED, NO, NO, WARNED, WARNED, WARNED, REFUSED]
    );
}

#[test]
fn bad_iterations() {
    let make = |max_iterations| {
        work("a").with(|step| {
            the_work(step).check = Some(Box::new(CompletionCheck {
                worker: WorkerSpec::Command { program: "true".into(), arguments: Vec::new() },
                timeout: Some(Millis(1)),
                max_iterations,
                incomplete_is_an_end: false,
                decision_file: None,
                convergence: None,
            }));
        })
    };
    let (warn, hard) = (limits::ITERATIONS_WARN, limits::ITERATIONS);
    assert_eq!(
        refused(ProblemCode::BadIterations, ProblemCode::ManyIterations, &[0, 1, 2, warn + 1, hard, hard + 1], make),
        [REFUSED, REFUSED, NO, WARNED, WARNED, REFUSED]
    );
}

#[test]
fn bad_attempts() {
    let make = |attempts| {
        work("a").with(|step| {
            step.policy.retry = StepRetry::for_classes(&[ErrorClass::Transient], attempts, Backoff::default())
        })
    };
    let (warn, hard) = (limits::ATTEMPTS_WARN, limits::ATTEMPTS);
    assert_eq!(
        refused(
            ProblemCode::BadAttempts,
            ProblemCode::ManyAttempts,
            &[0, 1, warn, warn + 1, hard - 1, hard, hard + 1],
            make
        ),
        [REFUSED, NO, NO, WARNED, WARNED, WARNED, REFUSED]
    );
    let run = graph(vec![work("a")]).with(|workflow| {
        workflow.scope.retry = Some(RunRetry { attempts: 0, backoff: Backoff::default(), on_timeout: false });
    });
    says(run, &["error[bad-attempts] retry.attempts: there must be at least one attempt, including the first"]);
}

#[test]
fn bad_timeout() {
    let make = |ms| work("a").with(|step| step.policy.timeout = Some(Millis(ms)));
    let (warn, hard) = (limits::TIMEOUT_WARN, limits::TIMEOUT);
    assert_eq!(
        refused(
            ProblemCode::BadTimeout,
            ProblemCode::LongTimeout,
            &[0, 1, warn, warn + 1, hard - 1, hard, hard + 1],
            make
        ),
        [REFUSED, NO, NO, WARNED, WARNED, WARNED, REFUSED]
    );
    let root = graph(vec![work("a")]).with(|workflow| workflow.scope.timeout = Some(Millis(0)));
    let hint = "(leave it out for no timeout)";
    says(root, &[&format!("error[bad-timeout] timeout: a timeout of 0 would end it before it starts {hint}")]);
    let gate = graph(vec![gate("g", |gate| gate.timeout = Some(Millis::from_hours(24 * 400)))]);
    assert!(has(gate, ProblemCode::BadTimeout));
}

#[test]
fn bad_parallelism() {
    let step = each("all", "$input.list", vec![work("a")]).with(|step| {
        let StepKindSpec::Each(each) = &mut step.kind else { panic!() };
        each.parallelism = Some(0);
    });
    says(
        routed(vec![step]),
        &["error[bad-parallelism] all: parallelism: with 0, nothing would ever start (leave it out for no limit)"],
    );
}

#[test]
fn bad_concurrency() {
    let workflow = graph(vec![work("a")]).with(|workflow| workflow.scope.concurrency = Some(0));
    assert!(has(workflow, ProblemCode::BadConcurrency));
    fine(graph(vec![work("a")]).with(|workflow| workflow.scope.concurrency = Some(1)));
}

#[test]
fn bad_max_steps() {
    let workflow = graph(vec![work("a")]).with(|workflow| workflow.scope.max_steps = Some(0));
    assert!(has(workflow, ProblemCode::BadMaxSteps));
}
