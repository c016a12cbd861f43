//! Which files of a workspace have changed, asked of git.
//!
//! Owns that asking changes nothing and runs nothing of the workspace's: a repository can name programs for hooks,
//! filters, differences and watching files, and whoever works there can write its configuration.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::mpsc::channel,
};

use skein_core::{ir::Convergence, limits, time::Millis};

use super::environment;
use crate::{
    worker::{self, How, Mark, Task},
    workspace::Root,
};

/// So much of a list of files is read.
const LIST_BYTES: u64 = 16 * 1024 * 1024;
/// Names of commits are shorter.
const REF_BYTES: usize = 255;
/// More filters than this are not looked at, and then nothing is asked.
const FILTERS: usize = 100;

/// Asks git in one workspace.
pub(super) struct Git<'a> {
    /// Where it asks, and where what it says is kept.
    pub workspace: &'a Root,
    pub kept: &'a Root,
    pub mark: &'a Mark,
}

impl Git<'_> {
    /// The files that differ from what they are compared with, and those that git does not know yet.
    pub fn changed(&self, convergence: &Convergence) -> Result<Vec<String>, String> {
        let base = self.base(convergence)?;
        let settings = self.without_filters()?;
        let tracked = [
            "diff",
            "--name-only",
            "-z",
            "--relative",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=dirty",
            "--end-of-options",
            &base,
            "--",
        ];
        let new = ["ls-files", "--others", "--exclude-standard", "-z"];
        let mut files = BTreeSet::new();
        for (name, arguments) in [("git-diff", &tracked[..]), ("git-new", &new[..])] {
            let (status, said) = self.ask(name, arguments, &settings)?;
            if status != 0 {
                return Err(format!("git says: {}", said.tail));
            }
            files.extend(names(&said.out));
        }
        Ok(files.into_iter().collect())
    }

    /// The files that are worth keeping: those that git knows, and new ones that it is not told to ignore. None: it cannot
    /// be asked here.
    pub fn known(&self) -> Option<BTreeSet<String>> {
        let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let (status, said) = self.ask("git-known", &arguments, &[]).ok()?;
        (status == 0).then(|| names(&said.out).into_iter().collect())
    }

    /// What is compared with: what the source says, what a file of the workspace says, or the last commit.
    fn base(&self, convergence: &Convergence) -> Result<String, String> {
        let written = convergence.diff_base_ref.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let base = match (written, convergence.diff_base_ref_file.as_deref()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(file)) => {
                let read = self.workspace.read(Path::new(file), limits::DECISION_BYTES);
                let bytes = read.map_err(|error| error.to_string())?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                text.lines().next().unwrap_or_default().trim().to_owned()
            }
            (None, None) => String::new(),
        };
        let base = if base.is_empty() { "HEAD".to_owned() } else { base };
        match is_ref(&base) {
            true => Ok(base),
            false => {
                let shown = worker::shown(base.as_bytes());
                Err(format!("`{}` cannot name a commit", shown.chars().take(80).collect::<String>()))
            }
        }
    }

    /// Settings that take the place of every filter that the repository names.
    fn without_filters(&self) -> Result<Vec<(OsString, OsString)>, String> {
        let arguments = ["config", "--name-only", "-z", "--get-regexp", r"^filter\."];
        let (status, said) = self.ask("git-config", &arguments, &[])?;
        // 1: there is none.
        if !matches!(status, 0 | 1) {
            return Err(format!("git says: {}", said.tail));
        }
        let keys = names(&said.out).into_iter();
        let drivers: BTreeSet<String> =
            keys.filter_map(|key| key.rsplit_once('.').map(|(driver, _)| driver.to_owned())).collect();
        if drivers.len() > FILTERS {
            return Err(format!("the repository names more than {FILTERS} filters"));
        }
        let none = [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
        let pairs: Vec<(String, &str)> = drivers
            .iter()
            .flat_map(|driver| none.map(|(key, value)| (format!("{driver}.{key}"), value)))
            .collect();
        let mut settings = vec![("GIT_CONFIG_COUNT".into(), pairs.len().to_string().into())];
        for (i, (key, value)) in pairs.into_iter().enumerate() {
            settings.push((format!("GIT_CONFIG_KEY_{i}").into(), key.into()));
            settings.push((format!("GIT_CONFIG_VALUE_{i}").into(), value.into()));
        }
        Ok(settings)
    }

    /// One question, its exit status and what was said.
    fn ask(
        &self,
        name: &str,
        arguments: &[&str],
        settings: &[(OsString, OsString)],
    ) -> Result<(i32, Said), String> {
        let (log, out) = (self.file(name, "log"), self.file(name, "out"));
        let mut task = Task::new("git", self.workspace.path(), log, self.mark.clone());
        let safe = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "--no-pager"];
        task.arguments = safe.iter().chain(arguments).map(OsString::from).collect();
        task.environment = environment::needed();
        let fixed = [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // What is missing is not fetched.
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("LC_ALL", "C"),
        ];
        task.environment.extend(fixed.map(|(name, value)| (name.into(), value.into())));
        task.environment.extend_from_slice(settings);
        task.stdout = Some(out.clone());
        task.limit = Some(Millis(limits::GIT));
        let (tell, told) = channel();
        worker::start(task, move |ended| drop(tell.send(ended)));
        let ended = told.recv().map_err(|_| "git could not be asked".to_owned())?;
        let How::Exited(status) = ended.how else { return Err(format!("git: {}", ended.how.message())) };
        if ended.stdout.as_ref().is_some_and(|stdout| stdout.cut || stdout.problem.is_some()) {
            return Err("git said more than can be kept".to_owned());
        }
        let bytes = self.kept.read(Path::new(&format!("{name}.out")), LIST_BYTES);
        let out = match bytes {
            Err(error) if error.is_missing() => Vec::new(),
            other => other.map_err(|error| format!("what git said cannot be read: {error}"))?,
        };
        Ok((status, Said { out, tail: ended.tail }))
    }

    fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.kept.path().join(format!("{name}.{ending}"))
    }
}

struct Said {
    out: Vec<u8>,
    tail: String,
}

/// Names with a zero after each.
fn names(bytes: &[u8]) -> Vec<String> {
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

/// Whether a text can name a commit and nothing else.
fn is_ref(text: &str) -> bool {
    text.len() <= REF_BYTES
        && !text.starts_with('-')
        && !text.contains("..")
        && !text.contains(|c: char| {
            c.is_control() || c.is_whitespace() || matches!(c, ':' | '?' | '*' | '[' | '\\')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_commits_are_names_of_commits() {
        for good in ["HEAD", "main", "origin/main", "HEAD~3", "v1.0^{}", "abc123", "main@{1}"] {
            assert!(is_ref(good), "{good}");
        }
        for bad in ["--output=x", "a b", "a..b", "a\nb", "HEAD:file", "*", &"x".repeat(300)] {
            assert!(!is_ref(bad), "{bad}");
        }
    }
}
