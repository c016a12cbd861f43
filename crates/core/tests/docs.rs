//! Checks that the JSON in the documentation is what the code reads and writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use skein_core::{
    engine::{Event, JournalBatch},
    ir::{StepKindName, Workflow},
    plan::{ContentHash, check_workflow},
};

const IR: &str = include_str!("../../../docs/ir.md");
const JOURNAL: &str = include_str!("../../../docs/journal.md");

/// Returns the fenced blocks whose info string is exactly this word, each with its first line number.
fn blocks<'a>(text: &'a str, word: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(fence) = line.strip_prefix("```") else { continue };
        let inside: Vec<&'a str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        if fence == word {
            found.push((number + 1, inside.join("\n")));
        }
    }
    found
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("the block is JSON")
}

#[test]
fn every_workflow_decodes_checks_and_encodes_the_same() {
    let found = blocks(IR, "json");
    let workflows: Vec<(usize, Arc<Workflow>)> = found
        .iter()
        .map(|(line, text)| {
            let workflow = serde_json::from_str(text).unwrap_or_else(|error| panic!("ir.md:{line}: {error}"));
            (*line, Arc::new(workflow))
        })
        .collect();
    let library: BTreeMap<String, Arc<Workflow>> =
        workflows.iter().map(|(_, workflow)| (workflow.id.to_string(), workflow.clone())).collect();
    let mut kinds = BTreeSet::new();
    for ((line, workflow), (_, text)) in workflows.iter().zip(&found) {
        let checked = check_workflow(workflow.clone(), &library);
        assert!(checked.definition.is_some(), "ir.md:{line}: {:?}", checked.problems);
        assert_eq!(serde_json::to_value(workflow).unwrap(), json(text), "ir.md:{line}");
        kinds.extend(workflow.scope.steps.iter().map(|step| step.kind.name()));
    }
    assert_eq!(kinds, StepKindName::ALL.into_iter().collect(), "each kind has an example");
}

#[test]
fn every_event_decodes_and_encodes_the_same() {
    let mut names = BTreeSet::new();
    for (line, text) in blocks(JOURNAL, "json") {
        let event: Event = serde_json::from_str(&text).unwrap_or_else(|error| panic!("journal.md:{line}: {error}"));
        let encoded = serde_json::to_value(&event).unwrap();
        assert_eq!(encoded, json(&text), "journal.md:{line}");
        let name = encoded.as_str().or_else(|| encoded.as_object()?.keys().next().map(String::as_str));
        names.insert(name.expect("an event has a name").to_owned());
    }
    let all = event_names();
    let missing: Vec<_> = all.difference(&names).collect();
    assert!(missing.is_empty(), "journal.md has no example of {missing:?}");
}

/// Lists the event names from the error that the decoder gives for an unknown name.
fn event_names() -> BTreeSet<String> {
    let message = serde_json::from_str::<Event>("\"no such event\"").expect_err("there is none").to_string();
    let (_, known) = message.split_once("expected one of ").expect("it lists them");
    let names: BTreeSet<String> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(names.contains("run_started") && names.len() > 20, "{message}");
    names
}

#[test]
fn the_row_is_one() {
    let rows = blocks(JOURNAL, "json row");
    assert_eq!(rows.len(), 1);
    let row: JournalBatch = serde_json::from_str(&rows[0].1).expect("it decodes");
    let ours = JournalBatch::new(row.seq, ContentHash::ZERO, row.records.clone());
    assert_eq!(row, ours, "its chain is {}", ours.chain);
    assert_eq!(row.check(0, ContentHash::ZERO), Ok(()));
    assert_eq!(serde_json::to_value(&row).unwrap(), json(&rows[0].1));
}
