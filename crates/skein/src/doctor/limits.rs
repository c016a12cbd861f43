//! What the system allows, which calls its kernel has, and whether its clock can be right.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use skein_core::{engine::utc, limits, time::Time};
use skein_host::machine;

use super::Finding;
use crate::config::Config;

/// What a worker takes of open files while it is watched, at most, and what is needed beside all of them.
const FILES_EACH: u64 = 8;
const FILES: u64 = 64;
/// Fewer processes than this are soon used up by one agent and what it builds.
const PROCESSES: u64 = 256;
/// The first of January 2026: before it there was no Skein.
const FIRST: Time = Time(1_767_225_600_000);
/// Clocks of two processes may be so far apart.
const SLACK: i64 = 60_000;

pub fn look(config: Option<&Config>, newest: Option<Time>) -> Vec<Finding> {
    let workers = config.and_then(|config| config.max_workers).unwrap_or(limits::WORKERS_DEFAULT);
    let mut findings = vec![
        files(getrlimit(Resource::Nofile).current, u64::from(workers)),
        processes(getrlimit(Resource::Nproc).current),
        clock(now(), newest),
    ];
    findings.extend(machine::calls().iter().map(call));
    findings
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn files(allowed: Option<u64>, workers: u64) -> Finding {
    let needed = FILES + FILES_EACH * workers;
    let Some(allowed) = allowed else { return Finding::ok("open files", "without a limit") };
    let message = format!("{allowed} allowed, about {needed} needed for {workers} workers at once");
    if allowed < needed {
        return Finding::problem(
            "open files",
            message,
            "`ulimit -n 4096`, or a smaller `max_workers` in skein.toml",
        );
    }
    Finding::ok("open files", message)
}

fn processes(allowed: Option<u64>) -> Finding {
    match allowed {
        None => Finding::ok("processes", "without a limit"),
        Some(allowed) if allowed < PROCESSES => {
            let message = format!("{allowed} allowed for this user");
            Finding::warning("processes", message, format!("`ulimit -u` with {PROCESSES} or more"))
        }
        Some(allowed) => Finding::ok("processes", format!("{allowed} allowed for this user")),
    }
}

fn clock(now: Time, newest: Option<Time>) -> Finding {
    let hint = "set the clock; deadlines and gates are kept in its time";
    if now < FIRST {
        return Finding::problem("clock", format!("it says {}, which cannot be", utc(now)), hint);
    }
    match newest {
        Some(newest) if newest.0 > now.0.saturating_add(SLACK) => {
            let message = format!("it says {}, and a run was started at {}", utc(now), utc(newest));
            Finding::warning("clock", message, hint)
        }
        _ => Finding::ok("clock", utc(now)),
    }
}

fn call(call: &machine::Call) -> Finding {
    match &call.missing {
        None => Finding::ok(call.name, format!("there: {}", call.purpose)),
        Some(why) => {
            let message = format!("cannot be used ({why}), so that not: {}", call.purpose);
            Finding::problem(call.name, message, "Linux 5.6 or later has it; a container may forbid it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    #[test]
    fn limits_are_judged_at_their_edges() {
        let needed = FILES + FILES_EACH * 4;
        assert_eq!(files(Some(needed - 1), 4).level, Level::Problem);
        assert_eq!((files(Some(needed), 4).level, files(None, 4).level), (Level::Ok, Level::Ok));
        assert_eq!(processes(Some(PROCESSES - 1)).level, Level::Warning);
        assert_eq!((processes(Some(PROCESSES)).level, processes(None).level), (Level::Ok, Level::Ok));
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_told() {
        let later = Time(FIRST.0 + 1_000_000);
        assert_eq!(clock(Time(0), None).level, Level::Problem);
        assert_eq!(clock(later, None).level, Level::Ok);
        assert_eq!(clock(later, Some(Time(later.0 + SLACK))).level, Level::Ok);
        assert_eq!(clock(later, Some(Time(later.0 + SLACK + 1))).level, Level::Warning);
    }
}
