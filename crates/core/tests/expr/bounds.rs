//! Each bound: just below it, at it, just above it.

use serde_json::{Value, json};
use skein_core::expr::{EvalErrorKind, Expr, ExprParseErrorKind, ExprShapeError};
use skein_core::limits::{
    EXPRESSION_BYTES, EXPRESSION_DEPTH, EXPRESSION_FUEL, EXPRESSION_NODES, EXPRESSION_RESULT, EXPRESSION_TEXT,
    VALUE_DEPTH,
};

use crate::support::{Values, parse};

fn values(input: Value) -> Values {
    Values([("input".to_owned(), input)].into_iter().collect())
}

fn parse_kind(surface: &str, text: &str) -> Option<ExprParseErrorKind> {
    parse(surface, text).err().map(|error| error.kind)
}

fn eval_kind(text: &str, input: Value) -> Option<EvalErrorKind> {
    parse("swdl-template", text).unwrap().eval(&values(input)).err().map(|error| error.kind)
}

fn too_deep() -> Option<ExprParseErrorKind> {
    Some(ExprParseErrorKind::Shape(ExprShapeError::TooDeep))
}

#[test]
fn source() {
    for (size, error) in [
        (EXPRESSION_BYTES - 1, None),
        (EXPRESSION_BYTES, None),
        (EXPRESSION_BYTES + 1, Some(ExprParseErrorKind::SourceTooLong(EXPRESSION_BYTES + 1))),
    ] {
        let text = format!("'{}'", "x".repeat(size - 2));
        for surface in ["aip", "swdl", "ioa"] {
            assert_eq!(parse_kind(surface, &text), error, "{surface} {size}");
        }
        assert_eq!(parse_kind("swdl-template", &format!("around ${{{{{text}}}}} it")), error, "{size}");
        let path = format!("\"$input.{}\"", "x".repeat(size - 7));
        assert_eq!(parse_kind("aip-value", &path), error, "{size}");
    }
}

#[test]
fn template_text() {
    for (size, error) in [
        (EXPRESSION_TEXT - 1, None),
        (EXPRESSION_TEXT, None),
        (EXPRESSION_TEXT + 1, Some(ExprParseErrorKind::TextTooLong(EXPRESSION_TEXT + 1))),
    ] {
        let text = format!("{}${{{{ parameters.n }}}}", "x".repeat(size - 19));
        assert_eq!(text.len(), size);
        assert_eq!(parse_kind("swdl-template", &text), error, "{size}");
    }
}

#[test]
fn depth() {
    for (depth, error) in [(EXPRESSION_DEPTH - 1, None), (EXPRESSION_DEPTH, None), (EXPRESSION_DEPTH + 1, too_deep())] {
        let n = depth - 1;
        let wrapped = |open: &str, close: &str| format!("{}1{}", open.repeat(n), close.repeat(n));
        for surface in ["aip", "swdl", "ioa"] {
            assert_eq!(parse_kind(surface, &wrapped("!", "")), error, "{surface} {depth}");
            assert_eq!(parse_kind(surface, &wrapped("(", ")")), error, "{surface} {depth}");
        }
        assert_eq!(parse_kind("swdl", &wrapped("toJSON(", ")")), error, "{depth}");
        assert_eq!(parse_kind("swdl", &wrapped("1?2:", "")), error, "{depth}");
        assert_eq!(parse_kind("swdl", &wrapped("1?", ":2")), error, "{depth}");
        assert_eq!(parse_kind("aip", &format!("1{}", "==1".repeat(n))), error, "{depth}");
        assert_eq!(parse_kind("aip", &format!("1{}", "<1".repeat(n))), error, "{depth}");
    }
}

/// A chain of `&&` or `||` is one node however long it is, and only the source length bounds it.
#[test]
fn chains_are_flat() {
    let long = format!("1{}", "&&1".repeat(1_000));
    assert_eq!(parse("aip", &long).unwrap().eval(&values(Value::Null)).unwrap(), 1);
    let long = format!("0{}", "||0".repeat(1_000));
    assert_eq!(parse("swdl", &long).unwrap().eval(&values(Value::Null)).unwrap(), 0);
}

#[test]
fn bombs() {
    assert!(parse_kind("swdl", &"!".repeat(10_000)).is_some());
    assert_eq!(parse_kind("swdl", &"!".repeat(EXPRESSION_BYTES)), too_deep());
    assert_eq!(parse_kind("swdl", &"(".repeat(EXPRESSION_BYTES)), too_deep());
    assert_eq!(parse_kind("swdl", &"1?".repeat(EXPRESSION_BYTES / 2)), too_deep());
    assert_eq!(parse_kind("swdl", &"toJSON(".repeat(EXPRESSION_BYTES / 7)), too_deep());
    // Each toJSON escapes the quotes of the inner one, which doubles the text.
    let doubling = format!("${{{{ {}'\"'{} }}}}", "toJSON(".repeat(30), ")".repeat(30));
    let error = eval_kind(&doubling, Value::Null);
    assert!(matches!(error, Some(EvalErrorKind::TooLarge | EvalErrorKind::OutOfFuel)), "{error:?}");
}

#[test]
fn nodes() {
    for (n, error) in [
        (EXPRESSION_NODES - 1, None),
        (EXPRESSION_NODES, None),
        (EXPRESSION_NODES + 1, Some(ExprParseErrorKind::Shape(ExprShapeError::TooManyNodes))),
    ] {
        // The template is a node too.
        let text = "${{run}}".repeat(n - 1);
        assert_eq!(parse_kind("swdl-template", &text), error, "{n}");
    }
}

#[test]
fn result() {
    for (size, error) in [
        (EXPRESSION_RESULT - 1, None),
        (EXPRESSION_RESULT, None),
        (EXPRESSION_RESULT + 1, Some(EvalErrorKind::TooLarge)),
    ] {
        // Two bytes are quotes, and a newline takes two too.
        let text = format!("{}\n", "x".repeat(size - 4));
        assert_eq!(eval_kind("${{ parameters }}", json!(text)), error, "{size}");
        assert_eq!(eval_kind("${{ fromJSON(toJSON(parameters)) }}", json!("x".repeat(1_000))), None);
        let list = json!([1, "x".repeat(size - 6)]);
        assert_eq!(eval_kind("${{ parameters }}", list.clone()), error, "{size}");
        assert_eq!(eval_kind("${{ length(toJSON(parameters)) }}", list), error, "{size}");
        // {"a\n":["…",1]}
        let made = parse("aip-value", r#"{"a\n": ["$input", 1]}"#).unwrap();
        let made = made.eval(&values(json!("x".repeat(size - 14)))).map(|value| value.to_string().len());
        assert_eq!(made.map_err(|error| error.kind), error.map_or(Ok(size), Err), "{size}");
    }
}

/// Intermediate text counts too, even if none of it is left in the result.
#[test]
fn text_on_the_way() {
    for (size, error) in [
        (EXPRESSION_RESULT - 1, None),
        (EXPRESSION_RESULT, None),
        (EXPRESSION_RESULT + 1, Some(EvalErrorKind::TooLarge)),
    ] {
        let expr = Expr::template([Expr::input(["a"]), Expr::literal("tail").unwrap()]).unwrap();
        let expr = Expr::call(skein_core::expr::ExprFunction::Length, [expr]).unwrap();
        let result = expr.eval(&values(json!({"a": "x".repeat(size - 4)})));
        assert_eq!(result.as_ref().err().map(|error| error.kind.clone()), error, "{size}");
        assert_eq!(result.ok().and_then(|n| n.as_u64()), error.is_none().then_some(size as u64));
    }
}

/// Objects are bounded as a whole, not by field.
#[test]
fn sums_of_results() {
    let half = "x".repeat(EXPRESSION_RESULT / 2);
    let two = parse("aip-value", r#"{"a": "$input", "b": "$input"}"#).unwrap();
    let error = two.eval(&values(json!(half))).unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::TooLarge);
    let three = parse("aip-value", r#"[["$input"], ["$input"]]"#).unwrap();
    assert_eq!(three.eval(&values(json!(half))).unwrap_err().kind, EvalErrorKind::TooLarge);
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

#[test]
fn result_depth() {
    for (depth, error) in
        [(VALUE_DEPTH - 1, None), (VALUE_DEPTH, None), (VALUE_DEPTH + 1, Some(EvalErrorKind::TooDeep))]
    {
        assert_eq!(eval_kind("${{ parameters }}", nested(depth)), error, "{depth}");
        assert_eq!(eval_kind("${{ toJSON(parameters) }}", nested(depth)), error, "{depth}");
        let around = parse("aip-value", r#"{"a": ["$input"]}"#).unwrap();
        let result = around.eval(&values(nested(depth - 2))).err().map(|error| error.kind);
        assert_eq!(result, error, "{depth}");
    }
    assert_eq!(eval_kind("${{ parameters == parameters }}", nested(1_000)), None);
}

/// A visit costs 256, an element 16 and a byte 1; the budget is 256 times the fuel.
#[test]
fn fuel() {
    let spare = EXPRESSION_FUEL * 256 - 3 * 256;
    for (cost, error) in [(spare - 1, None), (spare, None), (spare + 1, Some(EvalErrorKind::OutOfFuel))] {
        let text = "x".repeat(usize::try_from(cost).unwrap() - 1);
        assert_eq!(eval_kind("${{ contains(parameters, 'y') }}", json!(text)), error, "{cost}");
    }
    let fitting = usize::try_from(spare).unwrap() / 16;
    for (n, error) in [(fitting - 1, None), (fitting, None), (fitting + 1, Some(EvalErrorKind::OutOfFuel))] {
        assert_eq!(eval_kind("${{ contains(parameters, 1) }}", json!(vec![0; n])), error, "{n}");
    }
}

/// The largest expression in which everything counts stays within the bounds.
#[test]
fn a_full_template_is_affordable() {
    let text = format!("{}${{{{ parameters }}}}", "x".repeat(EXPRESSION_TEXT / 2));
    assert_eq!(eval_kind(&text, json!("y".repeat(EXPRESSION_RESULT / 2 - 2))), None);
}

#[test]
fn decoding_refuses_what_is_out_of_bounds() {
    let node = |depth: usize| {
        let leaf = r#"{"op":"literal","span":[0,0],"value":1}"#;
        let open = r#"{"op":"not","span":[0,0],"of":"#.repeat(depth - 1);
        format!(r#"{{"source":"","node":{open}{leaf}{}}}"#, "}".repeat(depth - 1))
    };
    for (depth, fits) in [(EXPRESSION_DEPTH - 1, true), (EXPRESSION_DEPTH, true), (EXPRESSION_DEPTH + 1, false)] {
        assert_eq!(serde_json::from_str::<Expr>(&node(depth)).is_ok(), fits, "{depth}");
    }
    // Depths at the limit of the JSON reader and far beyond it: an error, without a stack overflow.
    for depth in [100, 125, 126, 127, 128, 10_000] {
        assert!(serde_json::from_str::<Expr>(&node(depth)).is_err(), "{depth}");
    }
}

#[test]
fn decoding_refuses_what_no_parser_makes() {
    for (node, why) in [
        (r#"{"op":"and","span":[0,0],"of":[]}"#, "at least two"),
        (r#"{"op":"call","span":[0,0],"function":"length","args":[]}"#, "takes 1 argument"),
        (r#"{"op":"literal","span":[0,9],"value":1}"#, "outside its source"),
        (r#"{"op":"literal","span":[1,0],"value":1}"#, "outside its source"),
        (r#"{"op":"literal","span":[0,0],"value":1,"more":1}"#, "unknown field"),
        (r#"{"op":"eval","span":[0,0]}"#, "unknown variant"),
        (r#"{"op":"call","span":[0,0],"function":"system","args":[]}"#, "unknown variant"),
        (
            r#"{"op":"object","span":[0,0],"fields":{"a":{"source":"","node":{"op":"array","span":[0,0],"items":[]}},"a":{"source":"","node":{"op":"array","span":[0,0],"items":[]}}}}"#,
            "duplicate field",
        ),
    ] {
        let error = serde_json::from_str::<Expr>(&format!(r#"{{"source":"é","node":{node}}}"#)).unwrap_err();
        assert!(error.to_string().contains(why), "{node}: {error}");
    }
}

/// Everything that a parser accepts can be written as JSON and read back, also at the maximum depth.
#[test]
fn the_deepest_value_round_trips() {
    let deepest = |leaf: &str| {
        let mut value = json!(leaf);
        let mut last = None;
        while let Ok(expr) = skein_core::expr::swdl::parse_value(&value, skein_core::expr::swdl::SwdlExprScope::Stage) {
            last = Some(expr);
            value = json!([value]);
        }
        last.unwrap()
    };
    let full = format!("${{{{ {}run{} }}}}!", "toJSON(".repeat(31), ")".repeat(31));
    for leaf in ["${{ run }}", "text", full.as_str()] {
        let expr = deepest(leaf);
        let text = serde_json::to_string(&expr).unwrap();
        // The embedding document may use some levels itself.
        let embedded = format!("{}{text}{}", "[".repeat(10), "]".repeat(10));
        assert!(serde_json::from_str::<Value>(&embedded).is_ok(), "{leaf}");
        assert_eq!(serde_json::from_str::<Expr>(&text).unwrap(), expr, "{leaf}");
    }
}

#[test]
fn hopelessly_deep_values_are_refused() {
    // Taken apart by hand, because dropping it at once would overflow the stack.
    let mut value = nested(5_000);
    assert!(skein_core::expr::aip15::parse_value(&value).is_err());
    while let Value::Array(items) = &mut value {
        value = items.pop().unwrap_or(Value::Null);
    }
}
