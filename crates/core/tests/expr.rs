//! Runs the tables in `expr/*.txt`: one expression per line, with its exact result.
//!
//! A line is `surface | text | values | => result`. Values are a name from [`bindings`], or inline JSON whose keys are
//! roots (`input`, `item`, `steps`, …). A result is JSON, or an error as formatted by [`parse_words`] and
//! [`eval_words`]. In type tables (`surface:ty`) the values are schemas, and the result is the type and the issues
//! found.

// Helpers outside test functions are test code too, which clippy does not detect in this folder.
#![allow(clippy::unwrap_used)]

#[path = "expr/bounds.rs"]
mod bounds;
#[path = "expr/built.rs"]
mod built;
#[path = "expr/soup.rs"]
mod soup;
#[path = "expr/support.rs"]
mod support;

use serde_json::Value;
use skein_core::expr::{EvalError, Expr, ExprParseError, InferredType, TypeIssueLevel};
use skein_core::terms::WorkflowTerms;
use support::{Schemas, Values, parse};

const TABLES: &[(&str, &str)] = &[
    ("aip15.txt", include_str!("expr/aip15.txt")),
    ("swdl.txt", include_str!("expr/swdl.txt")),
    ("ioa.txt", include_str!("expr/ioa.txt")),
    ("meaning.txt", include_str!("expr/meaning.txt")),
    ("types.txt", include_str!("expr/types.txt")),
];

#[test]
fn tables_hold() {
    let (mut lines, mut wrong) = (0, Vec::new());
    for (table, text) in TABLES {
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            lines += 1;
            if let Err(actual) = run(line) {
                wrong.push(format!("{table}:{}: {line}\n    gives => {actual}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {lines} lines:\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines >= 150, "only {lines} lines");
}

fn run(line: &str) -> Result<(), String> {
    let columns: Vec<&str> = line.split(" | ").map(str::trim).collect();
    let [surface, text, values, result] = columns.as_slice() else { return Err("not four columns".into()) };
    let expected = result.strip_prefix("=>").ok_or("no `=>`")?.trim();
    let values = support::bindings(values)?;
    let actual = match surface.strip_suffix(":ty") {
        Some(surface) => match parse(surface, text) {
            Ok(expr) => typed_words(&expr.infer_type(&Schemas(values))),
            Err(error) => parse_words(&error),
        },
        None => match parse(surface, text) {
            Ok(expr) => evaluate(&expr, &Values(values)),
            Err(error) => parse_words(&error),
        },
    };
    if actual == expected { Ok(()) } else { Err(actual) }
}

/// Evaluates the expression as parsed and as decoded from its JSON; the results must be equal.
fn evaluate(expr: &Expr, values: &Values) -> String {
    let text = serde_json::to_string(expr).unwrap();
    let back: Expr = serde_json::from_str(&text).unwrap();
    assert_eq!(*expr, back, "{text}");
    let result = expr.eval(values);
    assert_eq!(result, back.eval(values));
    match result {
        Ok(value) => {
            let truth = expr.eval_bool(values).unwrap();
            assert_eq!(
                truth,
                !matches!(value.to_string().as_str(), "null" | "false" | "0" | "0.0" | "-0.0" | "\"\"" | "[]" | "{}")
            );
            value.to_string()
        }
        Err(error) => eval_words(&error),
    }
}

fn place(at: &str, span: impl ToString) -> String {
    if at.is_empty() { span.to_string() } else { format!("{at} {}", span.to_string()) }
}

fn parse_words(error: &ExprParseError) -> String {
    let hint = error.hint(&WorkflowTerms::IR).map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("parse {}: {error}{hint}", place(&error.at, error.span))
}

fn eval_words(error: &EvalError) -> String {
    format!("eval {}: {error}", place(&error.at, error.span))
}

fn typed_words(typed: &InferredType) -> String {
    let mut words = typed.ty.to_string();
    for issue in &typed.issues {
        let level = if issue.level == TypeIssueLevel::Error { "error" } else { "warning" };
        words.push_str(&format!("; {level} {}: {}", place(&issue.at, issue.span), issue.message));
    }
    words
}

/// Data that looks like an expression is only text: results are never evaluated again.
#[test]
fn results_are_not_scanned() {
    let values = support::bindings(r#"{"input": {"x": "${{ parameters.y }} $input.y", "y": "secret"}}"#).unwrap();
    let inert = Value::from("${{ parameters.y }} $input.y");
    let surfaces = [
        ("swdl-template", "${{ parameters.x }}"),
        ("swdl-template", "${{ parameters.x && parameters.x }}"),
        ("swdl-template", "${{ fromJSON(toJSON(parameters.x)) }}"),
        ("aip-value", "\"$input.x\""),
        ("aip", "$input.x"),
        ("ioa", "payload.x"),
    ];
    for (surface, text) in surfaces {
        assert_eq!(parse(surface, text).unwrap().eval(&Values(values.clone())).unwrap(), inert, "{text}");
    }
    let around = parse("swdl-template", "<${{ parameters.x }}>").unwrap().eval(&Values(values));
    assert_eq!(around.unwrap(), "<${{ parameters.y }} $input.y>");
}
