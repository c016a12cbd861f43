//! Cancel and failure at every point of every reference run (F1, F3), with real processes.
//!
//! An input to a run is decided between two of its rows, so every row is a point; a failure belongs to an attempt, so
//! every attempt is a point.

use std::{
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex},
};

use skein_core::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, Cost, Event, InstanceIx, Publication,
        StepAt, StepOutcome,
    },
    ids::RunId,
    ir::{ErrorClass, RunStatus, StepStatus},
};
use skein_host::{
    executor::ProcessExecutor,
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter},
    store::Store,
};
use skein_testkit::store::MemoryStore;

use super::{
    life::{Lived, Place, live, nothing_is_left},
    reference, sound,
    stage::{events, id, view},
};

const UNDONE: RunStatus = RunStatus::Undone;

/// An executor that fails one attempt instead of running it.
struct FailsOne {
    crew: ProcessExecutor,
    /// The number of starts left until the failure; after 0, no attempt fails.
    left: usize,
    failed: Arc<Mutex<Option<Failed>>>,
}

/// The attempt that failed.
#[derive(Debug, Clone)]
struct Failed {
    step: String,
    role: AttemptRole,
}

impl fmt::Debug for FailsOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.crew.fmt(f)
    }
}

impl Executor for FailsOne {
    fn start_attempt(
        &mut self,
        running: ActiveRun<'_>,
        attempt: AttemptId,
        task: &AttemptAssignment,
        finish: AttemptReporter,
    ) {
        let at = self.left;
        self.left = at.wrapping_sub(1);
        if at != 0 {
            return self.crew.start_attempt(running, attempt, task, finish);
        }
        let step = running.names.step_path(attempt.at);
        *self.failed.lock().unwrap() = Some(Failed { step, role: attempt.role });
        let end = AttemptEnd::Failed {
            class: ErrorClass::NonRetryable,
            code: None,
            message: "it was to fail".into(),
            retry_at: None,
        };
        finish.report(AttemptReport::new(end, Cost::default()));
    }

    fn stop_attempt(&mut self, run: &RunId, attempt: AttemptId) {
        self.crew.stop_attempt(run, attempt);
    }

    fn publish(&mut self, running: ActiveRun<'_>, item: Publication, published: PublicationReporter) {
        self.crew.publish(running, item, published);
    }

    fn reap_orphans(&mut self, runs: &[RunId]) {
        self.crew.reap_orphans(runs);
    }

    fn forget_run(&mut self, run: &RunId) {
        self.crew.forget_run(run);
    }
}

/// A run in its own folder, and its result.
struct Cut {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
    lived: Lived,
    failed: Option<Failed>,
}

/// Runs a reference run that is cancelled after a row, or of which an attempt fails.
fn cut(name: &str, cancel_after: Option<usize>, fails: Option<usize>) -> Cut {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::of(dir.path());
    fs::create_dir(&place.state).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let failed = Arc::default();
    let hands = FailsOne { crew: place.crew(), left: fails.unwrap_or(usize::MAX), failed: Arc::clone(&failed) };
    let lived = live(&place, &store, Box::new(hands), &[name], cancel_after);
    nothing_is_left(&place);
    sound::check(&*store, &place, &id(name));
    let failed = failed.lock().unwrap().clone();
    let cut = Cut { dir, store, lived, failed };
    cut.is_at_rest(name);
    cut
}

impl Cut {
    fn status(&self, name: &str) -> RunStatus {
        view(&*self.store, &id(name)).status
    }

    /// Checks that no step is active, and that kept artifacts still exist.
    fn is_at_rest(&self, name: &str) {
        let moving = [StepStatus::Ready, StepStatus::Running, StepStatus::Checking, StepStatus::Waiting];
        for step in view(&*self.store, &id(name)).steps {
            assert!(!moving.contains(&step.status), "{name}: {step:?}");
        }
        let made = StepAt(InstanceIx::ROOT, 0);
        let kept = |event: &Event| matches!(event, Event::StepEnded { at, outcome: StepOutcome::Succeeded, .. } if *at == made);
        if name == "hands-on" && events(&*self.store, name).iter().any(kept) {
            let runs = self.dir.path().join("state/runs/hands-on/artifacts");
            assert!(holds(&runs, "some words\n"), "the artifact is gone");
        }
    }
}

/// Returns true if a file in a folder, at any depth, has these contents.
fn holds(dir: &Path, text: &str) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.file_type().unwrap().is_dir() {
        true => holds(&entry.path(), text),
        false => fs::read_to_string(entry.path()).is_ok_and(|found| found == text),
    })
}

#[test]
fn a_cancel_at_any_row_ends_a_run_and_all_that_it_started() {
    let cancelled = reference::with_each(|name| {
        let whole = cut(name, None, None);
        let (usual, mut accepted) = (whole.status(name), 0);
        for row in 1..=whole.lived.rows {
            let cut = cut(name, Some(row), None);
            let status = cut.status(name);
            match &cut.lived.cancel {
                Some(Ok(())) => {
                    accepted += 1;
                    // An undo that has started is completed.
                    let ends = status == RunStatus::Cancelled || (status, usual) == (UNDONE, UNDONE);
                    assert!(ends, "{name}, cancelled after row {row}: {status:?}");
                }
                // It had ended, or was being undone, when the cancel came.
                Some(Err(_)) | None => assert_eq!(status, usual, "{name}, cancelled after row {row}"),
            }
        }
        accepted
    });
    assert!(cancelled >= 50, "{cancelled}");
}

/// Returns the possible statuses of a run of which this attempt failed permanently.
fn ends_of_failure(name: &str, Failed { step, role }: &Failed) -> Vec<RunStatus> {
    match (name, step.as_str(), role) {
        (_, _, AttemptRole::Undo) => vec![RunStatus::UndoFailed],
        // Nothing depends on a summary, and the steps that depend on this one tolerate its failure.
        (_, _, AttemptRole::Summary) | ("goes-on", "a", _) => vec![RunStatus::Succeeded],
        ("undo" | "undo-again", "c", _) => vec![UNDONE],
        // The cancel may be faster.
        (_, "long", _) => vec![RunStatus::Failed, RunStatus::Cancelled],
        _ => vec![RunStatus::Failed],
    }
}

#[test]
fn a_failure_of_any_attempt_ends_a_run_as_it_says() {
    let failures = reference::with_each(|name| {
        let whole = cut(name, None, None);
        let starts = |cut: &Cut| {
            let events = events(&*cut.store, name);
            events.iter().filter(|event| matches!(event, Event::AttemptStarted { .. })).count()
        };
        let count = starts(&whole);
        for nth in 0..count {
            let cut = cut(name, None, Some(nth));
            let failed = cut.failed.as_ref().expect("an attempt failed");
            let expected = ends_of_failure(name, failed);
            let status = cut.status(name);
            assert!(expected.contains(&status), "{name}: {failed:?}, and it is {status:?}");
        }
        count
    });
    assert!(failures >= 60, "{failures}");
}
