//! `_convergence/`: how far a step is from being done, as its checks see it.

use serde::Serialize;
use skein_core::{
    engine::{Finding, More},
    ir::Convergence,
    time::Time,
};

use super::ledger::{CheckRecord, Raised, Told};

pub(super) const STATE: &str = "state.json";
pub(super) const TRANSITION: &str = "stage-transition.json";
pub(super) const SCOPE: &str = "scope.json";

/// Where the step is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State<'a> {
    step_id: &'a str,
    stage: u32,
    max_stage: u32,
    /// How often in a row the same was found.
    stall_count: u32,
    stall_threshold: u32,
    /// What identifies the finding.
    stall_key: Option<String>,
    iteration: u32,
    decision: &'static str,
    reasons: &'a [String],
    fingerprints: &'a [String],
    updated_at: Time,
}

/// The last time that the stage went up.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Transition<'a> {
    step_id: &'a str,
    from_stage: u32,
    to_stage: u32,
    max_stage: u32,
    iteration: u32,
    reasons: &'a [String],
    fingerprints: &'a [String],
    at: Time,
}

/// Files that may not be changed and were, or more files than may be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Scope<'a> {
    step_id: &'a str,
    iteration: u32,
    allowed_paths: &'a [String],
    ignored_paths: &'a [String],
    max_changed_files: Option<u32>,
    /// As many as the check named.
    outside_allowed_paths: Vec<&'a str>,
    too_many_changed_files: bool,
    at: Time,
}

pub(super) fn state<'a>(
    id: &'a str,
    convergence: &Convergence,
    more: &More,
    told: &'a Told,
) -> Option<State<'a>> {
    let check = told.check.as_ref()?;
    let failed = matches!(told.raised, Some(Raised { to: None, .. }));
    Some(State {
        step_id: id,
        stage: if failed { convergence.max_stage } else { more.next.stage },
        max_stage: convergence.max_stage,
        stall_count: more.stall.map_or(0, |(_, count)| count),
        stall_threshold: convergence.stall_threshold,
        stall_key: more.stall.map(|(key, _)| key.to_string()),
        iteration: check.iteration,
        decision: match check.finding {
            Finding::Complete => "complete",
            Finding::Incomplete => "incomplete",
            Finding::Undecided => "undecided",
            Finding::Blocked => "blocked",
        },
        reasons: &check.reasons,
        fingerprints: &check.fingerprints,
        updated_at: check.at,
    })
}

pub(super) fn transition<'a>(
    id: &'a str,
    convergence: &Convergence,
    told: &'a Told,
) -> Option<Transition<'a>> {
    let raised = told.raised.as_ref()?;
    let check = raised.check.as_ref();
    Some(Transition {
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

pub(super) fn scope<'a>(id: &'a str, convergence: &'a Convergence, told: &'a Told) -> Option<Scope<'a>> {
    let CheckRecord { at, iteration, fingerprints, .. } = told.scope.as_ref()?;
    Some(Scope {
        step_id: id,
        iteration: *iteration,
        allowed_paths: &convergence.allowed_paths,
        ignored_paths: &convergence.ignored_paths,
        max_changed_files: convergence.max_changed_files,
        outside_allowed_paths: fingerprints
            .iter()
            .filter_map(|note| note.strip_prefix("scope:file:"))
            .collect(),
        too_many_changed_files: fingerprints.iter().any(|note| note.starts_with("diff_budget:")),
        at: *at,
    })
}
