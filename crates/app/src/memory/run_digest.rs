//! A digest of a run for its reviewer: the results of its steps, and the ends of their logs.
//!
//! Owns the shortening of long runs. The contents are untrusted, and were redacted before they were stored.

use std::{cmp::Reverse, collections::BTreeMap, path::PathBuf};

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptId, AttemptRole, RunState},
    ids::RunId,
    ir::StepStatus,
    plan::Plan,
    view::{self, StepView},
};
use skein_host::store::{Store, StoreError};

use crate::runs::{
    attempt_logs::{AttemptLogs, AttemptSelector, LogFile},
    follow,
};

/// The maximum size of all steps together, in bytes of JSON.
const MOST: usize = 48 * 1024;
/// The maximum size of one value and of one log.
const VALUE: usize = 2 * 1024;
const LOG: usize = 1536;

/// Returns the digest of an ended run.
pub fn digest_run(
    store: &dyn Store,
    run: &RunId,
    run_folder: PathBuf,
    (plan, state): (&Plan, &RunState),
) -> Result<Value, StoreError> {
    let mut logs = AttemptLogs::new(plan, run_folder.clone(), AttemptSelector::default(), LogFile::Output);
    logs.read_journal(store, run)?;
    let last = logs.all.iter().filter(|log| log.attempt.role == AttemptRole::Main);
    let last: BTreeMap<&str, AttemptId> = last.map(|log| (log.step.as_str(), log.attempt)).collect();
    let view = view::view_run(plan, state);
    let mut steps: Vec<&StepView> = view.steps.iter().filter(|step| !step.superseded).collect();
    // Failed steps come first, because they teach most.
    steps.sort_by_key(|step| Reverse(step.error.is_some()));
    let (mut digests, mut size) = (Vec::new(), 0);
    for step in steps.iter().filter(|step| step.status != StepStatus::Pending) {
        let log = last.get(step.path.as_str()).and_then(|attempt| follow::read_log_tail(&run_folder, *attempt));
        let digest = digest_step(step, log.as_deref());
        size += digest.to_string().len();
        if size > MOST {
            break;
        }
        digests.push(digest);
    }
    Ok(json!({
        "run_id": view.run_id,
        "workflow": view.workflow,
        "status": view.status,
        "error": view.error,
        "outputs": truncate_value(&view.outputs),
        "steps_not_told": steps.len() - digests.len(),
        "steps": digests,
    }))
}

fn digest_step(step: &StepView, log: Option<&str>) -> Value {
    json!({
        "step": step.path,
        "status": step.native_status,
        "attempts": step.total_attempts,
        "outputs": truncate_value(&step.outputs),
        "error": step.error,
        "end_of_log": log.map(|log| text_tail(log, LOG)),
    })
}

/// Returns a value, or its beginning as text.
fn truncate_value(value: &Value) -> Value {
    let text = value.to_string();
    match text.len() <= VALUE {
        true => value.clone(),
        false => Value::from(format!("{}…", &text[..text.floor_char_boundary(VALUE)])),
    }
}

/// Returns the end of a text.
fn text_tail(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}
