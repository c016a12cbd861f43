//! Checks of the machine: its programs and coding agents, their versions and logins, its sandbox, its resource limits, the
//! system calls of its kernel, and its clock.
//!
//! A program is watched like a worker, with a time limit, so that one that hangs or leaves processes running does no harm.
//! No agent is given any work, and no key or login is read: only the existence of files and variables is tested.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
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
    executor::agents,
    host::new_run_id,
    kernel_features, process,
    sandbox::{SandboxEnforcement, SandboxProbeError},
};

use crate::{
    doctor::DoctorFinding,
    prepare::{enforcement, probe::ProgramProbe},
    project::config::ProjectConfig,
};

/// Time limit of a program to print its version.
pub const DEADLINE: Millis = Millis::from_secs(5);

/// A query for the version of a program.
#[derive(Debug, Clone)]
pub struct VersionQuery {
    /// The key of the answer.
    pub key: &'static str,
    pub program: String,
    pub arguments: &'static [&'static str],
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramStatus {
    /// It is not installed, with the reason.
    Missing(String),
    /// The first line of its output.
    Said {
        path: PathBuf,
        line: String,
    },
    Failed {
        path: PathBuf,
        why: String,
    },
}

pub type ProgramStatuses = BTreeMap<&'static str, ProgramStatus>;

/// Programs that were started, each with its own supervisor.
pub struct VersionProbes {
    folder: PathBuf,
    answers: ProgramStatuses,
    waiting: Vec<(&'static str, PathBuf, ProgramProbe)>,
}

/// Returns all queries.
pub fn version_queries(config: Option<&ProjectConfig>) -> Vec<VersionQuery> {
    let plain = |key, arguments| VersionQuery { key, program: key.to_owned(), arguments };
    let mut wanted = vec![plain("git", &["--version"][..]), plain("bash", &["--version"][..])];
    wanted.extend(agent_version_queries(config));
    wanted
}

impl VersionProbes {
    /// Starts all of them. A program inside of the project is never used.
    pub fn start_all(project: &Path, wanted: Vec<VersionQuery>) -> VersionProbes {
        let folder = std::env::temp_dir().join(format!("skein-doctor-{}", new_run_id()));
        let mut probes = VersionProbes { folder, answers: BTreeMap::new(), waiting: Vec::new() };
        let made = DirBuilder::new().mode(0o700).create(&probes.folder);
        let path = std::env::var_os("PATH").unwrap_or_default();
        for one in wanted {
            // The engine itself runs git, so only a trusted one counts.
            let find = if one.program == "git" { process::find_trusted_program } else { process::find_program };
            let found = find(OsStr::new(&one.program), &path, &[project.to_owned()]);
            match (found, &made) {
                (Err(error), _) => drop(probes.answers.insert(one.key, ProgramStatus::Missing(error.to_string()))),
                (Ok(path), Err(error)) => {
                    let why = format!("`{}` cannot be created: {error}", probes.folder.display());
                    probes.answers.insert(one.key, ProgramStatus::Failed { path, why });
                }
                (Ok(path), Ok(())) => probes.start_probe(&one, path),
            }
        }
        probes
    }

    fn start_probe(&mut self, wanted: &VersionQuery, path: PathBuf) {
        let arguments = wanted.arguments.iter().map(OsString::from).collect();
        let question = ProgramProbe::start(&self.folder, wanted.key, &path, arguments, DEADLINE);
        self.waiting.push((wanted.key, path, question));
    }

    /// Waits for all of them.
    pub fn wait_all(mut self) -> ProgramStatuses {
        for (key, path, question) in std::mem::take(&mut self.waiting) {
            let answer = match question.wait_for_output() {
                Ok(answer) if answer.status == 0 => ProgramStatus::Said { line: answer.first_line(), path },
                Ok(answer) => ProgramStatus::Failed { why: answer.why, path },
                Err(why) => ProgramStatus::Failed { why: why.to_string(), path },
            };
            self.answers.insert(key, answer);
        }
        std::mem::take(&mut self.answers)
    }
}

impl Drop for VersionProbes {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Checks the programs that workflows need without naming them.
pub fn check_programs(answers: &ProgramStatuses) -> Vec<DoctorFinding> {
    let one = |key: &'static str, what: &str, needed: bool| {
        let (message, hint) = match answers.get(key) {
            Some(ProgramStatus::Said { path, line }) => {
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

/// An agent that is an installed program.
struct AgentInstallation {
    program: &'static str,
    /// Its name in workflows and skein.toml.
    worker: &'static str,
    /// The file that a login creates.
    login: Option<PathBuf>,
    /// Environment variables that replace a login.
    keys: &'static [&'static str],
    /// A hint on logging in.
    hint: &'static str,
}

/// Returns the agents that Skein has an adapter for.
fn known_agents() -> Vec<AgentInstallation> {
    let known = agents::ALL.iter().map(|adapter| AgentInstallation {
        program: adapter.program(),
        worker: adapter.agent_name(),
        login: adapter.login_link().from,
        keys: adapter.credential_variables(),
        hint: adapter.login_hint(),
    });
    known.collect()
}

pub fn agent_version_queries(config: Option<&ProjectConfig>) -> Vec<VersionQuery> {
    let program = |agent: &AgentInstallation| {
        let configured = config.and_then(|config| config.workers.get(agent.worker)?.program.clone());
        configured.unwrap_or_else(|| agent.program.to_owned())
    };
    let one = |agent: &AgentInstallation| VersionQuery {
        key: agent.program,
        program: program(agent),
        arguments: &["--version"],
    };
    known_agents().iter().map(one).collect()
}

pub fn check_agents(answers: &ProgramStatuses, config: Option<&ProjectConfig>) -> Vec<DoctorFinding> {
    known_agents()
        .iter()
        .filter_map(|agent| Some(agent.check_version(answers.get(agent.program)?, agent.find_setting(config))))
        .collect()
}

impl AgentInstallation {
    /// Returns the setting of skein.toml that uses it, if any.
    fn find_setting(&self, config: Option<&ProjectConfig>) -> Option<String> {
        let config = config?;
        let is = |worker: &Option<String>| worker.as_deref() == Some(self.worker);
        if is(&config.default_worker) {
            return Some("`default_worker`".to_owned());
        }
        let agent = config.agents.iter().find(|(_, agent)| is(&agent.worker));
        agent.map(|(name, _)| format!("`[agents.{name}]`"))
    }

    fn check_version(&self, answer: &ProgramStatus, setting: Option<String>) -> DoctorFinding {
        let name = self.program;
        match (answer, setting) {
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
            (ProgramStatus::Said { path, line }, _) => self.check_login(&format!("{line}, {}", path.display())),
        }
    }

    fn check_login(&self, program: &str) -> DoctorFinding {
        // A URL is an address, not a credential.
        let set = |name: &&&str| !name.ends_with("_URL") && env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(key) = self.keys.iter().find(set) {
            return DoctorFinding::ok(self.program, format!("{program}; {key} is set"));
        }
        let place = &self.login;
        if place.as_ref().is_some_and(|place| place.is_file()) {
            return DoctorFinding::ok(self.program, format!("{program}; logged in"));
        }
        let place = match place {
            Some(place) => format!("no {}", place.display()),
            None => "HOME is not set".to_owned(),
        };
        DoctorFinding::warning(self.program, format!("{program}; not logged in: {place}"), self.hint)
    }
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

pub fn check_limits(config: Option<&ProjectConfig>, newest: Option<Timestamp>) -> Vec<DoctorFinding> {
    let workers = config.and_then(|config| config.max_workers).unwrap_or(limits::WORKERS_DEFAULT);
    let mut findings = vec![
        check_open_files(getrlimit(Resource::Nofile).current, u64::from(workers)),
        check_processes(getrlimit(Resource::Nproc).current),
        check_clock(Clock::new().now(), newest),
    ];
    findings.extend(kernel_features::probe_kernel_features().iter().map(syscall_finding));
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

fn syscall_finding(call: &kernel_features::KernelFeature) -> DoctorFinding {
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

pub fn check_sandbox(config: Option<&ProjectConfig>) -> Vec<DoctorFinding> {
    let allowed = config.is_some_and(|config| config.allow_unenforced.steps);
    let mut findings = vec![enforcement_finding(&enforcement::machine_enforcement(), allowed)];
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
