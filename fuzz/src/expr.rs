//! Expressions: any text and any values give a result or an error, and the same one the next time.
//!
//! The bytes are an expression and, after a line of `---`, the JSON of its environment.

use std::borrow::Cow;

use serde_json::{Map, Value};
use skein_core::{
    expr::{
        Expr, ExprEnv, ExprParseError, ExprType, ReferenceRoot, RootLookup, StepProperty, TypeEnv, TypeFit,
        aip15 as aip, ioa as io, swdl as sw,
    },
    limits::EXPRESSION_RESULT,
};

const SEPARATOR: &str = "\n---\n";

pub fn fuzz_aip15(bytes: &[u8]) {
    fuzz_parsers(bytes, &[aip::parse_condition], &[aip::parse_value]);
}

pub fn fuzz_swdl(bytes: &[u8]) {
    use sw::SwdlExprScope::{FanOut, Stage};
    fuzz_parsers(
        bytes,
        &[
            |text| sw::parse_condition(text, Stage),
            |text| sw::parse_condition(text, FanOut),
            |text| sw::parse_template(text, Stage),
            |text| sw::parse_template(text, FanOut),
        ],
        &[|value| sw::parse_value(value, Stage), |value| sw::parse_value(value, FanOut)],
    );
}

pub fn fuzz_ioa(bytes: &[u8]) {
    fuzz_parsers(bytes, &[io::parse_condition], &[io::parse_value]);
}

type FuzzedParser<T> = fn(&T) -> Result<Expr, ExprParseError>;

fn fuzz_parsers(bytes: &[u8], texts: &[FuzzedParser<str>], values: &[FuzzedParser<Value>]) {
    let Ok(all) = std::str::from_utf8(bytes) else { return };
    let (text, around) = all.split_once(SEPARATOR).unwrap_or((all, "{}"));
    let around = FuzzEnv(serde_json::from_str(around).unwrap_or_default());
    for read in texts {
        match read(text) {
            Ok(expr) => assert_expr_promises(&expr, &around),
            Err(error) => assert!(error.span.slice_text(text).is_some(), "{error:?}"),
        }
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    for read in values {
        if let Ok(expr) = read(&value) {
            assert_expr_promises(&expr, &around);
            for read in expr.reads() {
                assert!(expr.expr_at(&read.at).is_some(), "{read:?}");
            }
        }
    }
}

fn assert_expr_promises(expr: &Expr, around: &FuzzEnv) {
    let json = serde_json::to_string(expr).expect("an expression can be written");
    let back: Expr = serde_json::from_str(&json).expect("and read back");
    assert_eq!(&back, expr);
    let result = expr.eval(around);
    assert_eq!(result, expr.eval(around));
    assert_eq!(result, back.eval(around));
    let ty = expr.infer_type(&AnyTypeEnv).ty;
    if let Ok(value) = &result {
        assert!(value.to_string().len() <= EXPRESSION_RESULT);
        assert_ne!(ty.accepts(&ExprType::from_value(value)), TypeFit::No, "{ty} {value}");
    }
}

/// Roots by name. `steps` maps ids to `{output, status, summary}`; the text `"not yet"` stands for a value that does
/// not exist yet.
struct FuzzEnv(Map<String, Value>);

impl ExprEnv for FuzzEnv {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        let found = match root {
            ReferenceRoot::Input => self.0.get("input"),
            ReferenceRoot::Item => self.0.get("item"),
            ReferenceRoot::Index => self.0.get("index"),
            ReferenceRoot::Context => self.0.get("context"),
            ReferenceRoot::Env => self.0.get("env"),
            ReferenceRoot::Run => self.0.get("run"),
            ReferenceRoot::Workflow => self.0.get("workflow"),
            ReferenceRoot::Step { id, part } => {
                let part = match part {
                    StepProperty::Output => "output",
                    StepProperty::Status => "status",
                    StepProperty::Summary => "summary",
                };
                self.0.get("steps").and_then(|steps| steps.get(&**id)?.get(part))
            }
        };
        match found {
            None => RootLookup::Absent,
            Some(value) if value == "not yet" => RootLookup::NotYet,
            Some(value) => RootLookup::Found(Cow::Borrowed(value)),
        }
    }
}

/// Declares no type for the roots, so that no type may rule out a value.
struct AnyTypeEnv;

impl TypeEnv for AnyTypeEnv {
    fn ty_of(&self, _: &ReferenceRoot) -> ExprType {
        ExprType::Any
    }
}
