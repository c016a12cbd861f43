//! `_convergence/`: the convergence of a step, as its checks report it.

use serde::Serialize;
use skein_core::{
    engine::{CheckFinding, CheckRecord, LedgerEntry, StageRaise, VisitState},
    ir::ConvergencePolicy,
    time::Timestamp,
};

pub(super) const STATE: &str = "state.json";
pub(super) const TRANSITION: &str = "stage-transition.json";
pub(super) const SCOPE: &str = "scope.json";

/// The convergence state of the step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConvergenceState<'a> {
    step_id: &'a str,
    stage: u32,
    max_stage: u32,
    /// The number of consecutive equal findings.
    stall_count: u32,
    stall_threshold: u32,
    /// The identity of the finding.
    stall_key: Option<String>,
    iteration: u32,
    decision: &'static str,
    reasons: &'a [String],
    fingerprints: &'a [String],
    updated_at: Timestamp,
}

/// The last increase of the stage.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageTransition<'a> {
    step_id: &'a str,
    from_stage: u32,
    to_stage: u32,
    max_stage: u32,
    iteration: u32,
    reasons: &'a [String],
    fingerprints: &'a [String],
    at: Timestamp,
}

/// A violation of the scope: changed files outside of the allowed paths, or too many changed files.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeViolation<'a> {
    step_id: &'a str,
    iteration: u32,
    allowed_paths: &'a [String],
    ignored_paths: &'a [String],
    max_changed_files: Option<u32>,
    /// The files that the check named.
    outside_allowed_paths: Vec<&'a str>,
    too_many_changed_files: bool,
    at: Timestamp,
}

pub(super) fn convergence_state<'a>(
    id: &'a str,
    convergence: &ConvergencePolicy,
    more: &VisitState,
    told: &'a LedgerEntry,
) -> Option<ConvergenceState<'a>> {
    let check = told.check.as_ref()?;
    let failed = matches!(told.raised, Some(StageRaise { to: None, .. }));
    Some(ConvergenceState {
        step_id: id,
        stage: if failed { convergence.max_stage } else { more.next.stage },
        max_stage: convergence.max_stage,
        stall_count: more.stall.map_or(0, |(_, count)| count),
        stall_threshold: convergence.stall_threshold,
        stall_key: more.stall.map(|(key, _)| key.to_string()),
        iteration: check.iteration,
        decision: match check.finding {
            CheckFinding::Complete => "complete",
            CheckFinding::Incomplete => "incomplete",
            CheckFinding::Undecided => "undecided",
            CheckFinding::Blocked => "blocked",
        },
        reasons: &check.reasons,
        fingerprints: &check.fingerprints,
        updated_at: check.at,
    })
}

pub(super) fn stage_transition<'a>(
    id: &'a str,
    convergence: &ConvergencePolicy,
    told: &'a LedgerEntry,
) -> Option<StageTransition<'a>> {
    let raised = told.raised.as_ref()?;
    let check = raised.check.as_ref();
    Some(StageTransition {
        step_id: id,
        from_stage: raised.from,
        to_stage: raised.to.unwrap_or(convergence.max_stage),
        max_stage: convergence.max_stage,
        iteration: check.map_or(0, |check| check.iteration),
        reasons: check.map_or(&[], |check| &check.reasons),
        fingerprints: check.map_or(&[], |check| &check.fingerprints),
        at: raised.at,
    })
}

pub(super) fn scope_violation<'a>(
    id: &'a str,
    convergence: &'a ConvergencePolicy,
    told: &'a LedgerEntry,
) -> Option<ScopeViolation<'a>> {
    let CheckRecord { at, iteration, fingerprints, .. } = told.scope.as_ref()?;
    Some(ScopeViolation {
        step_id: id,
        iteration: *iteration,
        allowed_paths: &convergence.allowed_paths,
        ignored_paths: &convergence.ignored_paths,
        max_changed_files: convergence.max_changed_files,
        outside_allowed_paths: fingerprints.iter().filter_map(|note| note.strip_prefix("scope:file:")).collect(),
        too_many_changed_files: fingerprints.iter().any(|note| note.starts_with("diff_budget:")),
        at: *at,
    })
}
