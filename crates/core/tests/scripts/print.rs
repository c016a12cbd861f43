//! Formats events, wanted work and views as short lines, with paths instead of numbers.

use serde_json::{Map, Value};
use skein_core::{
    engine::{AttemptId, AttemptMode, Event, InstanceIx, StepAt, StepPaths, WantedWork},
    ir::OutcomeEffect,
    time::{Millis, Timestamp},
    view::{RunView, StepView},
};

/// Formats a time as the duration since the start of the script.
pub(crate) fn time(time: Timestamp) -> String {
    Millis(u64::try_from(time.0).unwrap()).to_string()
}

pub(crate) fn attempt(names: &StepPaths, id: AttemptId) -> String {
    let visit = if id.visit > 1 { format!("@{}", id.visit) } else { String::new() };
    let iteration = if id.iteration > 1 { format!(".{}", id.iteration) } else { String::new() };
    format!("{}{visit} {}{iteration} {}", names.step_path(id.at), id.role.as_str(), id.attempt)
}

/// Formats an event as its name and its fields.
pub(crate) fn event(names: &StepPaths, event: &Event) -> String {
    let json = serde_json::to_value(event).unwrap();
    let Value::Object(json) = json else { return json.as_str().unwrap().to_owned() };
    let (name, fields) = json.into_iter().next().unwrap();
    let Value::Object(fields) = fields else { panic!("{name}") };
    let mut line = name;
    for (key, value) in &fields {
        if let Some(text) = field(names, key, value, &fields) {
            line.push(' ');
            line.push_str(&text);
        }
    }
    line
}

/// Formats a field; the most telling ones are shown without their name.
fn field(names: &StepPaths, key: &str, value: &Value, all: &Map<String, Value>) -> Option<String> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(match key {
        // The same in every script.
        "start" | "plan" | "definition" => return None,
        "parameters" | "publish" | "approvers" if empty(value) => return None,
        "at" | "parent" => names.step_path(step_at(value)),
        "attempt" => attempt(names, plain(value).parse().unwrap()),
        "instance" => instance(names, value),
        "of" => walk(names, value),
        "outcome" => outcome(names, value, all),
        "effect" => effect(value),
        "error" => format!("error={}", error(names, value)),
        "end" if value.get("status").is_some() => instance_end(names, value),
        "end" => attempt_end(value),
        "deadline" | "due" | "until" | "retry" => {
            format!("{key}={}", time(Timestamp(value.as_i64().unwrap())))
        }
        "next" => onward(value),
        "why" => why(names, value, all),
        "mode" if value == "fresh" => return None,
        "mode" | "reason" | "decision" | "part" | "status" | "name" | "item" => plain(value),
        "visit" if value == 1 => return None,
        "given" if empty(&value["inputs"]) && empty(&value["texts"]) => return None,
        "route" => format!("route={}", route(names, value, all)),
        "targets" => list(value, |target| {
            let path = names.step_path(step_at(&target["at"]));
            match target["visit"].as_u64() {
                Some(1) | None => path,
                Some(visit) => format!("{path}@{visit}"),
            }
        }),
        "uncertain" => format!("uncertain={}", list(value, |at| names.step_path(step_at(at)))),
        _ => format!("{key}={}", plain(value)),
    })
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn list(value: &Value, each: impl Fn(&Value) -> String) -> String {
    let items: Vec<String> = value.as_array().unwrap().iter().map(each).collect();
    format!("[{}]", items.join(", "))
}

fn step_at(value: &Value) -> StepAt {
    serde_json::from_value(value.clone()).unwrap()
}

fn instance(names: &StepPaths, value: &Value) -> String {
    match serde_json::from_value(value.clone()).unwrap() {
        InstanceIx::ROOT => "root".to_owned(),
        ix => names.instance_path(ix).to_owned(),
    }
}

fn walk(names: &StepPaths, value: &Value) -> String {
    match value.get("composite") {
        Some(at) => names.step_path(step_at(at)),
        None => instance(names, &value["workflow"]),
    }
}

/// Returns the path of a step in the instance that the event is about.
fn beside(names: &StepPaths, all: &Map<String, Value>, step: &Value) -> String {
    let ix = match (all.get("at"), all.get("instance")) {
        (Some(at), _) => step_at(at).0,
        (_, Some(instance)) => serde_json::from_value(instance.clone()).unwrap(),
        _ => InstanceIx::ROOT,
    };
    let step = u32::try_from(step.as_u64().unwrap()).unwrap();
    names.step_id(StepAt(ix, step)).to_owned()
}

fn outcome(names: &StepPaths, value: &Value, all: &Map<String, Value>) -> String {
    if let Some(class) = value.get("failed") {
        return format!("failed({})", class.as_str().unwrap());
    }
    match value.get("skipped") {
        Some(Value::Object(skip)) => format!("skipped(upstream {})", beside(names, all, &skip["upstream"])),
        Some(_) => "skipped(condition)".to_owned(),
        None => value.as_str().unwrap().to_owned(),
    }
}

fn effect(value: &Value) -> String {
    let effect: OutcomeEffect = serde_json::from_value(value.clone()).unwrap();
    let known = [
        (OutcomeEffect::GO_ON, "go_on"),
        (OutcomeEffect::ABORT, "abort"),
        (OutcomeEffect::UNDO, "undo"),
        (OutcomeEffect::CONTINUE, "continue"),
        (OutcomeEffect::SKIP, "skip"),
        (OutcomeEffect::SKIP_DEPENDENTS, "skip_dependents"),
        (OutcomeEffect::BLOCK, "block"),
    ];
    let name = known.iter().find(|(known, _)| *known == effect).map(|(_, name)| *name);
    name.map_or_else(|| format!("then={value}"), |name| format!("then={name}"))
}

fn error(names: &StepPaths, value: &Value) -> String {
    let text = |key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let origin = value.get("origin").map(|at| format!(" at {}", names.step_path(step_at(at))));
    format!("{}/{} \"{}\"{}", text("class"), text("code"), text("message"), origin.unwrap_or_default())
}

fn instance_end(names: &StepPaths, value: &Value) -> String {
    let mut line = value["status"].as_str().unwrap().to_owned();
    if let Some(output) = value.get("output") {
        line.push_str(&format!(" output={output}"));
    }
    if let Some(of) = value.get("error") {
        line.push_str(&format!(" error={}", error(names, of)));
    }
    if value.get("degraded").is_some() {
        line.push_str(" degraded");
    }
    line
}

fn attempt_end(value: &Value) -> String {
    let Value::Object(end) = value else { return value.as_str().unwrap().to_owned() };
    let (name, fields) = end.iter().next().unwrap();
    let fields: Vec<String> = fields
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| {
            if matches!(key.as_str(), "until" | "retry_at") {
                return format!("{key}={}", time(Timestamp(value.as_i64().unwrap())));
            }
            format!("{key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        })
        .collect();
    format!("{name} {}", fields.join(" ")).trim_end().to_owned()
}

fn onward(value: &Value) -> String {
    let (role, mode) = (value["role"].as_str().unwrap(), value["mode"].as_str().unwrap());
    let iteration = match value["iteration"].as_u64() {
        Some(1) | None => String::new(),
        Some(n) => format!(".{n}"),
    };
    let stage = match value["stage"].as_u64() {
        Some(1) | None => String::new(),
        Some(n) => format!(" stage={n}"),
    };
    format!("-> {role}{iteration} {mode}{stage}")
}

fn why(names: &StepPaths, value: &Value, all: &Map<String, Value>) -> String {
    let Value::Object(why) = value else { return value.as_str().unwrap().to_owned() };
    let (name, fields) = why.iter().next().unwrap();
    match name.as_str() {
        "failed" => format!("failed({})", beside(names, all, &fields["step"])),
        "cancelled" => format!("cancelled by {}", fields["by"].as_str().unwrap()),
        "limit" => format!("limit {}", error(names, &fields["error"])),
        other => other.to_owned(),
    }
}

fn route(names: &StepPaths, value: &Value, all: &Map<String, Value>) -> String {
    match value.get("step") {
        Some(step) => beside(names, all, step),
        None => "end".to_owned(),
    }
}

/// Formats the wanted work.
pub(crate) fn wanted(names: &StepPaths, commands: &WantedWork) -> String {
    let mut parts = Vec::new();
    for (id, assignment) in &commands.runs {
        let limit = assignment.limit.map_or(String::new(), |limit| format!(" (at most {limit})"));
        let mode = match assignment.mode {
            AttemptMode::Fresh => String::new(),
            mode => format!(" {}", serde_json::to_value(mode).unwrap().as_str().unwrap()),
        };
        let stage = if assignment.stage > 1 { format!(" stage {}", assignment.stage) } else { String::new() };
        parts.push(format!("run {}{mode}{stage}{limit}", attempt(names, *id)));
    }
    for item in &commands.publish {
        parts.push(format!("publish {}", serde_json::to_value(item).unwrap()).replace('"', ""));
    }
    parts.extend(commands.wake.map(|at| format!("wake at {}", time(at))));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// Formats the run without its steps, on one line.
pub(crate) fn run(view: &RunView) -> String {
    let mut line = view.status.to_string();
    if view.native_status != view.status.as_str() {
        line.push_str(&format!(" ({})", view.native_status));
    }
    if view.degraded {
        line.push_str(", degraded");
    }
    if !view.outputs.is_null() {
        line.push_str(&format!(", gives {}", view.outputs));
    }
    if let Some(error) = &view.error {
        let at = error.step.as_ref().map_or(String::new(), |step| format!(" at {step}"));
        line.push_str(&format!(", error: {}{at}", error.message));
    }
    if let Some(undo) = &view.undo {
        for (word, steps) in [
            ("undone", &undo.undone),
            ("to undo", &undo.to_undo),
            ("not undone", &undo.not_undone),
            ("possibly effective", &undo.possibly_effective),
        ] {
            if !steps.is_empty() {
                line.push_str(&format!(", {word}: {}", steps.join(" ")));
            }
        }
    }
    line
}

/// Formats a step on one line.
pub(crate) fn step(view: &StepView) -> String {
    let mut line = format!("{}: {}", view.path, view.status);
    if view.native_status != view.status.as_str() {
        line.push_str(&format!(" ({})", view.native_status));
    }
    for (word, count) in
        [("visit", view.visits), ("iteration", view.iterations), ("stage", view.stage), ("attempt", view.attempts)]
    {
        if count > 1 {
            line.push_str(&format!(", {word} {count}"));
        }
    }
    if view.total_attempts != view.attempts {
        line.push_str(&format!(", {} in all", view.total_attempts));
    }
    if view.reused {
        line.push_str(", reused");
    }
    if !view.outputs.is_null() {
        line.push_str(&format!(", gives {}", view.outputs));
    }
    if let Some(summary) = &view.summary {
        line.push_str(&format!(", in short {summary:?}"));
    }
    if let Some(why) = &view.why {
        line.push_str(&format!("; {}", why.text));
    }
    line
}
