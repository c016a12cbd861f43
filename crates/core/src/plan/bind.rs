//! The parameters of one run: defaults filled in, names and values checked.

use std::sync::Arc;

use serde_json::Value;

use super::{
    ContentHash,
    definition::{Plan, PlanDefinition},
    problem::{FieldPath, PlanField, PlanProblem, ProblemCode, ProblemLocation},
    schemas::{declared_names, is_unknown_parameter},
};
use crate::{
    ir::{Schema, SchemaError, rules::PolicyPrincipal, value_levels},
    limits,
    terms::WorkflowTerms,
    time::Timestamp,
};

impl PlanDefinition {
    /// Returns the plan of a run that this principal starts at this time, with these parameters: an object, or null for
    /// none. The policies of its steps are judged here, once for the whole run.
    pub fn bind_for(
        self: &Arc<Self>,
        parameters: Value,
        principal: &PolicyPrincipal,
        now: Timestamp,
    ) -> Result<Plan, Vec<PlanProblem>> {
        self.with_rulings(self.judge(principal, now)).bind(parameters)
    }

    /// Returns the plan of a run with these parameters. The rulings stay as they are: steps with policies that have not
    /// been judged may not start.
    pub fn bind(self: &Arc<Self>, parameters: Value) -> Result<Plan, Vec<PlanProblem>> {
        self.bind_with_terms(parameters, &WorkflowTerms::IR)
    }

    /// Like [`bind`](Self::bind), with problems in the terms of a format.
    pub fn bind_with_terms(
        self: &Arc<Self>,
        parameters: Value,
        terms: &WorkflowTerms,
    ) -> Result<Plan, Vec<PlanProblem>> {
        let mut parameters = match parameters {
            Value::Null => Value::Object(serde_json::Map::new()),
            given => given,
        };
        // Checked before anything recurses over the value.
        if value_levels(&parameters) > limits::VALUE_DEPTH + 1 {
            let message = format!("{}s nest at most {} levels deep", terms.parameter, limits::VALUE_DEPTH);
            return Err(vec![parameters_problem(message)]);
        }
        let schema = &self.root().workflow.inputs;
        schema.fill_defaults(&mut parameters);
        let problems = check_parameters(schema, &parameters, terms);
        if !problems.is_empty() {
            return Err(problems);
        }
        // The order in which they were given has no meaning.
        if let Some(object) = parameters.as_object_mut() {
            object.sort_keys();
        }
        Ok(self.plan_with_parameters(Arc::new(parameters)))
    }

    /// Returns the plan for parameters that were bound before.
    pub fn plan_with_parameters(self: &Arc<Self>, parameters: Arc<Value>) -> Plan {
        let hash = ContentHash::hash_json(&(self.hash(), &parameters));
        Plan { definition: self.clone(), parameters, hash }
    }
}

fn check_parameters(schema: &Schema, parameters: &Value, terms: &WorkflowTerms) -> Vec<PlanProblem> {
    let parameter = terms.parameter;
    let Some(given) = parameters.as_object() else {
        let message = format!("{parameter}s must be an object of names and values");
        return vec![parameters_problem(message)];
    };
    let size = parameters.to_string().len();
    if size > limits::VALUE_BYTES {
        let message = format!("{parameter}s have at most {} bytes, these have {size}", limits::VALUE_BYTES);
        return vec![parameters_problem(message).with_hint("put large data into a file and give its path")];
    }
    let missing = schema.required_properties().filter(|name| !given.contains_key(*name)).map(|name| {
        let message = format!("the {parameter} `{name}` is missing");
        PlanProblem::new(ProblemCode::MissingParameter, parameter_location(name), message)
    });
    let unknown = given.keys().filter(|name| is_unknown_parameter(schema, name));
    let unknown = unknown.map(|name| {
        let message = format!("there is no {parameter} `{name}`");
        PlanProblem::new(ProblemCode::UnknownParameter, parameter_location(name), message)
            .with_suggestion(name, declared_names(schema))
    });
    let mut problems: Vec<PlanProblem> = missing.chain(unknown).collect();
    // The schema would report missing and unknown parameters again, for the whole object.
    let reported = !problems.is_empty();
    let of_the_whole = |error: &SchemaError| matches!(error, SchemaError::Value { at, .. } if at.is_empty());
    let wrong = schema.check_all(parameters).into_iter().filter(|error| !(reported && of_the_whole(error)));
    problems.extend(wrong.map(value_problem));
    problems
}

/// Returns a problem of the parameters as a whole.
fn parameters_problem(message: String) -> PlanProblem {
    PlanProblem::new(ProblemCode::BadParameter, ProblemLocation::from_field(PlanField::Parameters), message)
}

fn parameter_location(name: &str) -> ProblemLocation {
    ProblemLocation::from_field(FieldPath::from(PlanField::Parameters).name(name))
}

fn value_problem(error: SchemaError) -> PlanProblem {
    match error {
        SchemaError::Value { at, message } => {
            let at = ProblemLocation::from_field(FieldPath::from(PlanField::Parameters).pointer(&at));
            PlanProblem::new(ProblemCode::BadParameter, at, message)
        }
        SchemaError::Schema { message, .. } => {
            PlanProblem::new(ProblemCode::BadSchema, ProblemLocation::from_field(PlanField::Inputs), message)
        }
    }
}
