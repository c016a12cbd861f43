//! The output for programs: the object of a run, and a line for each event.

use std::path::Path;

use serde_json::{Value, json};
use skein_app::project::DiskProject;
use skein_app::runs::inspect::run_to_json;
use skein_dialects::check_source;

use super::{
    cases::CASES,
    trial::{Trial, same},
};
use crate::render::live::JsonlEncoder;

#[test]
fn every_event_is_a_line() {
    for (name, case) in CASES {
        let trial = case();
        let mut jsonl = JsonlEncoder::new(&trial.plan());
        let text: String = trial.rows.iter().map(|row| jsonl.encode_row(row).unwrap()).collect();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..trial.driver.state().events).collect::<Vec<_>>(), "{name}");
        let events = trial.rows.iter().flat_map(|row| &row.records);
        for (line, record) in lines.iter().zip(events) {
            assert_eq!(line["event"], serde_json::to_value(&record.event).unwrap(), "{name}");
        }
        if *name == "nested" {
            let shown = lines.iter().map(|line| {
                let event = &line["event"];
                let word = event.as_object().and_then(|event| event.keys().next().cloned());
                let word = word.unwrap_or_else(|| event.as_str().unwrap().to_owned());
                format!("{} {} {} {word}\n", line["seq"], line["at"], line["path"])
            });
            same("nested-jsonl", &shown.collect::<String>());
        }
    }
}

/// Returns a run of an example in a format of its own.
fn example() -> Trial {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agentcore/hello.yaml");
    let project = DiskProject::open(DiskProject::find_root(path.parent().unwrap())).unwrap();
    let report = check_source(project.read_source(&path).unwrap(), &project);
    let plan = report.bind(json!({})).unwrap().unwrap();
    let mut trial = Trial::of(plan).start();
    trial.spending(7, 9).ok("greet").publish();
    trial
}

#[test]
fn the_object_of_a_run_is_what_is_documented() {
    let trial = example();
    let object = run_to_json(&trial.plan(), trial.driver.state(), &[]);
    same("result", &(serde_json::to_string_pretty(&object).unwrap() + "\n"));
}

#[test]
fn every_run_has_every_documented_field() {
    let of_run = [
        "run_id",
        "workflow",
        "status",
        "native_status",
        "degraded",
        "started_at",
        "finished_at",
        "duration_ms",
        "outputs",
        "error",
        "cost",
        "steps",
    ];
    let of_step = [
        "path",
        "kind",
        "status",
        "native_status",
        "attempts",
        "iterations",
        "started_at",
        "finished_at",
        "outputs",
        "error",
    ];
    for (name, case) in CASES {
        let trial = case();
        let object = run_to_json(&trial.plan(), trial.driver.state(), &[]);
        let has = |value: &Value, fields: &[&str]| fields.iter().all(|field| value.get(field).is_some());
        assert!(has(&object, &of_run), "{name}: {object:#}");
        assert!(has(&object["workflow"], &["id", "version", "dialect", "hash"]), "{name}");
        assert!(has(&object["cost"], &["tokens", "usd"]), "{name}");
        for step in object["steps"].as_array().unwrap() {
            assert!(has(step, &of_step), "{name}: {step:#}");
            assert!(!step["outputs"].is_null(), "{name}: {step:#}");
        }
        assert!(!object["outputs"].is_null(), "{name}");
    }
}
