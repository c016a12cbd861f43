//! Owns type inference, and finding expressions that can never work before anything runs. Does not guess: where a type
//! is unknown, nothing is reported.

use std::sync::Arc;

use super::ast::{CompareOp, Expr, ExprFunction, ExprNode, ReferenceRoot, TemplatePiece};
use super::expr_type::{ExprType, kind, union_all};
use super::lex::ExprSpan;
use super::ops::parse_index;
use super::pointer;
use super::swdl;

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
        (self.source, self.at) = (expr.source(), pointer::append_segment(&outer.1, name));
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
