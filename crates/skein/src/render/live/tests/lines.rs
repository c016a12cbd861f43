//! The output to a pipe: plain lines, each once.

use std::{fs, path::Path};

use skein_core::{
    engine::{Event, JournalBatch, JournalError, JournalRecord},
    plan::ContentHash,
    time::{Millis, Timestamp},
};

use super::{
    cases::{self, CASES},
    trial::{Pipe, Trial, graph, options, piped, same, work},
};
use crate::render::live::{LiveOptions, LiveView};

#[test]
fn every_case_reads_well_in_a_pipe() {
    for (name, case) in CASES {
        let text = piped(&case(), options(false));
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name} has something to obey: {text:?}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{name} has blanks at an end: {text}");
        same(&format!("{name}-plain"), &text);
    }
}

/// A snapshot without its case is not checked by any test.
#[test]
fn every_snapshot_has_its_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render/live/tests/snapshots");
    for snap in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()) {
        let Some(name) = snap.to_str().unwrap().strip_suffix("-plain.snap") else { continue };
        assert!(CASES.iter().any(|(case, _)| *case == name), "{name} has no case");
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    for (name, case) in CASES {
        let (plain, painted) = (piped(&case(), options(false)), piped(&case(), options(true)));
        assert_ne!(plain, painted, "{name}");
        let mut parts = painted.split("\u{1b}[");
        let mut shown = parts.next().unwrap().to_owned();
        for part in parts {
            let (code, rest) = part.split_once('m').expect("an escape of ours is a colour");
            assert!(code.chars().all(|c| c.is_ascii_digit() || c == ';'), "{name}: {code:?}");
            shown += rest;
        }
        assert_eq!(shown, plain, "{name}");
    }
}

#[test]
fn a_slow_step_is_told_once_where_nothing_is_drawn() {
    let trial = Trial::new(graph(vec![work("long")]));
    let pipe = Pipe::default();
    let mut live = LiveView::new(trial.plan(), pipe.clone(), options(false));
    live.show_row(&trial.rows[0]).unwrap();
    let begun = trial.rows[0].records[0].at;
    for seconds in [1, 59, 60, 61, 3_000] {
        live.tick(begun.saturating_add(Millis::from_secs(seconds))).unwrap();
    }
    let text = pipe.0.borrow();
    assert_eq!(text.matches("SLOW").count(), 1, "{text}");
    assert!(text.contains("        SLOW [  60.000s] long: still running\n"), "{text}");
}

#[test]
fn rows_that_are_not_the_next_are_refused_and_change_nothing() {
    let trial = cases::chain();
    let pipe = Pipe::default();
    let mut live = LiveView::new(trial.plan(), pipe.clone(), options(false));
    let gap = live.show_row(&trial.rows[1]);
    assert_eq!(gap, Err(JournalError::Gap { expected: 0, found: trial.rows[1].seq }));
    live.show_row(&trial.rows[0]).unwrap();
    assert!(live.show_row(&trial.rows[0]).is_err(), "a row counts once");
    let forged = JournalBatch::new(trial.rows[1].seq, ContentHash::ZERO, trial.rows[1].records.clone());
    assert_eq!(live.show_row(&forged), Err(JournalError::Chain { seq: forged.seq }));
    let other = cases::failure();
    let mut live = LiveView::new(other.plan(), pipe, options(false));
    assert_eq!(live.show_row(&trial.rows[0]), Err(JournalError::OtherPlan));
}

/// A run that was quarantined at once has no steps to look up.
#[test]
fn a_run_that_was_set_aside_before_it_began_is_shown() {
    let event = Event::Quarantined { message: "it makes no sense".into() };
    let row = JournalBatch::new(0, ContentHash::ZERO, vec![JournalRecord { at: Timestamp(5), event }]);
    let pipe = Pipe::default();
    let mut live = LiveView::new(cases::chain().plan(), pipe.clone(), options(false));
    live.show_row(&row).unwrap();
    live.tick(Timestamp(9)).unwrap();
    let summary = live.finish().unwrap();
    assert!(pipe.0.borrow().contains("run set aside: it makes no sense"));
    assert!(summary.contains("Set aside: release 1.4.0"), "{summary}");
}

#[test]
fn a_log_that_is_long_or_missing_is_no_trouble() {
    let trial = cases::failure();
    let none = LiveOptions { tail: Box::new(|_| None), ..options(false) };
    assert!(!piped(&trial, none).contains('│'));
    let tail = |_| Some((0..1_000).map(|i| format!("{i} {}\n", "x".repeat(9_000))).collect());
    let long = piped(&trial, LiveOptions { tail: Box::new(tail), ..options(false) });
    assert_eq!(long.matches('│').count(), 40, "twenty lines at once and at the end");
    assert!(long.lines().all(|line| line.chars().count() < 600));
    assert!(long.contains("│ 999 x") && !long.contains("│ 979 x"));
}
