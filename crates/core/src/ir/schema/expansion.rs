//! The shape of a schema: the part of its cost that does not depend on the value, the estimated cost of its regular
//! expressions, and the preparation that makes every visit count.
//!
//! A validator counts steps where it reads the value ([`super::metered_json`]). [`prepare_schema`] ensures that it
//! reads the value each time it visits a subschema. It refuses schemas whose subschemas refer to one another so often,
//! or so deeply, that a single value would take too long.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{ir::schema::metered_json::MatchCosts, limits};

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is an object of schemas.
const NAMED_SCHEMAS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords whose schemas apply to the same value as the schema that they are in.
const IN_PLACE: [&str; 7] = ["allOf", "anyOf", "else", "if", "not", "oneOf", "then"];
const IN_PLACE_NAMED: [&str; 2] = ["dependencies", "dependentSchemas"];
const REFERENCES: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$ref"];
/// The cost of a `format` whose check compiles the text as a regex.
const REGEX_FORMAT_STATES: u64 = 1_000_000;

/// The `type` that accepts every value.
pub(super) const ALL_TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Removes from a message the text that [`prepare_schema`] added to the quoted schema.
pub(super) fn remove_preparation(message: &str) -> String {
    let added = format!("\"type\":{}", json!(ALL_TYPES));
    message.replace(&format!(",{added}"), "").replace(&added, "")
}

/// A schema that is ready to be compiled.
#[derive(Debug)]
pub(super) struct PreparedSchema {
    pub(super) document: Value,
    pub(super) costs: MatchCosts,
    /// The levels of subschemas for each level of a value; none if the schema itself bounds them.
    pub(super) levels: Option<usize>,
}

/// The reason why a schema is refused for any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpansionError(pub(super) String);

/// Prepares a schema for a validator that counts its steps.
pub(super) fn prepare_schema(document: &Value) -> Result<PreparedSchema, ExpansionError> {
    let mut survey = SchemaExpansion::new(document);
    survey.visit_all()?;
    survey.measure_all()?;
    let costs = survey.match_costs()?;
    let levels = survey.measures.values().flatten().map(|measure| measure.levels).max();
    let bounded = survey.measure_depth(document, 0) <= limits::SCHEMA_STACK;
    Ok(PreparedSchema { document: survey.rebuild(document), costs, levels: levels.filter(|_| !bounded) })
}

/// The address of a part of the document, which identifies it.
type SchemaPartId = *const Value;

struct SchemaExpansion<'a> {
    /// The roots of resources. References are resolved against each of them, which at worst finds too many targets.
    roots: Vec<&'a Value>,
    anchors: BTreeMap<&'a str, Vec<&'a Value>>,
    /// The subschemas that were found.
    schemas: BTreeMap<SchemaPartId, &'a Map<String, Value>>,
    todo: Vec<&'a Value>,
    references: BTreeSet<&'a str>,
    /// The number of in-place visits and levels of a subschema; none while it is being measured.
    measures: BTreeMap<SchemaPartId, Option<ExpansionMeasure>>,
    /// The levels of a subschema with its contents; more than any limit if it refers to itself.
    depths: BTreeMap<SchemaPartId, usize>,
}

/// The visits of subschemas that one visit leads to for the same value.
#[derive(Debug, Clone, Copy, Default)]
struct ExpansionMeasure {
    visits: usize,
    levels: usize,
}

impl<'a> SchemaExpansion<'a> {
    fn new(document: &'a Value) -> SchemaExpansion<'a> {
        SchemaExpansion {
            roots: vec![document],
            anchors: BTreeMap::new(),
            schemas: BTreeMap::new(),
            todo: vec![document],
            references: BTreeSet::new(),
            measures: BTreeMap::new(),
            depths: BTreeMap::new(),
        }
    }

    /// Finds all subschemas: those at known places, and those that are referred to.
    fn visit_all(&mut self) -> Result<(), ExpansionError> {
        loop {
            while let Some(value) = self.todo.pop() {
                self.visit_schema(value)?;
            }
            let found: Vec<&Value> =
                self.references.iter().flat_map(|reference| self.resolve_reference(reference)).collect();
            self.todo.extend(
                found
                    .into_iter()
                    .filter(|value| value.is_object() && !self.schemas.contains_key(&std::ptr::from_ref(*value))),
            );
            if self.todo.is_empty() {
                return Ok(());
            }
        }
    }

    fn visit_schema(&mut self, value: &'a Value) -> Result<(), ExpansionError> {
        let Some(schema) = value.as_object() else { return Ok(()) };
        if self.schemas.insert(value, schema).is_some() {
            return Ok(());
        }
        for (keyword, part) in schema {
            let keyword = keyword.as_str();
            match part {
                Value::String(text) if keyword == "$id" || keyword == "id" => match text.strip_prefix('#') {
                    Some(anchor) => self.anchors.entry(anchor).or_default().push(value),
                    None => self.add_root(value)?,
                },
                Value::String(anchor) if keyword == "$anchor" || keyword == "$dynamicAnchor" => {
                    self.anchors.entry(anchor).or_default().push(value);
                }
                Value::String(reference) if REFERENCES.contains(&keyword) => {
                    self.references.insert(reference);
                }
                _ => {}
            }
        }
        self.todo.extend(find_subschemas(schema, &SCHEMAS, &NAMED_SCHEMAS));
        Ok(())
    }

    fn add_root(&mut self, value: &'a Value) -> Result<(), ExpansionError> {
        if !self.roots.iter().any(|root| std::ptr::eq(*root, value)) {
            self.roots.push(value);
        }
        if self.roots.len() > limits::SCHEMA_RESOURCES {
            return Err(ExpansionError(format!("more than {} `$id`s", limits::SCHEMA_RESOURCES)));
        }
        Ok(())
    }

    /// Returns all possible targets of a reference.
    fn resolve_reference(&self, reference: &str) -> Vec<&'a Value> {
        let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        let fragment = decode_percent(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.roots.iter().filter_map(|root| root.pointer(&fragment)).collect();
        }
        self.anchors.get(fragment.as_str()).cloned().unwrap_or_default()
    }

    fn measure_all(&mut self) -> Result<(), ExpansionError> {
        let all: Vec<SchemaPartId> = self.schemas.keys().copied().collect();
        all.into_iter().try_for_each(|id| self.measure_visits(id, 0).map(drop))
    }

    /// Returns the visits that a visit of this subschema leads to for the same value.
    fn measure_visits(&mut self, id: SchemaPartId, level: usize) -> Result<ExpansionMeasure, ExpansionError> {
        const LEAF: ExpansionMeasure = ExpansionMeasure { visits: 1, levels: 1 };
        let too_deep = || {
            let most = limits::SCHEMA_LEVELS;
            ExpansionError(format!("subschemas apply inside one another more than {most} levels deep"))
        };
        let Some(schema) = self.schemas.get(&id).copied() else { return Ok(LEAF) };
        match self.measures.get(&id) {
            Some(Some(known)) => return Ok(*known),
            // A reference to an enclosing schema for the same value: validators break such cycles.
            Some(None) => return Ok(LEAF),
            None => {}
        }
        if level > limits::SCHEMA_LEVELS {
            return Err(too_deep());
        }
        self.measures.insert(id, None);
        let mut sum = LEAF;
        for part in find_subschemas(schema, &IN_PLACE, &IN_PLACE_NAMED) {
            let inner = self.measure_visits(part, level + 1)?;
            sum.visits = sum.visits.saturating_add(inner.visits);
            sum.levels = sum.levels.max(inner.levels + 1);
        }
        for reference in REFERENCES.iter().filter_map(|keyword| schema.get(*keyword)?.as_str()) {
            let mut most = ExpansionMeasure::default();
            for target in self.resolve_reference(reference) {
                let inner = self.measure_visits(target, level + 1)?;
                most.visits = most.visits.max(inner.visits);
                most.levels = most.levels.max(inner.levels);
            }
            sum.visits = sum.visits.saturating_add(most.visits);
            sum.levels = sum.levels.max(most.levels + 1);
        }
        if sum.levels > limits::SCHEMA_LEVELS {
            return Err(too_deep());
        }
        if sum.visits > limits::SCHEMA_EXPANSION {
            let most = limits::SCHEMA_EXPANSION;
            return Err(ExpansionError(format!("one value would be checked by more than {most} subschemas")));
        }
        self.measures.insert(id, Some(sum));
        Ok(sum)
    }

    /// Returns the maximum levels that a validator can be inside this subschema, for any value.
    fn measure_depth(&mut self, id: SchemaPartId, level: usize) -> usize {
        let Some(schema) = self.schemas.get(&id).copied() else { return 1 };
        if let Some(known) = self.depths.get(&id) {
            return *known;
        }
        if level > limits::SCHEMA_STACK {
            return usize::MAX;
        }
        self.depths.insert(id, usize::MAX);
        let references = REFERENCES.iter().filter_map(|keyword| schema.get(*keyword)?.as_str());
        let mut inner: Vec<&Value> = references.flat_map(|reference| self.resolve_reference(reference)).collect();
        inner.extend(find_subschemas(schema, &SCHEMAS, &NAMED_SCHEMAS));
        let deepest = inner.into_iter().map(|part| self.measure_depth(part, level + 1)).max();
        let depth = deepest.unwrap_or(0).saturating_add(1);
        self.depths.insert(id, depth);
        depth
    }

    /// Returns the costs of its patterns.
    fn match_costs(&self) -> Result<MatchCosts, ExpansionError> {
        let mut costs = MatchCosts::default();
        let mut compiled: u64 = 0;
        for schema in self.schemas.values() {
            if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
                let PatternCost { states, matching } = estimate_pattern(pattern);
                compiled = compiled.saturating_add(states);
                costs.per_string = costs.per_string.max(matching);
            }
            if schema.get("format").is_some_and(|format| format == "regex") {
                costs.per_string = costs.per_string.max(REGEX_FORMAT_STATES);
            }
            let patterns = schema.get("patternProperties").and_then(Value::as_object);
            for pattern in patterns.into_iter().flat_map(Map::keys) {
                let PatternCost { states, matching } = estimate_pattern(pattern);
                compiled = compiled.saturating_add(states);
                costs.per_member_name = costs.per_member_name.saturating_add(matching);
            }
        }
        match compiled > limits::SCHEMA_PATTERN_STATES {
            true => Err(ExpansionError("its patterns are too large".to_owned())),
            false => Ok(costs),
        }
    }

    /// Returns the document with a `type` in each subschema that has none: validators read it first.
    fn rebuild(&self, part: &Value) -> Value {
        match part {
            Value::Array(items) => Value::Array(items.iter().map(|item| self.rebuild(item)).collect()),
            Value::Object(members) => {
                let rebuilt = members.iter().map(|(name, part)| (name.clone(), self.rebuild(part)));
                let mut rebuilt: Map<String, Value> = rebuilt.collect();
                if self.schemas.contains_key(&std::ptr::from_ref(part)) && !rebuilt.contains_key("type") {
                    rebuilt.insert("type".to_owned(), json!(ALL_TYPES));
                }
                Value::Object(rebuilt)
            }
            scalar => scalar.clone(),
        }
    }
}

/// Returns the parts of a schema that are schemas, by the keywords that may hold them.
fn find_subschemas<'a>(schema: &'a Map<String, Value>, direct: &[&str], named: &[&str]) -> Vec<&'a Value> {
    let mut found = Vec::new();
    for (keyword, part) in schema {
        match part {
            Value::Array(items) if direct.contains(&keyword.as_str()) => found.extend(items),
            Value::Object(members) if named.contains(&keyword.as_str()) => found.extend(members.values()),
            part if direct.contains(&keyword.as_str()) => found.push(part),
            _ => {}
        }
    }
    found
}

/// Decodes a fragment of a URI. Invalid encodings stay as they are.
fn decode_percent(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                decoded.push(code);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// States of a character class, whose characters are several bytes each.
const CLASS_STATES: u64 = 10;
/// States of a class of the Unicode tables.
const UNICODE_STATES: u64 = 500;
/// The factor for patterns that backtrack.
const BACKTRACKING: u64 = 1_000;

/// The cost of one regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PatternCost {
    /// The approximate number of states that it compiles to.
    states: u64,
    /// The work for each byte of the text, in states.
    matching: u64,
}

/// A part of a pattern in parentheses: its total, and its last element, to which a repetition applies.
#[derive(Debug, Clone, Copy, Default)]
struct PatternGroup {
    total: u64,
    last: u64,
}

impl PatternGroup {
    fn add_states(&mut self, states: u64) {
        self.total = self.total.saturating_add(states);
        self.last = states;
    }

    fn repeat_last(&mut self, times: u64) {
        let repeated = self.last.saturating_mul(times.max(1));
        self.total = self.total.saturating_add(repeated - self.last);
        self.last = repeated;
    }
}

/// Estimates the cost of a regular expression. Accepts invalid ones, too.
fn estimate_pattern(pattern: &str) -> PatternCost {
    let bytes = pattern.as_bytes();
    let (mut group, mut around, mut backtracks) = (PatternGroup::default(), Vec::new(), false);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at + 1..];
        at += 1;
        match byte {
            b'\\' => {
                at += 1;
                match rest.first() {
                    Some(b'p' | b'P') => {
                        group.add_states(UNICODE_STATES);
                        let name = rest.get(1).is_some_and(|byte| *byte == b'{');
                        at += rest.iter().position(|byte| *byte == b'}').filter(|_| name).unwrap_or(0);
                    }
                    Some(b'd' | b'D' | b'w' | b'W' | b's' | b'S') => group.add_states(CLASS_STATES),
                    Some(b'1'..=b'9' | b'k') => {
                        backtracks = true;
                        group.add_states(1);
                    }
                    _ => group.add_states(1),
                }
            }
            b'[' => {
                let length = class_length(rest);
                let class = &rest[..length];
                let unicode = class.windows(2).filter(|pair| matches!(pair, [b'\\', b'p' | b'P'])).count() as u64;
                group.add_states(CLASS_STATES + length as u64 + unicode.saturating_mul(UNICODE_STATES));
                at += length + 1;
            }
            b'.' => group.add_states(CLASS_STATES),
            b'(' => {
                backtracks |=
                    [&b"?="[..], b"?!", b"?<=", b"?<!", b"?>", b"?("].iter().any(|mark| rest.starts_with(mark));
                around.push(std::mem::take(&mut group));
            }
            b')' => {
                let inner = group.total;
                group = around.pop().unwrap_or_default();
                group.add_states(inner.saturating_add(1));
            }
            b'{' => match parse_repetition(rest) {
                Some((times, length)) => {
                    group.repeat_last(times);
                    at += length;
                }
                None => group.add_states(1),
            },
            _ => group.add_states(1),
        }
    }
    let unclosed = around.iter().map(|group| group.total).fold(group.total, u64::saturating_add);
    let states = unclosed.max(CLASS_STATES);
    PatternCost { states, matching: if backtracks { states.saturating_mul(BACKTRACKING) } else { states } }
}

/// Returns the length of a character class before its closing bracket, in bytes.
fn class_length(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b']' if at > 0 => return at,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the maximum count of a repetition such as `2,5}`, and its length in bytes.
fn parse_repetition(rest: &[u8]) -> Option<(u64, usize)> {
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    let number = |text: &str| match text {
        "" => Some(0),
        text => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().unwrap_or(u64::MAX)),
    };
    let (least, most) = text.split_once(',').unwrap_or((text, text));
    let times = number(least)?.saturating_add(1).max(number(most)?);
    (!text.is_empty()).then_some((times, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_pattern_grows_with_its_repetitions() {
        let states = |pattern| estimate_pattern(pattern).states;
        assert!(states("^[a-z]+$") < 50);
        assert!(states(r"^\d{4}-\d{2}-\d{2}$") < 200);
        assert!(states("[ab]*a[ab]{1000}") > 10_000);
        assert!(states("((a{100}){100}){100}") > 1_000_000);
        assert!(states("(((((a{9999999999}){9999999999}") > 1_000_000);
        assert!(states(r"\p{L}{100}") >= 50_000);
    }

    #[test]
    fn patterns_that_backtrack_cost_more() {
        let matching = |pattern| estimate_pattern(pattern).matching;
        assert!(matching("^(?=.*[A-Z]).+$") > 10_000);
        assert!(matching(r"(a+)\1") >= 10_000);
        assert!(matching("^(a+)+$") < 100);
        for odd in ["", "[", "[]", "(", ")", "{", "a{", "a{}", "a{,}", "\\", "[\\", "(?"] {
            estimate_pattern(odd);
        }
    }
}
