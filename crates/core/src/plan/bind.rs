//! The parameters of one run: defaults filled in, names and values checked.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Hash,
    contracts::{is_unknown_parameter, names},
    definition::{Definition, Plan},
    problem::{At, Problem, ProblemCode},
};
use crate::{
    ir::{Schema, SchemaError},
    limits,
};

impl Definition {
    /// The plan of a run with these parameters: an object, or null for none.
    pub fn bind(self: &Arc<Self>, parameters: Value) -> Result<Plan, Vec<Problem>> {
        let mut parameters = match parameters {
            Value::Null => Value::Object(serde_json::Map::new()),
            given => given,
        };
        // Before anything that would recurse over it.
        if !depth_is_within(&parameters, limits::VALUE_DEPTH) {
            let message = format!("parameters nest at most {} levels deep", limits::VALUE_DEPTH);
            return Err(vec![Problem::new(ProblemCode::BadParameter, At::field("parameters"), message)]);
        }
        let schema = &self.root().workflow.inputs;
        schema.fill(&mut parameters);
        let problems = check(schema, &parameters);
        if !problems.is_empty() {
            return Err(problems);
        }
        // In which order they were given means nothing.
        if let Some(object) = parameters.as_object_mut() {
            object.sort_keys();
        }
        Ok(self.given(Arc::new(parameters)))
    }

    /// The plan for parameters that were bound before.
    pub fn given(self: &Arc<Self>, parameters: Arc<Value>) -> Plan {
        let hash = Hash::of_json(&(self.hash(), &parameters));
        Plan { definition: self.clone(), parameters, hash }
    }
}

fn check(schema: &Schema, parameters: &Value) -> Vec<Problem> {
    let Some(given) = parameters.as_object() else {
        let message = "parameters are an object of names and values";
        return vec![Problem::new(ProblemCode::BadParameter, At::field("parameters"), message)];
    };
    let size = parameters.to_string().len();
    if size > limits::VALUE_BYTES {
        let message = format!("parameters have at most {} bytes, these have {size}", limits::VALUE_BYTES);
        let problem = Problem::new(ProblemCode::BadParameter, At::field("parameters"), message);
        return vec![problem.hint("put large data into a file and give its path")];
    }
    let missing = schema.required().filter(|name| !given.contains_key(*name)).map(|name| {
        let message = format!("the parameter `{name}` is missing");
        Problem::new(ProblemCode::MissingParameter, field(name), message)
    });
    let unknown = given.keys().filter(|name| is_unknown_parameter(schema, name));
    let unknown = unknown.map(|name| {
        let message = format!("there is no parameter `{name}`");
        Problem::new(ProblemCode::UnknownParameter, field(name), message).near(name, names(schema))
    });
    let mut problems: Vec<Problem> = missing.chain(unknown).collect();
    // What is missing or unknown, the schema would say again of the whole.
    let said = !problems.is_empty();
    let of_the_whole = |error: &SchemaError| matches!(error, SchemaError::Value { at, .. } if at.is_empty());
    let wrong = schema.check_all(parameters).into_iter().filter(|error| !(said && of_the_whole(error)));
    problems.extend(wrong.map(wrong_value));
    problems
}

fn field(name: &str) -> At {
    At::field(format!("parameters.{name}"))
}

fn wrong_value(error: SchemaError) -> Problem {
    match error {
        SchemaError::Value { at, message } => {
            let at = At::field(format!("parameters{}", at.replace('/', ".")));
            Problem::new(ProblemCode::BadParameter, at, message)
        }
        SchemaError::Schema { message, .. } => {
            Problem::new(ProblemCode::BadSchema, At::field("inputs"), message)
        }
    }
}

/// Whether arrays and objects nest no deeper, found out without recursion.
fn depth_is_within(value: &Value, most: usize) -> bool {
    let mut todo = vec![(value, 0)];
    while let Some((value, depth)) = todo.pop() {
        if depth > most {
            return false;
        }
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => todo.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    true
}
