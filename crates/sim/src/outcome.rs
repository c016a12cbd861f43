//! The answers of the world: the end of every attempt, every decision and every signal, as pure functions of a seed.
//!
//! Owns the distribution of outcomes. Does not know when and how often it is asked: an answer depends only on the seed
//! and on the asking attempt or waitpoint ([`AttemptIdentity`], [`WaitpointIdentity`]), so that a reference that works
//! in another order gets the same answers. Instances are named by their path ([`InstancePathPair`]), never by their
//! number, which depends on timing.
//!
//! An answer always comes within a minute ([`ANSWERED_WITHIN`]), and generated gates, waits and holds stay open longer.
//! So the order of a decision and a timeout does not depend on timing either.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, CheckOutput, Cost, DecisionActor, Event,
        EvidenceResult, InstanceIx, InstancePart, StepAt, Verdict, Waitpoint,
    },
    ids::SignalName,
    ir::{Approver, ErrorClass, Evidence, HoldReason, Step, StepKindSpec, WaitSpec},
    plan::{PlanDefinition, ScopeIx},
    time::{Millis, Timestamp},
};

use crate::rng::{Rng, hash_label};

/// The maximum delay of a decision or signal, if it comes at all.
const ANSWERED_WITHIN: Millis = Millis::from_secs(60);

/// The identity of an attempt, independent of timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptIdentity<'a> {
    /// The path of the instance; see [`InstancePathPair`].
    pub path: &'a str,
    pub step: &'a str,
    pub visit: u32,
    pub iteration: u32,
    pub role: AttemptRole,
    pub attempt: u32,
}

/// The identity of a waitpoint: the `nth` (from 1) gate, wait or hold of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitpointIdentity<'a> {
    pub path: &'a str,
    pub step: &'a str,
    pub visit: u32,
    pub nth: u32,
}

/// A decision, and its delay after the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DelayedDecision {
    pub decision: Verdict,
    pub reason: Option<String>,
    pub after: Millis,
}

/// A signal addressed to a wait, and its delay after the wait opened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DelayedSignal {
    pub name: SignalName,
    pub payload: Value,
    pub after: Millis,
}

/// The rate at which attempts fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LuckLevel {
    Calm,
    Usual,
    Rough,
}

/// The outcomes that a reference needs to know.
pub(crate) trait WorldOutcomes {
    fn attempt_report(&self, who: &AttemptIdentity<'_>, step: &Step) -> AttemptReport;
    fn waitpoint_decision(&self, asked: &WaitpointIdentity<'_>) -> Option<DelayedDecision>;
    fn wait_signal(&self, asked: &WaitpointIdentity<'_>, wait: &WaitSpec) -> Option<DelayedSignal>;
}

/// The world of one seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeededWorld {
    pub seed: u64,
    pub luck: LuckLevel,
}

impl WorldOutcomes for SeededWorld {
    fn attempt_report(&self, who: &AttemptIdentity<'_>, step: &Step) -> AttemptReport {
        draw_report(self.seed, who, step, self.luck, Timestamp::default())
    }

    fn waitpoint_decision(&self, asked: &WaitpointIdentity<'_>) -> Option<DelayedDecision> {
        draw_decision(self.seed, asked)
    }

    fn wait_signal(&self, asked: &WaitpointIdentity<'_>, wait: &WaitSpec) -> Option<DelayedSignal> {
        draw_signal(self.seed, asked, wait)
    }
}

fn attempt_rng(seed: u64, who: &AttemptIdentity<'_>, label: &str) -> Rng {
    // The iteration of an undo has no meaning.
    let iteration = if who.role == AttemptRole::Undo { 0 } else { who.iteration };
    let place = hash_label(hash_label(hash_label(seed, label), who.path), who.step);
    let numbers = format!("{}.{iteration}.{}.{}", who.visit, who.role.as_str(), who.attempt);
    Rng::new(hash_label(place, &numbers))
}

fn waitpoint_rng(seed: u64, asked: &WaitpointIdentity<'_>, label: &str) -> Rng {
    let place = hash_label(hash_label(hash_label(seed, label), asked.path), asked.step);
    Rng::new(hash_label(place, &format!("{}.{}", asked.visit, asked.nth)))
}

/// Draws the report of an attempt that ends at `now`.
pub(crate) fn draw_report(
    seed: u64,
    who: &AttemptIdentity<'_>,
    step: &Step,
    luck: LuckLevel,
    now: Timestamp,
) -> AttemptReport {
    let mut rng = attempt_rng(seed, who, "report");
    let end = match who.role {
        AttemptRole::Main => draw_main_end(&mut rng, step, luck, now),
        AttemptRole::Check => draw_check_end(&mut rng, step, luck, now),
        AttemptRole::Summary => draw_summary_end(&mut rng, now),
        AttemptRole::Undo => draw_undo_end(&mut rng, luck, now),
    };
    let proofs = if who.role == AttemptRole::Main { draw_proofs(seed, who, step) } else { Vec::new() };
    AttemptReport { proofs, ..AttemptReport::new(end, draw_cost(&mut rng)) }
}

/// Draws the results of a step's evidence. Sometimes one piece of evidence is not checked.
fn draw_proofs(seed: u64, who: &AttemptIdentity<'_>, step: &Step) -> Vec<EvidenceResult> {
    let StepKindSpec::Work(work) = &step.kind else { return Vec::new() };
    let mut rng = attempt_rng(seed, who, "proofs");
    let looked = work.evidence.len() - usize::from(!work.evidence.is_empty() && rng.chance_percent(3));
    let proof = |evidence: &Evidence| EvidenceResult {
        what: evidence.to_string(),
        holds: rng.chance_percent(80),
        found: String::new(),
    };
    work.evidence.iter().take(looked).map(proof).collect()
}

/// Draws the duration of an attempt.
pub(crate) fn draw_delay(seed: u64, who: &AttemptIdentity<'_>) -> Millis {
    let mut rng = attempt_rng(seed, who, "delay");
    let most = *rng.pick(&[0, 50, 1_000, 20_000]);
    Millis(1 + rng.next_below(most + 1))
}

/// Draws the decision of a person, if there is one.
pub(crate) fn draw_decision(seed: u64, asked: &WaitpointIdentity<'_>) -> Option<DelayedDecision> {
    let mut rng = waitpoint_rng(seed, asked, "answer");
    let decision = match rng.next_below(100) {
        0..78 => Verdict::Approve,
        78..91 => Verdict::Reject,
        _ => return None,
    };
    let reason = rng.chance_percent(50).then(|| "because".to_owned());
    Some(DelayedDecision { decision, reason, after: Millis(1 + rng.next_below(ANSWERED_WITHIN.0 - 1)) })
}

/// Returns an actor who may decide.
pub(crate) fn allowed_actor(approvers: &[Approver]) -> DecisionActor {
    match approvers.first() {
        None => DecisionActor { name: "ann".into(), roles: Vec::new() },
        Some(Approver::Role(role)) => DecisionActor { name: "ann".into(), roles: vec![role.clone()] },
        Some(Approver::User(name)) => DecisionActor { name: name.clone(), roles: Vec::new() },
    }
}

/// Returns `quorum` different actors who may decide, the one from [`allowed_actor`] first.
pub(crate) fn allowed_actors(approvers: &[Approver], quorum: u32) -> Vec<DecisionActor> {
    let role = approvers.iter().find_map(|approver| match approver {
        Approver::Role(role) => Some(role.clone()),
        Approver::User(_) => None,
    });
    let other = |n: u32| DecisionActor { name: format!("ann-{n}"), roles: role.iter().cloned().collect() };
    std::iter::once(allowed_actor(approvers)).chain((2..=quorum).map(other)).collect()
}

/// Draws the signal that ends a wait, if one comes.
pub(crate) fn draw_signal(seed: u64, asked: &WaitpointIdentity<'_>, wait: &WaitSpec) -> Option<DelayedSignal> {
    let mut rng = waitpoint_rng(seed, asked, "signal");
    if wait.on.is_empty() || !rng.chance_percent(85) {
        return None;
    }
    let name = rng.pick(&wait.on).clone();
    let after = Millis(1 + rng.next_below(ANSWERED_WITHIN.0 - 1));
    Some(DelayedSignal { name, payload: json!({"n": rng.next_below(4)}), after })
}

/// Draws signals that are addressed to no wait, by the time after the start. Only for runs in which timing may matter.
pub(crate) fn draw_stray_signals(seed: u64, names: impl IntoIterator<Item = SignalName>) -> Vec<DelayedSignal> {
    let mut rng = Rng::new(hash_label(seed, "stray"));
    let names: Vec<SignalName> = names.into_iter().collect();
    if names.is_empty() {
        return Vec::new();
    }
    let count = rng.next_below(4);
    (0..count)
        .map(|n| DelayedSignal {
            name: rng.pick(&names).clone(),
            payload: json!({"n": n}),
            after: Millis(rng.next_below(60_000)),
        })
        .collect()
}

/// True if the attempt ends with a merge conflict, which is more frequent if the step has a conflict resolver.
fn is_unmerged(rng: &mut Rng, step: &Step) -> bool {
    rng.chance_percent(if step.policy.settled_by.is_some() { 35 } else { 1 })
}

fn draw_main_end(rng: &mut Rng, step: &Step, luck: LuckLevel, now: Timestamp) -> AttemptEnd {
    if is_unmerged(rng, step) {
        return AttemptEnd::Unmerged { output: Arc::new(draw_output(rng, step)), message: "it does not fit".into() };
    }
    let good = match luck {
        LuckLevel::Calm => 970,
        LuckLevel::Usual => 850,
        LuckLevel::Rough => 650,
    };
    if rng.chance_permille(good) {
        return AttemptEnd::Succeeded { output: Arc::new(draw_output(rng, step)) };
    }
    match rng.next_below(20) {
        0..2 => AttemptEnd::TimedOut,
        2..5 => draw_blocked_end(rng, now),
        5 => AttemptEnd::Stopped,
        6 => handed_over_end(),
        _ => draw_failure(rng, now),
    }
}

fn draw_output(rng: &mut Rng, step: &Step) -> Value {
    if rng.chance_percent(3) {
        // Matches none of the generated schemas, and is valid without one.
        return [json!({"n": "many"}), json!(7), Value::Null][rng.pick_index(3)].clone();
    }
    let mut output = json!({"n": rng.next_below(4), "flag": rng.chance_percent(50)});
    if let Some(object) = output.as_object_mut() {
        if rng.chance_percent(60) {
            object.insert("word".into(), json!(rng.pick(&["a", "b"])));
        }
        if rng.chance_percent(40) {
            object.insert("list".into(), json!((0..rng.next_below(4)).collect::<Vec<u64>>()));
        }
        if step.outputs.required_properties().next().is_none() && rng.chance_percent(8) {
            object.shift_remove("n");
        }
    }
    output
}

fn draw_failure(rng: &mut Rng, now: Timestamp) -> AttemptEnd {
    let class = if rng.chance_percent(50) { ErrorClass::Transient } else { *rng.pick(&ErrorClass::ALL) };
    AttemptEnd::Failed {
        class,
        code: rng.chance_percent(30).then(|| (*rng.pick(&["E1", "E2"])).to_owned()),
        message: "it did not work".into(),
        retry_at: rng.chance_percent(15).then(|| draw_late_time(rng, now)),
    }
}

fn handed_over_end() -> AttemptEnd {
    AttemptEnd::HandedOver { to: "another".into(), message: "its account is empty".into() }
}

fn draw_blocked_end(rng: &mut Rng, now: Timestamp) -> AttemptEnd {
    AttemptEnd::Blocked {
        reason: *rng.pick(&HoldReason::ALL),
        until: rng.chance_percent(50).then(|| draw_late_time(rng, now)),
        message: "not now".into(),
    }
}

/// Draws a time later than any answer, so that an answer comes first if it comes at all.
fn draw_late_time(rng: &mut Rng, now: Timestamp) -> Timestamp {
    now.saturating_add(ANSWERED_WITHIN.saturating_add(Millis::from_secs(rng.next_between(1, 240))))
}

fn draw_check_end(rng: &mut Rng, step: &Step, luck: LuckLevel, now: Timestamp) -> AttemptEnd {
    if is_unmerged(rng, step) {
        return AttemptEnd::Unmerged { output: Arc::new(json!(1)), message: "it does not fit".into() };
    }
    let complete = if luck == LuckLevel::Rough { 25 } else { 45 };
    let finding = match rng.next_below(100) {
        n if n < complete => CheckFinding::Complete,
        n if n < 80 => CheckFinding::Incomplete,
        80..87 => CheckFinding::Undecided,
        87..91 => CheckFinding::Blocked,
        91..94 => return AttemptEnd::Succeeded { output: Arc::new(Value::Null) },
        94 => return AttemptEnd::TimedOut,
        95 => return draw_blocked_end(rng, now),
        96 => return handed_over_end(),
        _ => return draw_failure(rng, now),
    };
    let reasons =
        if rng.chance_percent(60) { vec![(*rng.pick(&["tests fail", "no docs"])).to_owned()] } else { vec![] };
    let fingerprints = match rng.next_below(4) {
        0 => vec!["f1".to_owned()],
        1 => vec!["f2".to_owned(), "f1".to_owned()],
        _ => Vec::new(),
    };
    // No rule reads the output, so it must change nothing.
    let output = rng.chance_percent(20).then(|| CheckOutput { status: Some(1), text: "2 tests failed".to_owned() });
    AttemptEnd::Checked { finding, reasons, fingerprints, output }
}

fn draw_summary_end(rng: &mut Rng, now: Timestamp) -> AttemptEnd {
    match rng.next_below(10) {
        0 => draw_failure(rng, now),
        1 => AttemptEnd::TimedOut,
        2 => draw_blocked_end(rng, now),
        _ => AttemptEnd::Succeeded { output: Arc::new(json!("in short")) },
    }
}

fn draw_undo_end(rng: &mut Rng, luck: LuckLevel, now: Timestamp) -> AttemptEnd {
    let good = if luck == LuckLevel::Rough { 70 } else { 90 };
    match rng.next_below(100) {
        n if n < good => AttemptEnd::Succeeded { output: Arc::new(Value::Null) },
        99 => AttemptEnd::TimedOut,
        _ => draw_failure(rng, now),
    }
}

fn draw_cost(rng: &mut Rng) -> Cost {
    if !rng.chance_percent(30) {
        return Cost::default();
    }
    let micro_usd = rng.chance_percent(60).then(|| rng.next_between(1, 120));
    Cost { tokens: rng.next_between(1, 120), micro_usd }
}

/// The two paths of an instance, folded from a run's events: the shown path (`each[3]`, `both/left`, `again#2`), and the
/// *identity*, which also distinguishes the visits of a step and the tries of a composite.
///
/// An identity appends to that of the parent: `/`, the step, `@n` for its n-th visit, the part (`[i]` an item, `/lane`,
/// `#n` a pass, nothing for a call), and `~n` if that part of that visit begins for the n-th time. `@1` and `~1` are left
/// out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstancePathPair {
    /// The path from which outcomes are drawn.
    pub identity: String,
    /// The path that people see, which does not distinguish tries and visits.
    pub shown: String,
}

impl InstancePathPair {
    /// The paths of a part of a step of this instance; `again` is the number of times that part of that visit has
    /// begun.
    pub fn child_paths(&self, step: &str, visit: u32, part: InstancePart, lane: &str, again: u32) -> InstancePathPair {
        let slash = if self.shown.is_empty() { "" } else { "/" };
        let part = match part {
            InstancePart::Lane(_) => format!("/{lane}"),
            InstancePart::Item(i) => format!("[{i}]"),
            InstancePart::Pass(n) => format!("#{n}"),
            InstancePart::Call => String::new(),
        };
        let visit = if visit > 1 { format!("@{visit}") } else { String::new() };
        let again = if again > 1 { format!("~{again}") } else { String::new() };
        InstancePathPair {
            identity: format!("{}/{step}{visit}{part}{again}", self.identity),
            shown: format!("{}{slash}{step}{part}", self.shown),
        }
    }

    /// The shown path of a step of this instance.
    pub fn step_path(&self, id: &str) -> String {
        if self.shown.is_empty() { id.to_owned() } else { format!("{}/{id}", self.shown) }
    }
}

/// The paths of a run's instances and waitpoints so far.
#[derive(Debug)]
pub struct RunPathIndex {
    definition: Arc<PlanDefinition>,
    instances: Vec<(ScopeIx, InstancePathPair)>,
    /// The number of times each step has ended; its current visit is one more.
    ended: BTreeMap<StepAt, u32>,
    begun: BTreeMap<(StepAt, u32, InstancePart), u32>,
    opened: BTreeMap<(StepAt, u32), u32>,
    openings: BTreeMap<Waitpoint, (StepAt, u32, u32)>,
}

impl RunPathIndex {
    pub fn new(definition: Arc<PlanDefinition>) -> RunPathIndex {
        let root = (definition.root().root, InstancePathPair::default());
        RunPathIndex {
            definition,
            instances: vec![root],
            ended: BTreeMap::new(),
            begun: BTreeMap::new(),
            opened: BTreeMap::new(),
            openings: BTreeMap::new(),
        }
    }

    /// Records an event. Must be called with every event of the run, in order.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::InstanceStarted { parent, part, .. } => self.add_instance(*parent, *part),
            Event::InstanceReused(reused) => self.add_instance(reused.parent, reused.part),
            Event::StepReused(reused) => *self.ended.entry(reused.at).or_default() += 1,
            Event::StepEnded { at, .. } => *self.ended.entry(*at).or_default() += 1,
            Event::Opened { at, opening, .. } | Event::StepHeld { at, opening, .. } => {
                let visit = self.current_visit(*at);
                let nth = self.opened.entry((*at, visit)).or_default();
                *nth += 1;
                self.openings.insert(*opening, (*at, visit, *nth));
            }
            _ => {}
        }
    }

    fn add_instance(&mut self, parent: StepAt, part: InstancePart) {
        let visit = self.current_visit(parent);
        let again = self.begun.entry((parent, visit, part)).or_default();
        *again += 1;
        let StepAt(around, step) = parent;
        let (scope, name) = &self.instances[around.0 as usize];
        let entry = self.definition.scope(*scope);
        let which = if let InstancePart::Lane(lane) = part { lane } else { 0 };
        let holder = entry.step(step);
        let lane = match &holder.kind {
            StepKindSpec::Parallel(parallel) => parallel.lanes.get(which as usize).map_or("", |lane| lane.id.as_str()),
            _ => "",
        };
        let name = name.child_paths(holder.id.as_str(), visit, part, lane, *again);
        let scope = entry.inner_scope(step, which);
        self.instances.push((scope, name));
    }

    fn current_visit(&self, at: StepAt) -> u32 {
        self.ended.get(&at).copied().unwrap_or(0) + 1
    }

    pub fn instance_paths(&self, instance: InstanceIx) -> &InstancePathPair {
        &self.instances[instance.0 as usize].1
    }

    pub fn instance_scope(&self, instance: InstanceIx) -> ScopeIx {
        self.instances[instance.0 as usize].0
    }

    fn step_id(&self, StepAt(instance, step): StepAt) -> &str {
        self.definition.scope(self.instance_scope(instance)).step(step).id.as_str()
    }

    /// The identity of an attempt.
    pub fn attempt_identity(&self, attempt: &AttemptId) -> AttemptIdentity<'_> {
        AttemptIdentity {
            path: &self.instance_paths(attempt.at.0).identity,
            step: self.step_id(attempt.at),
            visit: attempt.visit,
            iteration: attempt.iteration,
            role: attempt.role,
            attempt: attempt.attempt,
        }
    }

    /// The identity of a gate, wait or hold, if it has been opened.
    pub fn waitpoint_identity(&self, opening: Waitpoint) -> Option<WaitpointIdentity<'_>> {
        let (at, visit, nth) = *self.openings.get(&opening)?;
        Some(WaitpointIdentity { path: &self.instance_paths(at.0).identity, step: self.step_id(at), visit, nth })
    }
}

#[cfg(test)]
mod paths_tests {
    use super::*;

    #[test]
    fn visits_and_tries_are_told_apart_only_where_outcomes_are_drawn() {
        let root = InstancePathPair::default();
        let item = root.child_paths("each", 1, InstancePart::Item(3), "", 1);
        assert_eq!((item.identity.as_str(), item.shown.as_str()), ("/each[3]", "each[3]"));
        let lane = item.child_paths("both", 2, InstancePart::Lane(0), "left", 3);
        assert_eq!((lane.identity.as_str(), lane.shown.as_str()), ("/each[3]/both@2/left~3", "each[3]/both/left"));
        assert_eq!(lane.step_path("x"), "each[3]/both/left/x");
        assert_eq!(root.child_paths("again", 1, InstancePart::Pass(2), "", 1).shown, "again#2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: AttemptIdentity<'_> =
        AttemptIdentity { path: "each[1]", step: "s3", visit: 1, iteration: 1, role: AttemptRole::Main, attempt: 1 };

    fn step() -> Step {
        let kind = skein_core::ir::StepKindSpec::Wait(Box::new(WaitSpec {
            on: Vec::new(),
            timeout: None,
            on_timeout: skein_core::ir::WaitTimeout::Expire,
        }));
        Step::new(skein_core::ids::StepId::new("s3").unwrap(), kind)
    }

    #[test]
    fn an_answer_depends_on_who_asks_and_on_nothing_else() {
        let of = |who: &AttemptIdentity<'_>| draw_report(4, who, &step(), LuckLevel::Usual, Timestamp(0));
        let first = of(&WHO);
        of(&AttemptIdentity { attempt: 2, ..WHO });
        assert_eq!(of(&WHO), first);
        let differs = (2..40).any(|attempt| of(&AttemptIdentity { attempt, ..WHO }) != first);
        assert!(differs);
    }

    #[test]
    fn every_end_occurs() {
        let mut seen = std::collections::BTreeSet::new();
        for attempt in 0..4_000 {
            for role in AttemptRole::ALL {
                let end =
                    draw_report(1, &AttemptIdentity { attempt, role, ..WHO }, &step(), LuckLevel::Usual, Timestamp(0))
                        .end;
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
        assert_eq!(allowed_actor(&[Approver::Role("lead".into())]).roles, ["lead"]);
        assert_eq!(allowed_actor(&[Approver::User("ada".into())]).name, "ada");
    }
}
