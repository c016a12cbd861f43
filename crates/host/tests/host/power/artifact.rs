//! Artifacts: if the journal says that a step succeeded, its artifacts exist and are complete.

use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc},
};

use skein_core::{
    engine::{AttemptId, Event, StepOutcome},
    ids::ArtifactName,
    ir::{OutputArtifact, Step},
    plan::{ContentHash, Plan},
};
use skein_host::{
    host::{Host, HostEvent, WorkerCapacity},
    store::{SqliteStore, Store},
    workspace::{ArtifactManifest, RootFolder, RunDir},
};

use super::{
    disk::{Disk, Rest},
    memory,
    trace::{Call, Trace},
};
use crate::{
    dice::Dice,
    durable::{
        kit::{after, graph, plan, run, work_of},
        life::Place,
        stage::{LONG, begin, events, id, starts},
    },
    store::say,
};

const RUN: &str = "r";

fn gives(mut step: Step, artifacts: &[(&str, &str)]) -> Step {
    let gives = |(name, path): &(&str, &str)| OutputArtifact {
        name: ArtifactName::new(*name).unwrap(),
        path: (*path).to_owned(),
        kind: None,
    };
    work_of(&mut step).gives = artifacts.iter().map(gives).collect();
    step
}

/// A file, a folder of folders, and so many files that they are not synced one by one.
fn flow() -> Plan {
    let few = "mkdir -p out/a/b; echo words > out/a/words; echo 1 > out/a/b/1; echo 2 > out/2";
    let few = gives(run("few", few), &[("words", "out/a/words"), ("tree", "out")]);
    let many = run("many", "mkdir many; for n in $(seq 70); do echo $n > many/$n; done");
    plan(graph(vec![few, after(gives(many, &[("all", "many")]), &["few"])]))
}

/// The process that loses power.
pub(crate) fn play(root: &Path) {
    let place = Place::of(root);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&place.state).unwrap());
    live(&place, &store);
}

/// The same, after a process that was killed before it had synced the folders that it created.
pub(crate) fn left_before(root: &Path) {
    let place = Place::of(root);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&place.state).unwrap());
    let run = RunDir::run_path(&place.state, &id(RUN));
    for folder in ["artifacts", "pending"] {
        fs::create_dir_all(run.join(folder)).unwrap();
    }
    live(&place, &store);
}

fn live(place: &Place, store: &Arc<dyn Store>) {
    let (tell, over) = mpsc::channel();
    let watcher = move |told: HostEvent<'_>| match told {
        HostEvent::Row { batch, .. } => {
            let ends = batch.records.iter().filter(|record| succeeds(&record.event).is_some());
            ends.for_each(|_| say("succeeded"));
        }
        HostEvent::Closed { .. } => tell.send(()).unwrap(),
        other => panic!("{other:?}"),
    };
    let host = Host::new(Arc::clone(store), Box::new(place.crew()), WorkerCapacity { workers: 2 }, Box::new(watcher));
    host.launch_runs(vec![begin(RUN, &flow(), place.settings())]).unwrap();
    over.recv_timeout(LONG).unwrap();
}

/// Returns the number of a step that succeeded.
fn succeeds(event: &Event) -> Option<u32> {
    match event {
        Event::StepEnded { at, outcome: StepOutcome::Succeeded, .. } => Some(at.1),
        _ => None,
    }
}

/// Opens the remaining state: at least `acknowledged` steps succeeded, and all their artifacts exist.
fn look(left: &Path, acknowledged: usize) {
    let store = SqliteStore::open(left).unwrap();
    if store.find_run(&id(RUN)).unwrap().is_none() {
        assert_eq!(acknowledged, 0, "the run is gone");
        return;
    }
    let events = events(&store, RUN);
    let succeeded: Vec<u32> = events.iter().filter_map(succeeds).collect();
    assert!(succeeded.len() >= acknowledged, "{acknowledged} were acknowledged, and {succeeded:?} are there");
    let root = RootFolder::open(left).unwrap();
    for step in succeeded {
        let attempt = starts(&events).into_iter().find(|attempt| attempt.at.1 == step).unwrap();
        let run = RunDir::open(&root, &id(RUN)).unwrap();
        let kept = run.find_manifest(attempt).unwrap().expect("what the step gave is there");
        let files = kept.artifacts.iter().map(|artifact| artifact.files.len()).sum::<usize>();
        assert_eq!(files, [1 + 3, 70][step as usize]);
        holds(run.path(), attempt, &kept);
    }
}

/// Checks that every file exists and is unchanged.
fn holds(run: &Path, attempt: AttemptId, kept: &ArtifactManifest) {
    let folder = run.join("artifacts").join(attempt.to_string()).join("files");
    for artifact in &kept.artifacts {
        let folder = folder.join(artifact.name.as_str());
        for file in &artifact.files {
            assert_eq!(ContentHash::hash_bytes(&fs::read(folder.join(&file.path)).unwrap()), file.hash);
        }
        artifact.folders.iter().for_each(|name| assert!(folder.join(name).is_dir()));
    }
}

fn lose(role: &str) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().canonicalize().unwrap();
    let state = Place::of(&path).state;
    let trace = Trace::of(role, &path, &state);
    let left = memory();
    let left = left.path().join("left");
    let (mut disk, mut dice, mut acknowledged) = (Disk::new(&state), Dice(3), 0);
    for moment in &trace.moments {
        if disk.follow(*moment, &trace) == Some("succeeded") {
            acknowledged += 1;
        }
        if matches!(trace.calls[&moment.number()], Call::Say(_) | Call::Sync(_) | Call::SyncAll) {
            for rest in [Rest::Nothing, Rest::Some] {
                disk.save(&left, rest, &mut dice);
                look(&left, acknowledged);
            }
        }
    }
    assert_eq!(acknowledged, 2);
}

#[test]
fn artifacts_of_a_step_that_succeeded_survive_the_loss_of_power() {
    lose("power-artifact");
}

#[test]
fn artifacts_survive_also_where_one_that_was_killed_had_made_their_folders() {
    lose("power-artifact-left");
}
