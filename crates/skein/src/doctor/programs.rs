//! Other programs: whether they are here, and what they answer. Each is watched as a worker is, with a deadline, so that one
//! that hangs or leaves something running does neither to us.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File},
    io::Read,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use skein_core::{ids::RunId, time::Millis};
use skein_host::{
    host::new_id,
    worker::{self, Ended, Handle, How, Mark, StateMark, Task, Work},
};

use super::{Finding, agents};
use crate::config::Config;

/// How long a program may take to say its version.
pub const DEADLINE: Millis = Millis::seconds(5);
/// How long it then has to end.
const GRACE: Millis = Millis(500);
/// Longer than a program can take with all that comes after its deadline.
const PATIENCE: Duration = Duration::from_secs(30);
/// What it is given of our environment.
const GIVEN: [&str; 4] = ["PATH", "HOME", "LANG", "XDG_DATA_HOME"];

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
    waiting: Vec<(&'static str, PathBuf, Handle, Receiver<Ended>)>,
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
            let found = worker::find(OsStr::new(&one.program), &path, &[project.to_owned()]);
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
        let state = StateMark::new("doctor").expect("letters are a mark");
        let run = RunId::new(wanted.key).expect("the key is a plain word");
        let mark = Mark { state, run, work: Work::Hook(0) };
        let mut task = Task::new(&path, &self.folder, self.folder.join(wanted.key), mark);
        task.arguments = wanted.arguments.iter().map(OsString::from).collect();
        let given = GIVEN.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
        task.environment = given.collect();
        (task.limit, task.grace) = (Some(DEADLINE), GRACE);
        let (tell, ended) = channel();
        let handle = worker::start(task, move |ended| drop(tell.send(ended)));
        self.waiting.push((wanted.key, path, handle, ended));
    }

    /// Waits for all of them.
    pub fn answers(mut self) -> Answers {
        for (key, path, handle, ended) in std::mem::take(&mut self.waiting) {
            let answer = match ended.recv_timeout(PATIENCE) {
                Ok(ended) if ended.how == How::Exited(0) => {
                    Answer::Said { line: first_line(&self.folder.join(key)), path }
                }
                Ok(ended) => Answer::Failed { why: why(&ended), path },
                Err(_) => {
                    handle.kill();
                    Answer::Failed { why: "it cannot be ended".to_owned(), path }
                }
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

fn why(ended: &Ended) -> String {
    let said = ended.tail.lines().last().unwrap_or_default();
    if said.is_empty() { ended.how.message() } else { format!("{}: {said}", ended.how.message()) }
}

fn first_line(log: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|file| file.take(4096).read_to_end(&mut bytes));
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if read.is_ok() { worker::shown(line).chars().take(100).collect() } else { String::new() }
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
