//! How a run went, for programs: the object that `run`, `resume` and `runs RUN` print with `--format json`.
//!
//! Owns that the documented fields are there and are of their kind whatever the run did: `outputs` is an object where
//! nothing was given. All else is the core's view of the run; fields may be added to it and never go.

use serde_json::{Value, json};
use skein_core::{
    engine::RunState,
    plan::Plan,
    view::{self, RunView},
};
use skein_host::workspace::ROOT_PARAMETER;

use crate::conditions::run_conditions;

/// The object for a run as it is, with the warnings about its workflow, if it has any.
pub(crate) fn run_to_json(plan: &Plan, state: &RunState, warnings: &[Value]) -> Value {
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

/// The parameters of a run, without the folder that the host adds for files.
fn run_parameters(plan: &Plan) -> Value {
    let mut parameters = (*plan.parameters).clone();
    if let Some(object) = parameters.as_object_mut() {
        object.remove(ROOT_PARAMETER);
    }
    parameters
}

/// Nothing given is an object with nothing in it.
fn fill_outputs(object: &mut Value) {
    if let Some(outputs) = object.get_mut("outputs").filter(|outputs| outputs.is_null()) {
        *outputs = json!({});
    }
}
