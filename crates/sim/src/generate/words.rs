//! Expressions of generated workflows: conditions, lists, bindings and literals.
//!
//! Owns what may be read where. Refuses to read what the plan's check would refuse: only inputs that are declared,
//! steps that come before, and items inside an each.

use serde_json::{Value, json};
use skein_core::{expr::Expr, ir::Binding};

use super::{Gen, pool, scope::Readable};
use crate::generate::pool::Gives;

impl Gen {
    /// Something that is true or false, and now and then an error.
    pub(super) fn condition(&mut self, readable: &Readable) -> Expr {
        if self.rng.percent(4) {
            return pool::condition("$input.none < 3".into());
        }
        if self.rng.percent(6) {
            return self.status_condition(readable);
        }
        let one = self.comparison(readable);
        let text = match self.rng.below(8) {
            0 => format!("!({one})"),
            1 => format!("{one} && {}", self.comparison(readable)),
            2 => format!("{one} || {}", self.comparison(readable)),
            _ => one,
        };
        pool::condition(text)
    }

    /// A condition that is true more often than not, so that what it guards happens.
    pub(super) fn likely(&mut self, readable: &Readable) -> Expr {
        match self.rng.below(4) {
            0 => pool::condition("$input.n >= 1".into()),
            1 => pool::condition("$input.n < 4".into()),
            _ => self.condition(readable),
        }
    }

    fn status_condition(&mut self, readable: &Readable) -> Expr {
        let word = *self.rng.pick(&["succeeded", "success", "failed", "skipped"]);
        match readable.pick(&mut self.rng) {
            Some(seen) => pool::rich(format!("stages.{}.status == '{word}'", seen.id)),
            None => pool::rich("env.LEVEL == 2".into()),
        }
    }

    fn comparison(&mut self, readable: &Readable) -> String {
        let n = self.rng.below(4);
        let sign = *self.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
        let equal = *self.rng.pick(&["==", "!="]);
        if readable.item && self.rng.percent(45) {
            return match self.rng.below(3) {
                0 => format!("$index {sign} {n}"),
                1 => format!("$item {equal} {n}"),
                _ => format!("$item {sign} {n}"),
            };
        }
        let seen = if self.rng.percent(65) { readable.pick(&mut self.rng) } else { None };
        match seen.map(|seen| (seen.id.clone(), seen.gives)) {
            Some((id, Gives::Fields)) => match self.rng.below(6) {
                0 => format!("$steps.{id}.flag"),
                1 => format!("!$steps.{id}.flag"),
                2 => format!("$steps.{id}.word {equal} 'a'"),
                // Without equality, so that a missing number is an error now and then.
                3 => format!("$steps.{id}.n {sign} {n}"),
                _ => format!("$steps.{id}.n {equal} {n}"),
            },
            Some((id, Gives::Decision)) => format!("$steps.{id}.decision {equal} 'approve'"),
            Some((id, Gives::Signal)) => format!("$steps.{id}.eventPayload.n {equal} {n}"),
            Some((id, Gives::Whole)) => format!("$steps.{id} {equal} null"),
            Some((_, Gives::Nothing)) | None => match self.rng.below(4) {
                0 => "$input.flag".into(),
                1 => format!("$input.word {equal} 'b'"),
                _ => format!("$input.n {sign} {n}"),
            },
        }
    }

    /// A value to hand on.
    fn given(&mut self, readable: &Readable) -> Value {
        if readable.item && self.rng.percent(40) {
            return json!(self.rng.pick(&["$item", "$index"]));
        }
        let seen = if self.rng.percent(60) { readable.pick(&mut self.rng) } else { None };
        match seen.map(|seen| (seen.id.clone(), seen.gives)) {
            Some((id, Gives::Fields)) => {
                json!(format!("$steps.{id}.{}", self.rng.pick(&["n", "word", "list"])))
            }
            Some((id, Gives::Whole | Gives::Decision | Gives::Signal)) => json!(format!("$steps.{id}")),
            Some((_, Gives::Nothing)) | None => match self.rng.below(5) {
                0 => json!("$input.n"),
                1 => json!("$input.word"),
                2 => json!("$input.none"),
                3 => json!(self.rng.below(5)),
                _ => json!({"a": "$input.n", "b": ["$input.flag", 2]}),
            },
        }
    }

    pub(super) fn bindings(&mut self, readable: &Readable) -> Vec<Binding> {
        let count = if self.rng.percent(40) { self.rng.below(3) } else { 0 };
        (0..count)
            .map(|n| {
                let given = self.given(readable);
                let mut binding = Binding {
                    name: format!("in{n}").into(),
                    value: pool::value(&given),
                    schema: Default::default(),
                    required: self.rng.percent(20),
                };
                if self.rng.percent(10) {
                    binding.schema =
                        pool::schema(*self.rng.pick(&[pool::INTEGER, pool::INTEGER, pool::BOOLEAN]));
                }
                binding
            })
            .collect()
    }

    /// What a called workflow is given: mostly what it asks for.
    pub(super) fn call_bindings(&mut self) -> Vec<Binding> {
        let n = match self.rng.below(12) {
            // What that is can only be seen in a run.
            0 => json!("$input.odd"),
            1..6 => json!("$input.n"),
            _ => json!(self.rng.below(4)),
        };
        let bind = |name: &str, value: Value| Binding::new(name, pool::value(&value));
        let mut bindings = vec![bind("n", n)];
        if self.rng.percent(40) {
            bindings.push(bind("flag", json!(self.rng.percent(50))));
        }
        bindings
    }

    /// What an each goes over: literal lists, input lists, and now and then something that is no list.
    pub(super) fn list(&mut self) -> Expr {
        match self.rng.below(10) {
            0 => pool::value(&json!("$input.odd")),
            1..5 => pool::value(&json!("$input.list")),
            _ => {
                let length = self.rng.below(5);
                let items: Vec<Value> = (0..length).map(|_| json!(self.rng.below(4))).collect();
                pool::value(&Value::Array(items))
            }
        }
    }
}
