//! Conditions of fires: the declared condition and filter, evaluated over the payload.

use serde_json::Value;

use super::definition::TriggerDefinition;
use crate::expr::{EvalError, ExprEnv, ReferenceRoot, RootLookup};

/// The environment of a trigger's condition: the payload, and nothing else.
struct PayloadEnv<'a>(&'a Value);

impl ExprEnv for PayloadEnv<'_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        match root {
            ReferenceRoot::Input => RootLookup::Found(std::borrow::Cow::Borrowed(self.0)),
            _ => RootLookup::Absent,
        }
    }
}

/// True if the filter and the condition of a trigger hold for a payload.
pub(super) fn holds_for(definition: &TriggerDefinition, payload: &Value) -> Result<bool, EvalError> {
    let filtered = definition.filter.iter().all(|(path, wanted)| {
        let found = path.split('.').try_fold(payload, |value, name| value.get(name)).unwrap_or(&Value::Null);
        match wanted {
            Value::Array(any) => any.iter().any(|wanted| is_equal(found, wanted)),
            wanted => is_equal(found, wanted),
        }
    });
    if !filtered {
        return Ok(false);
    }
    definition.condition.as_ref().map_or(Ok(true), |condition| condition.eval_bool(&PayloadEnv(payload)))
}

/// True if two values have the same type and are equal. Numbers are compared by value.
fn is_equal(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) => found.as_f64() == wanted.as_f64(),
        _ => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        expr,
        schedule::{TriggerKey, TriggerSource},
    };

    fn definition(filter: Value, condition: Option<&str>) -> TriggerDefinition {
        let source = TriggerSource::Event { event: "paid".into() };
        let mut definition = TriggerDefinition::new(TriggerKey::new("k"), "w", source);
        definition.filter = serde_json::from_value(filter).unwrap();
        definition.condition = condition.map(|text| expr::ioa::parse_condition(text).unwrap());
        definition
    }

    #[test]
    fn a_filter_compares_by_type_and_accepts_lists() {
        let payload = json!({"order": {"state": "paid", "count": 2.0, "tags": ["a"]}});
        let holds = |filter| holds_for(&definition(filter, None), &payload).unwrap();
        assert!(holds(json!({})) && holds(json!({"order.state": "paid", "order.count": 2})));
        assert!(holds(json!({"order.state": ["open", "paid"]})) && holds(json!({"order.missing": null})));
        assert!(!holds(json!({"order.count": "2"})) && !holds(json!({"order.state": ["open"]})));
        assert!(!holds(json!({"order.state": "paid", "order.count": 3})) && !holds(json!({"order.state.deep": "x"})));
    }

    #[test]
    fn a_condition_reads_the_payload() {
        let payload = json!({"risk": 0.8});
        let holds = |text| holds_for(&definition(json!({}), Some(text)), &payload);
        assert_eq!((holds("risk >= 0.7"), holds("payload.risk >= 0.9")), (Ok(true), Ok(false)));
        assert!(holds("risk >= 'high'").is_err());
    }
}
