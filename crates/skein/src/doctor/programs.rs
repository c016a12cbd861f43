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
use skein_host::{host::new_id, worker};

use super::{Finding, agents};
use crate::{config::Config, question::Question};

/// How long a program may take to say its version.
pub const DEADLINE: Millis = Millis::seconds(5);

/// What is asked of a program.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What the answer is known by.
    pub key: &'static str,
    pub program: String,
    pub arguments: &'static [&'static str],
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
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

pub type Answers = BTreeMap<&'static str, Answer>;

/// Programs that were started, each with its own supervisor.
pub struct Probes {
    folder: PathBuf,
    answers: Answers,
    waiting: Vec<(&'static str, PathBuf, Question)>,
}

/// Everything that is asked.
pub fn wanted(config: Option<&Config>) -> Vec<Wanted> {
    let plain = |key, arguments| Wanted { key, program: key.to_owned(), arguments };
    let mut wanted = vec![plain("git", &["--version"][..]), plain("bash", &["--version"][..])];
    wanted.extend(agents::wanted(config));
    wanted
}

impl Probes {
    /// Starts all of them. A program is never taken from the project.
    pub fn start(project: &Path, wanted: Vec<Wanted>) -> Probes {
        let folder = std::env::temp_dir().join(format!("skein-doctor-{}", new_id()));
        let mut probes = Probes { folder, answers: BTreeMap::new(), waiting: Vec::new() };
        let made = DirBuilder::new().mode(0o700).create(&probes.folder);
        let path = std::env::var_os("PATH").unwrap_or_default();
        for one in wanted {
            // The engine runs git for itself.
            let find = if one.program == "git" { worker::find_trusted } else { worker::find };
            let found = find(OsStr::new(&one.program), &path, &[project.to_owned()]);
            match (found, &made) {
                (Err(error), _) => drop(probes.answers.insert(one.key, Answer::Missing(error.to_string()))),
                (Ok(path), Err(error)) => {
                    let why = format!("`{}` cannot be made: {error}", probes.folder.display());
                    probes.answers.insert(one.key, Answer::Failed { path, why });
                }
                (Ok(path), Ok(())) => probes.begin(&one, path),
            }
        }
        probes
    }

    fn begin(&mut self, wanted: &Wanted, path: PathBuf) {
        let arguments = wanted.arguments.iter().map(OsString::from).collect();
        let question = Question::ask(&self.folder, wanted.key, &path, arguments, DEADLINE);
        self.waiting.push((wanted.key, path, question));
    }

    /// Waits for all of them.
    pub fn answers(mut self) -> Answers {
        for (key, path, question) in std::mem::take(&mut self.waiting) {
            let answer = match question.answer() {
                Ok(answer) if answer.status == 0 => Answer::Said { line: answer.line(), path },
                Ok(answer) => Answer::Failed { why: answer.why, path },
                Err(why) => Answer::Failed { why, path },
            };
            self.answers.insert(key, answer);
        }
        std::mem::take(&mut self.answers)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Programs that workflows need without naming them.
pub fn look(answers: &Answers) -> Vec<Finding> {
    let one = |key: &'static str, what: &str, needed: bool| {
        let (message, hint) = match answers.get(key) {
            Some(Answer::Said { path, line }) => {
                return Finding::ok(key, format!("{line}, {}", path.display()));
            }
            Some(Answer::Failed { path, why }) => (
                format!("{} does not work: {why}", path.display()),
                format!("see what `{key} --version` says"),
            ),
            Some(Answer::Missing(why)) => (why.clone(), format!("install it: {what}")),
            None => ("it was not asked for".to_owned(), String::new()),
        };
        if needed { Finding::problem(key, message, hint) } else { Finding::warning(key, message, hint) }
    };
    vec![
        one("bash", "scripts of steps are run by it", true),
        one("git", "worktrees of steps and changes of files are seen by it", false),
    ]
}
