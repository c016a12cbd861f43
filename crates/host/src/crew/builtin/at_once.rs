//! Functions of small values, done where they are asked for: a thread for each would take longer than the function.
//!
//! Owns what is small enough for the loop to do itself. All else goes the way of every attempt.

use serde_json::Value;
use skein_core::{
    engine::{Assignment, AttemptEnd, AttemptId, Cost, Report, Role},
    ir::Kind,
};

use super::{super::about::About, Function, Shared, Tool, Wrong, tool, values};
use crate::hands::Running;

/// More than this is not done by the loop, which others wait for.
const MOST: usize = 16 * 1024;

/// What became of an attempt that can be done at once. None: it cannot.
pub fn at_once(
    shared: &Shared,
    running: Running<'_>,
    attempt: AttemptId,
    task: &Assignment,
    about: &About,
) -> Option<Report> {
    let scope = running.names.scope(attempt.at.0);
    let step = running.plan.definition.scope(scope).step(attempt.at.1);
    let Kind::Work(work) = &step.kind else { return None };
    if attempt.role != Role::Main || !work.evidence.is_empty() || !is_small(&task.given.inputs) {
        return None;
    }
    let tool = about.tools.get(&Tool::key(&work.worker)?)?;
    let function = of_values(tool.function?)?;
    let report = Report::new(end(tool, function, &task.given.inputs), Cost::default());
    Some(shared.without_secrets(report))
}

type OfValues = fn(&Value) -> Result<Value, Wrong>;

/// A function that asks nothing of anybody.
fn of_values(function: Function) -> Option<OfValues> {
    match function {
        Function::JsonMerge => Some(values::merge),
        Function::JsonPick => Some(values::pick),
        Function::TextTemplate => Some(values::template),
        _ => None,
    }
}

fn end(tool: &Tool, function: OfValues, inputs: &Value) -> AttemptEnd {
    if let Err(end) = tool::check_inputs(tool, inputs) {
        return end;
    }
    match function(&tool::renamed(tool, inputs)) {
        Ok(output) => tool::given(tool, output),
        Err(Wrong { class, code, message }) => tool::failed(class, code, message),
    }
}

/// Whether a value has no more than [`MOST`] bytes, about.
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
