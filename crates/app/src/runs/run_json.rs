//! The result of a run for programs: the object that `run`, `resume` and `runs RUN` print with `--format json`.
//!
//! Owns the guarantee that the documented fields are always present and have their type: `outputs` is an object even if
//! there are none. All else is the core's view of the run; fields may be added but are never removed.

use serde::Serialize;
use serde_json::{Value, json};
use skein_core::{
    engine::RunState,
    ir::RunStatus,
    plan::Plan,
    view::{self, RunView},
};
use skein_host::workspace::ROOT_PARAMETER;

/// Returns the object of a run in its present state, with the warnings about its workflow, if it has any.
pub fn run_to_json(plan: &Plan, state: &RunState, warnings: &[Value]) -> Value {
    let view = view::view_run(plan, state);
    let mut object = view_to_json(&view);
    object["parameters"] = run_parameters(plan);
    let conditions = run_conditions(&view);
    if !conditions.is_empty() {
        object["conditions"] = json!(conditions);
    }
    if !warnings.is_empty() {
        object["diagnostics"] = Value::from(warnings);
    }
    object
}

fn view_to_json(view: &RunView) -> Value {
    let mut object = serde_json::to_value(view).expect("the keys of a view are texts");
    fill_outputs(&mut object);
    let steps = object.get_mut("steps").and_then(Value::as_array_mut);
    steps.into_iter().flatten().for_each(fill_outputs);
    object
}

/// Returns the parameters of a run, without the folder that the host adds for files.
fn run_parameters(plan: &Plan) -> Value {
    let mut parameters = (*plan.parameters).clone();
    if let Some(object) = parameters.as_object_mut() {
        object.remove(ROOT_PARAMETER);
    }
    parameters
}

/// Replaces missing outputs by an empty object.
fn fill_outputs(object: &mut Value) {
    if let Some(outputs) = object.get_mut("outputs").filter(|outputs| outputs.is_null()) {
        *outputs = json!({});
    }
}

/// A condition, as in the status of a resource.
#[derive(Debug, Serialize)]
pub struct RunCondition {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
    #[serde(rename = "lastTransitionTime")]
    pub last_transition: Option<String>,
}

/// Returns the conditions of a run; none if its workflow is no resource.
pub fn run_conditions(view: &RunView) -> Vec<RunCondition> {
    let (kind, reason) = match view.status {
        _ if !view.workflow.is_resource => return Vec::new(),
        RunStatus::Undone => ("RolledBack", "CompensationCompleted"),
        RunStatus::UndoFailed => ("PartialRollback", "CompensationFailed"),
        _ => return Vec::new(),
    };
    let last_transition = view.finished_at.clone();
    vec![RunCondition { kind, status: "True", reason, message: describe_undo(view), last_transition }]
}

/// Returns a text with the steps that were undone, and those that were not.
fn describe_undo(view: &RunView) -> String {
    let listed = |steps: &[String]| if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
    let undo = view.undo.clone().unwrap_or_default();
    match undo.not_undone.is_empty() {
        true => format!("undone: {}", listed(&undo.undone)),
        false => format!("undone: {}; not undone: {}", listed(&undo.undone), listed(&undo.not_undone)),
    }
}
