//! Expressions: whatever the text and the values, there is a result or an error, and it is the same the next time.
//!
//! The bytes are a text, and after a line of `---` the JSON of what is around it.

use std::borrow::Cow;

use serde_json::{Map, Value};
use skein_core::expr::{
    Env, Expr, Fit, Lookup, ParseError, Part, Root, Ty, TypeEnv, aip15 as aip, bounds::MAX_RESULT, ioa as io,
    swdl as sw,
};

const SEPARATOR: &str = "\n---\n";

pub fn aip15(bytes: &[u8]) {
    each(bytes, &[aip::condition], &[aip::value]);
}

pub fn swdl(bytes: &[u8]) {
    use sw::Scope::{FanOut, Stage};
    each(
        bytes,
        &[
            |text| sw::condition(text, Stage),
            |text| sw::condition(text, FanOut),
            |text| sw::template(text, Stage),
            |text| sw::template(text, FanOut),
        ],
        &[|value| sw::value(value, Stage), |value| sw::value(value, FanOut)],
    );
}

pub fn ioa(bytes: &[u8]) {
    each(bytes, &[io::condition], &[io::value]);
}

type Read<T> = fn(&T) -> Result<Expr, ParseError>;

fn each(bytes: &[u8], texts: &[Read<str>], values: &[Read<Value>]) {
    let Ok(all) = std::str::from_utf8(bytes) else { return };
    let (text, around) = all.split_once(SEPARATOR).unwrap_or((all, "{}"));
    let around = Values(serde_json::from_str(around).unwrap_or_default());
    for read in texts {
        match read(text) {
            Ok(expr) => keeps_its_promises(&expr, &around),
            Err(error) => assert!(error.span.of(text).is_some(), "{error:?}"),
        }
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    for read in values {
        if let Ok(expr) = read(&value) {
            keeps_its_promises(&expr, &around);
            for read in expr.reads() {
                assert!(expr.at(&read.at).is_some(), "{read:?}");
            }
        }
    }
}

fn keeps_its_promises(expr: &Expr, around: &Values) {
    let json = serde_json::to_string(expr).expect("an expression can be written");
    let back: Expr = serde_json::from_str(&json).expect("and read back");
    assert_eq!(&back, expr);
    let result = expr.eval(around);
    assert_eq!(result, expr.eval(around));
    assert_eq!(result, back.eval(around));
    let ty = expr.ty(&Anything).ty;
    if let Ok(value) = &result {
        assert!(value.to_string().len() <= MAX_RESULT);
        assert_ne!(ty.accepts(&Ty::of_value(value)), Fit::No, "{ty} {value}");
    }
}

/// Roots by their names. `steps` maps ids to `{output, status, summary}`; the text `"not yet"` is just that.
struct Values(Map<String, Value>);

impl Env for Values {
    fn lookup(&self, root: &Root) -> Lookup<'_> {
        let found = match root {
            Root::Input => self.0.get("input"),
            Root::Item => self.0.get("item"),
            Root::Index => self.0.get("index"),
            Root::Context => self.0.get("context"),
            Root::Env => self.0.get("env"),
            Root::Run => self.0.get("run"),
            Root::Workflow => self.0.get("workflow"),
            Root::Step { id, part } => {
                let part = match part {
                    Part::Output => "output",
                    Part::Status => "status",
                    Part::Summary => "summary",
                };
                self.0.get("steps").and_then(|steps| steps.get(&**id)?.get(part))
            }
        };
        match found {
            None => Lookup::Absent,
            Some(value) if value == "not yet" => Lookup::NotYet,
            Some(value) => Lookup::Found(Cow::Borrowed(value)),
        }
    }
}

/// Nothing is promised of the roots, so that no type may rule a value out.
struct Anything;

impl TypeEnv for Anything {
    fn ty_of(&self, _: &Root) -> Ty {
        Ty::Any
    }
}
