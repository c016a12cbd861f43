//! Checks of the machine: its programs and coding agents, their versions and logins, its sandbox, its resource limits, the
//! system calls of its kernel, and its clock.
//!
//! A program is watched like a worker, with a time limit, so that one that hangs or leaves processes running does no harm.
//! No agent is given any work, and no key or login is read: only the existence of files and variables is tested.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, getrlimit, getuid};
use skein_core::{
    engine::format_utc,
    limits,
    time::{Millis, Timestamp},
};
use skein_host::{
    clock::Clock,
    executor::agents::{self, AgentAdapter},
    process,
    sandbox::{SandboxEnforcement, SandboxProbeError},
    system,
};

use crate::{
    doctor::DoctorFinding,
    prepare::probe::{self, ProbeFolder, ProgramProbe},
    project::config::ProjectConfig,
};

/// Time limit of a program to print its version.
pub(crate) const DEADLINE: Millis = Millis::from_secs(5);

/// The result of a query for the version of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProgramStatus {
    /// It is not installed, with the reason.
    Missing(String),
    /// The first line of its output.
    Answered {
        path: PathBuf,
        line: String,
    },
    Failed {
        path: PathBuf,
        why: String,
    },
}

pub(crate) type ProgramStatuses = BTreeMap<&'static str, ProgramStatus>;

/// Returns the versions of the programs that workflows need, and of the agents that Skein has an adapter for. A program
/// inside of the project is never used.
pub(crate) fn query_versions(project: &Path, config: Option<&ProjectConfig>) -> ProgramStatuses {
    let folder = ProbeFolder::create();
    let search = std::env::var_os("PATH").unwrap_or_default();
    let start = |(key, program): (&'static str, String)| {
        // The engine itself runs git, so only a trusted one counts.
        let find = if program == "git" { process::find_trusted_program } else { process::find_program };
        let started = match (find(OsStr::new(&program), &search, &[project.to_owned()]), &folder) {
            (Err(error), _) => Err(ProgramStatus::Missing(error.to_string())),
            (Ok(path), Err(why)) => Err(ProgramStatus::Failed { path, why: why.to_string() }),
            (Ok(path), Ok(folder)) => Ok((folder.start_program(key, &path, vec!["--version".into()], DEADLINE), path)),
        };
        (key, started)
    };
    let needed = ["git", "bash"].map(|key| (key, key.to_owned()));
    let agents = agents::ALL.iter().map(|agent| {
        let configured = config.and_then(|config| config.workers.get(agent.agent_name())?.program.clone());
        (agent.program(), configured.unwrap_or_else(|| agent.program().to_owned()))
    });
    // All of them are started before the first is waited for. Each has its own time limit.
    let started: Vec<_> = needed.into_iter().chain(agents).map(start).collect();
    let wait = |started: Result<(ProgramProbe, PathBuf), ProgramStatus>| {
        let (probe, path) = started?;
        match probe.wait_for_output() {
            Ok(answer) if answer.status == 0 => Ok(ProgramStatus::Answered { line: answer.first_line(), path }),
            Ok(answer) => Err(ProgramStatus::Failed { why: answer.why, path }),
            Err(why) => Err(ProgramStatus::Failed { why: why.to_string(), path }),
        }
    };
    started.into_iter().map(|(key, started)| (key, wait(started).unwrap_or_else(|status| status))).collect()
}

/// Checks the programs that workflows need without naming them.
pub(crate) fn check_programs(answers: &ProgramStatuses) -> Vec<DoctorFinding> {
    let one = |key: &'static str, what: &str, needed: bool| {
        let (message, hint) = match answers.get(key) {
            Some(ProgramStatus::Answered { path, line }) => {
                return DoctorFinding::ok(key, format!("{line}, {}", path.display()));
            }
            Some(ProgramStatus::Failed { path, why }) => {
                (format!("{} does not work: {why}", path.display()), format!("check `{key} --version`"))
            }
            Some(ProgramStatus::Missing(why)) => (why.clone(), format!("install it: {what}")),
            None => ("it was not checked".to_owned(), String::new()),
        };
        if needed { DoctorFinding::problem(key, message, hint) } else { DoctorFinding::warning(key, message, hint) }
    };
    vec![
        one("bash", "it runs the scripts of steps", true),
        one("git", "it provides worktrees and finds changed files", false),
    ]
}

pub(crate) fn check_agents(answers: &ProgramStatuses, config: Option<&ProjectConfig>) -> Vec<DoctorFinding> {
    let check = |agent: &&dyn AgentAdapter| Some(check_agent(*agent, answers.get(agent.program())?, config));
    agents::ALL.iter().filter_map(check).collect()
}

fn check_agent(agent: &dyn AgentAdapter, answer: &ProgramStatus, config: Option<&ProjectConfig>) -> DoctorFinding {
    let name = agent.program();
    match (answer, find_agent_setting(agent, config)) {
        (ProgramStatus::Missing(_), None) => DoctorFinding::ok(name, "not installed, and not used by skein.toml"),
        (ProgramStatus::Missing(why), Some(setting)) => DoctorFinding::problem(
            name,
            format!("{setting} in skein.toml uses it: {why}"),
            "install it, or name another",
        ),
        (ProgramStatus::Failed { path, why }, _) => {
            let message = format!("cannot get the version of {}: {why}", path.display());
            let hint = format!("check `{name} --version`; its time limit is {DEADLINE}");
            DoctorFinding::warning(name, message, hint)
        }
        (ProgramStatus::Answered { path, line }, _) => check_login(agent, &format!("{line}, {}", path.display())),
    }
}

/// Returns the setting of skein.toml that uses an agent, if any.
fn find_agent_setting(agent: &dyn AgentAdapter, config: Option<&ProjectConfig>) -> Option<String> {
    let config = config?;
    let is = |worker: &Option<String>| worker.as_deref() == Some(agent.agent_name());
    if is(&config.default_worker) {
        return Some("`default_worker`".to_owned());
    }
    let agent = config.agents.iter().find(|(_, agent)| is(&agent.worker));
    agent.map(|(name, _)| format!("`[agents.{name}]`"))
}

fn check_login(agent: &dyn AgentAdapter, version: &str) -> DoctorFinding {
    // A URL is an address, not a credential.
    let set = |name: &&&str| !name.ends_with("_URL") && env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(key) = agent.credential_variables().iter().find(set) {
        return DoctorFinding::ok(agent.program(), format!("{version}; {key} is set"));
    }
    let login = agent.login_link().from;
    if login.as_ref().is_some_and(|login| login.is_file()) {
        return DoctorFinding::ok(agent.program(), format!("{version}; logged in"));
    }
    let missing = login.map_or("HOME is not set".to_owned(), |login| format!("no {}", login.display()));
    DoctorFinding::warning(agent.program(), format!("{version}; not logged in: {missing}"), agent.login_hint())
}

/// The maximum number of open files of a running worker, and the number that is needed besides.
const FILES_EACH: u64 = 8;
const FILES: u64 = 64;
/// Fewer processes than this are soon used up by one agent and its builds.
const PROCESSES: u64 = 256;
/// The first of January 2026: Skein did not exist before.
const FIRST: Timestamp = Timestamp(1_767_225_600_000);
/// Tolerated difference between the clocks of two processes.
const SLACK: i64 = 60_000;

pub(crate) fn check_limits(config: Option<&ProjectConfig>, newest: Option<Timestamp>) -> Vec<DoctorFinding> {
    let workers = config.and_then(|config| config.max_workers).unwrap_or(limits::WORKERS_DEFAULT);
    let mut findings = vec![
        check_open_files(getrlimit(Resource::Nofile).current, u64::from(workers)),
        check_processes(getrlimit(Resource::Nproc).current),
        check_clock(Clock::new().now(), newest),
    ];
    findings.extend(system::probe_kernel_features().iter().map(syscall_finding));
    findings
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

/// The name of the findings about the sandbox.
const CONFINEMENT: &str = "confinement";

pub(crate) fn check_sandbox(config: Option<&ProjectConfig>) -> Vec<DoctorFinding> {
    let allowed = config.is_some_and(|config| config.allow_unenforced.steps);
    let mut findings = vec![enforcement_finding(&probe::machine_enforcement(), allowed)];
    if getuid().is_root() {
        findings.push(DoctorFinding::warning(
            CONFINEMENT,
            "Skein runs as root, so workers write files as root",
            "run Skein as an ordinary user; inside of a sandbox root has no capabilities and is called `nobody`",
        ));
    }
    findings
}

fn enforcement_finding(enforced: &Result<SandboxEnforcement, SandboxProbeError>, allowed: bool) -> DoctorFinding {
    match enforced {
        Ok(SandboxEnforcement::Full) => {
            DoctorFinding::ok(CONFINEMENT, "tested: the kernel enforces what steps write, see and reach")
        }
        Ok(SandboxEnforcement::WritesOnly) => DoctorFinding::warning(
            CONFINEMENT,
            "tested: Landlock restricts what steps write; a worker can reach the state folder, so gates and `network: none` are refused",
            "let users create namespaces: `user.max_user_namespaces`, `kernel.apparmor_restrict_unprivileged_userns`, or the container",
        ),
        Err(why) if allowed => DoctorFinding::warning(
            CONFINEMENT,
            format!("steps are not confined, and a worker can reach the state folder: {why}"),
            "`allow_unenforced` in skein.toml lets them run; gates need it to name `gates`",
        ),
        Err(why) => DoctorFinding::problem(
            CONFINEMENT,
            format!("this machine cannot confine steps, so they are refused: {why}"),
            "let users create namespaces, or set `allow_unenforced = true` in skein.toml",
        ),
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

    #[test]
    fn what_cannot_be_kept_is_a_problem_unless_it_is_allowed() {
        assert_eq!(enforcement_finding(&Ok(SandboxEnforcement::Full), false).level, DoctorLevel::Ok);
        assert_eq!(enforcement_finding(&Ok(SandboxEnforcement::WritesOnly), false).level, DoctorLevel::Warning);
        assert_eq!(enforcement_finding(&Err(SandboxProbeError("no".to_owned())), true).level, DoctorLevel::Warning);
        assert_eq!(enforcement_finding(&Err(SandboxProbeError("no".to_owned())), false).level, DoctorLevel::Problem);
    }
}
