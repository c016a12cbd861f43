//! The allowed follow-ups of an attempt: retry, hold, the next role or iteration, or the end.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, AttemptRole, AttemptStopReason, CheckFinding, StepAt, StepOutcome},
    ir::{CompletionCheck, ErrorClass, HoldReason, OnInterrupted, Step, StepKindSpec, StepRetry, WorkSpec},
    limits,
    time::Timestamp,
};

use super::{
    Acceptor, RuleResult,
    state::{AcceptorStep, AcceptorStepPhase, AllowedFollowUp},
};

/// True if a policy allows another attempt after this many tries.
pub fn allows_retry(retry: &StepRetry, tries: u32, class: ErrorClass, code: Option<&str>) -> bool {
    let most = retry.attempts.get(&class).copied().unwrap_or(0);
    tries < most && !code.is_some_and(|code| retry.never.iter().any(|never| never == code))
}

impl Acceptor {
    /// Records the end of a main, check or summary attempt, and the actions that may follow it.
    pub(super) fn note_attempt_end(&mut self, at: StepAt, role: AttemptRole, end: &AttemptEnd) -> RuleResult {
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let StepKindSpec::Work(work) = &step.kind else { return Err("only work has attempts".into()) };
        let halted = self.check_going(at.0).is_err();
        let st = self.step_state_mut(at)?;
        st.at = AcceptorStepPhase::Between;
        st.blocked = false;
        st.unmerged = matches!(end, AttemptEnd::Unmerged { .. });
        let interrupted_stop = st.stop.is_some();
        let mut may = match role {
            AttemptRole::Main => allowed_after_main(st, &step, work, end),
            AttemptRole::Check => allowed_after_check(st, &step, work, end),
            AttemptRole::Summary => allowed_after_summary(st, end),
            AttemptRole::Undo => return Err("an undo has no follow-up".into()),
        };
        match st.stop {
            Some(why) => {
                // After a stop request only a success with nothing left to do counts; a summary is optional.
                let sums_up =
                    may.iter().any(|may| matches!(may, AllowedFollowUp::GoOn { role: AttemptRole::Summary, .. }));
                may.retain(|may| *may == AllowedFollowUp::End(StepOutcome::Succeeded));
                may.extend(sums_up.then_some(AllowedFollowUp::End(StepOutcome::Succeeded)));
                let cut = if why == AttemptStopReason::Timeout {
                    StepOutcome::Failed(ErrorClass::Timeout)
                } else {
                    StepOutcome::Cancelled
                };
                may.push(AllowedFollowUp::End(cut));
                // A step that timed out may be halted as well.
                may.extend(halted.then_some(AllowedFollowUp::End(StepOutcome::Cancelled)));
            }
            None if halted => may.push(AllowedFollowUp::End(StepOutcome::Cancelled)),
            None => {}
        }
        st.cut_off |= interrupted_stop || matches!(end, AttemptEnd::Interrupted);
        st.may = may;
        Ok(())
    }
}

fn allowed_after_main(st: &mut AcceptorStep, step: &Step, work: &WorkSpec, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    match end {
        AttemptEnd::Succeeded { output } => {
            let mut output: Value = (**output).clone();
            step.outputs.complete_output(&mut output);
            if step.outputs.check(&output).is_err() {
                return allowed_after_failure(st, step, ErrorClass::Validation, Some("output_invalid"), None);
            }
            st.result = output;
            if work.check.is_some() {
                return vec![AllowedFollowUp::GoOn { role: AttemptRole::Check, iteration: st.iteration }];
            }
            allowed_when_complete(st, work)
        }
        AttemptEnd::Unmerged { output, .. } => {
            st.result = (**output).clone();
            allowed_after_bad_end(st, step, end)
        }
        AttemptEnd::Interrupted => allowed_after_interruption(st, step),
        AttemptEnd::HandedOver { .. } => {
            vec![AllowedFollowUp::GoOn { role: AttemptRole::Main, iteration: st.iteration }]
        }
        end => allowed_after_bad_end(st, step, end),
    }
}

fn allowed_when_complete(st: &AcceptorStep, work: &WorkSpec) -> Vec<AllowedFollowUp> {
    if work.summary.is_some() {
        return vec![AllowedFollowUp::GoOn { role: AttemptRole::Summary, iteration: st.iteration }];
    }
    vec![AllowedFollowUp::End(StepOutcome::Succeeded)]
}

fn allowed_after_bad_end(st: &mut AcceptorStep, step: &Step, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    match end {
        AttemptEnd::Failed { class, code, retry_at, .. } => {
            allowed_after_failure(st, step, *class, code.as_deref(), *retry_at)
        }
        AttemptEnd::Unmerged { .. } => {
            allowed_after_failure(st, step, ErrorClass::NonRetryable, Some("merge_conflict"), None)
        }
        AttemptEnd::TimedOut => allowed_after_failure(st, step, ErrorClass::Timeout, None, None),
        AttemptEnd::Stopped => allowed_after_failure(st, step, ErrorClass::Transient, Some("stopped"), None),
        AttemptEnd::Blocked { reason, until, .. } => {
            vec![AllowedFollowUp::Hold { reason: *reason, until: *until }]
        }
        AttemptEnd::Succeeded { .. }
        | AttemptEnd::Checked { .. }
        | AttemptEnd::Interrupted
        | AttemptEnd::HandedOver { .. } => Vec::new(),
    }
}

fn allowed_after_failure(
    st: &mut AcceptorStep,
    step: &Step,
    class: ErrorClass,
    code: Option<&str>,
    retry_at: Option<Timestamp>,
) -> Vec<AllowedFollowUp> {
    if let Some(reason) = step.policy.holds.get(&class) {
        return vec![AllowedFollowUp::Hold { reason: *reason, until: retry_at }];
    }
    st.tries += 1;
    if allows_retry(&step.policy.retry, st.tries, class, code) {
        return vec![AllowedFollowUp::Retry { class, not_before: retry_at }];
    }
    vec![AllowedFollowUp::End(StepOutcome::Failed(class))]
}

fn allowed_after_interruption(st: &mut AcceptorStep, step: &Step) -> Vec<AllowedFollowUp> {
    st.interruptions += 1;
    let again = AllowedFollowUp::GoOn { role: AttemptRole::Main, iteration: st.iteration };
    let ask = AllowedFollowUp::Hold { reason: HoldReason::Interruption, until: None };
    match step.policy.on_interrupted {
        OnInterrupted::Fail => allowed_after_failure(st, step, ErrorClass::Interrupted, None, None),
        _ if st.interruptions >= limits::INTERRUPTIONS => vec![ask],
        OnInterrupted::Ask => vec![ask],
        OnInterrupted::Rerun | OnInterrupted::Resume | OnInterrupted::Restore => vec![again],
    }
}

fn allowed_after_summary(st: &mut AcceptorStep, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    match end {
        AttemptEnd::Interrupted => {
            st.interruptions += 1;
            vec![
                AllowedFollowUp::GoOn { role: AttemptRole::Summary, iteration: st.iteration },
                AllowedFollowUp::Hold { reason: HoldReason::Interruption, until: None },
            ]
        }
        _ => vec![AllowedFollowUp::End(StepOutcome::Succeeded)],
    }
}

fn allowed_after_check(st: &mut AcceptorStep, step: &Step, work: &WorkSpec, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    let Some(check) = &work.check else { return Vec::new() };
    let (finding, reasons, fingerprints) = match end {
        AttemptEnd::Succeeded { .. } => (CheckFinding::Complete, &[][..], &[][..]),
        AttemptEnd::Checked { finding, reasons, fingerprints, .. } => (*finding, &reasons[..], &fingerprints[..]),
        AttemptEnd::Interrupted => {
            st.interruptions += 1;
            let mut may = vec![AllowedFollowUp::GoOn { role: AttemptRole::Check, iteration: st.iteration }];
            if st.interruptions >= limits::INTERRUPTIONS {
                may.push(AllowedFollowUp::Hold { reason: HoldReason::Interruption, until: None });
            }
            return may;
        }
        AttemptEnd::HandedOver { .. } => {
            return vec![AllowedFollowUp::GoOn { role: AttemptRole::Check, iteration: st.iteration }];
        }
        end => return allowed_after_bad_end(st, step, end),
    };
    if finding == CheckFinding::Undecided {
        st.undecided += 1;
        if st.undecided >= limits::UNDECIDED_CHECKS {
            return vec![AllowedFollowUp::End(StepOutcome::Failed(ErrorClass::NonRetryable))];
        }
        return allowed_next_iteration(st, check);
    }
    st.undecided = 0;
    match finding {
        CheckFinding::Complete => allowed_when_complete(st, work),
        CheckFinding::Blocked if st.iteration < check.max_iterations => {
            st.blocked = true;
            vec![AllowedFollowUp::Hold { reason: HoldReason::Blocked, until: None }]
        }
        CheckFinding::Incomplete => allowed_when_incomplete(st, check, reasons, fingerprints),
        CheckFinding::Undecided | CheckFinding::Blocked => allowed_next_iteration(st, check),
    }
}

/// Returns the follow-ups allowed after a check that finds the work incomplete.
fn allowed_when_incomplete(
    st: &mut AcceptorStep,
    check: &CompletionCheck,
    reasons: &[String],
    fingerprints: &[String],
) -> Vec<AllowedFollowUp> {
    let mut key: Vec<String> = if fingerprints.is_empty() { reasons.to_vec() } else { fingerprints.to_vec() };
    key.sort();
    key.dedup();
    if let Some(by) = &check.convergence
        && !key.is_empty()
    {
        let (last, count, stage) = &mut st.stall;
        *count = if last.as_ref() == Some(&key) { *count + 1 } else { 1 };
        *last = Some(key);
        if *count >= by.stall_threshold {
            *count = 0;
            *stage = (*stage + 1).min(by.max_stage);
            if *stage >= by.max_stage && by.fail_on_max_stage {
                return vec![AllowedFollowUp::End(StepOutcome::Exhausted)];
            }
        }
    }
    allowed_next_iteration(st, check)
}

pub fn allowed_next_iteration(st: &AcceptorStep, check: &CompletionCheck) -> Vec<AllowedFollowUp> {
    if st.iteration < check.max_iterations {
        return vec![AllowedFollowUp::GoOn { role: AttemptRole::Main, iteration: st.iteration + 1 }];
    }
    vec![AllowedFollowUp::End(if check.incomplete_is_an_end {
        StepOutcome::Incomplete
    } else {
        StepOutcome::Exhausted
    })]
}
