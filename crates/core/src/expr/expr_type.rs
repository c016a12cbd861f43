//! Owns the static types of values and of expressions, and finds expressions that can never work before anything runs.
//! Does not guess: where a type is unknown, nothing is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use crate::expr::{
    ast::{self, CompareOp, Expr, ExprFunction, ExprNode, ReferenceRoot, TemplatePiece},
    eval::parse_index,
    lex::ExprSpan,
    swdl,
};

/// Maximum schema levels that are followed; anything deeper is [`ExprType::Any`].
const MAX_LEVELS: usize = 32;

/// Maximum alternatives that are told apart; a union of more is [`ExprType::Any`].
const MAX_ALTERNATIVES: usize = 16;

/// A set of values. Cheap to clone, since every expression of a workflow may refer to one large object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprType {
    /// Nothing is known.
    Any,
    Null,
    Bool,
    Int,
    /// Any number, including integers.
    Number,
    String,
    Array(Box<ExprType>),
    /// Known fields; `open` if there may be others. A field that may be absent may be null.
    Object {
        fields: Arc<BTreeMap<String, ExprType>>,
        open: bool,
    },
    /// Two or more of the others, never nested and never [`ExprType::Any`].
    OneOf(Vec<ExprType>),
}

/// The answer to whether a value fits, as far as it is known before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeFit {
    Yes,
    No,
    Unknown,
}

/// The coarse kinds of values in a type, as a set of bits.
mod kind {
    pub(super) const NULL: u8 = 1;
    pub(super) const BOOL: u8 = 2;
    pub(super) const NUMBER: u8 = 4;
    pub(super) const STRING: u8 = 8;
    pub(super) const ARRAY: u8 = 16;
    pub(super) const OBJECT: u8 = 32;
    pub(super) const ALL: u8 = 63;
}

impl ExprType {
    /// Returns the type that a JSON Schema guarantees, from `type`, `enum`, `const`, `properties`, `required`,
    /// `additionalProperties` and `items`. Other keywords can only narrow it, and are ignored.
    pub fn from_schema(schema: &Value) -> ExprType {
        type_from_schema(schema, MAX_LEVELS)
    }

    /// Returns the type of a value.
    pub fn from_value(value: &Value) -> ExprType {
        type_from_value(value, MAX_LEVELS)
    }

    /// Returns the union of both types.
    pub fn union(self, other: ExprType) -> ExprType {
        if self == ExprType::Any || other == ExprType::Any {
            return ExprType::Any;
        }
        let mut all = self.alternatives().to_vec();
        for ty in other.alternatives() {
            if !all.contains(ty) {
                all.push(ty.clone());
            }
        }
        if all.contains(&ExprType::Number) {
            all.retain(|ty| *ty != ExprType::Int);
        }
        match all.len() {
            1 => all.swap_remove(0),
            n if n > MAX_ALTERNATIVES => ExprType::Any,
            _ => ExprType::OneOf(all),
        }
    }

    fn alternatives(&self) -> &[ExprType] {
        match self {
            ExprType::OneOf(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    fn kind_bits(&self) -> u8 {
        match self {
            ExprType::Any => kind::ALL,
            ExprType::Null => kind::NULL,
            ExprType::Bool => kind::BOOL,
            ExprType::Int | ExprType::Number => kind::NUMBER,
            ExprType::String => kind::STRING,
            ExprType::Array(_) => kind::ARRAY,
            ExprType::Object { .. } => kind::OBJECT,
            ExprType::OneOf(all) => all.iter().fold(0, |kinds, ty| kinds | ty.kind_bits()),
        }
    }

    /// Returns the fit of values of `given` to this type: yes if all fit, no if none does, otherwise unknown.
    pub fn accepts(&self, given: &ExprType) -> TypeFit {
        match (self, given) {
            (ExprType::Any, _) => TypeFit::Yes,
            (_, ExprType::Any) => TypeFit::Unknown,
            (_, ExprType::OneOf(all)) => all_fit(all.iter().map(|given| self.accepts(given))),
            (ExprType::OneOf(all), _) => any_fits(all.iter().map(|ty| ty.accepts(given))),
            (ExprType::Number, ExprType::Int) => TypeFit::Yes,
            (ExprType::Int, ExprType::Number) => TypeFit::Unknown,
            (ExprType::Array(wanted), ExprType::Array(given)) => match wanted.accepts(given) {
                // An empty array has no item that would not fit.
                TypeFit::No => TypeFit::Unknown,
                fit => fit,
            },
            (ExprType::Object { fields, open }, ExprType::Object { fields: given, open: more }) => {
                accepts_fields((fields, *open), (given, *more))
            }
            _ if self == given => TypeFit::Yes,
            _ => TypeFit::No,
        }
    }
}

type FieldTypes = BTreeMap<String, ExprType>;

fn accepts_fields((wanted, open): (&FieldTypes, bool), (given, more): (&FieldTypes, bool)) -> TypeFit {
    let mut fit = TypeFit::Yes;
    for (name, ty) in wanted {
        let one = match given.get(name) {
            Some(given) => ty.accepts(given),
            None if more => ty.accepts(&ExprType::Any),
            None => ty.accepts(&ExprType::Null),
        };
        match one {
            TypeFit::No => return TypeFit::No,
            TypeFit::Unknown => fit = TypeFit::Unknown,
            TypeFit::Yes => {}
        }
    }
    let surplus = more || given.keys().any(|name| !wanted.contains_key(name));
    if !open && surplus { TypeFit::Unknown } else { fit }
}

/// All must fit; yes and no together are unknown.
fn all_fit(fits: impl Iterator<Item = TypeFit>) -> TypeFit {
    fits.reduce(|a, b| if a == b { a } else { TypeFit::Unknown }).unwrap_or(TypeFit::Unknown)
}

/// At least one must fit.
fn any_fits(fits: impl Iterator<Item = TypeFit>) -> TypeFit {
    fits.reduce(|a, b| match (a, b) {
        (TypeFit::Yes, _) | (_, TypeFit::Yes) => TypeFit::Yes,
        (TypeFit::No, TypeFit::No) => TypeFit::No,
        _ => TypeFit::Unknown,
    })
    .unwrap_or(TypeFit::Unknown)
}

fn type_from_schema(schema: &Value, levels: usize) -> ExprType {
    if levels == 0 {
        return ExprType::Any;
    }
    if let Some(value) = schema.get("const") {
        return type_from_value(value, levels);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return union_all(values.iter().map(|value| type_from_value(value, levels)));
    }
    match schema.get("type") {
        Some(Value::String(name)) => type_from_keyword(name, schema, levels),
        Some(Value::Array(names)) => union_all(
            names
                .iter()
                .map(|name| name.as_str().map_or(ExprType::Any, |name| type_from_keyword(name, schema, levels))),
        ),
        _ => ExprType::Any,
    }
}

fn type_from_keyword(name: &str, schema: &Value, levels: usize) -> ExprType {
    match name {
        "null" => ExprType::Null,
        "boolean" => ExprType::Bool,
        "integer" => ExprType::Int,
        "number" => ExprType::Number,
        "string" => ExprType::String,
        "array" => {
            let items = schema.get("items").map_or(ExprType::Any, |items| type_from_schema(items, levels - 1));
            // Tuples give their first items other types.
            ExprType::Array(Box::new(if schema.get("prefixItems").is_some() { ExprType::Any } else { items }))
        }
        "object" => object_from_schema(schema, levels),
        _ => ExprType::Any,
    }
}

fn object_from_schema(schema: &Value, levels: usize) -> ExprType {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
    let mut fields = BTreeMap::new();
    for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let ty = type_from_schema(schema, levels - 1);
        fields.insert(name.clone(), if required.contains(name.as_str()) { ty } else { ty.union(ExprType::Null) });
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    ExprType::Object { fields: Arc::new(fields), open: !closed || schema.get("patternProperties").is_some() }
}

fn type_from_value(value: &Value, levels: usize) -> ExprType {
    if levels == 0 {
        return ExprType::Any;
    }
    match value {
        Value::Null => ExprType::Null,
        Value::Bool(_) => ExprType::Bool,
        Value::Number(n) if n.is_f64() => ExprType::Number,
        Value::Number(_) => ExprType::Int,
        Value::String(_) => ExprType::String,
        Value::Array(items) => {
            ExprType::Array(Box::new(union_all(items.iter().map(|item| type_from_value(item, levels - 1)))))
        }
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| (name.clone(), type_from_value(value, levels - 1)));
            ExprType::Object { fields: Arc::new(fields.collect()), open: false }
        }
    }
}

/// Returns the union of all these types, or [`ExprType::Any`] if there are none.
fn union_all(mut all: impl Iterator<Item = ExprType>) -> ExprType {
    let Some(mut ty) = all.next() else { return ExprType::Any };
    for other in all {
        if ty == ExprType::Any {
            break;
        }
        ty = ty.union(other);
    }
    ty
}

/// The type as messages name it.
impl std::fmt::Display for ExprType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ExprType::Any => "anything",
            ExprType::Null => "null",
            ExprType::Bool => "a boolean",
            ExprType::Int => "a whole number",
            ExprType::Number => "a number",
            ExprType::String => "a string",
            ExprType::Array(_) => "an array",
            ExprType::Object { .. } => "an object",
            ExprType::OneOf(all) => {
                let words: Vec<String> = all.iter().map(ExprType::to_string).collect();
                return f.write_str(&words.join(" or "));
            }
        })
    }
}

/// The types of the roots.
pub trait TypeEnv {
    fn ty_of(&self, root: &ReferenceRoot) -> ExprType;
}

/// The type of an expression, and the issues found while inferring it.
#[derive(Clone, Debug, PartialEq)]
pub struct InferredType {
    pub ty: ExprType,
    /// In source order.
    pub issues: Vec<TypeIssue>,
}

/// A mistake, or something that works but may not be intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeIssue {
    pub level: TypeIssueLevel,
    /// Within the source of the expression that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that expression; empty for the whole.
    pub at: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeIssueLevel {
    /// Evaluation fails or reads nothing.
    Error,
    /// Evaluation works, but perhaps not as intended.
    Warning,
}

impl Expr {
    /// Infers the type of the value that evaluation would return.
    pub fn infer_type(&self, env: &dyn TypeEnv) -> InferredType {
        let mut checker = TypeChecker { env, source: self.source(), at: String::new(), issues: Vec::new() };
        let ty = checker.infer_node(self.node());
        InferredType { ty, issues: checker.issues }
    }
}

struct TypeChecker<'a> {
    env: &'a dyn TypeEnv,
    source: &'a str,
    at: String,
    issues: Vec<TypeIssue>,
}

impl<'a> TypeChecker<'a> {
    fn report_issue(&mut self, level: TypeIssueLevel, span: ExprSpan, message: String) {
        self.issues.push(TypeIssue { level, span, at: self.at.clone(), message });
    }

    fn infer_member(&mut self, name: &str, expr: &'a Expr) -> ExprType {
        let outer = (self.source, std::mem::take(&mut self.at));
        (self.source, self.at) = (expr.source(), ast::append_segment(&outer.1, name));
        let ty = self.infer_node(expr.node());
        (self.source, self.at) = outer;
        ty
    }

    fn infer_node(&mut self, node: &'a ExprNode) -> ExprType {
        match node {
            ExprNode::Literal { value, .. } => ExprType::from_value(&value.to_value()),
            ExprNode::Ref { span, root, path, lenient_outputs } => {
                self.infer_reference(root, path, *lenient_outputs, *span)
            }
            ExprNode::Not { of, .. } => {
                self.infer_node(of);
                ExprType::Bool
            }
            // Any operand may be the result.
            ExprNode::And { of, .. } | ExprNode::Or { of, .. } => {
                let types: Vec<ExprType> = of.iter().map(|node| self.infer_node(node)).collect();
                union_all(types.into_iter())
            }
            ExprNode::Compare { span, by, left, right } => self.infer_comparison(*by, left, right, *span),
            ExprNode::Cond { test, then, otherwise, .. } => {
                self.infer_node(test);
                let then = self.infer_node(then);
                then.union(self.infer_node(otherwise))
            }
            ExprNode::Call { function, args, .. } => self.infer_call(*function, args),
            ExprNode::Template { pieces, .. } => {
                for piece in pieces {
                    if let TemplatePiece::Node(node) = piece {
                        self.infer_node(node);
                    }
                }
                ExprType::String
            }
            ExprNode::Object { fields, .. } => {
                let fields = fields.iter().map(|(key, expr)| (key.clone(), self.infer_member(key, expr)));
                ExprType::Object { fields: Arc::new(fields.collect()), open: false }
            }
            ExprNode::Array { items, .. } => {
                let types: Vec<ExprType> =
                    items.iter().enumerate().map(|(i, expr)| self.infer_member(&i.to_string(), expr)).collect();
                ExprType::Array(Box::new(union_all(types.into_iter())))
            }
        }
    }

    fn infer_reference(&mut self, root: &ReferenceRoot, path: &[String], lenient: bool, span: ExprSpan) -> ExprType {
        let mut ty = self.env.ty_of(root);
        // An output that is not known to have the key is assumed not to have it, since most outputs have none.
        let has_outputs =
            |ty: &ExprType| matches!(ty, ExprType::Object { fields, .. } if fields.contains_key("outputs"));
        let outputs = (lenient && ty.alternatives().iter().any(has_outputs)).then_some("outputs");
        for name in outputs.into_iter().chain(path.iter().map(String::as_str)) {
            ty = match step_into(&ty, name) {
                Ok(inner) => inner,
                Err(message) => {
                    self.report_issue(TypeIssueLevel::Error, span, message);
                    return ExprType::Null;
                }
            };
        }
        ty
    }

    fn infer_comparison(&mut self, by: CompareOp, left: &'a ExprNode, right: &'a ExprNode, span: ExprSpan) -> ExprType {
        let (a, b) = (self.infer_node(left), self.infer_node(right));
        if matches!(by, CompareOp::Eq | CompareOp::Ne) {
            let source = self.source;
            let written = |node: &ExprNode| node.span().slice_text(source).filter(|s| !s.is_empty()).map(str::to_owned);
            if let Some(message) = swdl::status_remark(left, right, written) {
                self.report_issue(TypeIssueLevel::Warning, span, message);
            } else if a.kind_bits() & b.kind_bits() == 0 && a != ExprType::Null && b != ExprType::Null {
                let (sign, always) = (by.sign(), by == CompareOp::Ne);
                self.report_issue(
                    TypeIssueLevel::Warning,
                    span,
                    format!("`{sign}` is always {always}: {a} is never {b}"),
                );
            }
            return ExprType::Bool;
        }
        if a.kind_bits() & b.kind_bits() & (kind::NUMBER | kind::STRING) == 0 {
            let sign = by.sign();
            self.report_issue(
                TypeIssueLevel::Error,
                span,
                format!("`{sign}` orders two numbers or two strings, not {a} and {b}"),
            );
        } else if let Some(word) = alphabetic_literal(left).or(alphabetic_literal(right)) {
            self.report_issue(
                TypeIssueLevel::Warning,
                span,
                format!("`{word}` is compared alphabetically, not by its meaning"),
            );
        }
        ExprType::Bool
    }

    fn infer_call(&mut self, function: ExprFunction, args: &'a [ExprNode]) -> ExprType {
        let types: Vec<ExprType> = args.iter().map(|arg| self.infer_node(arg)).collect();
        let (takes, words) = match function {
            ExprFunction::Length => (kind::STRING | kind::ARRAY | kind::OBJECT, "a string, an array or an object"),
            ExprFunction::Contains => (kind::STRING | kind::ARRAY, "a string or an array to look in"),
            ExprFunction::ToJson => (kind::ALL, "anything"),
            ExprFunction::FromJson => (kind::STRING, "a string"),
        };
        if let (Some(ty), Some(arg)) = (types.first(), args.first()) {
            self.check_argument(function, ty, arg, takes, words);
        }
        if let ([ExprType::String, part], [_, arg]) = (types.as_slice(), args) {
            self.check_argument(function, part, arg, kind::STRING, "a string to look for in a string");
        }
        match function {
            ExprFunction::Length => ExprType::Int,
            ExprFunction::Contains => ExprType::Bool,
            ExprFunction::ToJson => ExprType::String,
            ExprFunction::FromJson => ExprType::Any,
        }
    }

    fn check_argument(&mut self, function: ExprFunction, ty: &ExprType, arg: &ExprNode, takes: u8, words: &str) {
        if ty.kind_bits() & takes == 0 {
            self.report_issue(
                TypeIssueLevel::Error,
                arg.span(),
                format!("`{}` takes {words}, not {ty}", function.name()),
            );
        }
    }
}

/// Returns a literal string of letters only. Ordering such strings is seldom intended.
fn alphabetic_literal(node: &ExprNode) -> Option<&str> {
    match node {
        ExprNode::Literal { value, .. } => {
            value.as_str().filter(|text| !text.is_empty() && text.chars().all(char::is_alphabetic))
        }
        _ => None,
    }
}

/// Returns the type after one more name of a path, or the reason why there is none. Null leads to null.
fn step_into(ty: &ExprType, name: &str) -> Result<ExprType, String> {
    match ty {
        ExprType::Any => Ok(ExprType::Any),
        ExprType::Null => Ok(ExprType::Null),
        ExprType::Bool | ExprType::Int | ExprType::Number | ExprType::String => {
            Err(format!("{ty} has no field `{name}`"))
        }
        ExprType::Array(item) if parse_index(name).is_some() => Ok(item.as_ref().clone().union(ExprType::Null)),
        ExprType::Array(_) => Err(format!("an array has no field `{name}`")),
        ExprType::Object { fields, open } => match fields.get(name) {
            Some(ty) => Ok(ty.clone()),
            None if *open => Ok(ExprType::Any),
            None => Err(unknown_field_message(fields.keys(), name)),
        },
        ExprType::OneOf(all) => step_into_any(all, name),
    }
}

/// If at least one of several types has the name, the others read as null. If no type other than null has it, that is a
/// mistake.
fn step_into_any(all: &[ExprType], name: &str) -> Result<ExprType, String> {
    let (mut found, mut wrong) = (Vec::new(), None);
    for ty in all.iter().filter(|ty| **ty != ExprType::Null) {
        match step_into(ty, name) {
            Ok(ty) => found.push(ty),
            Err(message) => wrong = Some(message),
        }
    }
    match wrong {
        Some(message) if found.is_empty() => Err(message),
        _ => {
            let others_read_null = found.len() < all.len();
            let ty = union_all(found.into_iter());
            Ok(if others_read_null { ty.union(ExprType::Null) } else { ty })
        }
    }
}

fn unknown_field_message<'a>(known: impl Iterator<Item = &'a String>, name: &str) -> String {
    let known: Vec<&str> = known.take(20).map(String::as_str).collect();
    if known.is_empty() {
        return format!("there is no field `{name}`; the object has no fields");
    }
    format!("there is no field `{name}`; known fields: {}", known.join(", "))
}
