//! Expressions built in Rust: their reads, their types, and their JSON.

use serde_json::{Value, json};
use skein_core::expr::{CompareOp, Expr, ExprFunction, ExprShapeError, ExprType, ReferenceRoot, StepProperty, TypeFit};

use crate::support::{Values, bindings, parse};

fn literal(value: impl Into<Value>) -> Expr {
    Expr::literal(value).unwrap()
}

#[test]
fn builders_and_parsers_agree() {
    let values = Values(bindings("std").unwrap());
    let status = || {
        Expr::reference(ReferenceRoot::Step { id: "fetch-page".into(), part: StepProperty::Status }, [] as [&str; 0])
    };
    let pairs = [
        ("swdl-template", "${{ parameters.name }}", Expr::input(["name"])),
        ("swdl-template", "${{ stages.fetch-page.outputs.n }}", Expr::step("fetch-page", ["n"])),
        (
            "swdl-template",
            "hi ${{ parameters.name }}!",
            Expr::template([literal("hi "), Expr::input(["name"]), literal("!")]).unwrap(),
        ),
        ("swdl", "!parameters.no", Expr::negate(Expr::input(["no"])).unwrap()),
        ("swdl", "parameters.nil || parameters.n", Expr::any([Expr::input(["nil"]), Expr::input(["n"])]).unwrap()),
        ("swdl", "parameters.yes && 1", Expr::all([Expr::input(["yes"]), literal(1)]).unwrap()),
        (
            "swdl",
            "stages.fetch-page.status == 'success'",
            Expr::compare(CompareOp::Eq, status(), literal("success")).unwrap(),
        ),
        ("swdl", "parameters.no ? 1 : 2", Expr::cond(Expr::input(["no"]), literal(1), literal(2)).unwrap()),
        ("swdl", "length(parameters.list)", Expr::call(ExprFunction::Length, [Expr::input(["list"])]).unwrap()),
        (
            "swdl-value",
            r#"{"a": "${{ parameters.n }}", "b": [1]}"#,
            Expr::object([("a", Expr::input(["n"])), ("b", literal(json!([1])))]).unwrap(),
        ),
        ("swdl-value", r#"["${{ parameters.n }}"]"#, Expr::array([Expr::input(["n"])]).unwrap()),
    ];
    for (surface, text, built) in pairs {
        let parsed = parse(surface, text).unwrap();
        assert_eq!(parsed.eval(&values), built.eval(&values), "{text}");
        assert_eq!(serde_json::from_value::<Expr>(serde_json::to_value(&built).unwrap()).unwrap(), built);
    }
}

#[test]
fn builders_refuse_what_parsers_do() {
    let deep = (0..31).fold(literal(1), |expr, _| Expr::negate(expr).unwrap());
    assert_eq!(Expr::negate(deep), Err(ExprShapeError::TooDeep));
    assert_eq!(Expr::all([literal(1)]), Err(ExprShapeError::TooFewOperands));
    assert!(matches!(Expr::call(ExprFunction::Contains, [literal(1)]), Err(ExprShapeError::Arity { .. })));
    assert_eq!(Expr::object([("a", literal(1)), ("a", literal(2))]), Err(ExprShapeError::FieldTwice("a".into())));
    assert_eq!(Expr::literal("x".repeat(1 << 21)), Err(ExprShapeError::TooLong));
}

/// A part that was parsed from text loses its span when a program puts it inside an operator.
#[test]
fn operators_around_parsed_text_have_no_spans() {
    let parsed = parse("swdl", "parameters.n < 'x'").unwrap();
    let error = Expr::negate(parsed).unwrap().eval(&Values(bindings("std").unwrap())).unwrap_err();
    assert_eq!(error.span.to_string(), "0..0");
}

#[test]
fn reads_are_in_source_order() {
    let expr = parse(
        "swdl-value",
        r#"{"a": "${{ parameters.x ? length(stages.s-1.outputs.list) : stages.b.status }} of ${{ run.id }}",
            "b": ["lit", "${{ !env.A && (context.c == workflow.id || parameters.y) }}"]}"#,
    );
    let expr = expr.unwrap();
    let reads: Vec<String> = expr
        .reads()
        .iter()
        .map(|read| {
            let source = expr.expr_at(&read.at).unwrap().source();
            assert!(!read.lenient_outputs);
            format!("{} {} {}: {}", read.at, read.root, read.path.join("."), read.span.slice_text(source).unwrap())
        })
        .collect();
    assert_eq!(
        reads,
        [
            "/a the input x: parameters.x",
            "/a the output of `s-1` list: stages.s-1.outputs.list",
            "/a the status of `b` : stages.b.status",
            "/a the run id: run.id",
            "/b/1 the environment A: env.A",
            "/b/1 the context c: context.c",
            "/b/1 the workflow id: workflow.id",
            "/b/1 the input y: parameters.y",
        ]
    );
    let lenient = parse("aip", "$steps.a.outputs.x").unwrap();
    assert!(lenient.reads()[0].lenient_outputs);
    assert!(lenient.expr_at("/a").is_none() && expr.expr_at("/b/7").is_none() && expr.expr_at("b").is_none());
}

#[test]
fn the_json_is_stable() {
    let expr = parse("swdl", "!stages.a.outputs.x && length(item) >= 2");
    assert!(expr.is_err());
    let expr = parse("swdl-item", "!stages.a.outputs.x && length(item) >= 2").unwrap();
    let expected = json!({
        "source": "!stages.a.outputs.x && length(item) >= 2",
        "node": {"op": "and", "span": [0, 40], "of": [
            {"op": "not", "span": [0, 19], "of":
                {"op": "ref", "span": [1, 19], "root": {"step": {"id": "a", "part": "output"}}, "path": ["x"]}},
            {"op": "compare", "span": [23, 40], "by": "ge",
                "left": {"op": "call", "span": [23, 35], "function": "length", "args": [
                    {"op": "ref", "span": [30, 34], "root": "item", "path": []}]},
                "right": {"op": "literal", "span": [39, 40], "value": 2}},
        ]},
    });
    assert_eq!(serde_json::to_value(&expr).unwrap(), expected);
    let expr = parse("aip-value", r#"{"b": "$steps.s.outputs.x", "a": [1]}"#).unwrap();
    let expected = r#"{"source":"","node":{"op":"object","span":[0,0],"fields":{"b":{"source":"$steps.s.outputs.x","node":{"op":"ref","span":[0,18],"root":{"step":{"id":"s","part":"output"}},"path":["x"],"lenient_outputs":true}},"a":{"source":"","node":{"op":"literal","span":[0,0],"value":[1]}}}}}"#;
    assert_eq!(serde_json::to_string(&expr).unwrap(), expected);
    let expr = parse("swdl-template", "a${{ true ? run : 1 }}").unwrap();
    let expected = r#"{"source":"a${{ true ? run : 1 }}","node":{"op":"template","span":[0,22],"pieces":[{"text":"a"},{"node":{"op":"cond","span":[5,19],"test":{"op":"literal","span":[5,9],"value":true},"then":{"op":"ref","span":[12,15],"root":"run","path":[]},"otherwise":{"op":"literal","span":[18,19],"value":1}}}]}}"#;
    assert_eq!(serde_json::to_string(&expr).unwrap(), expected);
}

#[test]
fn fits() {
    use TypeFit::{No, Unknown, Yes};
    let schema = |text: &str| ExprType::from_schema(&serde_json::from_str(text).unwrap());
    let string = r#"{"type": "string"}"#;
    let open = r#"{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}"#;
    let closed = r#"{"type": "object", "additionalProperties": false, "properties": {"b": {"type": "integer"}}}"#;
    for (wanted, given, fit) in [
        ("{}", string, Yes),
        (string, "{}", Unknown),
        (string, string, Yes),
        (string, r#"{"type": "integer"}"#, No),
        (r#"{"type": "number"}"#, r#"{"type": "integer"}"#, Yes),
        (r#"{"type": "integer"}"#, r#"{"type": "number"}"#, Unknown),
        (string, r#"{"type": ["string", "null"]}"#, Unknown),
        (string, r#"{"type": ["integer", "null"]}"#, No),
        (r#"{"type": ["string", "null"]}"#, string, Yes),
        (r#"{"type": ["string", "null"]}"#, r#"{"type": "boolean"}"#, No),
        (string, r#"{"enum": ["a", "b"]}"#, Yes),
        (string, r#"{"const": 1}"#, No),
        (
            r#"{"type": "array", "items": {"type": "string"}}"#,
            r#"{"type": "array", "items": {"type": "integer"}}"#,
            Unknown,
        ),
        (
            r#"{"type": "array", "items": {"type": "number"}}"#,
            r#"{"type": "array", "items": {"type": "integer"}}"#,
            Yes,
        ),
        (open, open, Yes),
        (open, r#"{"type": "object"}"#, Unknown),
        (open, r#"{"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}"#, No),
        (open, closed, No),
        (closed, open, Unknown),
        (closed, closed, Yes),
        (r#"{"type": "object"}"#, closed, Yes),
    ] {
        assert_eq!(schema(wanted).accepts(&schema(given)), fit, "{wanted} <- {given}");
    }
    let endless = (0..200).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    assert_eq!(ExprType::from_schema(&endless).accepts(&ExprType::Null), No);
}
