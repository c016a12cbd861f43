//! Invariants of a run that hold whatever happened to its host, and the outcome that must not depend on it.

use std::{collections::BTreeSet, fs};

use serde_json::Value;
use skein_core::{
    engine::{AttemptId, Event, InstanceIx, StepAt, StepOutcome as Ended, Verdict},
    ids::RunId,
    ir::{ErrorClass, RunStatus, StepStatus},
};
use skein_host::{
    audit::AuditChain,
    store::{RunOwner, Store, StoredAuditRecord},
};

use super::{
    life::Place,
    stage::{events, view},
};

/// The outcome of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub status: RunStatus,
    outputs: Value,
    degraded: bool,
    steps: Vec<(String, StepStatus, Value)>,
}

pub(crate) fn outcome(store: &dyn Store, run: &RunId) -> Outcome {
    let view = view(store, run);
    let steps = view.steps.into_iter().map(|step| (step.path, step.status, step.outputs));
    Outcome { status: view.status, outputs: view.outputs, degraded: view.degraded, steps: steps.collect() }
}

/// Checks a run that has ended: every attempt was started once and ended once, and no worker did anything that was not
/// recorded before, or anything twice.
pub(crate) fn check(store: &dyn Store, place: &Place, run: &RunId) {
    let row = store.find_run(run).unwrap().unwrap();
    assert!(row.head.closed && row.owner == RunOwner::Nobody, "{row:?}");
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
    audited(store, run);
    let mut done = BTreeSet::new();
    for attempt in ledger(place, run) {
        assert!(started.contains(&attempt), "{run}: {attempt} was done and never recorded");
        assert!(done.insert(attempt), "{run}: {attempt} was done twice");
    }
}

/// Checks that the audit chain is valid, and that it has exactly one record for each auditable event of this run.
fn audited(store: &dyn Store, run: &RunId) {
    let (mut chain, mut told) = (AuditChain::default(), Vec::new());
    let mut follow = |noted: StoredAuditRecord| {
        assert_eq!(noted.seq, chain.count, "no record is missing or there twice");
        let record = chain.verify_next(&noted.line).unwrap_or_else(|broken| panic!("{broken}"));
        let path = record["subject"]["path"].as_str().unwrap().to_owned();
        if path.split('/').next() == Some(run.as_str()) {
            told.push((record["input"]["event"].as_u64().unwrap(), record["action"].as_str().unwrap().to_owned()));
        }
        true
    };
    store.read_audit(0, &mut follow).unwrap();
    assert_eq!(told, expected(store, run), "{run}");
}

/// Returns the records that the journal requires.
fn expected(store: &dyn Store, run: &RunId) -> Vec<(u64, String)> {
    let (mut told, mut gates) = (Vec::new(), BTreeSet::new());
    let pays = |attempt: &AttemptId| run.as_str() == "pays" && attempt.at == StepAt(InstanceIx(0), 0);
    for (number, event) in (0..).zip(events(store, run.as_str())) {
        let actions: &[&str] = match &event {
            Event::Opened { opening, .. } => {
                gates.insert(*opening);
                &[]
            }
            Event::Decided { opening, decision, .. } => match (gates.contains(opening), decision) {
                (true, Verdict::Approve) => &["gate.approve"],
                (true, Verdict::Reject) => &["gate.reject"],
                (false, Verdict::Approve) => &["hold.approve"],
                (false, Verdict::Reject) => &["hold.reject"],
            },
            Event::CancelAsked { .. } => &["run.cancel"],
            Event::AttemptStarted { attempt, .. } if pays(attempt) => &["tool.call", "secret.reveal"],
            Event::AttemptEnded { attempt, .. } if pays(attempt) => &["tool.end"],
            Event::StepEnded { outcome: Ended::Failed(ErrorClass::Timeout), at, .. }
                if run.as_str() == "expires" && *at == StepAt(InstanceIx(0), 1) =>
            {
                &["gate.expire"]
            }
            _ => &[],
        };
        told.extend(actions.iter().map(|action| (number, (*action).to_owned())));
    }
    told
}

/// Returns the attempts that the workers themselves recorded.
pub(crate) fn ledger(place: &Place, run: &RunId) -> Vec<AttemptId> {
    let text = fs::read_to_string(place.work.join(format!("ledger-{run}"))).unwrap_or_default();
    text.lines().map(|mark| mark.rsplit('/').next().unwrap().parse().unwrap()).collect()
}
