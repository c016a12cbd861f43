//! Verification of the demonstration: by the lines that the workers wrote themselves, and by the journal.
//!
//! Owns the expected starts of workers before and after the engine was killed. Does not rely on any report of success.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use serde_json::Value;

use super::DemoError;

/// The steps that have workers, in their order.
const STEPS: [&str; 5] = ["draft", "tests", "lint", "polish", "publish"];

/// The files that workers write, in the folder of the demonstration.
const LOGS: [&str; 3] = ["work.log", "tests/work.log", "lint/work.log"];

/// The step and the round in which the engine is killed.
pub(super) const CUT: (&str, u32) = ("polish", 2);

/// The progress file of the worker that will be cut off, and the number of lines at the middle of its work.
const STROKES: &str = "strokes.txt";
const MIDDLE: usize = 3;

/// A line of a log: a worker that was started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WorkerStart {
    pub step: String,
    pub round: u32,
    pub attempt: u32,
}

impl WorkerStart {
    fn parse(line: &str) -> Option<WorkerStart> {
        let mut words = line.split_whitespace();
        let step = words.next()?.to_owned();
        let (round, attempt) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(WorkerStart { step, round, attempt })
    }
}

impl fmt::Display for WorkerStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.step)?;
        if self.step == CUT.0 {
            write!(f, " round {}", self.round)?;
        }
        match self.attempt {
            1 => Ok(()),
            attempt => write!(f, " (attempt {attempt})"),
        }
    }
}

/// Reads all lines that workers have written so far.
pub(super) fn read_starts(folder: &Path) -> Result<Vec<WorkerStart>, DemoError> {
    let mut starts = Vec::new();
    for log in LOGS {
        let text = match fs::read_to_string(folder.join(log)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(DemoError::broken(format!("`{log}` cannot be read: {error}"))),
            Ok(text) => text,
        };
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            starts.push(
                WorkerStart::parse(line).ok_or_else(|| DemoError::broken(format!("`{log}` has a line `{line}`")))?,
            );
        }
    }
    let place = |start: &WorkerStart| STEPS.iter().position(|step| *step == start.step);
    starts.sort_by_key(|start| (place(start), start.round, start.attempt));
    Ok(starts)
}

fn worker_start(step: &str, round: u32, attempt: u32) -> WorkerStart {
    WorkerStart { step: step.to_owned(), round, attempt }
}

/// Returns true if the worker that will be cut off is in the middle of its work.
pub(super) fn is_cut_begun(folder: &Path) -> Result<bool, DemoError> {
    let strokes = fs::read_to_string(folder.join(STROKES)).unwrap_or_default();
    Ok(strokes.lines().count() >= MIDDLE && read_starts(folder)?.contains(&worker_start(CUT.0, CUT.1, 1)))
}

/// Returns the starts that are expected when the engine is killed.
fn expected_before_kill() -> Vec<WorkerStart> {
    let parallel = [worker_start("tests", 1, 1), worker_start("lint", 1, 1), worker_start("lint", 1, 2)];
    [worker_start("draft", 1, 1)]
        .into_iter()
        .chain(parallel)
        .chain([worker_start(CUT.0, 1, 1), worker_start(CUT.0, CUT.1, 1)])
        .collect()
}

/// Checks the log at the moment of the kill.
pub(super) fn check_before_kill(found: &[WorkerStart]) -> Result<(), DemoError> {
    compare_starts(found, &expected_before_kill(), "when the engine was killed")
}

/// Checks the whole log when the run waits again: finished steps were not repeated, the interrupted one was. Returns
/// the new starts.
pub(super) fn check_after_kill(earlier: &[WorkerStart], found: &[WorkerStart]) -> Result<Vec<WorkerStart>, DemoError> {
    check_new_starts(
        earlier,
        found,
        &[worker_start(CUT.0, CUT.1, 2), worker_start(CUT.0, CUT.1 + 1, 1)],
        "after the kill",
    )
}

/// Checks the whole log at the end.
pub(super) fn check_at_end(
    earlier: &[WorkerStart],
    found: &[WorkerStart],
    approved: bool,
) -> Result<Vec<WorkerStart>, DemoError> {
    let expected: &[WorkerStart] = if approved { &[worker_start("publish", 1, 1)] } else { &[] };
    check_new_starts(earlier, found, expected, "after the decision")
}

fn check_new_starts(
    earlier: &[WorkerStart],
    found: &[WorkerStart],
    expected: &[WorkerStart],
    when: &str,
) -> Result<Vec<WorkerStart>, DemoError> {
    let mut rest = found.to_vec();
    for one in earlier {
        let Some(at) = rest.iter().position(|other| other == one) else {
            return Err(DemoError::broken(format!("the line of `{one}` is gone from the workers' log")));
        };
        rest.swap_remove(at);
    }
    rest.sort();
    let done = |one: &&WorkerStart| earlier.iter().any(|other| other.step == one.step) && one.step != CUT.0;
    if let Some(again) = rest.iter().find(done) {
        return Err(DemoError::broken(format!("`{}` had finished, and ran again {when}", again.step)));
    }
    compare_starts(&rest, expected, when)?;
    Ok(rest)
}

fn compare_starts(found: &[WorkerStart], expected: &[WorkerStart], when: &str) -> Result<(), DemoError> {
    let count = |starts: &[WorkerStart]| {
        let mut counts: BTreeMap<WorkerStart, usize> = BTreeMap::new();
        starts.iter().for_each(|start| *counts.entry(start.clone()).or_default() += 1);
        counts
    };
    let (found, expected) = (count(found), count(expected));
    if let Some((more, _)) = found.iter().find(|(start, n)| **n > expected.get(start).copied().unwrap_or(0)) {
        return Err(DemoError::broken(format!("{when}, `{more}` was started once too often")));
    }
    match expected.keys().find(|start| !found.contains_key(start)) {
        Some(missing) => Err(DemoError::broken(format!("{when}, `{missing}` was not started"))),
        None => Ok(()),
    }
}

/// Checks the journal: every attempt has exactly one end, one attempt was interrupted, and two steps ran at the same
/// time. Returns the number of attempts.
pub(super) fn check_journal(events: &[Value]) -> Result<usize, DemoError> {
    let (begun, mut ended) =
        (find_attempt_events(events, "attempt_started"), find_attempt_events(events, "attempt_ended"));
    for (_, attempt) in &begun {
        let Some(at) = ended.iter().position(|(_, other)| other == attempt) else {
            return Err(DemoError::broken(format!("attempt {attempt} has no end in the journal")));
        };
        ended.swap_remove(at);
    }
    if let Some((_, twice)) = ended.first() {
        return Err(DemoError::broken(format!("attempt {twice} ended twice in the journal")));
    }
    let cut = events.iter().filter(|event| event["event"]["attempt_ended"]["end"] == "interrupted").count();
    if cut != 1 {
        return Err(DemoError::broken(format!("{cut} attempts were interrupted instead of one")));
    }
    let first = |name: &str, step: &str| {
        let at = |(at, _): &(usize, &str)| events[*at]["path"] == step;
        find_attempt_events(events, name).into_iter().find(at).map(|(at, _)| at)
    };
    let (tests, lint) = (first("attempt_started", "tests"), first("attempt_started", "lint"));
    let over = first("attempt_ended", "tests").min(first("attempt_ended", "lint"));
    if tests.max(lint) > over {
        return Err(DemoError::broken("`tests` and `lint` did not run at the same time"));
    }
    Ok(begun.len())
}

/// Returns the attempts of events with a name, and their indexes.
fn find_attempt_events<'a>(events: &'a [Value], name: &str) -> Vec<(usize, &'a str)> {
    let attempt = |event: &'a Value| event["event"].get(name)?.get("attempt")?.as_str();
    events.iter().enumerate().filter_map(|(at, event)| Some((at, attempt(event)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The claim that did not hold.
    fn claim(error: DemoError) -> String {
        match error {
            DemoError::Broken(why) => why,
            other => panic!("{other:?}"),
        }
    }

    fn resumed() -> Vec<WorkerStart> {
        expected_before_kill().into_iter().chain([worker_start("polish", 2, 2), worker_start("polish", 3, 1)]).collect()
    }

    #[test]
    fn what_should_happen_is_accepted() {
        check_before_kill(&expected_before_kill()).unwrap();
        let added = check_after_kill(&expected_before_kill(), &resumed()).unwrap();
        assert_eq!(added, [worker_start("polish", 2, 2), worker_start("polish", 3, 1)]);
        let end: Vec<WorkerStart> = resumed().into_iter().chain([worker_start("publish", 1, 1)]).collect();
        assert_eq!(check_at_end(&resumed(), &end, true).unwrap(), [worker_start("publish", 1, 1)]);
        assert!(check_at_end(&resumed(), &resumed(), false).unwrap().is_empty());
    }

    #[test]
    fn a_step_that_was_done_twice_is_found_out() {
        for step in ["draft", "tests", "lint"] {
            for attempt in [1, 2] {
                let found: Vec<WorkerStart> = resumed().into_iter().chain([worker_start(step, 1, attempt)]).collect();
                let why = check_after_kill(&expected_before_kill(), &found).map_err(claim).unwrap_err();
                assert_eq!(why, format!("`{step}` had finished, and ran again after the kill"));
            }
        }
        let found: Vec<WorkerStart> = resumed().into_iter().chain([worker_start("polish", 1, 1)]).collect();
        let why = check_after_kill(&expected_before_kill(), &found).map_err(claim).unwrap_err();
        assert_eq!(why, "after the kill, `polish round 1` was started once too often");
        let twice: Vec<WorkerStart> = expected_before_kill().into_iter().chain([worker_start("draft", 1, 1)]).collect();
        assert!(check_before_kill(&twice).map_err(claim).unwrap_err().contains("`draft` was started once too often"));
    }

    #[test]
    fn what_did_not_happen_is_found_out() {
        let lost: Vec<WorkerStart> = resumed().into_iter().filter(|one| one.step != "tests").collect();
        assert!(
            check_after_kill(&expected_before_kill(), &lost)
                .map_err(claim)
                .unwrap_err()
                .contains("the line of `tests` is gone")
        );
        let why = check_after_kill(&expected_before_kill(), &expected_before_kill()).map_err(claim).unwrap_err();
        assert_eq!(why, "after the kill, `polish round 2 (attempt 2)` was not started");
        let why = check_at_end(&resumed(), &resumed(), true).map_err(claim).unwrap_err();
        assert_eq!(why, "after the decision, `publish` was not started");
        let end: Vec<WorkerStart> = resumed().into_iter().chain([worker_start("publish", 1, 1)]).collect();
        assert!(check_at_end(&resumed(), &end, false).is_err(), "nothing is published against a no");
        let first: Vec<WorkerStart> = expected_before_kill().into_iter().filter(|one| one.attempt == 1).collect();
        assert!(check_before_kill(&first).map_err(claim).unwrap_err().contains("`lint (attempt 2)` was not started"));
    }

    fn event(step: &str, what: &str, id: &str, end: &str) -> Value {
        json!({"path": step, "event": {what: {"attempt": id, "end": end}}})
    }

    #[test]
    fn the_journal_is_judged() {
        let begun = |step: &str, id: &str| event(step, "attempt_started", id, "");
        let ended = |step: &str, id: &str| event(step, "attempt_ended", id, "done");
        let cut = || event("polish", "attempt_ended", "c", "interrupted");
        let (tests, lint) = (|| begun("tests", "a"), || begun("lint", "b"));
        let (tested, linted) = (|| ended("tests", "a"), || ended("lint", "b"));
        let then = |four: [Value; 4], last: &[Value]| {
            check_journal(&four.into_iter().chain([begun("polish", "c")]).chain(last.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(then([tests(), lint(), linted(), tested()], &[cut()]).unwrap(), 3);
        assert_eq!(then([lint(), tests(), linted(), tested()], &[cut()]).unwrap(), 3);
        for apart in [[tests(), tested(), lint(), linted()], [lint(), linted(), tests(), tested()]] {
            assert!(then(apart, &[cut()]).map_err(claim).unwrap_err().contains("did not run at the same time"));
        }
        let good = || [tests(), lint(), linted(), tested()];
        assert!(then(good(), &[]).map_err(claim).unwrap_err().contains("attempt c has no end"));
        assert!(then(good(), &[cut(), tested()]).map_err(claim).unwrap_err().contains("attempt a ended twice"));
        assert!(
            then(good(), &[ended("polish", "c")]).map_err(claim).unwrap_err().contains("0 attempts were interrupted")
        );
    }
}
