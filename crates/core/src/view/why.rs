//! Why a step waits, did not run, or ended other than by success: one sentence, and a reason for programs.
//!
//! Everything is read off the plan and the state; what the state does not keep is not said.

use serde::Serialize;

use super::{
    Names,
    halt::{self, Cause, cause},
    openings,
    undo::{Place, place},
    words,
};
use crate::{
    engine::{
        Halt, InstancePhase, More, OpeningState, Outcome, Phase, Role, RunState, Skip, StepAt, Stop, Walk,
        WalkState, utc,
    },
    ir::{ErrorClass, HoldReason, Kind, Siblings, Step},
    plan::Plan,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    pub reason: Reason,
    /// The whole of it, for people.
    pub text: String,
    /// Paths of the steps that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// Who could change it; empty where anyone can, or nobody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<String>,
    /// When it changes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    // It waits.
    Dependencies,
    Route,
    Slot,
    Worker,
    Retry,
    Decision,
    Signal,
    HeldForApproval,
    HeldForBudget,
    HeldAsBlocked,
    HeldForGovernance,
    HeldAfterInterruption,
    HeldForQuota,
    HeldForSecret,
    Stopping,
    Unwinding,
    // It did not run, or was cut short.
    Condition,
    Upstream,
    NotRouted,
    StepFailed,
    SiblingFailed,
    Cancelled,
    TimedOut,
    Limit,
    Quarantined,
    // It ended badly.
    Failed,
    Rejected,
    Incomplete,
    Exhausted,
    // It is taken back.
    Undoing,
    Undone,
    NotUndone,
}

impl Why {
    fn new(reason: Reason, text: impl Into<String>) -> Why {
        Why { reason, text: text.into(), steps: Vec::new(), who: Vec::new(), until: None }
    }

    /// A cause, after what it did to the step.
    fn because(what: &str, cause: Cause) -> Why {
        let Cause { reason, text, steps } = cause;
        Why { steps, ..Why::new(reason, format!("{what}: {text}")) }
    }
}

/// What is asked about, with everything that an answer may need.
struct About<'a> {
    plan: &'a Plan,
    state: &'a RunState,
    names: &'a Names,
    at: StepAt,
    step: &'a Step,
    more: Option<&'a More>,
}

/// Why a step is as it is; none when it is at work or succeeded.
pub(super) fn of(plan: &Plan, state: &RunState, names: &Names, at: StepAt) -> Option<Why> {
    let step = plan.definition.scope(names.scope(at.0)).step(at.1);
    let about = About { plan, state, names, at, step, more: state.more(at) };
    let phase = state.step(at).phase;
    if let Some(message) = state.quarantine.as_ref().filter(|_| phase == Phase::Pending || phase.is_live()) {
        return Some(Why::new(Reason::Quarantined, format!("the run was set aside: {message}")));
    }
    match phase {
        Phase::Pending => about.pending(),
        Phase::Ready => Some(about.ready()),
        Phase::Held | Phase::Gated | Phase::Waiting => about.open(),
        Phase::Backoff => about.backoff(),
        Phase::Stopping => Some(about.stopping()),
        Phase::Unwinding => {
            Some(Why::new(Reason::Unwinding, "what its failed try completed is undone before the next"))
        }
        Phase::Running | Phase::Checking | Phase::Summing | Phase::Inside => None,
        Phase::Done => about.over(),
        Phase::Undoing => Some(about.taken_back("is being undone", Reason::Undoing)),
        Phase::Undone => Some(about.taken_back("undone", Reason::Undone)),
        Phase::Stuck => Some(Why::new(Reason::NotUndone, "could not be undone: its undo failed")),
    }
}

impl About<'_> {
    fn pending(&self) -> Option<Why> {
        let instance = self.state.instance(self.at.0);
        if let Some(cause) = cause(self.state, self.names, self.at.0) {
            return Some(Why::because("skipped", cause));
        }
        let over = matches!(instance.phase, InstancePhase::Ended { .. });
        if self.plan.definition.scope(instance.scope).is_routed() {
            return Some(if over {
                Why::new(Reason::NotRouted, "skipped: no route led here")
            } else {
                Why::new(Reason::Route, "no route has led here yet")
            });
        }
        let steps = self.unmet();
        (!steps.is_empty()).then(|| {
            let text = format!("waits for {}", words::quoted(&steps, "and"));
            Why { steps, ..Why::new(Reason::Dependencies, text) }
        })
    }

    /// What it depends on and has not ended yet.
    fn unmet(&self) -> Vec<String> {
        let entry = self.plan.definition.scope(self.names.scope(self.at.0));
        let places = self.step.after.iter().filter_map(|id| entry.by_id.get(id));
        let places = places.map(|step| StepAt(self.at.0, *step));
        let settles = |at: &StepAt| entry.settler(at.1) == Some(self.at.1);
        let met =
            |at: &StepAt| self.state.step(*at).effect.is_some_and(|effect| effect.satisfies || settles(at));
        places.filter(|at| !met(at)).map(|at| self.names.step(at)).collect()
    }

    fn ready(&self) -> Why {
        let instance = self.state.instance(self.at.0);
        let limit = self.plan.definition.scope(instance.scope).scope.concurrency;
        if let Some(limit) = limit.filter(|_| instance.queue.contains(&self.at.1)) {
            let holders =
                (0..).zip(&instance.steps).filter(|(_, step)| step.slot).take(instance.slots as usize);
            let steps: Vec<String> = holders.map(|(i, _)| self.names.step(StepAt(self.at.0, i))).collect();
            let held = words::quoted(&steps, "and");
            let text = format!("waits for a slot (`concurrency` {limit}, held by {held})");
            return Why { steps, ..Why::new(Reason::Slot, text) };
        }
        Why::new(
            Reason::Worker,
            match self.more.map(|more| more.next.role) {
                Some(Role::Check) => "its check waits for a worker",
                Some(Role::Summary) => "its summary waits for a worker",
                _ => "waits for a worker",
            },
        )
    }

    /// A gate, a wait or a hold that is open.
    fn open(&self) -> Option<Why> {
        let opening = self.state.opening(self.more?.opening?)?;
        let until = opening.deadline.map(utc);
        let time = until.as_ref().map_or(String::new(), |until| format!(", until {until}"));
        let who = words::people(&opening.approvers);
        let nobody = if opening.escalations > 0 { "nobody" } else { "anyone" };
        let by = if who.is_empty() { nobody.to_owned() } else { words::list(&who, "or") };
        let by = match opening.quorum {
            1 => by,
            quorum => format!("{by} ({})", openings::progress(opening.approvals.len(), quorum)),
        };
        let (reason, text) = match self.state.step(self.at).phase {
            Phase::Gated => (Reason::Decision, format!("waits for a decision by {by}{time}")),
            Phase::Waiting => {
                let signals = words::quoted(&openings::signals(opening, self.names), "or");
                (Reason::Signal, format!("waits for signal {signals}{time}"))
            }
            _ => self.held(opening, &by, &time),
        };
        Some(Why { who, until, ..Why::new(reason, text) })
    }

    fn held(&self, opening: &OpeningState, by: &str, time: &str) -> (Reason, String) {
        let reason = self.more.and_then(|more| more.held).unwrap_or(HoldReason::Approval);
        let message = match opening.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let text = format!("held for {}{time}{message}; {by} may release it", words::hold(reason));
        let reason = match reason {
            HoldReason::Approval => Reason::HeldForApproval,
            HoldReason::Budget => Reason::HeldForBudget,
            HoldReason::Blocked => Reason::HeldAsBlocked,
            HoldReason::Governance => Reason::HeldForGovernance,
            HoldReason::Interruption => Reason::HeldAfterInterruption,
            HoldReason::Quota => Reason::HeldForQuota,
            HoldReason::Secret => Reason::HeldForSecret,
        };
        (reason, text)
    }

    fn backoff(&self) -> Option<Why> {
        let more = self.more?;
        let error = more.error.as_ref()?;
        let most = self.step.policy.retry.attempts.get(&error.class).map_or(0, |most| most.saturating_sub(1));
        let until = more.due.map(utc);
        let due = until.as_deref().unwrap_or("once");
        let text = format!("retry {} of {most} due at {due}: {}", more.tries, error.message);
        Some(Why { until, ..Why::new(Reason::Retry, text) })
    }

    fn stopping(&self) -> Why {
        if self.more.and_then(|more| more.stopping) == Some(Stop::Timeout) {
            return Why::new(Reason::Stopping, "stopping: its own time is up");
        }
        let mut why = self.cut_off().map_or_else(
            || Why::new(Reason::Stopping, "stopping: what is around it stopped"),
            |cause| Why::because("stopping", cause),
        );
        why.reason = Reason::Stopping;
        why
    }

    /// What stopped it: in an instance that was left to drain, only a cancel can have.
    fn cut_off(&self) -> Option<Cause> {
        let instance = self.state.instance(self.at.0);
        let drains = self.plan.definition.scope(instance.scope).scope.siblings == Siblings::Drain;
        let cancel = self.state.cancel.as_ref().filter(|_| drains);
        match (instance.halt(), cancel) {
            (Some(Halt::Failed { .. }), Some(cancel)) => Some(halt::cancelled(self.state, true, &cancel.by)),
            _ => cause(self.state, self.names, self.at.0),
        }
    }

    /// The step is over, and no undo came to it.
    fn over(&self) -> Option<Why> {
        let step = self.state.step(self.at);
        let skipped = step.effect.is_some_and(|effect| effect.as_skipped);
        match step.outcome? {
            Outcome::Succeeded => self.left(),
            Outcome::Skipped(Skip::Condition) => Some(self.condition()),
            Outcome::Skipped(Skip::Upstream(other)) => Some(self.upstream(StepAt(self.at.0, other))),
            Outcome::Cancelled => Some(self.cancelled()),
            Outcome::Rejected => Some(self.ended(Reason::Rejected, "", skipped)),
            Outcome::Incomplete => Some(self.ended(Reason::Incomplete, "incomplete: ", skipped)),
            Outcome::Exhausted => Some(self.ended(Reason::Exhausted, "failed: ", skipped)),
            Outcome::Failed(ErrorClass::Timeout) => {
                Some(self.ended(Reason::TimedOut, "timed out: ", skipped))
            }
            Outcome::Failed(_) => {
                let attempts = self.more.map_or(0, |more| more.attempts[Role::Main as usize]);
                let after = if attempts > 1 {
                    format!("failed after {attempts} attempts: ")
                } else {
                    "failed: ".into()
                };
                Some(self.settled(self.ended(Reason::Failed, &after, skipped)))
            }
        }
    }

    /// With who settles it, where it could not be merged and someone does.
    fn settled(&self, why: Why) -> Why {
        let Some(settler) = self.more.and_then(|more| more.settler) else { return why };
        let settler = StepAt(self.at.0, settler);
        let path = self.names.step(settler);
        let text = match self.state.step(settler).outcome {
            Some(Outcome::Succeeded) => format!("{}; settled by `{path}`", why.text),
            Some(_) => format!("{}; `{path}` did not settle it", why.text),
            None => format!("{}; `{path}` is to settle it", why.text),
        };
        Why { text, steps: vec![path], ..why }
    }

    /// A success that an undo should have taken back and did not reach.
    fn left(&self) -> Option<Why> {
        match place(self.state, self.at) {
            Place::NotUndone => {
                Some(Why::new(Reason::NotUndone, "was not undone: another undo failed before its turn"))
            }
            Place::ToUndo => Some(Why::new(Reason::Undoing, "will be undone when its turn comes")),
            Place::Undone | Place::Untouched => None,
        }
    }

    fn condition(&self) -> Why {
        let entry = self.plan.definition.scope(self.names.scope(self.at.0));
        let of = entry.settles(self.at.1).iter().map(|step| StepAt(self.at.0, *step));
        let (mut of, any) = (of.clone(), of.clone().next().is_some());
        if any && !of.any(|at| self.state.more(at).is_some_and(|more| more.settler.is_some())) {
            return Why::new(Reason::Condition, "skipped: there is no conflict to settle");
        }
        let source = self.step.when.as_ref().map_or("", |when| when.source());
        let text = match source {
            "" => "skipped: its condition is false".to_owned(),
            source => format!("skipped: its condition `{source}` is false"),
        };
        Why::new(Reason::Condition, text)
    }

    fn upstream(&self, other: StepAt) -> Why {
        let path = self.names.step(other);
        let ended = self.state.step(other).outcome.map_or("did not satisfy it", words::ended);
        let text = format!("skipped: it depends on `{path}`, which {ended}");
        Why { steps: vec![path], ..Why::new(Reason::Upstream, text) }
    }

    fn cancelled(&self) -> Why {
        match self.cut_off() {
            Some(cause) => Why::because("cancelled", cause),
            None => Why::new(Reason::Cancelled, "cancelled: what is around it stopped"),
        }
    }

    fn ended(&self, reason: Reason, what: &str, skipped: bool) -> Why {
        let skipped = if skipped { "skipped, because it " } else { "" };
        let message = self.more.and_then(|more| more.error.as_ref()).map_or("", |error| &error.message);
        let kind = matches!(self.step.kind, Kind::Gate(_) | Kind::Work(_));
        let origin = self.more.and_then(|more| more.error.as_ref()).and_then(|error| error.origin);
        let steps = origin.filter(|_| !kind).map(|at| self.names.step(at));
        // A message may begin with the word for how the step ended.
        let what = if message.starts_with(what.trim_end_matches(": ")) { "" } else { what };
        let text = format!("{skipped}{what}{message}");
        Why { steps: steps.into_iter().collect(), ..Why::new(reason, text) }
    }

    /// Being undone, or undone: with its workflow, or before a composite around it is tried again.
    fn taken_back(&self, what: &str, reason: Reason) -> Why {
        let home = self.state.instance(self.at.0).home;
        let with_workflow = self.undone_with_workflow();
        let cause = cause(self.state, self.names, home).filter(|_| with_workflow);
        let mut why = match cause {
            Some(cause) => Why::because(what, cause),
            None if with_workflow => Why::new(reason, what),
            None => Why::new(reason, format!("{what}: what is around it failed and is tried again")),
        };
        why.reason = reason;
        if let Some(due) = self.undo_due() {
            why.text.push_str(&format!("; its undo failed and is tried again at {due}"));
            why.until = Some(due);
        }
        why
    }

    /// Whether a walk of its workflow took it back. A walk that was taken up again has only the rest as its targets, so
    /// that what no composite around it took back counts too.
    fn undone_with_workflow(&self) -> bool {
        let targeted = |of: &Walk| {
            let walk = self.state.walks.get(of);
            walk.map(|walk| walk.targets.iter().any(|target| target.at == self.at))
        };
        let home = self.state.instance(self.at.0).home;
        let mut around = self.state.instance(self.at.0).parent.filter(|_| self.at.0 != home);
        let mut by_composite = false;
        while let Some(composite) = around {
            by_composite |= targeted(&Walk::Composite(composite)) == Some(true);
            around = self.state.instance(composite.0).parent.filter(|_| composite.0 != home);
        }
        targeted(&Walk::Workflow(home)).is_some_and(|targeted| targeted || !by_composite)
    }

    /// When the undo that is at this step is tried again.
    fn undo_due(&self) -> Option<String> {
        let here = |walk: &&WalkState| walk.targets.get(walk.at).is_some_and(|target| target.at == self.at);
        self.state.walks.values().find(here)?.due.map(utc)
    }
}
