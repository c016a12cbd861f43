//! What may follow an attempt: retry, hold, the next role or iteration, or the end.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, Finding, Outcome, Role, StepAt, Stop},
    ir::{Check, ErrorClass, HoldReason, Kind, OnInterrupted, Retry, Step, Work},
    limits,
    time::Time,
};

use super::{
    Acceptor,
    book::{At, May, St},
};

/// Whether a policy allows another attempt after this many tries.
pub fn again(retry: &Retry, tries: u32, class: ErrorClass, code: Option<&str>) -> bool {
    let most = retry.attempts.get(&class).copied().unwrap_or(0);
    tries < most && !code.is_some_and(|code| retry.never.iter().any(|never| never == code))
}

impl Acceptor {
    /// Notes the end of an attempt of main, check or summary, and what may follow it.
    pub(super) fn follow(&mut self, at: StepAt, role: Role, end: &AttemptEnd) -> Result<(), String> {
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        let Kind::Work(work) = &step.kind else { return Err("only work has attempts".into()) };
        let halted = self.going(at.0).is_err();
        let st = self.st_mut(at)?;
        st.at = At::Between;
        st.blocked = false;
        st.unmerged = matches!(end, AttemptEnd::Unmerged { .. });
        let interrupted_stop = st.stop.is_some();
        let mut may = match role {
            Role::Main => after_main(st, &step, work, end),
            Role::Check => after_check(st, &step, work, end),
            Role::Summary => after_summary(st, end),
            Role::Undo => return Err("an undo does not go on".into()),
        };
        match st.stop {
            Some(why) => {
                // Only a success that leaves nothing to do counts after a stop was asked; a summary is no duty.
                let sums_up = may.iter().any(|may| matches!(may, May::GoOn { role: Role::Summary, .. }));
                may.retain(|may| *may == May::End(Outcome::Succeeded));
                may.extend(sums_up.then_some(May::End(Outcome::Succeeded)));
                let cut = if why == Stop::Timeout {
                    Outcome::Failed(ErrorClass::Timeout)
                } else {
                    Outcome::Cancelled
                };
                may.push(May::End(cut));
                // A step whose time was up may be halted as well.
                may.extend(halted.then_some(May::End(Outcome::Cancelled)));
            }
            None if halted => may.push(May::End(Outcome::Cancelled)),
            None => {}
        }
        st.cut_off |= interrupted_stop || matches!(end, AttemptEnd::Interrupted);
        st.may = may;
        Ok(())
    }
}

fn after_main(st: &mut St, step: &Step, work: &Work, end: &AttemptEnd) -> Vec<May> {
    match end {
        AttemptEnd::Succeeded { output } => {
            let mut output: Value = (**output).clone();
            step.outputs.complete(&mut output);
            if step.outputs.check(&output).is_err() {
                return failure(st, step, ErrorClass::Validation, Some("output_invalid"), None);
            }
            st.result = output;
            if work.check.is_some() {
                return vec![May::GoOn { role: Role::Check, iteration: st.iteration }];
            }
            complete(st, work)
        }
        AttemptEnd::Unmerged { output, .. } => {
            st.result = (**output).clone();
            bad_end(st, step, end)
        }
        AttemptEnd::Interrupted => interrupted(st, step),
        AttemptEnd::HandedOver { .. } => vec![May::GoOn { role: Role::Main, iteration: st.iteration }],
        end => bad_end(st, step, end),
    }
}

fn complete(st: &St, work: &Work) -> Vec<May> {
    if work.summary.is_some() {
        return vec![May::GoOn { role: Role::Summary, iteration: st.iteration }];
    }
    vec![May::End(Outcome::Succeeded)]
}

fn bad_end(st: &mut St, step: &Step, end: &AttemptEnd) -> Vec<May> {
    match end {
        AttemptEnd::Failed { class, code, retry_at, .. } => {
            failure(st, step, *class, code.as_deref(), *retry_at)
        }
        AttemptEnd::Unmerged { .. } => {
            failure(st, step, ErrorClass::NonRetryable, Some("merge_conflict"), None)
        }
        AttemptEnd::TimedOut => failure(st, step, ErrorClass::Timeout, None, None),
        AttemptEnd::Stopped => failure(st, step, ErrorClass::Transient, Some("stopped"), None),
        AttemptEnd::Blocked { reason, until, .. } => vec![May::Hold { reason: *reason, until: *until }],
        AttemptEnd::Succeeded { .. }
        | AttemptEnd::Checked { .. }
        | AttemptEnd::Interrupted
        | AttemptEnd::HandedOver { .. } => Vec::new(),
    }
}

fn failure(
    st: &mut St,
    step: &Step,
    class: ErrorClass,
    code: Option<&str>,
    retry_at: Option<Time>,
) -> Vec<May> {
    if let Some(reason) = step.policy.holds.get(&class) {
        return vec![May::Hold { reason: *reason, until: retry_at }];
    }
    st.tries += 1;
    if again(&step.policy.retry, st.tries, class, code) {
        return vec![May::Retry { class, not_before: retry_at }];
    }
    vec![May::End(Outcome::Failed(class))]
}

fn interrupted(st: &mut St, step: &Step) -> Vec<May> {
    st.interruptions += 1;
    let again = May::GoOn { role: Role::Main, iteration: st.iteration };
    let ask = May::Hold { reason: HoldReason::Interruption, until: None };
    match step.policy.on_interrupted {
        OnInterrupted::Fail => failure(st, step, ErrorClass::Interrupted, None, None),
        _ if st.interruptions >= limits::INTERRUPTIONS => vec![ask],
        OnInterrupted::Ask => vec![ask],
        OnInterrupted::Rerun | OnInterrupted::Resume | OnInterrupted::Restore => vec![again],
    }
}

fn after_summary(st: &mut St, end: &AttemptEnd) -> Vec<May> {
    match end {
        AttemptEnd::Interrupted => {
            st.interruptions += 1;
            vec![
                May::GoOn { role: Role::Summary, iteration: st.iteration },
                May::Hold { reason: HoldReason::Interruption, until: None },
            ]
        }
        _ => vec![May::End(Outcome::Succeeded)],
    }
}

fn after_check(st: &mut St, step: &Step, work: &Work, end: &AttemptEnd) -> Vec<May> {
    let Some(check) = &work.check else { return Vec::new() };
    let (finding, reasons, fingerprints) = match end {
        AttemptEnd::Succeeded { .. } => (Finding::Complete, &[][..], &[][..]),
        AttemptEnd::Checked { finding, reasons, fingerprints, .. } => {
            (*finding, &reasons[..], &fingerprints[..])
        }
        AttemptEnd::Interrupted => {
            st.interruptions += 1;
            let mut may = vec![May::GoOn { role: Role::Check, iteration: st.iteration }];
            if st.interruptions >= limits::INTERRUPTIONS {
                may.push(May::Hold { reason: HoldReason::Interruption, until: None });
            }
            return may;
        }
        AttemptEnd::HandedOver { .. } => {
            return vec![May::GoOn { role: Role::Check, iteration: st.iteration }];
        }
        end => return bad_end(st, step, end),
    };
    if finding == Finding::Undecided {
        st.undecided += 1;
        if st.undecided >= limits::UNDECIDED_CHECKS {
            return vec![May::End(Outcome::Failed(ErrorClass::NonRetryable))];
        }
        return iterate(st, check);
    }
    st.undecided = 0;
    match finding {
        Finding::Complete => complete(st, work),
        Finding::Blocked if st.iteration < check.max_iterations => {
            st.blocked = true;
            vec![May::Hold { reason: HoldReason::Blocked, until: None }]
        }
        Finding::Incomplete => incomplete(st, check, reasons, fingerprints),
        Finding::Undecided | Finding::Blocked => iterate(st, check),
    }
}

/// After a check that says incomplete.
fn incomplete(st: &mut St, check: &Check, reasons: &[String], fingerprints: &[String]) -> Vec<May> {
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
                return vec![May::End(Outcome::Exhausted)];
            }
        }
    }
    iterate(st, check)
}

pub fn iterate(st: &St, check: &Check) -> Vec<May> {
    if st.iteration < check.max_iterations {
        return vec![May::GoOn { role: Role::Main, iteration: st.iteration + 1 }];
    }
    vec![May::End(if check.incomplete_is_an_end { Outcome::Incomplete } else { Outcome::Exhausted })]
}
