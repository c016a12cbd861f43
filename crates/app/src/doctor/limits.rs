//! Checks of the system: its resource limits, the system calls of its kernel, and its clock.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use skein_core::{engine::format_utc, limits, time::Timestamp};
use skein_host::system;

use super::DoctorFinding;
use crate::project::config::ProjectConfig;

/// The maximum number of open files of a running worker, and the number that is needed besides.
const FILES_EACH: u64 = 8;
const FILES: u64 = 64;
/// Fewer processes than this are soon used up by one agent and its builds.
const PROCESSES: u64 = 256;
/// The first of January 2026: Skein did not exist before.
const FIRST: Timestamp = Timestamp(1_767_225_600_000);
/// Tolerated difference between the clocks of two processes.
const SLACK: i64 = 60_000;

pub fn check_limits(config: Option<&ProjectConfig>, newest: Option<Timestamp>) -> Vec<DoctorFinding> {
    let workers = config.and_then(|config| config.max_workers).unwrap_or(limits::WORKERS_DEFAULT);
    let mut findings = vec![
        check_open_files(getrlimit(Resource::Nofile).current, u64::from(workers)),
        check_processes(getrlimit(Resource::Nproc).current),
        check_clock(current_time(), newest),
    ];
    findings.extend(system::probe_kernel_features().iter().map(syscall_finding));
    findings
}

fn current_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn check_open_files(allowed: Option<u64>, workers: u64) -> DoctorFinding {
    let needed = FILES + FILES_EACH * workers;
    let Some(allowed) = allowed else { return DoctorFinding::ok("open files", "unlimited") };
    let message = format!("{allowed} allowed, about {needed} needed for {workers} workers at once");
    if allowed < needed {
        return DoctorFinding::problem(
            "open files",
            message,
            "`ulimit -n 4096`, or a smaller `max_workers` in skein.toml",
        );
    }
    DoctorFinding::ok("open files", message)
}

fn check_processes(allowed: Option<u64>) -> DoctorFinding {
    match allowed {
        None => DoctorFinding::ok("processes", "unlimited"),
        Some(allowed) if allowed < PROCESSES => {
            let message = format!("{allowed} allowed for this user");
            DoctorFinding::warning("processes", message, format!("`ulimit -u` with {PROCESSES} or more"))
        }
        Some(allowed) => DoctorFinding::ok("processes", format!("{allowed} allowed for this user")),
    }
}

fn check_clock(now: Timestamp, newest: Option<Timestamp>) -> DoctorFinding {
    let hint = "set the clock; deadlines and gates depend on it";
    if now < FIRST {
        return DoctorFinding::problem("clock", format!("it shows {}, which is impossible", format_utc(now)), hint);
    }
    match newest {
        Some(newest) if newest.0 > now.0.saturating_add(SLACK) => {
            let message = format!("it shows {}, but a run was started at {}", format_utc(now), format_utc(newest));
            DoctorFinding::warning("clock", message, hint)
        }
        _ => DoctorFinding::ok("clock", format_utc(now)),
    }
}

fn syscall_finding(call: &system::KernelFeature) -> DoctorFinding {
    match &call.missing {
        None => DoctorFinding::ok(call.name, format!("available: {}", call.purpose)),
        Some(why) => {
            let message = format!("not available ({why}); needed because {}", call.purpose);
            DoctorFinding::problem(call.name, message, "Linux 5.6 or later has it; a container may forbid it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::DoctorLevel, *};

    #[test]
    fn limits_are_judged_at_their_edges() {
        let needed = FILES + FILES_EACH * 4;
        assert_eq!(check_open_files(Some(needed - 1), 4).level, DoctorLevel::Problem);
        assert_eq!(
            (check_open_files(Some(needed), 4).level, check_open_files(None, 4).level),
            (DoctorLevel::Ok, DoctorLevel::Ok)
        );
        assert_eq!(check_processes(Some(PROCESSES - 1)).level, DoctorLevel::Warning);
        assert_eq!(
            (check_processes(Some(PROCESSES)).level, check_processes(None).level),
            (DoctorLevel::Ok, DoctorLevel::Ok)
        );
    }

    #[test]
    fn a_clock_that_cannot_be_right_is_told() {
        let later = Timestamp(FIRST.0 + 1_000_000);
        assert_eq!(check_clock(Timestamp(0), None).level, DoctorLevel::Problem);
        assert_eq!(check_clock(later, None).level, DoctorLevel::Ok);
        assert_eq!(check_clock(later, Some(Timestamp(later.0 + SLACK))).level, DoctorLevel::Ok);
        assert_eq!(check_clock(later, Some(Timestamp(later.0 + SLACK + 1))).level, DoctorLevel::Warning);
    }
}
