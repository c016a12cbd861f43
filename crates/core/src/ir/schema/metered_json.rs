//! JSON values that count how often a validator reads them.
//!
//! Owns the budget of one validation: every access to a value takes steps from it, and the access that would exceed it
//! unwinds to [`run_within_budget`]. The count depends on schema and value alone, so that a run decides the same on
//! every machine. `resume_unwind` calls no panic hook: nothing is printed.

use std::{
    borrow::Cow,
    cell::Cell,
    cmp::Ordering,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jsonschema::{
    JsonType,
    json::{Array, Json, Node, NodeIdentity, Object, cmp},
};
use serde_json::{Map, Number, Value};

/// The number of bytes that cost as much to read as one access to a value.
const BYTES_PER_STEP: u64 = 64;
/// The number of bytes times regex states that cost as much as one access to a value.
const MATCH_UNITS_PER_STEP: u64 = 1_000;
/// The number of comparisons of two scalars that cost as much as one access to a value.
const COMPARISONS_PER_STEP: u64 = 8;
/// The largest value, in nodes, that an error message quotes.
const QUOTED_NODES: usize = 256;

/// The cost of matching text against the patterns of a schema, in regex states per byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MatchCosts {
    /// Of the most expensive `pattern` or `format`.
    pub(super) per_string: u64,
    /// Of all `patternProperties` together.
    pub(super) per_member_name: u64,
}

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static MATCH_COSTS: Cell<MatchCosts> = const {
        Cell::new(MatchCosts { per_string: 0, per_member_name: 0 })
    };
}

/// The budget of a validation is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// Runs a validation with a budget of steps on this thread.
pub(super) fn run_within_budget<T>(
    steps: u64,
    costs: MatchCosts,
    validate: impl FnOnce() -> T,
) -> Result<T, BudgetExceeded> {
    STEPS_LEFT.set(steps);
    MATCH_COSTS.set(costs);
    let outcome = catch_unwind(AssertUnwindSafe(validate));
    STEPS_LEFT.set(u64::MAX);
    outcome.map_err(|payload| match payload.downcast::<BudgetExceeded>() {
        Ok(exceeded) => *exceeded,
        Err(panic) => resume_unwind(panic),
    })
}

fn charge(steps: u64) {
    match STEPS_LEFT.get().checked_sub(steps) {
        Some(left) => STEPS_LEFT.set(left),
        None => resume_unwind(Box::new(BudgetExceeded)),
    }
}

fn charge_for_text(text: &str) {
    charge(1 + text.len() as u64 / BYTES_PER_STEP);
}

fn charge_for_match(text: &str, states: u64) {
    charge((text.len() as u64).saturating_mul(states) / MATCH_UNITS_PER_STEP);
}

/// The JSON representation that counts.
pub(super) struct MeteredJson;

/// A value that counts accesses to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredNode<'a>(pub(super) &'a Value);

#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredArray<'a>(&'a [Value]);

impl Json for MeteredJson {
    type Node<'a> = MeteredNode<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(MeteredNode<'_>) -> T) -> T {
        charge_for_text(string);
        *buffer = Value::String(string.to_owned());
        f(MeteredNode(buffer))
    }
}

impl<'a> Node<'a, MeteredJson> for MeteredNode<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        charge(1);
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        charge(1);
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        charge(1);
        let text = self.0.as_str()?;
        charge_for_text(text);
        charge_for_match(text, MATCH_COSTS.get().per_string);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        charge(1);
        match self.0 {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        charge(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        charge(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        charge(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        charge(1);
        let text = self.0.as_str()?;
        charge_for_text(text);
        Some(text.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        are_equal(self.0, expected)
    }

    /// Returns the value itself, or a placeholder for a large one. Only for error messages, which are shortened.
    fn to_value(&self) -> Cow<'a, Value> {
        match count_nodes(self.0, QUOTED_NODES) {
            Some(_) => Cow::Borrowed(self.0),
            None => Cow::Owned(Value::String("(a large value)".to_owned())),
        }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

/// The members of an object, each with the cost of matching its name.
pub(super) struct MeteredMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, MeteredNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        charge_for_text(name);
        charge_for_match(name, MATCH_COSTS.get().per_member_name);
        Some((name.as_str(), MeteredNode(value)))
    }
}

impl<'a> Object<'a, MeteredJson> for MeteredObject<'a> {
    type Node = MeteredNode<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredNode<'a>> {
        charge_for_text(key);
        self.0.get(key.as_str()).map(MeteredNode)
    }

    fn members(&self) -> MeteredMembers<'a> {
        charge(1);
        MeteredMembers(self.0.iter())
    }
}

/// The elements of an array.
pub(super) struct MeteredElements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredElements<'a> {
    type Item = MeteredNode<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = self.0.next()?;
        charge(1);
        Some(MeteredNode(value))
    }
}

impl<'a> Array<'a, MeteredJson> for MeteredArray<'a> {
    type Node = MeteredNode<'a>;
    type ElementsIter = MeteredElements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> MeteredElements<'a> {
        charge(1);
        MeteredElements(self.0.iter())
    }

    /// Sorts, so that no choice of values makes it compare every pair.
    fn is_unique(&self) -> bool {
        let count = self.0.len() as u64;
        charge(1 + count * u64::from(count.max(1).ilog2()) / COMPARISONS_PER_STEP);
        let mut items: Vec<&Value> = self.0.iter().collect();
        items.sort_unstable_by(|a, b| compare_values(a, b));
        items.windows(2).all(|pair| compare_values(pair[0], pair[1]) != Ordering::Equal)
    }
}

fn are_equal(a: &Value, b: &Value) -> bool {
    charge(1);
    match (a, b) {
        (Value::String(a), Value::String(b)) => {
            if a.len() == b.len() {
                charge_for_text(a);
            }
            a == b
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            let same = |(name, a): (&String, &Value)| {
                charge_for_text(name);
                b.get(name).is_some_and(|b| are_equal(a, b))
            };
            a.len() == b.len() && a.iter().all(same)
        }
        _ => cmp::equal(a, b),
    }
}

/// A total order of values in which values that JSON Schema considers equal are equal. The caller that sorts pays for
/// comparing scalars.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => {
            charge(a.len().min(b.len()) as u64 / BYTES_PER_STEP);
            a.cmp(b)
        }
        (Value::Array(a), Value::Array(b)) => {
            let compare_charged = |(a, b)| {
                charge(1);
                compare_values(a, b)
            };
            let mut orders = a.iter().zip(b).map(compare_charged);
            let items = || orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
            a.len().cmp(&b.len()).then_with(items)
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            let (a, b) = (sort_members(a), sort_members(b));
            let pairs = a.into_iter().zip(b);
            let mut orders = pairs.map(|(a, b)| a.0.cmp(b.0).then_with(|| compare_values(a.1, b.1)));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        }
        (Value::Object(a), Value::Object(b)) => a.len().cmp(&b.len()),
        _ => type_rank(a).cmp(&type_rank(b)),
    }
}

fn sort_members(object: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<(&String, &Value)> = object.iter().collect();
    for (name, _) in &members {
        charge_for_text(name);
    }
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

fn type_rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let float = |number: &Number| number.as_f64().unwrap_or_default();
    match (to_integer(a), to_integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // At most one is an integer, so that they are not equal unless both are the same fraction.
        _ => float(a).total_cmp(&float(b)),
    }
}

/// Returns the number as an integer, also if it is written as `1.0`.
fn to_integer(number: &Number) -> Option<i128> {
    const LARGEST: f64 = 1e38;
    let written = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < LARGEST);
    written.or_else(|| float().map(|float| float as i128))
}

/// Returns the number of nodes and pieces of text of a value, unless there are more than `most`.
fn count_nodes(value: &Value, most: usize) -> Option<usize> {
    let mut todo = vec![value];
    let mut count = 0;
    while let Some(value) = todo.pop() {
        count += 1;
        match value {
            Value::String(text) => count += text.len() / BYTES_PER_STEP as usize,
            Value::Array(items) => todo.extend(items.iter().take(most + 1)),
            Value::Object(members) => {
                todo.extend(members.values().take(most + 1));
                count += members.keys().take(most + 1).map(|name| name.len()).sum::<usize>() / BYTES_PER_STEP as usize;
            }
            _ => {}
        }
        if count + todo.len() > most {
            charge(most as u64);
            return None;
        }
    }
    charge(count as u64);
    Some(count)
}
