//! Bytes that claim to be serialized workflows or journal rows.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use skein_core::{
    engine::JournalBatch,
    ir::Workflow,
    plan::{ContentHash, PlanDefinition, check_workflow},
};

/// A workflow that decodes can be serialized and read back; a valid one has the same hash after it was stored.
pub fn fuzz_workflow(bytes: &[u8]) {
    let Ok(workflow) = serde_json::from_slice::<Workflow>(bytes) else { return };
    assert_round_trip(&workflow);
    let workflow = Arc::new(workflow);
    let library = BTreeMap::from([("self".to_owned(), workflow.clone())]);
    let checked = check_workflow(workflow, &library);
    assert_eq!(checked.definition.is_none(), checked.problems.iter().any(|problem| problem.is_error()));
    let Some(definition) = checked.definition else { return };
    let stored = serde_json::to_string(&definition.to_frozen()).expect("a definition can be written");
    let again = PlanDefinition::from_frozen_json(&stored);
    let again = again.definition.unwrap_or_else(|| panic!("it was valid before: {:?}", again.problems));
    assert_eq!(again.hash(), definition.hash());
}

/// A row that decodes can be serialized and read back, and is checked without a panic.
pub fn fuzz_row(bytes: &[u8]) {
    let Ok(batch) = serde_json::from_slice::<JournalBatch>(bytes) else { return };
    assert_round_trip(&batch);
    let _ = batch.check(batch.seq, ContentHash::ZERO);
    let ours = JournalBatch::new(batch.seq, ContentHash::ZERO, batch.records);
    assert_eq!(ours.check(ours.seq, ContentHash::ZERO).is_ok(), !ours.records.is_empty());
}

fn assert_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let json = serde_json::to_string(value).expect("what was read can be written");
    let back: T = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(&back, value);
    assert_eq!(serde_json::to_string(&back).expect("and written again"), json);
}
