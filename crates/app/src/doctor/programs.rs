//! Checks of other programs: whether they are installed, and their versions. Each is watched like a worker, with a time
//! limit, so that a program that hangs or leaves processes running does no harm.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use skein_core::time::Millis;
use skein_host::{host::new_run_id, process};

use super::{DoctorFinding, agents};
use crate::{prepare::probe::ProgramProbe, project::config::ProjectConfig};

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
    wanted.extend(agents::version_queries(config));
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
