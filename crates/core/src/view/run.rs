//! The view of a whole run, for the command line and other interfaces: its steps, its cost, its open waitpoints and its
//! undos.
//!
//! The names of the fields are a contract with other programs. Steps are in document order; each composite is followed
//! by the steps inside it, instance by instance. Instances that have not started have no steps here; the graph shows
//! those.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::{
    engine::{
        AttemptId, AttemptRole, CompletedVisit, Cost, EvidenceResult, ExecutionError, ForkOrigin, InstanceIx, RunState,
        StepAt, StepOutcome, StepPaths, StepPhase, UndoTarget, UndoWalk, UndoWalkState, VisitState, Waitpoint,
        WaitpointKind, WaitpointState, format_utc,
    },
    ir::{ErrorClass, HoldReason, RunStatus, StepKindSpec, StepStatus, WorkerSpec, is_one},
    plan::Plan,
    view::{StepExplanation, explain, words},
};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// None before it has been started.
    pub run_id: Option<String>,
    pub workflow: WorkflowView,
    pub status: RunStatus,
    pub native_status: String,
    pub degraded: bool,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    /// None while the run is in progress: a view has no clock.
    pub duration_ms: Option<u64>,
    pub outputs: Value,
    pub error: Option<ErrorView>,
    pub cost: CostView,
    /// The run that this one retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    /// The run whose results this one began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
    /// The number of this try of the whole workflow, counted from 1.
    pub attempt: u32,
    /// The time at which the run that retries this one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelView>,
    /// The reason for the quarantine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
    pub waiting_for: Vec<WaitpointView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoView>,
    pub steps: Vec<StepView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkflowView {
    pub id: String,
    pub version: Option<String>,
    pub dialect: String,
    pub hash: String,
    /// True if the workflow is a resource, whose runs report conditions.
    #[serde(skip)]
    pub is_resource: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CancelView {
    pub by: String,
    pub reason: Option<String>,
    pub at: String,
}

/// Options for details beyond the current status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunViewOptions {
    /// Include the steps of earlier tries and visits of composites, marked as superseded.
    pub all_instances: bool,
}

pub fn view_run(plan: &Plan, state: &RunState) -> RunView {
    view_run_with_options(plan, state, RunViewOptions::default())
}

pub fn view_run_with_options(plan: &Plan, state: &RunState, options: RunViewOptions) -> RunView {
    let names = StepPaths::from_state(&plan.definition, state);
    let current = find_current_instances(state);
    let order = order_steps(state, &current, options.all_instances);
    let workflow = &plan.definition.root().workflow;
    let (status, start, end) = (state.status(), state.start.as_deref(), state.end.as_ref());
    let started = state.instances.first().map(|root| root.started);
    let is_current = |at: &StepAt| current[at.0.0 as usize];
    let shown: Vec<StepAt> = order.iter().copied().filter(is_current).collect();
    RunView {
        run_id: start.map(|start| start.run.to_string()),
        workflow: WorkflowView {
            id: workflow.id.to_string(),
            version: workflow.version.clone(),
            dialect: workflow.origin.dialect.clone(),
            hash: plan.definition.hash().to_string(),
            is_resource: workflow.extensions.resource.is_some(),
        },
        status,
        native_status: workflow.words.run_word(status).to_owned(),
        degraded: end.is_some_and(|end| end.degraded),
        started_at: started.map(format_utc),
        finished_at: end.map(|end| format_utc(end.at)),
        duration_ms: started.zip(end).map(|(started, end)| end.at.duration_since(started).0),
        outputs: end.map_or(Value::Null, |end| (*end.output).clone()),
        error: end.and_then(|end| end.error.as_ref()).map(|error| ErrorView::from_error(error, &names)),
        cost: state.spent.into(),
        retry_of: start.and_then(|start| start.retry_of.as_ref()).map(ToString::to_string),
        forked_from: start.and_then(|start| start.forked_from.clone()),
        attempt: start.map_or(1, |start| start.attempt),
        retry_at: end.and_then(|end| end.retry).map(format_utc),
        cancel: state.cancel.as_ref().map(|cancel| CancelView {
            by: cancel.by.clone(),
            reason: cancel.reason.clone(),
            at: format_utc(cancel.at),
        }),
        quarantine: state.quarantine.clone(),
        waiting_for: view_open_waitpoints(state, &names),
        undo: summarize_undo(state, &names, &current, &shown),
        steps: order.iter().map(|at| build_step_view(plan, state, &names, *at, !is_current(at))).collect(),
    }
}

/// Marks the instances that belong to the last visit and try of everything around them.
pub(super) fn find_current_instances(state: &RunState) -> Vec<bool> {
    let mut current = vec![false; state.instances.len()];
    if let Some(root) = current.first_mut() {
        *root = true;
    }
    // An instance comes after the one that contains it, so that one pass is enough.
    for (i, instance) in state.instances.iter().enumerate() {
        if current[i] {
            let more = instance.steps.iter().filter_map(|step| step.more.as_deref());
            more.flat_map(|more| &more.children).for_each(|child| current[child.0 as usize] = true);
        }
    }
    current
}

/// Returns the steps in display order.
fn order_steps(state: &RunState, current: &[bool], all: bool) -> Vec<StepAt> {
    let mut inside: Vec<Vec<(u32, InstanceIx)>> = vec![Vec::new(); state.instances.len()];
    for (i, instance) in (0..).zip(&state.instances) {
        if let Some(parent) = instance.parent.filter(|_| all || current[i as usize]) {
            inside[parent.0.0 as usize].push((parent.1, InstanceIx(i)));
        }
    }
    let mut order = Vec::new();
    // A stack of the steps that are still to be added; the next one is last.
    let mut rest: Vec<StepAt> = Vec::new();
    let push = |rest: &mut Vec<StepAt>, ix: InstanceIx| {
        let count = u32::try_from(state.instance(ix).steps.len()).unwrap_or(u32::MAX);
        rest.extend((0..count).rev().map(|step| StepAt(ix, step)));
    };
    if !state.instances.is_empty() {
        push(&mut rest, InstanceIx::ROOT);
    }
    // Sorted by step, then by instance number, which is the order in which the instances started.
    inside.iter_mut().for_each(|children| children.sort_unstable());
    while let Some(at) = rest.pop() {
        order.push(at);
        let children = &inside[at.0.0 as usize];
        let from = children.partition_point(|(step, _)| *step < at.1);
        let to = children.partition_point(|(step, _)| *step <= at.1);
        for (_, child) in children[from..to].iter().rev() {
            push(&mut rest, *child);
        }
    }
    order
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepView {
    pub path: String,
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The exact address, which inputs use to name the step.
    pub at: StepAt,
    /// True if it belongs to an earlier try of a step around it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// True if the result was taken over from the run that this one was forked from.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
    pub kind: &'static str,
    pub status: StepStatus,
    pub native_status: String,
    /// The number of attempts in the last iteration; for a composite, of tries in this visit.
    pub attempts: u32,
    /// The number of attempts over all iterations and visits.
    pub total_attempts: u32,
    /// The number of iterations of the completion check, or of passes of a loop.
    pub iterations: u32,
    /// The convergence stage, from 1.
    pub stage: u32,
    pub visits: u32,
    /// The last attempt by an agent in this iteration; its log has the same id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_run_id: Option<String>,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub duration_ms: Option<u64>,
    pub outputs: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub error: Option<ErrorView>,
    /// The step that resolved the merge conflict of this one, so that its failure does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<String>,
    /// The results of checking its evidence after the last attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceResult>,
    /// The cost of its own attempts, without the steps inside it.
    pub cost: CostView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<StepExplanation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorView {
    pub class: ErrorClass,
    pub code: Option<String>,
    pub message: String,
    /// The step that caused the error, if it is another one.
    pub step: Option<String>,
}

impl ErrorView {
    pub fn from_error(error: &ExecutionError, names: &StepPaths) -> ErrorView {
        ErrorView {
            class: error.class,
            code: error.code.clone(),
            message: error.message.clone(),
            step: error.origin.map(|at| names.step_path(at)),
        }
    }
}

/// Returns the view of one step, in a time independent of the size of the run. `names` must know every instance that
/// has started.
pub fn view_step(plan: &Plan, state: &RunState, names: &StepPaths, at: StepAt) -> StepView {
    build_step_view(plan, state, names, at, false)
}

fn build_step_view(plan: &Plan, state: &RunState, names: &StepPaths, at: StepAt, superseded: bool) -> StepView {
    let scope = names.scope(at.0);
    let step = plan.definition.scope(scope).step(at.1);
    let now = state.step(at);
    let blank = VisitState::default();
    let more = now.more.as_deref().unwrap_or(&blank);
    let status = state.step_status(at);
    let own_failure = now.effect.is_some_and(|effect| effect.as_skipped);
    let words = &plan.definition.workflow_containing(scope).workflow.words;
    StepView {
        path: names.step_path(at),
        id: step.id.to_string(),
        name: step.name.clone(),
        at,
        superseded,
        reused: more.reused,
        kind: step.kind.name().as_str(),
        status,
        native_status: words.step_word(status, own_failure).to_owned(),
        attempts: count_attempts(&step.kind, more),
        total_attempts: more.total_attempts,
        iterations: count_iterations(&step.kind, more),
        stage: more.next.stage,
        visits: now.visit,
        agent_run_id: last_agent_attempt(&step.kind, at, now.visit, more).map(|attempt| attempt.to_string()),
        started_at: more.started.map(format_utc),
        finished_at: more.ended.map(format_utc),
        duration_ms: more.started.zip(more.ended).map(|(started, ended)| ended.duration_since(started).0),
        // The output of an earlier visit is not shown.
        outputs: now.outcome.map_or(Value::Null, |_| (*now.output).clone()),
        summary: more.summary.clone(),
        error: more.error.as_ref().map(|error| ErrorView::from_error(error, names)),
        settled_by: find_conflict_resolver(state, at, more).map(|by| names.step_path(by)),
        evidence: more.proofs.clone(),
        cost: more.cost.into(),
        why: explain::explain_step(plan, state, names, at),
    }
}

fn find_conflict_resolver(state: &RunState, at: StepAt, more: &VisitState) -> Option<StepAt> {
    let settler = StepAt(at.0, more.settler?);
    (state.step(settler).outcome == Some(StepOutcome::Succeeded)).then_some(settler)
}

fn count_attempts(kind: &StepKindSpec, more: &VisitState) -> u32 {
    match kind {
        StepKindSpec::Work(_) => more.attempts[AttemptRole::Main as usize],
        StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_) => 0,
        // `tries` counts only the failures that are retried.
        StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_) => {
            let begun = more.started.is_some() && more.due.is_none();
            more.tries + u32::from(begun)
        }
    }
}

/// Returns the last main attempt of a step that an agent runs.
fn last_agent_attempt(kind: &StepKindSpec, at: StepAt, visit: u32, more: &VisitState) -> Option<AttemptId> {
    let StepKindSpec::Work(work) = kind else { return None };
    let attempt = more.attempts[AttemptRole::Main as usize];
    let is_agent = matches!(work.worker, WorkerSpec::Agent { .. }) && attempt > 0 && !more.reused;
    is_agent.then_some(AttemptId { at, visit, iteration: more.next.iteration, role: AttemptRole::Main, attempt })
}

fn count_iterations(kind: &StepKindSpec, more: &VisitState) -> u32 {
    match kind {
        // Between iterations, the next one has no attempt yet.
        StepKindSpec::Work(_) if more.attempts[AttemptRole::Main as usize] == 0 => more.next.iteration - 1,
        StepKindSpec::Work(_) => more.next.iteration,
        StepKindSpec::Loop(_) => u32::try_from(more.children.len()).unwrap_or(u32::MAX),
        StepKindSpec::Gate(_) | StepKindSpec::Wait(_) | StepKindSpec::Branch(_) => 0,
        StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Call(_) => u32::from(more.started.is_some()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostView {
    pub tokens: u64,
    /// None if no worker reported a cost in money.
    pub usd: Option<f64>,
}

impl From<Cost> for CostView {
    fn from(cost: Cost) -> CostView {
        // A double is exact to the millionth up to billions of dollars.
        CostView { tokens: cost.tokens, usd: cost.micro_usd.map(|micro| micro as f64 / 1_000_000.0) }
    }
}

/// Paths of steps, in document order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UndoView {
    pub undone: Vec<String>,
    /// To be undone by a walk in progress.
    pub to_undo: Vec<String>,
    /// Their undo failed, or they were left out because another undo failed.
    pub not_undone: Vec<String>,
    /// The errors of undos that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<UndoFailureView>,
    /// Stopped or interrupted before their outcome was known.
    pub possibly_effective: Vec<String>,
}

/// An undo that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UndoFailureView {
    /// The path of the step.
    pub step: String,
    pub error: ErrorView,
}

/// Summarises the undos of a run. `None` if no undo walk was started.
fn summarize_undo(state: &RunState, names: &StepPaths, current: &[bool], shown: &[StepAt]) -> Option<UndoView> {
    if state.walks.is_empty() {
        return None;
    }
    // Earlier visits of a composite count, and so do their steps. An earlier try does not: it was undone for a retry.
    let targeted: BTreeSet<StepAt> = state
        .walks
        .iter()
        .filter(|(of, _)| matches!(of, UndoWalk::Workflow(home) if current[home.0 as usize]))
        .flat_map(|(_, walk)| walk.targets.iter().map(|target| target.at))
        .collect();
    let shown: BTreeSet<StepAt> = shown.iter().copied().chain(targeted).collect();
    let mut view = UndoView::default();
    for at in shown {
        match undo_progress(state, at) {
            UndoProgress::Undone => view.undone.push(names.step_path(at)),
            UndoProgress::ToUndo => view.to_undo.push(names.step_path(at)),
            UndoProgress::NotUndone => {
                let error = state.visit_state(at).and_then(|more| more.undo_error.as_ref());
                let error = error.map(|error| ErrorView::from_error(error, names));
                view.failed.extend(error.map(|error| UndoFailureView { step: names.step_path(at), error }));
                view.not_undone.push(names.step_path(at));
            }
            UndoProgress::Untouched => {}
        }
    }
    let uncertain: BTreeSet<StepAt> = state.walks.values().flat_map(|walk| walk.uncertain.iter().copied()).collect();
    view.possibly_effective = uncertain.into_iter().map(|at| names.step_path(at)).collect();
    Some(view)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoProgress {
    Undone,
    ToUndo,
    NotUndone,
    /// No walk reached it.
    Untouched,
}

/// Returns the walk that undoes a workflow: its own, or that of the nearest caller.
fn find_undo_walk(state: &RunState, mut home: InstanceIx) -> Option<(InstanceIx, &UndoWalkState)> {
    loop {
        if let Some(walk) = state.walks.get(&UndoWalk::Workflow(home)) {
            return Some((home, walk));
        }
        home = state.instance(state.instance(home).parent?.0).home;
    }
}

/// Returns the progress of the undo of a step with its workflow.
pub(super) fn undo_progress(state: &RunState, at: StepAt) -> UndoProgress {
    let instance = state.instance(at.0);
    let phase = state.step(at).phase;
    match phase {
        StepPhase::Stuck => return UndoProgress::NotUndone,
        StepPhase::Undoing => return UndoProgress::ToUndo,
        _ => {}
    }
    let Some((home, walk)) = find_undo_walk(state, instance.home) else {
        return if phase == StepPhase::Undone { UndoProgress::Undone } else { UndoProgress::Untouched };
    };
    // An earlier visit may be undone and a later one not. The step counts as undone only if no target of this walk is
    // left.
    let targeted = |visit| walk.targets.contains(&UndoTarget { at, visit });
    let requested = home == instance.home && state.instance(home).undo_asked;
    let left = |done: &CompletedVisit| done.step == at.1 && (requested || targeted(done.visit));
    match instance.completed.iter().any(left) {
        true if walk.ended => UndoProgress::NotUndone,
        true => UndoProgress::ToUndo,
        false if phase == StepPhase::Undone => UndoProgress::Undone,
        false => UndoProgress::Untouched,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitpointView {
    /// The number that decisions use to name the waitpoint.
    pub number: u32,
    pub step: String,
    pub at: StepAt,
    pub kind: WaitpointViewKind,
    /// The reason of a hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<HoldReason>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub shows: Value,
    /// The people who may decide; empty: anyone.
    pub approvers: Vec<String>,
    /// The number of different people who have to approve; `approvals` lists those who did so far.
    #[serde(skip_serializing_if = "is_one")]
    pub quorum: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalView>,
    /// The signals, any one of which ends a wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    pub since: String,
    pub until: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
}

/// One of several required approvals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalView {
    pub by: String,
    pub at: String,
}

impl WaitpointView {
    /// Describes the approvals so far, if more than one is required.
    pub fn approval_progress(&self) -> Option<String> {
        (self.quorum > 1).then(|| format_progress(self.approvals.len(), self.quorum))
    }
}

pub(super) fn format_progress(given: usize, quorum: u32) -> String {
    format!("{given} of {quorum} approvals")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitpointViewKind {
    Gate,
    Wait,
    Hold,
}

/// Returns the open waitpoints, oldest first. A quarantined run accepts no decisions, so it has none.
fn view_open_waitpoints(state: &RunState, names: &StepPaths) -> Vec<WaitpointView> {
    if state.quarantine.is_some() {
        return Vec::new();
    }
    let open = state.open_waitpoints();
    open.map(|(number, waitpoint)| build_waitpoint_view(number, waitpoint, names)).collect()
}

/// Returns one waitpoint, open or closed; none if the run has no such waitpoint.
pub fn view_waitpoint(state: &RunState, names: &StepPaths, number: Waitpoint) -> Option<WaitpointView> {
    state.waitpoint(number).map(|waitpoint| build_waitpoint_view(number, waitpoint, names))
}

fn build_waitpoint_view(number: Waitpoint, waitpoint: &WaitpointState, names: &StepPaths) -> WaitpointView {
    let (kind, reason) = match waitpoint.kind {
        WaitpointKind::Gate => (WaitpointViewKind::Gate, None),
        WaitpointKind::Wait => (WaitpointViewKind::Wait, None),
        WaitpointKind::Hold(reason) => (WaitpointViewKind::Hold, Some(reason)),
    };
    WaitpointView {
        number: number.0,
        step: names.step_path(waitpoint.at),
        at: waitpoint.at,
        kind,
        reason,
        message: waitpoint.message.clone(),
        shows: (*waitpoint.shows).clone(),
        approvers: words::approver_names(&waitpoint.approvers),
        signals: awaited_signals(waitpoint, names),
        since: format_utc(waitpoint.opened),
        until: waitpoint.deadline.map(format_utc),
        quorum: waitpoint.quorum,
        approvals: waitpoint
            .approvals
            .iter()
            .map(|(by, at)| ApprovalView { by: by.clone(), at: format_utc(*at) })
            .collect(),
        escalated: waitpoint.escalations > 0,
    }
}

/// Returns the signals that end a wait.
pub(super) fn awaited_signals(waitpoint: &WaitpointState, names: &StepPaths) -> Vec<String> {
    match &names.step(waitpoint.at).kind {
        StepKindSpec::Wait(wait) if waitpoint.kind == WaitpointKind::Wait => {
            wait.on.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    }
}
