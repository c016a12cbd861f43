//! How the world answers: the end of every attempt, every decision and every signal, as pure functions of a seed.
//!
//! Owns the distribution of what happens. Refuses to know when it is asked and how often: an answer depends only on
//! the seed and on who asks ([`Who`], [`Asked`]), so that a reference that works in another order gets the same.
//! Instances are named by their path ([`crate::paths`]), never by their number, which depends on timing.
//!
//! An answer always comes within a minute ([`ANSWERED_WITHIN`]), and generated gates, waits and holds stay open
//! longer. So whether a decision or a timeout comes first does not depend on timing either.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{Actor, AttemptEnd, CheckOutput, Cost, Decision, Finding, Proof, Report, Role},
    ids::SignalName,
    ir::{Approver, ErrorClass, Evidence, HoldReason, Kind, Step, Wait},
    time::{Millis, Time},
};

use crate::rng::{Rng, hash};

/// Every decision and signal that comes at all comes this soon after it is asked for.
pub const ANSWERED_WITHIN: Millis = Millis::seconds(60);

/// An attempt, named independently of timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who<'a> {
    /// The instance; see [`crate::paths`].
    pub path: &'a str,
    pub step: &'a str,
    pub visit: u32,
    pub iteration: u32,
    pub role: Role,
    pub attempt: u32,
}

/// Something that was opened: the `nth` (from 1) gate, wait or hold of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    pub path: &'a str,
    pub step: &'a str,
    pub visit: u32,
    pub nth: u32,
}

/// A decision, and how long after the question it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub decision: Decision,
    pub reason: Option<String>,
    pub after: Millis,
}

/// A signal, and how long after the wait opened it comes. Addressed to that wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub name: SignalName,
    pub payload: Value,
    pub after: Millis,
}

/// How kind the world is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Luck {
    Calm,
    Usual,
    Rough,
}

/// What a reference needs to know of the world.
pub trait Outcomes {
    fn report(&self, who: &Who<'_>, step: &Step) -> Report;
    fn answer(&self, asked: &Asked<'_>) -> Option<Answer>;
    fn signal(&self, asked: &Asked<'_>, wait: &Wait) -> Option<Sent>;
}

/// The world of one seed.
#[derive(Debug, Clone, Copy)]
pub struct Seeded {
    pub seed: u64,
    pub luck: Luck,
}

impl Outcomes for Seeded {
    fn report(&self, who: &Who<'_>, step: &Step) -> Report {
        report(self.seed, who, step, self.luck, Time::default())
    }

    fn answer(&self, asked: &Asked<'_>) -> Option<Answer> {
        answer(self.seed, asked)
    }

    fn signal(&self, asked: &Asked<'_>, wait: &Wait) -> Option<Sent> {
        signal(self.seed, asked, wait)
    }
}

fn stream(seed: u64, who: &Who<'_>, label: &str) -> Rng {
    // Which iteration an undo belongs to means nothing.
    let iteration = if who.role == Role::Undo { 0 } else { who.iteration };
    let place = hash(hash(hash(seed, label), who.path), who.step);
    let numbers = format!("{}.{iteration}.{}.{}", who.visit, who.role.as_str(), who.attempt);
    Rng::new(hash(place, &numbers))
}

fn question(seed: u64, asked: &Asked<'_>, label: &str) -> Rng {
    let place = hash(hash(hash(seed, label), asked.path), asked.step);
    Rng::new(hash(place, &format!("{}.{}", asked.visit, asked.nth)))
}

/// How an attempt that ends at `now` ends.
pub fn report(seed: u64, who: &Who<'_>, step: &Step, luck: Luck, now: Time) -> Report {
    let mut rng = stream(seed, who, "report");
    let end = match who.role {
        Role::Main => main_end(&mut rng, step, luck, now),
        Role::Check => check_end(&mut rng, step, luck, now),
        Role::Summary => summary_end(&mut rng, now),
        Role::Undo => undo_end(&mut rng, luck, now),
    };
    let proofs = if who.role == Role::Main { proofs(seed, who, step) } else { Vec::new() };
    Report { proofs, ..Report::new(end, cost(&mut rng)) }
}

/// What is found of a step's evidence. Now and then nobody looked at all of it.
fn proofs(seed: u64, who: &Who<'_>, step: &Step) -> Vec<Proof> {
    let Kind::Work(work) = &step.kind else { return Vec::new() };
    let mut rng = stream(seed, who, "proofs");
    let looked = work.evidence.len() - usize::from(!work.evidence.is_empty() && rng.percent(3));
    let proof = |evidence: &Evidence| Proof {
        what: evidence.to_string(),
        holds: rng.percent(80),
        found: String::new(),
    };
    work.evidence.iter().take(looked).map(proof).collect()
}

/// How long an attempt takes.
pub fn delay(seed: u64, who: &Who<'_>) -> Millis {
    let mut rng = stream(seed, who, "delay");
    let most = *rng.pick(&[0, 50, 1_000, 20_000]);
    Millis(1 + rng.below(most + 1))
}

/// What a person says, if anybody says anything.
pub fn answer(seed: u64, asked: &Asked<'_>) -> Option<Answer> {
    let mut rng = question(seed, asked, "answer");
    let decision = match rng.below(100) {
        0..78 => Decision::Approve,
        78..91 => Decision::Reject,
        _ => return None,
    };
    let reason = rng.percent(50).then(|| "because".to_owned());
    Some(Answer { decision, reason, after: Millis(1 + rng.below(ANSWERED_WITHIN.0 - 1)) })
}

/// Someone who may decide.
pub fn actor(approvers: &[Approver]) -> Actor {
    match approvers.first() {
        None => Actor { name: "ann".into(), roles: Vec::new() },
        Some(Approver::Role(role)) => Actor { name: "ann".into(), roles: vec![role.clone()] },
        Some(Approver::User(name)) => Actor { name: name.clone(), roles: Vec::new() },
    }
}

/// As many different people who may decide, the one above first.
pub fn actors(approvers: &[Approver], quorum: u32) -> Vec<Actor> {
    let role = approvers.iter().find_map(|approver| match approver {
        Approver::Role(role) => Some(role.clone()),
        Approver::User(_) => None,
    });
    let other = |n: u32| Actor { name: format!("ann-{n}"), roles: role.iter().cloned().collect() };
    std::iter::once(actor(approvers)).chain((2..=quorum).map(other)).collect()
}

/// The signal that ends a wait, if one comes.
pub fn signal(seed: u64, asked: &Asked<'_>, wait: &Wait) -> Option<Sent> {
    let mut rng = question(seed, asked, "signal");
    if wait.on.is_empty() || !rng.percent(85) {
        return None;
    }
    let name = rng.pick(&wait.on).clone();
    let after = Millis(1 + rng.below(ANSWERED_WITHIN.0 - 1));
    Some(Sent { name, payload: json!({"n": rng.below(4)}), after })
}

/// Signals that are for nobody in particular, by the time after the start. Only for runs in which timing may matter.
pub fn stray_signals(seed: u64, names: impl IntoIterator<Item = SignalName>) -> Vec<Sent> {
    let mut rng = Rng::new(hash(seed, "stray"));
    let names: Vec<SignalName> = names.into_iter().collect();
    if names.is_empty() {
        return Vec::new();
    }
    let count = rng.below(4);
    (0..count)
        .map(|n| Sent {
            name: rng.pick(&names).clone(),
            payload: json!({"n": n}),
            after: Millis(rng.below(60_000)),
        })
        .collect()
}

/// What does not fit happens more often where somebody settles it.
fn is_unmerged(rng: &mut Rng, step: &Step) -> bool {
    rng.percent(if step.policy.settled_by.is_some() { 35 } else { 1 })
}

fn main_end(rng: &mut Rng, step: &Step, luck: Luck, now: Time) -> AttemptEnd {
    if is_unmerged(rng, step) {
        return AttemptEnd::Unmerged {
            output: Arc::new(output(rng, step)),
            message: "it does not fit".into(),
        };
    }
    let good = match luck {
        Luck::Calm => 970,
        Luck::Usual => 850,
        Luck::Rough => 650,
    };
    if rng.permille(good) {
        return AttemptEnd::Succeeded { output: Arc::new(output(rng, step)) };
    }
    match rng.below(20) {
        0..2 => AttemptEnd::TimedOut,
        2..5 => blocked(rng, now),
        5 => AttemptEnd::Stopped,
        6 => handed_over(),
        _ => failed(rng, now),
    }
}

fn output(rng: &mut Rng, step: &Step) -> Value {
    if rng.percent(3) {
        // Does not fit any of the generated schemas, and is fine without one.
        return [json!({"n": "many"}), json!(7), Value::Null][rng.index(3)].clone();
    }
    let mut output = json!({"n": rng.below(4), "flag": rng.percent(50)});
    if let Some(object) = output.as_object_mut() {
        if rng.percent(60) {
            object.insert("word".into(), json!(rng.pick(&["a", "b"])));
        }
        if rng.percent(40) {
            object.insert("list".into(), json!((0..rng.below(4)).collect::<Vec<u64>>()));
        }
        if step.outputs.required().next().is_none() && rng.percent(8) {
            object.shift_remove("n");
        }
    }
    output
}

fn failed(rng: &mut Rng, now: Time) -> AttemptEnd {
    let class = if rng.percent(50) { ErrorClass::Transient } else { *rng.pick(&ErrorClass::ALL) };
    AttemptEnd::Failed {
        class,
        code: rng.percent(30).then(|| (*rng.pick(&["E1", "E2"])).to_owned()),
        message: "it did not work".into(),
        retry_at: rng.percent(15).then(|| later(rng, now)),
    }
}

fn handed_over() -> AttemptEnd {
    AttemptEnd::HandedOver { to: "another".into(), message: "its account is empty".into() }
}

fn blocked(rng: &mut Rng, now: Time) -> AttemptEnd {
    AttemptEnd::Blocked {
        reason: *rng.pick(&HoldReason::ALL),
        until: rng.percent(50).then(|| later(rng, now)),
        message: "not now".into(),
    }
}

/// Later than any answer, so that an answer that comes at all comes first.
fn later(rng: &mut Rng, now: Time) -> Time {
    now.after(ANSWERED_WITHIN.plus(Millis::seconds(rng.between(1, 240))))
}

fn check_end(rng: &mut Rng, step: &Step, luck: Luck, now: Time) -> AttemptEnd {
    if is_unmerged(rng, step) {
        return AttemptEnd::Unmerged { output: Arc::new(json!(1)), message: "it does not fit".into() };
    }
    let complete = if luck == Luck::Rough { 25 } else { 45 };
    let finding = match rng.below(100) {
        n if n < complete => Finding::Complete,
        n if n < 80 => Finding::Incomplete,
        80..87 => Finding::Undecided,
        87..91 => Finding::Blocked,
        91..94 => return AttemptEnd::Succeeded { output: Arc::new(Value::Null) },
        94 => return AttemptEnd::TimedOut,
        95 => return blocked(rng, now),
        96 => return handed_over(),
        _ => return failed(rng, now),
    };
    let reasons =
        if rng.percent(60) { vec![(*rng.pick(&["tests fail", "no docs"])).to_owned()] } else { vec![] };
    let fingerprints = match rng.below(4) {
        0 => vec!["f1".to_owned()],
        1 => vec!["f2".to_owned(), "f1".to_owned()],
        _ => Vec::new(),
    };
    // No rule reads it, so it must change nothing.
    let output = rng.percent(20).then(|| CheckOutput { status: Some(1), text: "2 tests failed".to_owned() });
    AttemptEnd::Checked { finding, reasons, fingerprints, output }
}

fn summary_end(rng: &mut Rng, now: Time) -> AttemptEnd {
    match rng.below(10) {
        0 => failed(rng, now),
        1 => AttemptEnd::TimedOut,
        2 => blocked(rng, now),
        _ => AttemptEnd::Succeeded { output: Arc::new(json!("in short")) },
    }
}

fn undo_end(rng: &mut Rng, luck: Luck, now: Time) -> AttemptEnd {
    let good = if luck == Luck::Rough { 70 } else { 90 };
    match rng.below(100) {
        n if n < good => AttemptEnd::Succeeded { output: Arc::new(Value::Null) },
        99 => AttemptEnd::TimedOut,
        _ => failed(rng, now),
    }
}

fn cost(rng: &mut Rng) -> Cost {
    if !rng.percent(30) {
        return Cost::default();
    }
    let micro_usd = rng.percent(60).then(|| rng.between(1, 120));
    Cost { tokens: rng.between(1, 120), micro_usd }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who<'_> =
        Who { path: "each[1]", step: "s3", visit: 1, iteration: 1, role: Role::Main, attempt: 1 };

    fn step() -> Step {
        let kind = skein_core::ir::Kind::Wait(Box::new(Wait {
            on: Vec::new(),
            timeout: None,
            on_timeout: skein_core::ir::WaitTimeout::Expire,
        }));
        Step::new(skein_core::ids::StepId::new("s3").unwrap(), kind)
    }

    #[test]
    fn an_answer_depends_on_who_asks_and_on_nothing_else() {
        let of = |who: &Who<'_>| report(4, who, &step(), Luck::Usual, Time(0));
        let first = of(&WHO);
        of(&Who { attempt: 2, ..WHO });
        assert_eq!(of(&WHO), first);
        let differs = (2..40).any(|attempt| of(&Who { attempt, ..WHO }) != first);
        assert!(differs);
    }

    #[test]
    fn every_end_occurs() {
        let mut seen = std::collections::BTreeSet::new();
        for attempt in 0..4_000 {
            for role in Role::ALL {
                let end = report(1, &Who { attempt, role, ..WHO }, &step(), Luck::Usual, Time(0)).end;
                seen.insert(match end {
                    AttemptEnd::Succeeded { .. } => "succeeded",
                    AttemptEnd::Checked { .. } => "checked",
                    AttemptEnd::Failed { retry_at: Some(_), .. } => "failed until",
                    AttemptEnd::Failed { .. } => "failed",
                    AttemptEnd::Unmerged { .. } => "unmerged",
                    AttemptEnd::TimedOut => "timed out",
                    AttemptEnd::Stopped => "stopped",
                    AttemptEnd::Blocked { until: Some(_), .. } => "blocked until",
                    AttemptEnd::Blocked { .. } => "blocked",
                    AttemptEnd::HandedOver { .. } => "handed over",
                    AttemptEnd::Interrupted => "interrupted",
                });
            }
        }
        assert_eq!(seen.len(), 10, "{seen:?}");
        assert!(!seen.contains("interrupted"), "only the world interrupts");
    }

    #[test]
    fn whoever_may_decide_is_found() {
        assert_eq!(actor(&[Approver::Role("lead".into())]).roles, ["lead"]);
        assert_eq!(actor(&[Approver::User("ada".into())]).name, "ada");
    }
}
