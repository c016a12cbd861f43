//! The display on a terminal: during a run and after a resize, and no drawn line stays.

use skein_core::{engine::Verdict, time::Millis};

use super::{
    cases::{self, CASES},
    terminal::Terminal,
    trial::{
        Trial, after, checked, gate, graph, options, piped, retried, route, same, undoable, undoing as undoing_step,
        work,
    },
};
use crate::render::live::LiveView;

/// Returns the screen after all rows and the summary, with many drawings in between.
fn at_end(trial: &Trial, terminal: &Terminal, paint: bool) -> String {
    let mut live = LiveView::new(trial.plan(), terminal.clone(), options(paint));
    for row in &trial.rows {
        live.show_row(row).unwrap();
        let at = row.records[0].at;
        live.tick(at).unwrap();
        live.tick(at.saturating_add(Millis(500))).unwrap();
    }
    let summary = live.finish().unwrap();
    format!("{}{summary}", terminal.text())
}

#[test]
fn nothing_that_was_drawn_stays() {
    for (name, case) in CASES {
        let trial = case();
        // If lines are drawn, a slow step needs no permanent line.
        let plain = piped(&trial, options(false));
        let plain: String = plain.split_inclusive('\n').filter(|line| !line.contains("SLOW")).collect();
        for (columns, rows) in [(200, 50), (80, 24), (20, 6), (10, 2)] {
            let shown = at_end(&trial, &Terminal::new(columns, rows), false);
            let without = |text: &str| text.replace('\u{fe0f}', "");
            assert_eq!(without(&shown), without(&plain), "{name} on {columns} columns");
        }
    }
}

#[test]
fn a_terminal_of_no_size_is_given_lines_only() {
    for (columns, rows) in [(0, 0), (0, 24), (80, 0), (9, 24), (80, 1)] {
        let terminal = Terminal::new(columns.max(80), rows.max(24));
        let trial = cases::chain();
        let unknown = Unknown(terminal.clone(), columns, rows);
        let mut live = LiveView::new(trial.plan(), unknown, options(false));
        for row in &trial.rows {
            live.show_row(row).unwrap();
            live.tick(row.records[0].at.saturating_add(Millis(500))).unwrap();
        }
        let summary = live.finish().unwrap();
        assert_eq!(format!("{}{summary}", terminal.text()), piped(&trial, options(false)));
    }
}

/// A terminal that reports another size than it has.
struct Unknown(Terminal, u16, u16);

impl crate::render::live::TerminalSurface for Unknown {
    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.0.write(text)
    }

    fn size(&self) -> Option<crate::render::live::TerminalSize> {
        Some(crate::render::live::TerminalSize { columns: self.1, rows: self.2 })
    }
}

/// A run with much activity: eleven running, one of them slow, one waiting for a retry.
fn busy(columns: u16, rows: u16) -> (Trial, Terminal, LiveView<Terminal>) {
    let names: Vec<String> = (0..11).map(|i| format!("job-{i}")).collect();
    let mut steps: Vec<_> = names.iter().map(|name| work(name)).collect();
    steps.push(work("日本語の手順"));
    steps.push(after("last", &["job-0"]));
    let mut trial = Trial::new(graph(steps));
    let terminal = Terminal::new(columns, rows);
    let mut live = LiveView::new(trial.plan(), terminal.clone(), options(true));
    trial.spending(1_234, 56_000).pass(30_000).ok("job-10");
    trial.rows.iter().for_each(|row| live.show_row(row).unwrap());
    live.show_output(trial.attempt("job-1"), "\u{1b}[32m   Compiling\u{1b}[0m serde v1.0.229\r\n");
    live.show_output(trial.attempt("job-2"), &"long ".repeat(100));
    live.show_output(trial.attempt("日本語の手順"), "進捗 50%\r進捗 99%\u{7}");
    live.tick(trial.now.saturating_add(Millis::from_secs(2))).unwrap();
    (trial, terminal, live)
}

#[test]
fn what_runs_is_drawn_and_fits() {
    for (columns, rows) in [(100, 40), (64, 24), (40, 12), (20, 9), (10, 4), (80, 2)] {
        let (_, terminal, _) = busy(columns, rows);
        same(&format!("busy-{columns}x{rows}"), &terminal.text());
    }
}

#[test]
fn slow_steps_are_flagged() {
    let (trial, terminal, mut live) = busy(100, 40);
    live.tick(trial.now.saturating_add(Millis::from_secs(40))).unwrap();
    assert!(terminal.text().contains("        SLOW [    1m12s] job-0\n"), "{}", terminal.text());
    live.finish().unwrap();
    assert!(!terminal.text().contains("SLOW"), "{}", terminal.text());
}

#[test]
fn a_resize_leaves_nothing_behind() {
    for (columns, rows) in [(30, 40), (50, 24), (100, 14), (200, 50), (21, 40), (9, 200)] {
        let (trial, terminal, mut live) = busy(100, 40);
        terminal.resize(columns, rows);
        live.tick(trial.now.saturating_add(Millis::from_secs(3))).unwrap();
        terminal.resize(100, 40);
        live.tick(trial.now.saturating_add(Millis::from_secs(4))).unwrap();
        live.finish().unwrap();
        let text = terminal.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "at {columns}x{rows}:\n{text}");
        assert!(lines[0].contains("started") && lines[1].contains("job-10"), "{text}");
    }
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let (trial, terminal, mut live) = busy(100, 40);
    let before = terminal.0.borrow().writes;
    live.tick(trial.now.saturating_add(Millis(2_100))).unwrap();
    assert_eq!(terminal.0.borrow().writes, before);
    live.tick(trial.now.saturating_add(Millis(3_100))).unwrap();
    assert_eq!(terminal.0.borrow().writes, before + 1);
}

#[test]
fn a_worker_that_ended_has_nothing_more_to_say() {
    let mut trial = Trial::new(graph(vec![work("a"), after("b", &["a"])]));
    let terminal = Terminal::new(80, 24);
    let mut live = LiveView::new(trial.plan(), terminal.clone(), options(false));
    let attempt = trial.attempt("a");
    trial.ok("a");
    trial.rows.iter().for_each(|row| live.show_row(row).unwrap());
    live.show_output(attempt, "too late");
    live.tick(trial.now).unwrap();
    assert!(!terminal.text().contains("too late"), "{}", terminal.text());
}

#[test]
fn what_waits_stops_or_is_undone_is_drawn_too() {
    let mut text = String::new();
    let mut stopping = Trial::new(graph(vec![work("long"), work("other")]));
    stopping.cancel();
    let mut undoing = Trial::new(route(vec![undoable("book"), undoing_step(work("mail"))]));
    undoing.ok("book").fail("mail");
    let mut retrying = Trial::new(graph(vec![retried(work("fetch"), 3), checked("write", 5)]));
    retrying.fail("fetch").ok("write");
    for trial in [cases::at_gate(), stopping, undoing, retrying] {
        let terminal = Terminal::new(80, 24);
        let mut live = LiveView::new(trial.plan(), terminal.clone(), options(true));
        trial.rows.iter().for_each(|row| live.show_row(row).unwrap());
        live.tick(trial.now.saturating_add(Millis::from_secs(9))).unwrap();
        text += &format!("{}\n", terminal.text());
    }
    same("drawn", &text);
}

#[test]
fn a_gate_that_was_answered_is_not_drawn() {
    let gates: Vec<String> = (0..5).map(|i| format!("gate-{i}")).collect();
    let mut trial = Trial::new(graph(gates.iter().map(|name| gate(name, "?")).collect()));
    [0, 2, 3].iter().for_each(|opening| {
        trial.decide(*opening, Verdict::Approve);
    });
    let terminal = Terminal::new(80, 24);
    let mut live = LiveView::new(trial.plan(), terminal.clone(), options(false));
    trial.rows.iter().for_each(|row| live.show_row(row).unwrap());
    live.tick(trial.now).unwrap();
    let text = terminal.text();
    let drawn: Vec<&str> = text.lines().rev().take(4).collect();
    assert!(drawn[0].ends_with("3/5 steps, 2 waiting"), "{text}");
    assert!(drawn[1].ends_with("gate-4: ?") && drawn[2].ends_with("gate-1: ?"), "{text}");
    assert!(drawn[3].ends_with("succeeded [   3.000s] gate-3"), "{text}");
}

/// A terminal that is closed.
struct Gone;

impl crate::render::live::TerminalSurface for Gone {
    fn write(&mut self, _: &str) -> std::io::Result<()> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn size(&self) -> Option<crate::render::live::TerminalSize> {
        None
    }
}

#[test]
fn what_cannot_be_written_is_told() {
    let trial = cases::chain();
    let mut live = LiveView::new(trial.plan(), Gone, options(false));
    live.show_row(&trial.rows[0]).unwrap();
    assert!(live.tick(trial.now).is_err());
    live.show_row(&trial.rows[1]).unwrap();
    assert!(live.finish().is_err());
}
