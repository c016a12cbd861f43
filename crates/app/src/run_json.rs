//! The result of a run for programs: the object that `run`, `resume` and `runs RUN` print with `--format json`.
//!
//! Owns the guarantee that the documented fields are always present and have their type: `outputs` is an object even if
//! there are none. All else is the core's view of the run; fields may be added but are never removed.

use serde_json::{Value, json};
use skein_core::{
    engine::RunState,
    plan::Plan,
    view::{self, RunView},
};
use skein_host::workspace::ROOT_PARAMETER;

use crate::conditions::run_conditions;

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
