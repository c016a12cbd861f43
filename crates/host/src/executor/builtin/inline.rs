//! Functions of small values, run on the host loop: a thread for each would take longer than the function.
//!
//! Owns the limit of work that the loop does itself. All other work takes the path of every attempt.

use serde_json::Value;
use skein_core::{
    engine::{AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, Cost},
    ir::StepKindSpec,
};

use super::{
    super::run_settings::RunSettings, BuiltinError, BuiltinFunction, ExecutorContext, ToolSettings, tool,
    values,
};
use crate::executor_api::ActiveRun;

/// The maximum size of inputs that are processed on the loop, because other runs wait for it.
const MOST: usize = 16 * 1024;

/// Runs an attempt inline and reports its end. Returns `None` if it cannot run inline.
pub fn run_inline(
    shared: &ExecutorContext,
    running: ActiveRun<'_>,
    attempt: AttemptId,
    task: &AttemptAssignment,
    about: &RunSettings,
) -> Option<AttemptReport> {
    let scope = running.names.scope(attempt.at.0);
    let step = running.plan.definition.scope(scope).step(attempt.at.1);
    let StepKindSpec::Work(work) = &step.kind else { return None };
    if attempt.role != AttemptRole::Main || !work.evidence.is_empty() || !is_small(&task.given.inputs) {
        return None;
    }
    let tool = about.tools.get(&ToolSettings::settings_key(&work.worker)?)?;
    let function = find_value_function(tool.function?)?;
    let report = AttemptReport::new(call_value_function(tool, function, &task.given.inputs), Cost::default());
    Some(shared.redact_report(report))
}

type ValueFunction = fn(&Value) -> Result<Value, BuiltinError>;

/// Returns the implementation of a function that depends only on its inputs.
fn find_value_function(function: BuiltinFunction) -> Option<ValueFunction> {
    match function {
        BuiltinFunction::JsonMerge => Some(values::merge_objects),
        BuiltinFunction::JsonPick => Some(values::pick_values),
        BuiltinFunction::TextTemplate => Some(values::fill_template),
        _ => None,
    }
}

fn call_value_function(tool: &ToolSettings, function: ValueFunction, inputs: &Value) -> AttemptEnd {
    if let Err(end) = tool::check_inputs(tool, inputs) {
        return end;
    }
    match function(&tool::rename_inputs(tool, inputs)) {
        Ok(output) => tool::check_output(tool, output),
        Err(BuiltinError { class, code, message }) => tool::failed_call(class, code, message),
    }
}

/// True if a value has at most [`MOST`] bytes, approximately.
fn is_small(value: &Value) -> bool {
    let mut left = MOST;
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        let own = match value {
            Value::String(text) => text.len(),
            Value::Array(items) => {
                todo.extend(items.iter().take(MOST));
                items.len()
            }
            Value::Object(fields) => {
                todo.extend(fields.values().take(MOST));
                fields.keys().map(String::len).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        };
        match left.checked_sub(own.max(1)) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_large_is_not_done_by_the_loop() {
        assert!(is_small(&json!({"values": [{"a": "text", "b": [1, null, true]}]})));
        assert!(is_small(&json!("x".repeat(MOST))));
        assert!(!is_small(&json!("x".repeat(MOST + 1))));
        assert!(!is_small(&json!({"values": vec![7; MOST]})));
        assert!(!is_small(&json!(vec![vec![Vec::<u8>::new(); 200]; 200])));
        assert!(!is_small(&json!({"x".repeat(MOST + 1): 1})));
    }
}
