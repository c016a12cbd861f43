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

/// The object for a run as it is.
pub(crate) fn result(plan: &Plan, state: &RunState) -> Value {
    of(&view::run(plan, state))
}

fn of(view: &RunView) -> Value {
    let mut object = serde_json::to_value(view).expect("the keys of a view are texts");
    fill(&mut object);
    let steps = object.get_mut("steps").and_then(Value::as_array_mut);
    steps.into_iter().flatten().for_each(fill);
    object
}

/// Nothing given is an object with nothing in it.
fn fill(object: &mut Value) {
    if let Some(outputs) = object.get_mut("outputs").filter(|outputs| outputs.is_null()) {
        *outputs = json!({});
    }
}
