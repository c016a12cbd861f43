//! What must hold of a run whatever happened to its host, and what of it must be the same as if nothing had.

use std::{collections::BTreeSet, fs};

use serde_json::Value;
use skein_core::{
    engine::{AttemptId, Event},
    ids::RunId,
    ir::{RunStatus, StepStatus},
};
use skein_host::store::{Owner, Store};

use super::{
    life::Place,
    stage::{events, view},
};

/// What a run came to.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub status: RunStatus,
    outputs: Value,
    degraded: bool,
    steps: Vec<(String, StepStatus, Value)>,
}

pub fn outcome(store: &dyn Store, run: &RunId) -> Outcome {
    let view = view(store, run);
    let steps = view.steps.into_iter().map(|step| (step.path, step.status, step.outputs));
    Outcome { status: view.status, outputs: view.outputs, degraded: view.degraded, steps: steps.collect() }
}

/// A run that is over: every attempt was started once and ended once, and no worker did anything that was not recorded
/// before, or twice.
pub fn check(store: &dyn Store, place: &Place, run: &RunId) {
    let row = store.run(run).unwrap().unwrap();
    assert!(row.head.closed && row.owner == Owner::Nobody, "{row:?}");
    assert_eq!((row.open.len(), &row.quarantined), (0, &None));
    let (mut started, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for event in events(store, run.as_str()) {
        match event {
            Event::AttemptStarted { attempt, .. } => {
                assert!(started.insert(attempt), "{run}: {attempt} twice")
            }
            Event::AttemptEnded { attempt, .. } => {
                assert!(started.contains(&attempt), "{run}: {attempt} ended and was never started");
                assert!(ended.insert(attempt), "{run}: {attempt} ended twice");
            }
            _ => {}
        }
    }
    assert_eq!(started, ended, "{run}: what was started has ended");
    let mut done = BTreeSet::new();
    for attempt in ledger(place, run) {
        assert!(started.contains(&attempt), "{run}: {attempt} was done and never recorded");
        assert!(done.insert(attempt), "{run}: {attempt} was done twice");
    }
}

/// What the workers themselves wrote down.
pub fn ledger(place: &Place, run: &RunId) -> Vec<AttemptId> {
    let text = fs::read_to_string(place.work.join(format!("ledger-{run}"))).unwrap_or_default();
    text.lines().map(|mark| mark.rsplit('/').next().unwrap().parse().unwrap()).collect()
}
