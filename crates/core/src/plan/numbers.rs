//! Check that every number is in its range: times, attempts, passes, concurrency.

use super::{
    definition::ScopeIx,
    problem::{
        PlanField::{self, *},
        PlanProblem, ProblemCode, ProblemCollector, ProblemLocation,
    },
    survey::PlanSurvey,
};
use crate::{
    ir::{Step, StepKindSpec, StepRetry, StepScope, WorkSpec, WorkerSpec},
    limits,
    time::Millis,
};

pub(super) fn check_numbers(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    for (ix, entry) in survey.scopes() {
        check_scope(survey, ix, &entry.scope, problems);
    }
    for (ix, i, step) in survey.steps() {
        let at = |field: &[PlanField]| survey.step_location(ix, i, field);
        NumberCheck { at: &at, problems }.check_step(step);
    }
}

fn check_scope(survey: &PlanSurvey<'_>, ix: ScopeIx, scope: &StepScope, problems: &mut ProblemCollector) {
    let at = |field: &[PlanField]| survey.scope_location(ix, field);
    let mut numbers = NumberCheck { at: &at, problems };
    numbers.check_timeout(&[Timeout], scope.timeout);
    numbers.check_at_least_one(&[Concurrency], scope.concurrency, ProblemCode::BadConcurrency);
    numbers.check_at_least_one(&[MaxSteps], scope.max_steps, ProblemCode::BadMaxSteps);
    if let Some(retry) = &scope.retry {
        numbers.check_attempts(&[Retry, Attempts], retry.attempts);
    }
}

struct NumberCheck<'a> {
    at: &'a dyn Fn(&[PlanField]) -> ProblemLocation,
    problems: &'a mut ProblemCollector,
}

impl NumberCheck<'_> {
    fn check_step(&mut self, step: &Step) {
        let policy = &step.policy;
        self.check_timeout(&[Policy, Timeout], policy.timeout);
        self.check_timeout(&[Policy, IdleTimeout], policy.idle_timeout);
        self.check_timeout(&[Policy, StartTimeout], policy.start_timeout);
        self.check_retry(&[Policy, Retry, Attempts], &policy.retry);
        if let Some(undo) = &step.undo {
            self.check_timeout(&[Undo, Timeout], undo.timeout);
            self.check_retry(&[Undo, Retry, Attempts], &undo.retry);
            self.check_work(&[Undo], &undo.work);
        }
        match &step.kind {
            StepKindSpec::Work(work) => self.check_work(&[], work),
            StepKindSpec::Gate(gate) => self.check_timeout(&[Timeout], gate.timeout),
            StepKindSpec::Wait(wait) => self.check_timeout(&[Timeout], wait.timeout),
            StepKindSpec::Each(each) => {
                self.check_at_least_one(&[Parallelism], each.parallelism, ProblemCode::BadParallelism)
            }
            StepKindSpec::Loop(repeat) => self.check_passes(&[Max], repeat.max, 1, ProblemCode::BadLoopMax),
            StepKindSpec::Branch(_) | StepKindSpec::Parallel(_) | StepKindSpec::Call(_) => {}
        }
    }

    fn check_work(&mut self, prefix: &[PlanField], work: &WorkSpec) {
        self.check_worker(prefix, &work.worker);
        if let Some(check) = &work.check {
            self.check_worker(&[prefix, &[Check]].concat(), &check.worker);
            self.check_timeout(&[prefix, &[Check, Timeout]].concat(), check.timeout);
            let field = [prefix, &[Check, MaxIterations]].concat();
            // A single iteration would be work without a check.
            self.check_passes(&field, check.max_iterations, 2, ProblemCode::BadIterations);
        }
        if let Some(summary) = &work.summary {
            self.check_worker(&[prefix, &[Summary]].concat(), &summary.worker);
            self.check_timeout(&[prefix, &[Summary, Timeout]].concat(), summary.timeout);
        }
    }

    fn check_worker(&mut self, prefix: &[PlanField], worker: &WorkerSpec) {
        if let WorkerSpec::Agent { command_timeout: Some(timeout), .. } = worker {
            self.check_timeout(&[prefix, &[CommandTimeout]].concat(), Some(*timeout));
        }
    }

    fn push_problem(&mut self, code: ProblemCode, field: &[PlanField], message: String) {
        self.problems.push(PlanProblem::new(code, (self.at)(field), message));
    }

    fn check_timeout(&mut self, field: &[PlanField], timeout: Option<Millis>) {
        let Some(timeout) = timeout else { return };
        if timeout.0 == 0 {
            let message = "a timeout of 0 would end it before it starts".to_owned();
            let problem = PlanProblem::new(ProblemCode::BadTimeout, (self.at)(field), message);
            self.problems.push(problem.with_hint("leave it out for no timeout"));
        } else if timeout.0 > limits::TIMEOUT {
            let most = format_in_days(Millis(limits::TIMEOUT));
            self.push_problem(
                ProblemCode::BadTimeout,
                field,
                format!("a timeout is at most {most}, this is {}", format_in_days(timeout)),
            );
        } else if timeout.0 > limits::TIMEOUT_WARN {
            self.push_problem(ProblemCode::LongTimeout, field, format!("a timeout of {}", format_in_days(timeout)));
        }
    }

    fn check_retry(&mut self, field: &[PlanField], retry: &StepRetry) {
        let bounds = |(least, most): (u32, u32), attempts: &u32| (least.min(*attempts), most.max(*attempts));
        let (least, most) = retry.attempts.values().fold((1, 1), bounds);
        if most > limits::ATTEMPTS_WARN {
            self.check_attempts(field, most);
        }
        if least == 0 {
            self.check_attempts(field, 0);
        }
    }

    fn check_attempts(&mut self, field: &[PlanField], attempts: u32) {
        if attempts == 0 {
            let message = "there must be at least one attempt, including the first".to_owned();
            self.push_problem(ProblemCode::BadAttempts, field, message);
        } else if attempts > limits::ATTEMPTS {
            let message = format!("at most {} attempts are allowed, but this asks for {attempts}", limits::ATTEMPTS);
            self.push_problem(ProblemCode::BadAttempts, field, message);
        } else if attempts > limits::ATTEMPTS_WARN {
            self.push_problem(ProblemCode::ManyAttempts, field, format!("up to {attempts} attempts"));
        }
    }

    fn check_passes(&mut self, field: &[PlanField], passes: u32, least: u32, code: ProblemCode) {
        if !(least..=limits::ITERATIONS).contains(&passes) {
            let message = format!("this must be from {least} to {}, not {passes}", limits::ITERATIONS);
            self.push_problem(code, field, message);
        } else if passes > limits::ITERATIONS_WARN {
            self.push_problem(ProblemCode::ManyIterations, field, format!("up to {passes} passes"));
        }
    }

    fn check_at_least_one(&mut self, field: &[PlanField], count: Option<u32>, code: ProblemCode) {
        if count == Some(0) {
            let problem = PlanProblem::new(code, (self.at)(field), "with 0, nothing would ever start");
            self.problems.push(problem.with_hint("leave it out for no limit"));
        }
    }
}

/// Formats long times in days, others as they are.
fn format_in_days(time: Millis) -> String {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    if time.0 >= DAY && time.0.is_multiple_of(DAY) {
        return format!("{} days", time.0 / DAY);
    }
    time.to_string()
}
