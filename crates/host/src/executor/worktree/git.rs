//! Runs git, finds the changed files of a workspace, and writes the diffs for people.
//!
//! Owns the safety of git commands: they run no program of the workspace. A repository can name programs for hooks,
//! filters, diffs and file monitoring, and a worker can write its configuration. [`GitRunner::run`] is the only place
//! where git is started: with overriding settings, without the user's configuration and environment, and from a program
//! file that no step can write. The engine's own snapshots are in a git folder of their own ([`super`]). Owns the
//! initial snapshot of a run and the maximum size of a diff, too. If a diff cannot be written, the work is still valid.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use serde_json::{Value, json};
use skein_core::{ir::ConvergencePolicy, limits, time::Millis};

use crate::{
    cancel_token::CancelToken,
    executor::{
        attempt::{AttemptContext, command::WorkerEnvironment},
        programs,
        worktree::{
            WorktreeError,
            attempt_workspace::{AttemptWorkspace, shared_view},
            parse_object_id,
            snapshot::{SnapshotCommand, SnapshotRepo, SnapshotView, WorkspaceSnapshot},
        },
    },
    process::{self, OutputFilterFactory, ProcessMark, ProcessOutcome, ProcessSpec},
    workspace::{AttemptDir, RootFolder, RunDir, parse_git_config},
};

/// The file with the user's settings, beside git's output.
const PERSON: &str = "git-person.config";
/// The maximum number of bytes of git's output that are read.
const OUTPUT_BYTES: u64 = 48 * 1024 * 1024;
/// The maximum length of a commit name.
const REF_BYTES: usize = 255;
/// The maximum number of filters in a repository. With more, no command is run.
const FILTERS: usize = 100;

/// Settings that override those of a repository and of the files that it includes.
const SAFE_SETTINGS: [&str; 16] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "diff.external=",
    "gc.auto=0",
    "log.showSignature=false",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "status.submoduleSummary=false",
    "submodule.recurse=false",
];

/// Runs git in one folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GitRunner<'a> {
    pub folder: &'a Path,
    /// The folder for its output.
    pub kept: &'a RootFolder,
    pub mark: &'a ProcessMark,
    /// The time limit of a command, if it is shorter than the default.
    pub limit: Option<Millis>,
    /// The token that cancels the calling work as a whole.
    pub call: Option<&'a Arc<CancelToken>>,
}
pub(crate) struct GitCommand<'a> {
    /// The base name of the files that hold its output.
    pub name: &'a str,
    pub arguments: Vec<OsString>,
    pub settings: WorkerEnvironment,
    pub stdin: Vec<u8>,
    pub limit: Millis,
    /// The filter that is applied to its output.
    pub filter: Option<OutputFilterFactory>,
    /// The number of bytes of output that are enough. `None` if all output is needed.
    pub most: Option<u64>,
    /// True to read the user's configuration. Only for queries of settings, which run no programs.
    pub reads_person: bool,
}

impl<'a> GitCommand<'a> {
    pub(crate) fn new(name: &'a str, arguments: &[impl AsRef<OsStr>]) -> GitCommand<'a> {
        GitCommand {
            name,
            arguments: arguments.iter().map(|argument| argument.as_ref().to_owned()).collect(),
            settings: Vec::new(),
            stdin: Vec::new(),
            limit: Millis(limits::GIT),
            filter: None,
            most: None,
            reads_person: false,
        }
    }
}

/// The output and exit status of a git command.
#[derive(Debug)]
pub(crate) struct GitOutput {
    pub status: i32,
    pub out: Vec<u8>,
    /// The number of bytes that were not read.
    pub more: u64,
    pub tail: String,
}

impl GitOutput {
    /// The output of a query. `None` if git exited with status 1, which means that there is no such thing.
    pub(crate) fn into_found(self) -> Result<Option<Vec<u8>>, WorktreeError> {
        if self.status == 1 { Ok(None) } else { self.into_stdout().map(Some) }
    }

    /// The output, if git succeeded.
    pub(crate) fn into_stdout(self) -> Result<Vec<u8>, WorktreeError> {
        match self.status {
            0 => Ok(self.out),
            _ => Err(WorktreeError::GitFailed(self.tail.trim().to_owned())),
        }
    }
}

impl<'a> GitRunner<'a> {
    /// Creates a runner with the default time limit.
    pub(crate) fn new(folder: &'a Path, kept: &'a RootFolder, mark: &'a ProcessMark) -> GitRunner<'a> {
        GitRunner { folder, kept, mark, limit: None, call: None }
    }

    /// The changes since the last commit, file by file.
    pub(crate) fn status(&self) -> Result<Value, WorktreeError> {
        let settings = self.filter_overrides()?;
        let arguments = ["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty"];
        let output = self.run(GitCommand { settings, ..GitCommand::new("git-status", &arguments) })?.into_stdout()?;
        let files: Vec<Value> = split_texts(&output)
            .iter()
            .filter_map(|line| line.split_at_checked(3))
            .map(|(state, path)| json!({"path": path, "status": state.trim()}))
            .collect();
        Ok(json!({"clean": files.is_empty(), "files": files}))
    }

    /// The diff from a commit, as text.
    pub(crate) fn diff(&self, base: &str) -> Result<Value, WorktreeError> {
        if !is_commit_name(base) {
            return Err(WorktreeError::CommitName(crate::terminal_escape::escape_for_terminal(base.as_bytes())));
        }
        let settings = self.filter_overrides()?;
        let arguments = [
            "diff",
            "--relative",
            "--no-renames",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--submodule=short",
            // Otherwise git starts another process in each submodule, without these settings.
            "--ignore-submodules=dirty",
        ];
        let arguments: Vec<&str> = arguments.into_iter().chain(["--end-of-options", base, "--"]).collect();
        let output = self.run(GitCommand { settings, ..GitCommand::new("git-diff", &arguments) })?.into_stdout()?;
        if output.len() > limits::VALUE_BYTES {
            return Err(WorktreeError::DiffTooLarge(limits::VALUE_BYTES));
        }
        Ok(json!({"diff": String::from_utf8_lossy(&output)}))
    }

    /// The files that differ from the diff base, and the untracked files.
    pub(crate) fn changed_files(
        &self,
        workspace: &RootFolder,
        convergence: &ConvergencePolicy,
    ) -> Result<Vec<String>, WorktreeError> {
        let base = diff_base(workspace, convergence)?;
        let settings = self.filter_overrides()?;
        let tracked = [
            "diff",
            "--name-only",
            "-z",
            "--relative",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--submodule=short",
            "--ignore-submodules=dirty",
            "--end-of-options",
            &base,
            "--",
        ];
        let new = ["ls-files", "--others", "--exclude-standard", "-z"];
        let mut files = BTreeSet::new();
        for (name, arguments) in [("git-diff", &tracked[..]), ("git-new", &new[..])] {
            let command = GitCommand { settings: settings.clone(), ..GitCommand::new(name, arguments) };
            files.extend(split_texts(&self.run(command)?.into_stdout()?));
        }
        Ok(files.into_iter().collect())
    }

    /// The files worth keeping: tracked files, and new files that are not ignored. `None` if git fails here.
    pub(crate) fn known_files(&self) -> Option<BTreeSet<String>> {
        let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let output = self.run(GitCommand::new("git-known", &arguments)).ok()?.into_stdout().ok()?;
        Some(split_texts(&output).into_iter().collect())
    }

    /// Settings that disable every filter of the repository.
    fn filter_overrides(&self) -> Result<WorkerEnvironment, WorktreeError> {
        let arguments = ["config", "--name-only", "-z", "--get-regexp", r"^filter\."];
        let keys = self.run(GitCommand::new("git-config", &arguments))?.into_found()?.unwrap_or_default();
        let drivers: BTreeSet<String> = split_texts(&keys)
            .iter()
            .filter_map(|key| key.rsplit_once('.').map(|(driver, _)| driver.to_owned()))
            .collect();
        if drivers.len() > FILTERS {
            return Err(WorktreeError::TooManyFilters(FILTERS));
        }
        let none = [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
        let pairs: Vec<(String, &str)> =
            drivers.iter().flat_map(|driver| none.map(|(key, value)| (format!("{driver}.{key}"), value))).collect();
        let mut settings = vec![("GIT_CONFIG_COUNT".into(), pairs.len().to_string().into())];
        for (i, (key, value)) in pairs.into_iter().enumerate() {
            settings.push((format!("GIT_CONFIG_KEY_{i}").into(), key.into()));
            settings.push((format!("GIT_CONFIG_VALUE_{i}").into(), value.into()));
        }
        Ok(settings)
    }

    /// Runs a command and waits for its end.
    pub(crate) fn run(&self, command: GitCommand<'_>) -> Result<GitOutput, WorktreeError> {
        let (log, out) = (self.output_path(command.name, "log"), self.output_path(command.name, "out"));
        let program = programs::find_program("git")?;
        let mut task = ProcessSpec::new(program.clone(), self.folder, log.clone(), self.mark.clone());
        let safe = SAFE_SETTINGS.iter().flat_map(|setting| ["-c", setting]).chain(["--no-pager"]);
        task.arguments = safe.map(OsString::from).chain(command.arguments).collect();
        task.environment = self.git_environment(&program, command.reads_person)?;
        task.environment.extend(command.settings);
        task.sandbox = programs::build_engine_sandbox(self.folder, self.run_folder())?;
        task.stdin = command.stdin.into();
        task.stdout = Some(out.clone());
        task.limit = Some(self.limit.map_or(command.limit, |limit| limit.min(command.limit)));
        let unfiltered = command.filter.is_none();
        task.filter = command.filter;
        let ended = process::run_process(task, |handle| {
            if let Some(call) = self.call {
                call.call_on_cancel(move || handle.stop());
            }
        });
        let ProcessOutcome::Exited(status) = ended.how else {
            return Err(WorktreeError::GitEnded(ended.how.message()));
        };
        let stdout = ended.stdout.as_ref();
        if stdout.is_some_and(|stdout| stdout.problem.is_some() || (stdout.cut && command.most.is_none())) {
            return Err(WorktreeError::UnexpectedOutput("output is too large to be stored"));
        }
        let (read, more) = self.read_stdout(command.name, command.most)?;
        if unfiltered {
            // The output holds names and contents of files unredacted, even if a worker put a secret into them.
            for file in [&out, &log] {
                let _ = std::fs::remove_file(file);
            }
        }
        Ok(GitOutput { status, out: read, more, tail: ended.tail })
    }

    /// The folder of the run, where git keeps workspace snapshots.
    fn run_folder(&self) -> &Path {
        let run = self.mark.run.as_str();
        let is_run = |folder: &&Path| folder.file_name().is_some_and(|name| name == run);
        self.kept.path().ancestors().find(is_run).unwrap_or(self.kept.path())
    }

    /// The minimal environment that git needs.
    fn git_environment(&self, program: &Path, reads_person: bool) -> Result<WorkerEnvironment, WorktreeError> {
        let beside = program.parent().unwrap_or(Path::new("/usr/bin"));
        let path = std::env::join_paths([beside, Path::new("/usr/bin"), Path::new("/bin")]);
        let mut environment: WorkerEnvironment = vec![("PATH".into(), path?)];
        let person = if reads_person { std::env::var_os("HOME") } else { None };
        if let Some(home) = person {
            environment.push(("HOME".into(), home));
            let settings = std::env::var_os("XDG_CONFIG_HOME").map(|folder| ("XDG_CONFIG_HOME".into(), folder));
            environment.extend(settings);
        } else {
            environment.push(("HOME".into(), "/nonexistent".into()));
            environment.push(("GIT_CONFIG_GLOBAL".into(), self.write_user_config()?));
        }
        let fixed = [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // Missing objects are not fetched.
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("LC_ALL", "C"),
        ];
        environment.extend(fixed.map(|(name, value)| (name.into(), value.into())));
        Ok(environment)
    }

    /// Writes the relevant part of the user's configuration: trusted repositories and ignored files. Git runs no
    /// programs because of either.
    fn write_user_config(&self) -> Result<OsString, WorktreeError> {
        static TEXT: OnceLock<String> = OnceLock::new();
        let text = TEXT.get_or_init(read_user_config);
        if text.is_empty() {
            return Ok("/dev/null".into());
        }
        if !self.kept.read_file(PERSON, limits::VALUE_BYTES as u64).is_ok_and(|found| found == text.as_bytes()) {
            self.kept.replace_unsynced(PERSON, text.as_bytes(), false)?;
        }
        Ok(self.kept.path().join(PERSON).into())
    }

    /// Reads git's output: all of it, or the beginning and the number of remaining bytes.
    fn read_stdout(&self, name: &str, most: Option<u64>) -> Result<(Vec<u8>, u64), WorktreeError> {
        let unread = |error: &dyn std::fmt::Display| WorktreeError::UnreadOutput(error.to_string());
        let (file, mark) = match self.kept.open_file(format!("{name}.out")) {
            Ok(opened) => opened,
            Err(error) if error.is_missing() => return Ok((Vec::new(), 0)),
            Err(error) => return Err(unread(&error)),
        };
        if most.is_none() && mark.size > OUTPUT_BYTES {
            return Err(WorktreeError::UnexpectedOutput("output is too large to be read"));
        }
        let mut out = Vec::new();
        file.take(most.unwrap_or(OUTPUT_BYTES)).read_to_end(&mut out).map_err(|error| unread(&error))?;
        let more = mark.size.saturating_sub(out.len() as u64);
        Ok((out, more))
    }

    fn output_path(&self, name: &str, ending: &str) -> PathBuf {
        self.kept.path().join(format!("{name}.{ending}"))
    }
}

/// The path in a variable of the host. A relative one is ignored.
fn absolute_path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The folder of the user's configuration files.
pub(crate) fn user_config_folder() -> Option<PathBuf> {
    absolute_path("XDG_CONFIG_HOME").or_else(|| Some(absolute_path("HOME")?.join(".config")))
}

/// `safe.directory` and `core.excludesFile` of the user, as a configuration file of their own.
fn read_user_config() -> String {
    let (home, settings) = (absolute_path("HOME"), user_config_folder());
    let files =
        [settings.as_ref().map(|folder| folder.join("git/config")), home.as_ref().map(|home| home.join(".gitconfig"))];
    let mut safe = Vec::new();
    let mut ignored = settings.map(|folder| folder.join("git/ignore")).filter(|file| file.is_file());
    let expand = |value: &str| match (value.strip_prefix("~/"), &home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(value),
    };
    for bytes in files.into_iter().flatten().filter_map(|file| std::fs::read(file).ok()) {
        for entry in parse_git_config(&bytes).0 {
            match (entry.section.as_str(), entry.key.as_str()) {
                ("safe", "directory") => safe.push(entry.value),
                ("core", "excludesfile") => ignored = Some(expand(&entry.value)),
                _ => {}
            }
        }
    }
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = String::new();
    for value in safe.iter().filter(|value| !value.contains('\n')) {
        text += &format!("[safe]\n\tdirectory = {}\n", quoted(value));
    }
    if let Some(file) = ignored.as_ref().and_then(|file| file.to_str()).filter(|file| !file.contains('\n')) {
        text += &format!("[core]\n\texcludesFile = {}\n", quoted(file));
    }
    text
}

/// The commit to compare with: from the source, from a file of the workspace, or the last commit.
fn diff_base(workspace: &RootFolder, convergence: &ConvergencePolicy) -> Result<String, WorktreeError> {
    let written = convergence.diff_base_ref.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let base = match (written, convergence.diff_base_ref_file.as_deref()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(file)) => {
            let bytes = workspace.read_file(Path::new(file), limits::DECISION_BYTES)?;
            String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().trim().to_owned()
        }
        (None, None) => String::new(),
    };
    let base = if base.is_empty() { "HEAD".to_owned() } else { base };
    match is_commit_name(&base) {
        true => Ok(base),
        false => {
            let shown = crate::terminal_escape::escape_for_terminal(base.as_bytes());
            Err(WorktreeError::CommitName(shown.chars().take(80).collect()))
        }
    }
}

/// Splits a list of NUL-terminated names.
pub(crate) fn split_names(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty())
}

fn split_texts(bytes: &[u8]) -> Vec<String> {
    split_names(bytes).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// True if a text can be a commit name and nothing else.
fn is_commit_name(text: &str) -> bool {
    text.len() <= REF_BYTES
        && !text.starts_with('-')
        && !text.contains("..")
        && !text.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | '?' | '*' | '[' | '\\'))
}

impl SnapshotRepo<'_> {
    /// The diff of two snapshots, truncated if it is too long. Secrets are redacted.
    pub(crate) fn render_diff(&self, from: &str, to: &str) -> Result<Vec<u8>, WorktreeError> {
        let arguments = [
            "diff-tree",
            "-r",
            "-p",
            "--find-renames",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--submodule=short",
            "--full-index",
            from,
            to,
        ];
        let call = SnapshotCommand {
            name: "difference",
            arguments: arguments.iter().map(OsString::from).collect(),
            files: self.top.path(),
            index: "none",
            stdin: Vec::new(),
        };
        let output = self.run_limited(call, Some(limits::CHANGES_BYTES))?;
        let more = output.more;
        Ok(truncate_diff(output.into_stdout()?, more))
    }

    /// Writes the diff of two snapshots to a file. If there is no difference, no file is written.
    pub(crate) fn write_changes(
        &self,
        files: &AttemptDir,
        from: &str,
        to: &WorkspaceSnapshot,
    ) -> Result<(), WorktreeError> {
        let mut text = match from == to.tree {
            true => Vec::new(),
            false => self.render_diff(from, &to.tree)?,
        };
        if to.left_out > 0 {
            let note = format!(
                "# {} larger than {} bytes not compared\n",
                if to.left_out == 1 { "1 file".to_owned() } else { format!("{} files", to.left_out) },
                limits::CHANGED_FILE_BYTES
            );
            text.extend_from_slice(note.as_bytes());
        }
        match text.is_empty() {
            true => Ok(()),
            false => write_changes_file(files.root(), &text),
        }
    }
}

/// Writes the reason why the changes are unknown, instead of the diff.
pub(crate) fn write_unknown_changes(files: &AttemptDir, why: &WorktreeError) -> Result<(), WorktreeError> {
    let why = why.to_string().replace('\n', " ");
    write_changes_file(files.root(), format!("# changes unknown: {why}\n").as_bytes())
}

fn write_changes_file(files: &RootFolder, text: &[u8]) -> Result<(), WorktreeError> {
    Ok(files.replace_unsynced(AttemptDir::CHANGES, text, false)?)
}

/// Truncates a diff at the end of a line, and appends a line that says so.
fn truncate_diff(mut text: Vec<u8>, more: u64) -> Vec<u8> {
    if more == 0 {
        return text;
    }
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let more = more + (text.len() - whole) as u64;
    text.truncate(whole);
    text.extend_from_slice(format!("# cut here: {more} more bytes are not kept\n").as_bytes());
    text
}

/// The file with the initial tree, in the folder of the snapshot repository.
const FIRST: &str = "first";

impl AttemptWorkspace {
    /// Saves the tree of the workspace before the run changes anything.
    pub(crate) fn save_initial_tree(
        &self,
        attempt: &AttemptContext,
        before: Option<&str>,
    ) -> Result<(), WorktreeError> {
        let repo = self.open_snapshot_repo(attempt)?;
        if repo.origin.is_none() || read_initial_tree(&repo).is_some() {
            return Ok(());
        }
        let tree = match before.filter(|_| self.matches_run_view()) {
            Some(before) => before.to_owned(),
            None => repo.take_snapshot(&self.run_view(&repo))?.tree,
        };
        Ok(repo.root().replace_file(FIRST, tree.as_bytes())?)
    }

    /// Writes the diff of all changes so far.
    pub(crate) fn write_run_changes(
        &self,
        attempt: &AttemptContext,
        after: Option<&WorkspaceSnapshot>,
    ) -> Result<(), WorktreeError> {
        let repo = self.open_snapshot_repo(attempt)?;
        let Some(first) = read_initial_tree(&repo) else { return Ok(()) };
        let now = match after.filter(|_| self.matches_run_view()) {
            Some(after) => after.tree.clone(),
            None => repo.take_snapshot(&self.run_view(&repo))?.tree,
        };
        match first == now {
            true => Ok(repo.root().remove(RunDir::CHANGES).map(drop)?),
            false => write_changes_file(repo.root(), &repo.render_diff(&first, &now)?),
        }
    }

    /// True if the attempt's own snapshots show the same files as the run's diff.
    fn matches_run_view(&self) -> bool {
        let view = self.view.as_ref().filter(|_| self.own.is_none());
        view.is_some_and(|view| view.largest == Some(limits::CHANGED_FILE_BYTES))
    }

    /// The view of the shared workspace, without large files.
    fn run_view(&self, repo: &SnapshotRepo<'_>) -> SnapshotView {
        SnapshotView { index: "run".to_owned(), ..shared_view(repo, self.base.path(), false) }
    }
}

fn read_initial_tree(repo: &SnapshotRepo<'_>) -> Option<String> {
    parse_object_id(&repo.root().read_file(FIRST, limits::DECISION_BYTES).ok()?).ok()
}

#[cfg(test)]
mod diff_tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_at_a_line_and_says_so() {
        assert_eq!(truncate_diff(b"a\nb\n".to_vec(), 0), b"a\nb\n");
        assert_eq!(truncate_diff(b"a\nbc".to_vec(), 10), b"a\n# cut here: 12 more bytes are not kept\n");
        assert_eq!(truncate_diff(b"abc".to_vec(), 1), b"# cut here: 4 more bytes are not kept\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_commits_are_names_of_commits() {
        for good in ["HEAD", "main", "origin/main", "HEAD~3", "v1.0^{}", "abc123", "main@{1}"] {
            assert!(is_commit_name(good), "{good}");
        }
        for bad in ["--output=x", "a b", "a..b", "a\nb", "HEAD:file", "*", &"x".repeat(300)] {
            assert!(!is_commit_name(bad), "{bad}");
        }
    }
}
