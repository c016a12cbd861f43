//! Owns finding out what type an expression has, and what in it can never work, before anything runs.
//! Refuses to guess: where a type is unknown nothing is said.

use std::sync::Arc;

use super::ast::{CompareOp, Expr, Function, Node, Piece, Root};
use super::ops::place;
use super::pointer;
use super::span::Span;
use super::status;
use super::ty::{Ty, kind, one_of};

/// What is known of the roots.
pub trait TypeEnv {
    fn ty_of(&self, root: &Root) -> Ty;
}

/// An expression's type and what was found on the way to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    pub ty: Ty,
    /// In the order in which they are written.
    pub issues: Vec<Issue>,
}

/// A mistake, or something that works but should be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    pub level: Level,
    /// Within the source of the expression that `at` points to.
    pub span: Span,
    /// JSON pointer to that expression; empty for the whole.
    pub at: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// If it is evaluated, it fails or reads nothing.
    Error,
    /// It works, though perhaps not as meant.
    Warning,
}

impl Expr {
    /// The type of the value that evaluation would give.
    pub fn ty(&self, env: &dyn TypeEnv) -> Typed {
        let mut checker = Checker { env, source: self.source(), at: String::new(), issues: Vec::new() };
        let ty = checker.node(self.node());
        Typed { ty, issues: checker.issues }
    }
}

struct Checker<'a> {
    env: &'a dyn TypeEnv,
    source: &'a str,
    at: String,
    issues: Vec<Issue>,
}

impl<'a> Checker<'a> {
    fn report(&mut self, level: Level, span: Span, message: String) {
        self.issues.push(Issue { level, span, at: self.at.clone(), message });
    }

    fn member(&mut self, name: &str, expr: &'a Expr) -> Ty {
        let outer = (self.source, std::mem::take(&mut self.at));
        (self.source, self.at) = (expr.source(), pointer::append(&outer.1, name));
        let ty = self.node(expr.node());
        (self.source, self.at) = outer;
        ty
    }

    fn node(&mut self, node: &'a Node) -> Ty {
        match node {
            Node::Literal { value, .. } => Ty::of_value(&value.value()),
            Node::Ref { span, root, path, lenient_outputs } => {
                self.reference(root, path, *lenient_outputs, *span)
            }
            Node::Not { of, .. } => {
                self.node(of);
                Ty::Bool
            }
            // Any operand may be the one that is given back.
            Node::And { of, .. } | Node::Or { of, .. } => {
                let types: Vec<Ty> = of.iter().map(|node| self.node(node)).collect();
                one_of(types.into_iter())
            }
            Node::Compare { span, by, left, right } => self.compare(*by, left, right, *span),
            Node::Cond { test, then, otherwise, .. } => {
                self.node(test);
                let then = self.node(then);
                then.or(self.node(otherwise))
            }
            Node::Call { function, args, .. } => self.call(*function, args),
            Node::Template { pieces, .. } => {
                for piece in pieces {
                    if let Piece::Node(node) = piece {
                        self.node(node);
                    }
                }
                Ty::String
            }
            Node::Object { fields, .. } => {
                let fields = fields.iter().map(|(key, expr)| (key.clone(), self.member(key, expr)));
                Ty::Object { fields: Arc::new(fields.collect()), open: false }
            }
            Node::Array { items, .. } => {
                let types: Vec<Ty> =
                    items.iter().enumerate().map(|(i, expr)| self.member(&i.to_string(), expr)).collect();
                Ty::Array(Box::new(one_of(types.into_iter())))
            }
        }
    }

    fn reference(&mut self, root: &Root, path: &[String], lenient: bool, span: Span) -> Ty {
        let mut ty = self.env.ty_of(root);
        // An output that is not known to have the key is taken to have none, as outputs mostly do.
        let has_outputs = |ty: &Ty| matches!(ty, Ty::Object { fields, .. } if fields.contains_key("outputs"));
        let outputs = (lenient && ty.alternatives().iter().any(has_outputs)).then_some("outputs");
        for name in outputs.into_iter().chain(path.iter().map(String::as_str)) {
            ty = match step_into(&ty, name) {
                Ok(inner) => inner,
                Err(message) => {
                    self.report(Level::Error, span, message);
                    return Ty::Null;
                }
            };
        }
        ty
    }

    fn compare(&mut self, by: CompareOp, left: &'a Node, right: &'a Node, span: Span) -> Ty {
        let (a, b) = (self.node(left), self.node(right));
        if matches!(by, CompareOp::Eq | CompareOp::Ne) {
            let source = self.source;
            let written = |node: &Node| node.span().of(source).filter(|s| !s.is_empty()).map(str::to_owned);
            if let Some(message) = status::remark(left, right, written) {
                self.report(Level::Warning, span, message);
            } else if a.kinds() & b.kinds() == 0 && a != Ty::Null && b != Ty::Null {
                let (sign, always) = (by.sign(), by == CompareOp::Ne);
                self.report(Level::Warning, span, format!("`{sign}` is always {always}: {a} is never {b}"));
            }
            return Ty::Bool;
        }
        if a.kinds() & b.kinds() & (kind::NUMBER | kind::STRING) == 0 {
            let sign = by.sign();
            self.report(
                Level::Error,
                span,
                format!("`{sign}` orders two numbers or two strings, not {a} and {b}"),
            );
        } else if let Some(word) = word(left).or(word(right)) {
            self.report(
                Level::Warning,
                span,
                format!("`{word}` is ordered by its letters, not by what it means"),
            );
        }
        Ty::Bool
    }

    fn call(&mut self, function: Function, args: &'a [Node]) -> Ty {
        let types: Vec<Ty> = args.iter().map(|arg| self.node(arg)).collect();
        let (takes, words) = match function {
            Function::Length => {
                (kind::STRING | kind::ARRAY | kind::OBJECT, "a string, an array or an object")
            }
            Function::Contains => (kind::STRING | kind::ARRAY, "a string or an array to look in"),
            Function::ToJson => (kind::ALL, "anything"),
            Function::FromJson => (kind::STRING, "a string"),
        };
        if let (Some(ty), Some(arg)) = (types.first(), args.first()) {
            self.argument(function, ty, arg, takes, words);
        }
        if let ([Ty::String, part], [_, arg]) = (types.as_slice(), args) {
            self.argument(function, part, arg, kind::STRING, "a string to look for in a string");
        }
        match function {
            Function::Length => Ty::Int,
            Function::Contains => Ty::Bool,
            Function::ToJson => Ty::String,
            Function::FromJson => Ty::Any,
        }
    }

    fn argument(&mut self, function: Function, ty: &Ty, arg: &Node, takes: u8, words: &str) {
        if ty.kinds() & takes == 0 {
            self.report(Level::Error, arg.span(), format!("`{}` takes {words}, not {ty}", function.name()));
        }
    }
}

/// A literal string of nothing but letters, whose order is seldom what is meant.
fn word(node: &Node) -> Option<&str> {
    match node {
        Node::Literal { value, .. } => {
            value.as_str().filter(|text| !text.is_empty() && text.chars().all(char::is_alphabetic))
        }
        _ => None,
    }
}

/// The type behind one more name of a path, or why there is nothing there. Null leads to null.
fn step_into(ty: &Ty, name: &str) -> Result<Ty, String> {
    match ty {
        Ty::Any => Ok(Ty::Any),
        Ty::Null => Ok(Ty::Null),
        Ty::Bool | Ty::Int | Ty::Number | Ty::String => Err(format!("{ty} has no field `{name}`")),
        Ty::Array(item) if place(name).is_some() => Ok(item.as_ref().clone().or(Ty::Null)),
        Ty::Array(_) => Err(format!("an array has no field `{name}`")),
        Ty::Object { fields, open } => match fields.get(name) {
            Some(ty) => Ok(ty.clone()),
            None if *open => Ok(Ty::Any),
            None => Err(unknown_field(fields.keys(), name)),
        },
        Ty::OneOf(all) => step_into_any(all, name),
    }
}

/// One of several types has it: then the others read as null. None of those that are not null: a mistake.
fn step_into_any(all: &[Ty], name: &str) -> Result<Ty, String> {
    let (mut found, mut wrong) = (Vec::new(), None);
    for ty in all.iter().filter(|ty| **ty != Ty::Null) {
        match step_into(ty, name) {
            Ok(ty) => found.push(ty),
            Err(message) => wrong = Some(message),
        }
    }
    match wrong {
        Some(message) if found.is_empty() => Err(message),
        _ => {
            let others_read_null = found.len() < all.len();
            let ty = one_of(found.into_iter());
            Ok(if others_read_null { ty.or(Ty::Null) } else { ty })
        }
    }
}

fn unknown_field<'a>(known: impl Iterator<Item = &'a String>, name: &str) -> String {
    let known: Vec<&str> = known.take(20).map(String::as_str).collect();
    if known.is_empty() {
        return format!("there is no field `{name}`, nor any other");
    }
    format!("there is no field `{name}`; there is {}", known.join(", "))
}
