//! Other programs: whether they are here, and what they answer. Each is watched as a worker is, with a deadline, so that one
//! that hangs or leaves something running does neither to us.

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
use crate::{config::ProjectConfig, probe::ProgramProbe};

/// How long a program may take to say its version.
pub const DEADLINE: Millis = Millis::from_secs(5);

/// What is asked of a program.
#[derive(Debug, Clone)]
pub struct VersionQuery {
    /// What the answer is known by.
    pub key: &'static str,
    pub program: String,
    pub arguments: &'static [&'static str],
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramStatus {
    /// It is not here. Why.
    Missing(String),
    /// Its first line.
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

/// Everything that is asked.
pub fn version_queries(config: Option<&ProjectConfig>) -> Vec<VersionQuery> {
    let plain = |key, arguments| VersionQuery { key, program: key.to_owned(), arguments };
    let mut wanted = vec![plain("git", &["--version"][..]), plain("bash", &["--version"][..])];
    wanted.extend(agents::version_queries(config));
    wanted
}

impl VersionProbes {
    /// Starts all of them. A program is never taken from the project.
    pub fn start_all(project: &Path, wanted: Vec<VersionQuery>) -> VersionProbes {
        let folder = std::env::temp_dir().join(format!("skein-doctor-{}", new_run_id()));
        let mut probes = VersionProbes { folder, answers: BTreeMap::new(), waiting: Vec::new() };
        let made = DirBuilder::new().mode(0o700).create(&probes.folder);
        let path = std::env::var_os("PATH").unwrap_or_default();
        for one in wanted {
            // The engine runs git for itself.
            let find =
                if one.program == "git" { process::find_trusted_program } else { process::find_program };
            let found = find(OsStr::new(&one.program), &path, &[project.to_owned()]);
            match (found, &made) {
                (Err(error), _) => {
                    drop(probes.answers.insert(one.key, ProgramStatus::Missing(error.to_string())))
                }
                (Ok(path), Err(error)) => {
                    let why = format!("`{}` cannot be made: {error}", probes.folder.display());
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
                Err(why) => ProgramStatus::Failed { why, path },
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

/// Programs that workflows need without naming them.
pub fn check_programs(answers: &ProgramStatuses) -> Vec<DoctorFinding> {
    let one = |key: &'static str, what: &str, needed: bool| {
        let (message, hint) = match answers.get(key) {
            Some(ProgramStatus::Said { path, line }) => {
                return DoctorFinding::ok(key, format!("{line}, {}", path.display()));
            }
            Some(ProgramStatus::Failed { path, why }) => (
                format!("{} does not work: {why}", path.display()),
                format!("see what `{key} --version` says"),
            ),
            Some(ProgramStatus::Missing(why)) => (why.clone(), format!("install it: {what}")),
            None => ("it was not asked for".to_owned(), String::new()),
        };
        if needed {
            DoctorFinding::problem(key, message, hint)
        } else {
            DoctorFinding::warning(key, message, hint)
        }
    };
    vec![
        one("bash", "scripts of steps are run by it", true),
        one("git", "worktrees of steps and changes of files are seen by it", false),
    ]
}
