//! Whether every number is in its range: times, attempts, passes, places.

use super::{
    definition::ScopeIx,
    problem::{At, Problem, ProblemCode, Problems},
    survey::Survey,
};
use crate::{
    ir::{Kind, Retry, Scope, Step, Work, Worker},
    limits,
    time::Millis,
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    for (ix, entry) in survey.scopes() {
        check_scope(survey, ix, &entry.scope, problems);
    }
    for (ix, i, step) in survey.steps() {
        let at = |field: &str| survey.at(ix, i, field);
        Numbers { at: &at, problems }.step(step);
    }
}

fn check_scope(survey: &Survey<'_>, ix: ScopeIx, scope: &Scope, problems: &mut Problems) {
    let at = |field: &str| survey.at_scope(ix, field);
    let mut numbers = Numbers { at: &at, problems };
    numbers.timeout("timeout", scope.timeout);
    numbers.at_least_one("concurrency", scope.concurrency, ProblemCode::BadConcurrency);
    numbers.at_least_one("max_steps", scope.max_steps, ProblemCode::BadMaxSteps);
    if let Some(retry) = &scope.retry {
        numbers.attempts("retry.attempts", retry.attempts);
    }
}

struct Numbers<'a> {
    at: &'a dyn Fn(&str) -> At,
    problems: &'a mut Problems,
}

impl Numbers<'_> {
    fn step(&mut self, step: &Step) {
        let policy = &step.policy;
        self.timeout("policy.timeout", policy.timeout);
        self.timeout("policy.idle_timeout", policy.idle_timeout);
        self.timeout("policy.start_timeout", policy.start_timeout);
        self.retry("policy.retry", &policy.retry);
        if let Some(undo) = &step.undo {
            self.timeout("undo.timeout", undo.timeout);
            self.retry("undo.retry", &undo.retry);
            self.work("undo.", &undo.work);
        }
        match &step.kind {
            Kind::Work(work) => self.work("", work),
            Kind::Gate(gate) => self.timeout("timeout", gate.timeout),
            Kind::Wait(wait) => self.timeout("timeout", wait.timeout),
            Kind::Each(each) => {
                self.at_least_one("parallelism", each.parallelism, ProblemCode::BadParallelism)
            }
            Kind::Loop(repeat) => self.passes("max", repeat.max, 1, ProblemCode::BadLoopMax),
            Kind::Branch(_) | Kind::Parallel(_) | Kind::Call(_) => {}
        }
    }

    fn work(&mut self, prefix: &str, work: &Work) {
        self.worker(prefix, &work.worker);
        if let Some(check) = &work.check {
            self.worker(&format!("{prefix}check."), &check.worker);
            self.timeout(&format!("{prefix}check.timeout"), check.timeout);
            let field = format!("{prefix}check.max_iterations");
            // One pass would be work without a check.
            self.passes(&field, check.max_iterations, 2, ProblemCode::BadIterations);
        }
        if let Some(summary) = &work.summary {
            self.worker(&format!("{prefix}summary."), &summary.worker);
            self.timeout(&format!("{prefix}summary.timeout"), summary.timeout);
        }
    }

    fn worker(&mut self, prefix: &str, worker: &Worker) {
        if let Worker::Agent { command_timeout: Some(timeout), .. } = worker {
            self.timeout(&format!("{prefix}command_timeout"), Some(*timeout));
        }
    }

    fn push(&mut self, code: ProblemCode, field: &str, message: String) {
        self.problems.push(Problem::new(code, (self.at)(field), message));
    }

    fn timeout(&mut self, field: &str, timeout: Option<Millis>) {
        let Some(timeout) = timeout else { return };
        if timeout.0 == 0 {
            let message = "a timeout of nothing would end it before it starts".to_owned();
            let problem = Problem::new(ProblemCode::BadTimeout, (self.at)(field), message);
            self.problems.push(problem.hint("leave it out for no timeout"));
        } else if timeout.0 > limits::TIMEOUT {
            let most = days(Millis(limits::TIMEOUT));
            self.push(
                ProblemCode::BadTimeout,
                field,
                format!("a timeout is at most {most}, this is {}", days(timeout)),
            );
        } else if timeout.0 > limits::TIMEOUT_WARN {
            self.push(ProblemCode::LongTimeout, field, format!("a timeout of {}", days(timeout)));
        }
    }

    fn retry(&mut self, field: &str, retry: &Retry) {
        let bounds = |(least, most): (u32, u32), attempts: &u32| (least.min(*attempts), most.max(*attempts));
        let (least, most) = retry.attempts.values().fold((1, 1), bounds);
        if most > limits::ATTEMPTS_WARN {
            self.attempts(&format!("{field}.attempts"), most);
        }
        if least == 0 {
            self.attempts(&format!("{field}.attempts"), 0);
        }
    }

    fn attempts(&mut self, field: &str, attempts: u32) {
        if attempts == 0 {
            let message = "there is at least one attempt, the first included".to_owned();
            self.push(ProblemCode::BadAttempts, field, message);
        } else if attempts > limits::ATTEMPTS {
            let message =
                format!("there are at most {} attempts, this asks for {attempts}", limits::ATTEMPTS);
            self.push(ProblemCode::BadAttempts, field, message);
        } else if attempts > limits::ATTEMPTS_WARN {
            self.push(ProblemCode::ManyAttempts, field, format!("up to {attempts} attempts"));
        }
    }

    fn passes(&mut self, field: &str, passes: u32, least: u32, code: ProblemCode) {
        if !(least..=limits::ITERATIONS).contains(&passes) {
            let message = format!("this must be from {least} to {}, not {passes}", limits::ITERATIONS);
            self.push(code, field, message);
        } else if passes > limits::ITERATIONS_WARN {
            self.push(ProblemCode::ManyIterations, field, format!("up to {passes} passes"));
        }
    }

    fn at_least_one(&mut self, field: &str, count: Option<u32>, code: ProblemCode) {
        if count == Some(0) {
            let problem = Problem::new(code, (self.at)(field), "with none, nothing would ever start");
            self.problems.push(problem.hint("leave it out for no limit"));
        }
    }
}

/// Long times in days; the others as they are.
fn days(time: Millis) -> String {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    if time.0 >= DAY && time.0.is_multiple_of(DAY) {
        return format!("{} days", time.0 / DAY);
    }
    time.to_string()
}
