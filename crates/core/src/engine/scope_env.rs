//! The environment of expressions: the names visible from a scope instance, looked up in the state.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{InstanceIx, InstancePart, RunStart, StepAt, state::RunState};
use crate::{
    expr::{ExprEnv, ReferenceRoot, RootLookup, StepProperty as Of},
    ir::StepKindSpec,
    plan::Plan,
    time::Timestamp,
};

/// The environment of one instance.
pub(super) struct ScopeEnv<'a> {
    pub plan: &'a Plan,
    pub state: &'a RunState,
    pub instance: InstanceIx,
    /// A step and the output to use for it instead of the one in the state: the visit that is being undone.
    pub own: Option<(StepAt, &'a Value)>,
    /// A loop before its first pass; the steps inside it have no values yet.
    pub before: Option<StepAt>,
}

impl ExprEnv for ScopeEnv<'_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        let home = self.state.home_instance(self.instance);
        match root {
            ReferenceRoot::Input => to_lookup(&home.input),
            ReferenceRoot::Step { id, part } => self.lookup_step(id, *part),
            ReferenceRoot::Item => {
                self.find_item().map_or(RootLookup::Absent, |(items, i)| match items.get(i as usize) {
                    Some(item) => to_lookup(item),
                    None => RootLookup::Absent,
                })
            }
            ReferenceRoot::Index => {
                self.find_item().map_or(RootLookup::Absent, |(_, i)| RootLookup::Found(Cow::Owned(json!(i))))
            }
            ReferenceRoot::Context => {
                self.state.start.as_ref().map_or(RootLookup::Absent, |start| to_lookup(&start.context))
            }
            ReferenceRoot::Env => to_lookup(&home.env),
            ReferenceRoot::Run => RootLookup::Found(Cow::Owned(self.run_value())),
            ReferenceRoot::Workflow => RootLookup::Found(Cow::Owned(build_workflow_value(self.plan, home.scope))),
        }
    }
}

fn to_lookup(value: &Value) -> RootLookup<'_> {
    RootLookup::Found(Cow::Borrowed(value))
}

impl<'a> ScopeEnv<'a> {
    pub fn new(plan: &'a Plan, state: &'a RunState, instance: InstanceIx) -> ScopeEnv<'a> {
        ScopeEnv { plan, state, instance, own: None, before: None }
    }

    fn lookup_step(&self, id: &str, part: Of) -> RootLookup<'_> {
        let definition = &self.plan.definition;
        let Some(place) = definition.locate_step(self.state.instance(self.instance).scope, id) else {
            return RootLookup::Absent;
        };
        let mut ix = self.instance;
        for _ in 0..place.up {
            let Some(parent) = self.state.instance(ix).parent else { return RootLookup::Absent };
            ix = parent.0;
        }
        for (holder, which) in &place.down {
            let holder = StepAt(ix, *holder);
            if self.before == Some(holder) {
                return RootLookup::NotYet;
            }
            let Some(inner) = self.find_visible_instance(holder, *which) else { return RootLookup::Absent };
            ix = inner;
        }
        self.lookup_step_part(StepAt(ix, place.step), part)
    }

    /// Returns the instance inside a step whose steps can be referenced from outside: a lane, or the last pass of a
    /// loop.
    fn find_visible_instance(&self, holder: StepAt, which: u32) -> Option<InstanceIx> {
        let children = &self.state.visit_state(holder)?.children;
        let scope = self.plan.definition.scope(self.state.instance(holder.0).scope);
        match scope.step(holder.1).kind {
            StepKindSpec::Parallel(_) => children.get(which as usize).copied(),
            _ => children.last().copied(),
        }
    }

    fn lookup_step_part(&self, at: StepAt, part: Of) -> RootLookup<'_> {
        if let Some((_, output)) = self.own.filter(|(own, _)| *own == at && part == Of::Output) {
            return to_lookup(output);
        }
        let step = self.state.step(at);
        match part {
            Of::Output if step.outcome.is_some() => to_lookup(&step.output),
            Of::Output => RootLookup::Absent,
            Of::Status => {
                let status = self.state.step_status(at);
                let own = step.effect.is_some_and(|effect| effect.as_skipped);
                let scope = self.state.instance(at.0).scope;
                let words = &self.plan.definition.workflow_containing(scope).workflow.words;
                RootLookup::Found(Cow::Owned(Value::from(words.step_word(status, own))))
            }
            Of::Summary => match step.more.as_ref().and_then(|more| more.summary.as_deref()) {
                Some(summary) => RootLookup::Found(Cow::Owned(Value::from(summary))),
                None => RootLookup::Absent,
            },
        }
    }

    /// Returns the list of the innermost each around this instance, and the index of the item in it.
    fn find_item(&self) -> Option<(&Vec<Value>, u32)> {
        let mut ix = self.instance;
        loop {
            let instance = self.state.instance(ix);
            let parent = instance.parent?;
            match instance.part {
                Some(InstancePart::Item(i)) => {
                    return Some((self.state.visit_state(parent)?.items.as_ref()?.as_array()?, i));
                }
                Some(InstancePart::Call) | None => return None,
                Some(InstancePart::Lane(_) | InstancePart::Pass(_)) => ix = parent.0,
            }
        }
    }

    fn run_value(&self) -> Value {
        let Some(start) = &self.state.start else { return Value::Null };
        build_run_value(start, self.state.instance(InstanceIx::ROOT).started)
    }
}

/// Builds the value that expressions read as `run`.
pub(super) fn build_run_value(start: &RunStart, started: Timestamp) -> Value {
    json!({
        "id": start.run.as_str(),
        "started_at": format_utc(started),
        "attempt": start.attempt,
        "retry_of": start.retry_of.as_ref().map(|run| run.as_str()),
    })
}

/// Builds the value that expressions read as `workflow`.
pub(super) fn build_workflow_value(plan: &Plan, scope: crate::plan::ScopeIx) -> Value {
    let workflow = &plan.definition.workflow_containing(scope).workflow;
    json!({
        "id": workflow.id.as_str(),
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
    })
}

/// Formats a time in UTC (RFC 3339), to the second.
pub fn format_utc(time: Timestamp) -> String {
    let seconds = time.0.div_euclid(1_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date_from_days(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// Returns the date that is this many days after 1970-01-01. Years are counted from March, so that the leap day is the
/// last day of a year.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_dates() {
        assert_eq!(format_utc(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(Timestamp(951_782_399_999)), "2000-02-28T23:59:59Z");
        assert_eq!(format_utc(Timestamp(951_782_400_000)), "2000-02-29T00:00:00Z");
        assert_eq!(format_utc(Timestamp(2_147_483_648_000)), "2038-01-19T03:14:08Z");
        assert_eq!(format_utc(Timestamp(-1)), "1969-12-31T23:59:59Z");
        // Leap days, years without one, and the ends of centuries and eras.
        for (time, text) in [
            (-2203977600000, "1900-02-28T00:00:00Z"),
            (-2203891200000, "1900-03-01T00:00:00Z"),
            (68169600000, "1972-02-29T00:00:00Z"),
            (978220800000, "2000-12-31T00:00:00Z"),
            (4107456000000, "2100-02-28T00:00:00Z"),
            (4107542400000, "2100-03-01T00:00:00Z"),
            (-11644473600000, "1601-01-01T00:00:00Z"),
            (13569379200000, "2399-12-31T00:00:00Z"),
            (13574563200000, "2400-02-29T00:00:00Z"),
            (13601088000000, "2401-01-01T00:00:00Z"),
        ] {
            assert_eq!(format_utc(Timestamp(time)), text);
        }
    }
}
