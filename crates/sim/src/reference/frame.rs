//! Where the evaluation is: workflow instances, scope instances, and what is known of their steps.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use serde_json::Value;
use skein_core::{
    engine::Cost,
    ir::{Effect, Effects, ErrorClass, Step, StepStatus, Then, Verdict},
    plan::{Next, ScopeEntry, ScopeIx, WorkflowEntry},
};

use super::{Ending, Eval, ExpectedStep, Fault, Race};
use crate::paths::Name;

/// An instance of a workflow: the run itself, or a call.
pub struct Home<'a> {
    pub entry: &'a WorkflowEntry,
    pub input: Value,
    pub env: Value,
    pub executed: Cell<u32>,
    /// Something outside it may be at work at the same time.
    pub accompanied: bool,
}

/// An instance of a scope.
pub struct Frame<'f, 'a> {
    pub scope: ScopeIx,
    pub name: Name,
    pub outer: Option<&'f Frame<'f, 'a>>,
    pub home: &'f Home<'a>,
    pub item: Option<(Value, u32)>,
    /// Something else of the same workflow may be at work at the same time.
    pub concurrent: Cell<bool>,
    pub steps: RefCell<Vec<Known>>,
    /// The last instance of each scope inside a step.
    pub inner: RefCell<BTreeMap<(u32, u32), Rc<Record>>>,
}

/// What remains of an instance for those that read its steps.
#[derive(Debug)]
pub struct Record {
    pub steps: Vec<Known>,
    pub inner: BTreeMap<(u32, u32), Rc<Record>>,
}

/// What is known of a step of an instance.
#[derive(Debug, Clone)]
pub struct Known {
    pub status: StepStatus,
    pub or: Option<StepStatus>,
    pub own_failure: bool,
    pub output: Value,
    /// The rules leave the output open.
    pub unclear: bool,
    /// What it could not merge, another is to settle.
    pub handed_on: bool,
    /// It has ended at least once.
    pub ended: bool,
    pub at_work: bool,
    pub attempts: u32,
    pub iterations: u32,
    pub visits: u32,
    pub spent: Cost,
}

impl Known {
    pub fn nothing() -> Known {
        Known {
            status: StepStatus::Pending,
            or: None,
            own_failure: false,
            output: Value::Null,
            unclear: false,
            handed_on: false,
            ended: false,
            at_work: false,
            attempts: 0,
            iterations: 0,
            visits: 0,
            spent: Cost::default(),
        }
    }
}

/// A visit of a step that has an undo and succeeded.
#[derive(Debug, Clone)]
pub struct Completed<'a> {
    pub step: &'a Step,
    pub name: Name,
    pub visit: u32,
}

/// What was completed, as far as its order is known.
#[derive(Debug, Clone)]
pub enum Log<'a> {
    One(Completed<'a>),
    InOrder(Vec<Log<'a>>),
    /// At the same time.
    AnyOrder(Vec<Log<'a>>),
}

impl<'a> Log<'a> {
    pub fn empty() -> Log<'a> {
        Log::InOrder(Vec::new())
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Log::One(_) => false,
            Log::InOrder(all) | Log::AnyOrder(all) => all.iter().all(Log::is_empty),
        }
    }

    /// First completed first, if that is known.
    pub fn flat(&self, into: &mut Vec<Completed<'a>>) -> Result<(), Race> {
        match self {
            Log::One(one) => into.push(one.clone()),
            Log::AnyOrder(all) if all.iter().filter(|log| !log.is_empty()).count() > 1 => {
                return Err(Race("what was completed at the same time is to be undone"));
            }
            Log::InOrder(all) | Log::AnyOrder(all) => all.iter().try_for_each(|log| log.flat(into))?,
        }
        Ok(())
    }
}

/// What became of a visit of a step.
pub enum Visit<'a> {
    Ended(End<'a>),
    /// It waits, and nobody will answer.
    Waiting,
    /// It stops its workflow. What was completed inside it before, and whether it gave its slot back on the way.
    Stops {
        why: Stop,
        inside: Log<'a>,
        yielded: bool,
    },
}

/// Why something inside stops the workflow around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Cancel,
    /// One step too many.
    Limit,
}

/// What arrival comes to.
pub enum Arrival<'a> {
    Ready,
    Over(Box<End<'a>>),
    TooMany,
}

/// The end of a visit.
pub struct End<'a> {
    pub ending: Ending,
    pub output: Value,
    pub unclear: bool,
    /// It was done and did not fit what others changed.
    pub unmerged: bool,
    /// Where a cursor goes, if not to the step's next.
    pub route: Option<Next>,
    /// What was completed inside.
    pub inside: Log<'a>,
    pub iterations: u32,
    pub attempts: u32,
    pub spent: Cost,
    /// It gave its slot back on the way.
    pub yielded: bool,
    /// Something inside it succeeded and says that something failed.
    pub degraded: bool,
}

impl<'a> End<'a> {
    pub fn of(ending: Ending) -> End<'a> {
        End {
            ending,
            output: Value::Null,
            unclear: false,
            unmerged: false,
            route: None,
            inside: Log::empty(),
            iterations: 0,
            attempts: 0,
            spent: Cost::default(),
            yielded: false,
            degraded: false,
        }
    }

    pub fn with(output: Value) -> End<'a> {
        End { output, ..End::of(Ending::Succeeded) }
    }

    pub fn failed(fault: Fault) -> End<'a> {
        End::of(Ending::Failed(fault))
    }
}

/// What became of an instance.
pub enum Instance<'a> {
    Ended {
        result: Result<Value, Fault>,
        degraded: bool,
        log: Log<'a>,
        /// The step whose failure halted it, and whether that asks for undo.
        halted: Option<(u32, bool)>,
        unclear: bool,
    },
    Waiting,
    Stops(Stop, Log<'a>),
}

impl<'f, 'a> Frame<'f, 'a> {
    pub fn new(eval: &Eval<'a>, scope: ScopeIx, name: Name, home: &'f Home<'a>) -> Frame<'f, 'a> {
        let count = eval.definition.scope(scope).scope.steps.len();
        Frame {
            scope,
            name,
            outer: None,
            home,
            item: None,
            concurrent: Cell::new(false),
            steps: RefCell::new(vec![Known::nothing(); count]),
            inner: RefCell::new(BTreeMap::new()),
        }
    }

    pub fn entry(&self, eval: &Eval<'a>) -> &'a ScopeEntry {
        eval.definition.scope(self.scope)
    }

    /// Notes how a visit ended and what that shows.
    pub fn end(&self, step: u32, end: &End<'a>, effect: Effect) {
        let mut steps = self.steps.borrow_mut();
        let known = &mut steps[step as usize];
        let shown = shown(&end.ending);
        let failed =
            !matches!(end.ending, Ending::Succeeded | Ending::SkippedByCondition | Ending::SkippedByUpstream);
        known.own_failure = failed && effect.as_skipped;
        known.status = if known.own_failure { StepStatus::Skipped } else { shown };
        known.or = None;
        known.output = end.output.clone();
        known.unclear = end.unclear;
        known.ended = true;
        known.at_work = false;
        known.iterations = end.iterations;
        known.attempts += end.attempts;
        known.spent.add(end.spent);
    }

    pub fn set(&self, step: u32, status: StepStatus, or: Option<StepStatus>) {
        let known = &mut self.steps.borrow_mut()[step as usize];
        (known.status, known.or) = (status, or);
    }

    /// Steps that were never reached are skipped in what has ended, and pending in what waits.
    pub fn close(&self, eval: &mut Eval<'a>, waits: bool) -> Rc<Record> {
        let entry = self.entry(eval);
        let mut steps = self.steps.borrow_mut();
        for (step, known) in entry.scope.steps.iter().zip(steps.iter_mut()) {
            if known.status == StepStatus::Pending && !waits {
                known.status = StepStatus::Skipped;
            }
            let expected = ExpectedStep {
                status: known.status,
                or: known.or,
                output: if known.unclear { super::ANYTHING.into() } else { known.output.clone() },
                attempts: known.attempts,
                iterations: known.iterations,
                visits: known.visits,
            };
            eval.steps.insert(self.name.step(step.id.as_str()), expected);
        }
        Rc::new(Record { steps: steps.clone(), inner: self.inner.borrow().clone() })
    }
}

/// The canonical status of an ending, its effect aside.
fn shown(ending: &Ending) -> StepStatus {
    match ending {
        Ending::Succeeded => StepStatus::Succeeded,
        Ending::Incomplete => StepStatus::Incomplete,
        Ending::Failed(Fault { class: Some(ErrorClass::Timeout), .. }) => StepStatus::TimedOut,
        Ending::Exhausted | Ending::Failed(_) | Ending::Rejected => StepStatus::Failed,
        Ending::SkippedByCondition | Ending::SkippedByUpstream => StepStatus::Skipped,
    }
}

/// The row of the table that an ending has. None: it depends on a class that the rules leave open.
pub fn effect_of(effects: &Effects, ending: &Ending) -> Result<Effect, Race> {
    Ok(match ending {
        Ending::Succeeded => effects.succeeded,
        Ending::Incomplete => effects.incomplete,
        Ending::Exhausted => effects.exhausted,
        Ending::Failed(Fault { class: Some(ErrorClass::Timeout), .. }) => effects.timed_out,
        Ending::Failed(Fault { class: Some(class), .. }) => {
            *effects.failed_by_class.get(class).unwrap_or(&effects.failed)
        }
        Ending::Failed(Fault { class: None, .. }) => {
            let alike =
                effects.failed_by_class.values().chain([&effects.timed_out]).all(|e| *e == effects.failed);
            if !alike {
                return Err(Race("the effect depends on a class that is not known"));
            }
            effects.failed
        }
        Ending::Rejected => effects.rejected,
        Ending::SkippedByCondition => effects.skipped_by_condition,
        Ending::SkippedByUpstream => effects.skipped_by_upstream,
    })
}

/// The verdict of an instance so far, and the first failure that counts against it.
#[derive(Default)]
pub struct Tally {
    pub worst: Verdict,
    pub first: Option<Fault>,
}

impl Tally {
    pub fn add(&mut self, end: &End<'_>, effect: Effect, in_order: bool) {
        let ending = &end.ending;
        self.worst = self.worst.max(effect.verdict);
        if end.degraded {
            self.worst = self.worst.max(Verdict::Degraded);
        }
        if effect.verdict != Verdict::Failed {
            return;
        }
        let fault = match ending {
            Ending::Failed(fault) => fault.clone(),
            _ => Fault::unknown(),
        };
        match &self.first {
            None => self.first = Some(fault),
            Some(first) if !in_order && *first != fault => self.first = Some(Fault::unknown()),
            Some(_) => {}
        }
    }
}

pub fn halts(effect: Effect) -> bool {
    effect.then != Then::GoOn
}
