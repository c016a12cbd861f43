//! Random text and random words from a fixed seed: nothing panics, and accepted expressions keep their invariants.

use serde_json::{Value, json};
use skein_core::expr::Expr;
use skein_core::limits::EXPRESSION_RESULT;

use crate::support::{Schemas, Values, bindings, parse};

/// xorshift64: mixes words well enough, and gives the same sequence every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

const SURFACES: &[&str] = &["aip", "swdl", "swdl-item", "swdl-template", "ioa"];

const WORDS: &[&str] = &[
    "$input",
    "$input.name",
    "$steps.fetch-page.outputs.n",
    "$item",
    "$index",
    "parameters.n",
    "parameters.list",
    "stages.fetch-page.outputs",
    "stages.scalar.status",
    "stages.later.outputs",
    "item.tags",
    "payload.n",
    "name",
    "steps.list.output.0",
    "run",
    "1",
    "-2.5",
    "'a'",
    "\"b}}\"",
    "true",
    "null",
    "!",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "(",
    ")",
    "?",
    ":",
    ",",
    "length(",
    "contains(",
    "toJSON(",
    "fromJSON(",
    "${{",
    "}}",
    " ",
    " text ",
    "'",
    "\\",
    "é",
    "[",
    "-",
    ".",
    "$",
    "=",
];

fn check(surface: &str, text: &str, values: &Values, schemas: &Schemas) -> bool {
    let expr = match parse(surface, text) {
        Ok(expr) => expr,
        Err(error) => {
            assert!(error.span.start <= error.span.end && error.span.end as usize <= text.len(), "{text}: {error:?}");
            assert!(error.span.slice_text(text).is_some(), "{surface} {text:?}: {error:?}");
            return false;
        }
    };
    let back: Expr = serde_json::from_str(&serde_json::to_string(&expr).unwrap()).unwrap();
    assert_eq!(back, expr);
    let result = expr.eval(values);
    assert_eq!(result, expr.eval(values));
    assert_eq!(result, back.eval(values));
    if let Ok(value) = &result {
        assert!(value.to_string().len() <= EXPRESSION_RESULT);
        let ty = expr.infer_type(schemas).ty;
        assert_ne!(
            ty.accepts(&skein_core::expr::ExprType::from_value(value)),
            skein_core::expr::TypeFit::No,
            "{text}: {ty}"
        );
    }
    for read in expr.reads() {
        assert!(read.span.slice_text(expr.source()).is_some());
    }
    true
}

/// Roots without schemas, so that no type rules a value out.
fn surroundings() -> (Values, Schemas) {
    (Values(bindings("std").unwrap()), Schemas(serde_json::Map::new()))
}

#[test]
fn words_in_any_order() {
    let (values, schemas) = surroundings();
    let mut dice = Dice(0x5eed_0001);
    let mut parsed = 0;
    for _ in 0..30_000 {
        let n = 1 + dice.roll(9);
        let text: String = (0..n).map(|_| dice.pick(WORDS)).collect();
        parsed += usize::from(check(dice.pick(SURFACES), &text, &values, &schemas));
    }
    assert!(parsed > 1_000, "{parsed}");
}

#[test]
fn any_bytes() {
    let (values, schemas) = surroundings();
    let mut dice = Dice(0x5eed_0002);
    for _ in 0..20_000 {
        let n = dice.roll(24);
        let bytes: Vec<u8> = (0..n).map(|_| u8::try_from(dice.roll(256)).unwrap()).collect();
        let text = String::from_utf8_lossy(&bytes);
        check(dice.pick(SURFACES), &text, &values, &schemas);
        check("swdl-template", &format!("${{{{{text}}}}}"), &values, &schemas);
    }
}

/// Generates a well-formed SWDL expression.
fn grown(dice: &mut Dice, depth: usize) -> String {
    let leaf = &[
        "1",
        "2.5",
        "'a'",
        "''",
        "null",
        "true",
        "parameters.n",
        "parameters.name",
        "parameters.list",
        "parameters.obj",
        "stages.scalar.outputs",
        "run.id",
    ];
    if depth == 0 {
        return dice.pick(leaf).to_owned();
    }
    let inner = |dice: &mut Dice| grown(dice, depth - 1);
    match dice.roll(9) {
        0 => format!("!({})", inner(dice)),
        1 => format!("({}) && ({})", inner(dice), inner(dice)),
        2 => format!("({}) || ({})", inner(dice), inner(dice)),
        3 => format!("({}) == ({})", inner(dice), inner(dice)),
        4 => format!("({}) < ({})", inner(dice), inner(dice)),
        5 => format!("({}) ? ({}) : ({})", inner(dice), inner(dice), inner(dice)),
        6 => format!("length({})", inner(dice)),
        7 => format!("contains({}, {})", inner(dice), inner(dice)),
        _ => format!("fromJSON(toJSON({}))", inner(dice)),
    }
}

#[test]
fn well_formed_text_parses() {
    let (values, schemas) = surroundings();
    let mut dice = Dice(0x5eed_0003);
    for _ in 0..3_000 {
        let depth = dice.roll(5);
        let text = grown(&mut dice, depth);
        assert!(check("swdl", &text, &values, &schemas), "{text}");
        check("swdl-template", &format!("<${{{{ {text} }}}}>"), &values, &schemas);
    }
}

/// Generates random JSON values: strings with and without expressions, nested at random.
fn data(dice: &mut Dice, depth: usize) -> Value {
    match dice.roll(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => json!(dice.roll(5)),
        2 => json!("plain"),
        3 => json!("${{ payload.n }} and ${{ name }}"),
        4 => json!("$input.name"),
        5 => json!({"kind": "literal", "value": data(dice, depth - 1)}),
        6 => (0..dice.roll(3)).map(|_| data(dice, depth - 1)).collect(),
        _ => {
            let keys = ["a", "b/c", "~"];
            keys.iter().take(dice.roll(4)).map(|key| ((*key).to_owned(), data(dice, depth - 1))).collect()
        }
    }
}

#[test]
fn any_value() {
    let (values, _) = surroundings();
    let mut dice = Dice(0x5eed_0004);
    for _ in 0..3_000 {
        let text = data(&mut dice, 4).to_string();
        for surface in ["aip-value", "swdl-value", "ioa-value"] {
            let Ok(expr) = parse(surface, &text) else { continue };
            let back: Expr = serde_json::from_str(&serde_json::to_string(&expr).unwrap()).unwrap();
            assert_eq!(back, expr);
            assert_eq!(expr.eval(&values), back.eval(&values), "{text}");
            assert!(expr.reads().iter().all(|read| expr.expr_at(&read.at).is_some()));
        }
    }
}
