//! Large runs: the cost of the display grows with the events, not with the size of the run.

use std::time::{Duration, Instant};

use skein_core::engine::{AttemptEnd, AttemptReport, RunInput};

use super::{
    terminal::Terminal,
    trial::{Trial, graph, options, work},
};
use crate::render::live::{JsonlEncoder, LiveView};

/// Returns a run of this many steps, each ended by a row of its own.
fn wide(steps: usize) -> Trial {
    let mut scope = graph((0..steps).map(|i| work(&format!("s{i}"))).collect());
    scope.concurrency = Some(50);
    let mut trial = Trial::new(scope);
    while let Some(attempt) = trial.driver.state().in_flight().first().copied() {
        let end = AttemptEnd::Succeeded { output: Default::default() };
        trial.say(RunInput::Finished { attempt, report: AttemptReport::new(end, Default::default()) });
    }
    trial
}

/// Shows a run, and returns the number of bytes written and the duration.
fn show(trial: &Trial) -> (usize, Duration) {
    let terminal = Terminal::new(100, 40);
    let mut live = LiveView::new(trial.plan(), terminal.clone(), options(true));
    let begun = Instant::now();
    for row in &trial.rows {
        live.show_row(row).unwrap();
        live.tick(row.records[0].at).unwrap();
    }
    let summary = live.finish().unwrap();
    assert!(summary.contains(&format!("{} succeeded", trial.plan().definition.root().names.len())), "{summary}");
    let bytes = terminal.0.borrow().bytes;
    (bytes, begun.elapsed())
}

#[test]
fn ten_thousand_steps_are_shown_in_time_that_grows_with_them() {
    let (small, large) = (wide(1_000), wide(10_000));
    let ((few, _), (many, took)) = (show(&small), show(&large));
    assert!(many < 12 * few, "{few} bytes for 1,000 steps, {many} for 10,000");
    // A view of the whole run with each row would take minutes.
    assert!(took < Duration::from_secs(60), "it took {took:?}");
    let mut jsonl = JsonlEncoder::new(&large.plan());
    let lines: usize = large.rows.iter().map(|row| jsonl.encode_row(row).unwrap().lines().count()).sum();
    assert_eq!(lines as u64, large.driver.state().events);
}
