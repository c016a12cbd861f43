//! Protection of workspace files: compares them before and after an attempt, and restores changed ones.
//!
//! Owns the reaction to changed protected files: a sandbox cannot protect files that do not exist yet. `rules` says
//! which files are protected. Git repositories are also compared as a whole: one that was moved away or replaced is
//! moved back. Does not build sandboxes.

mod rules;

use std::{collections::BTreeSet, io::Write, path::Path};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptEnd, AttemptMode, code},
    ir::ErrorClass,
    limits,
    plan::ContentHash,
};

use self::rules::{TOP, is_enforced_by_sandbox};
use crate::{
    executor::attempt::{
        AttemptContext, StageError,
        collect::{summarize_names, truncate_message},
        non_retryable,
        sandbox_setup::WriteAccess,
        spec::AttemptSpec,
    },
    sandbox::SandboxEnforcement,
    workspace::{
        AttemptDir, FileSurvey, GitPlace, PathChange, PathPattern, RepositoryScan, RootFolder, RunDir, SurveyedFile,
        find_git_folder, is_harmless_config, parse_git_config, resolve_below,
        root::{FileIdentity, FilePathError},
    },
};

pub(crate) use self::rules::{ProtectionRules, hook_protected_places, protected_places};

/// Limits for the copies that are kept for restoring: the size of one file, and of all together.
const COPY_BYTES: u64 = 1024 * 1024;
const COPIES_BYTES: u64 = 16 * COPY_BYTES;

/// The file with the baseline, in the folder of the attempt.
const BEFORE: &str = "before.json";
/// The folder for files that were found in the place of protected files, below the folder of the attempt.
pub(crate) const DISPLACED: &str = "displaced";

pub(crate) struct WorkspaceProtection {
    rules: ProtectionRules,
    before: ProtectionBaseline,
    run: RunDir,
    files: AttemptDir,
    folder: RootFolder,
    without: Vec<FileIdentity>,
}

/// The state before an attempt.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtectionBaseline {
    /// The compared patterns. Patterns that the sandbox surely enforces are not among them.
    patterns: Vec<String>,
    files: FileSurvey,
    /// The repositories of the workspace. `None` if only the patterns are protected.
    #[serde(default)]
    repositories: Option<RepositoryScan>,
}

/// A file or repository that was changed. `mended` is true if it was restored.
struct ProtectionViolation {
    path: String,
    state: &'static str,
    /// The advice for a person, if it was not restored.
    detail: Option<String>,
    mended: bool,
}

impl ProtectionViolation {
    fn new(path: &str, became: PathChange, mended: bool) -> ProtectionViolation {
        let state = match became {
            PathChange::New => "new",
            PathChange::Changed => "changed",
            PathChange::Gone => "removed",
        };
        ProtectionViolation { path: path.to_owned(), state, detail: None, mended }
    }
}

/// The comparison of the repositories of a workspace before and after an attempt.
struct RepositoryChanges {
    now: RepositoryScan,
    found: Vec<ProtectionViolation>,
    /// Repositories that were removed or created anew. Their old and new contents are not compared.
    renewed: BTreeSet<String>,
    /// Repositories that could not be restored. Their contents are not checked.
    lost: BTreeSet<String>,
}

impl ProtectionBaseline {
    /// The baseline of an interrupted attempt, if this attempt continues it.
    fn read_interrupted(attempt: &AttemptContext) -> Option<ProtectionBaseline> {
        if !matches!(attempt.job.mode, AttemptMode::Rerun | AttemptMode::Resume | AttemptMode::Restore) {
            return None;
        }
        attempt
            .earlier_attempts()
            .find_map(|files| serde_json::from_slice(&files.root().read_file(BEFORE, limits::SURVEY_BYTES).ok()?).ok())
    }
}

impl WorkspaceProtection {
    /// Prepares the protection for an attempt that is about to begin. `None` if it cannot change any protected file.
    pub(crate) fn prepare(
        attempt: &AttemptContext,
        folder: &RootFolder,
        without: &[FileIdentity],
    ) -> Result<Option<WorkspaceProtection>, StageError> {
        let AttemptContext { shared, job, run, files, .. } = attempt;
        let (rules, enforced) = (ProtectionRules::from_spec(job), shared.sandbox_enforcement());
        let is_reader = WriteAccess::from_spec(job) == WriteAccess::Given && enforced.is_some();
        if is_reader || rules.patterns.is_empty() {
            return Ok(None);
        }
        let sure = |pattern: &&PathPattern| {
            enforced == Some(SandboxEnforcement::Full) && is_enforced_by_sandbox(pattern, &rules, folder)
        };
        let before = ProtectionBaseline::read_interrupted(attempt);
        let carried = before.is_some();
        let patterns = || rules.patterns.iter().filter(|pattern| !sure(pattern)).map(PathPattern::to_text).collect();
        let empty = || ProtectionBaseline { patterns: patterns(), files: FileSurvey::default(), repositories: None };
        let before = before.unwrap_or_else(empty);
        let (run, files) = (run.clone(), files.clone());
        let mut protected =
            WorkspaceProtection { rules, before, run, files, folder: folder.clone(), without: without.to_vec() };
        if !carried {
            if protected.rules.repositories {
                let scan = RepositoryScan::scan_folder(folder, without).map_err(non_retryable)?;
                protected.before.repositories = Some(scan);
            }
            protected.before.files = protected.take_survey(None).map_err(non_retryable)?;
            protected.copy_files().map_err(non_retryable)?;
        }
        let bytes = serde_json::to_vec(&protected.before).expect("a survey is JSON");
        protected.files.root().write_new(BEFORE, &bytes).map_err(non_retryable)?;
        Ok(Some(protected))
    }

    /// A note for the log about parts of the workspace that are not checked.
    pub(crate) fn coverage_note(&self) -> Option<String> {
        let depth = self.before.repositories.as_ref()?.complete_depth?;
        Some(format!(
            "the workspace has more than {} files and folders: git repositories more than {depth} folders deep in it are not \
             checked for changes",
            limits::REPOSITORY_NAMES
        ))
    }

    /// Surveys the protected files: those of the baseline and, after an attempt, those of the repositories that exist
    /// now.
    fn take_survey(&self, after: Option<&RepositoryChanges>) -> Result<FileSurvey, FilePathError> {
        let mut patterns: Vec<PathPattern> = self.before.patterns.iter().map(|text| PathPattern::new(text)).collect();
        if let Some(before) = &self.before.repositories {
            let new = after.into_iter().flat_map(|after| &after.now.control).filter(|path| before.covers_path(path));
            let mut places: Vec<&String> = before.control.iter().chain(&before.named).chain(new).collect();
            if let Some(after) = after {
                places.retain(|path| !is_at_or_below(path, &after.lost));
                patterns.retain(|pattern| !is_at_or_below(&pattern.literal_prefix(), &after.lost));
            }
            patterns.extend(places.into_iter().map(|path| PathPattern::from_literal(path)));
        }
        FileSurvey::scan_folder(&self.folder, &patterns, &self.without)
    }

    /// Keeps the contents of the files, without duplicates.
    fn copy_files(&self) -> Result<(), FilePathError> {
        if self.before.files.files().next().is_none() {
            return Ok(());
        }
        let (kept, mut left) = (self.run.baseline_folder()?, COPIES_BYTES);
        for (path, seen) in self.before.files.files() {
            let SurveyedFile::File { hash, .. } = seen else { continue };
            if kept.entry_kind(hash.to_string())?.is_some() {
                continue;
            }
            let Ok(bytes) = self.folder.read_file(path, COPY_BYTES.min(left)) else { continue };
            left -= bytes.len() as u64;
            if ContentHash::hash_bytes(&bytes) == *hash {
                kept.replace_unsynced(hash.to_string(), &bytes, false)?;
            }
        }
        Ok(())
    }

    /// Fails the attempt if protected files were changed. They are restored if nobody else worked there.
    pub(crate) fn judge(&self, end: AttemptEnd, job: &AttemptSpec, alone: bool) -> AttemptEnd {
        let found = match self.find_changes(alone) {
            Ok(found) => found,
            Err(error) => {
                return non_retryable(format!("cannot tell whether protected files were changed: {error}")).into();
            }
        };
        if found.is_empty() || matches!(end, AttemptEnd::Stopped | AttemptEnd::Interrupted) {
            return end;
        }
        let mended = found.iter().all(|found| found.mended);
        // A retry would take the changed files for the original ones.
        let class = if mended { job.worker.default_error_class() } else { ErrorClass::NonRetryable };
        let message = truncate_message(describe_changes(&found, mended));
        AttemptEnd::Failed { class, code: Some(code::PROTECTED.into()), message, retry_at: None }
    }

    fn find_changes(&self, alone: bool) -> Result<Vec<ProtectionViolation>, String> {
        let mut changes = self.find_replaced_repositories(alone)?;
        let survey = self.take_survey(changes.as_ref()).map_err(|error| error.to_string())?;
        let mut found = changes.as_mut().map_or_else(Vec::new, |changes| std::mem::take(&mut changes.found));
        let mut broken = BTreeSet::new();
        for (path, became) in self.before.files.compare_with(&survey) {
            if self.rules.is_unprotected(&path)
                || changes.as_ref().is_some_and(|changes| self.is_allowed(&path, became, changes, &survey))
                || self.is_harmless_change(&path, became, changes.as_ref())
            {
                continue;
            }
            let bare = changes.as_ref().and_then(|changes| self.find_new_bare(&path, changes));
            let mended = alone
                && match bare {
                    Some(bare) => broken.contains(bare) || self.break_bare(bare),
                    None => self.restore_file(&path).is_ok(),
                };
            broken.extend(bare.filter(|_| mended).map(str::to_owned));
            found.push(ProtectionViolation::new(&path, became, mended));
        }
        Ok(found)
    }

    /// Finds the repositories that were replaced, and restores them if possible.
    fn find_replaced_repositories(&self, alone: bool) -> Result<Option<RepositoryChanges>, String> {
        let Some(before) = &self.before.repositories else { return Ok(None) };
        let scan = || RepositoryScan::scan_folder(&self.folder, &self.without).map_err(|error| error.to_string());
        let now = scan()?;
        if before.complete_depth.is_none() && now.complete_depth.is_some() {
            return Err(format!(
                "it left more than {} files and folders in the workspace, too many to search for git repositories",
                limits::REPOSITORY_NAMES
            ));
        }
        let (renewed, lost) = (BTreeSet::new(), BTreeSet::new());
        let mut changes = RepositoryChanges { now, found: Vec::new(), renewed, lost };
        let mut moved = false;
        for (path, place) in &before.places {
            let now = changes.now.places.get(path).copied();
            if now == Some(*place) || is_at_or_below(path, &changes.renewed) || is_at_or_below(path, &changes.lost) {
                continue;
            }
            // A nested repository may be removed or created anew like any folder, if the new one makes git run nothing.
            let nested = path != TOP;
            if nested && (now.is_none() || self.is_harmless_repository(path, &changes.now)) {
                changes.renewed.insert(path.clone());
                continue;
            }
            let became = if now.is_none() { PathChange::Gone } else { PathChange::Changed };
            let mut found = ProtectionViolation::new(path, became, false);
            match if alone { self.restore_repository(path, *place) } else { Err(None) } {
                Ok(()) => (found.mended, moved) = (true, true),
                Err(detail) => {
                    found.detail = detail;
                    changes.lost.insert(path.clone());
                }
            }
            changes.found.push(found);
        }
        if moved {
            changes.now = scan()?;
        }
        for path in changes.now.unreadable.difference(&before.unreadable).filter(|path| before.covers_path(path)) {
            let mut found = ProtectionViolation::new(path, PathChange::New, false);
            found.detail = Some("git repository in a folder whose name is not UTF-8, which cannot be checked".into());
            changes.found.push(found);
        }
        Ok(Some(changes))
    }

    /// Restores a repository that is not at its place. The error is advice about the loss.
    fn restore_repository(&self, path: &str, place: GitPlace) -> Result<(), Option<String>> {
        let failed = |error: FilePathError| Some(format!("it cannot be restored: {error}"));
        let (GitPlace::Folder(lifetime) | GitPlace::Bare(lifetime)) = place else {
            self.displace(path).map_err(failed)?;
            return self.restore_file(path).map_err(failed);
        };
        let Some(now) = find_git_folder(&self.folder, lifetime, &self.without) else {
            self.displace(path).map_err(failed)?;
            let kept = self.files.root().path().join(DISPLACED);
            return Err(Some(format!(
                "the original was not found in the workspace: its commits, branches, stashes and settings are lost here; \
                 what was in its place, if anything, is in `{}` now; restore it from a remote or a backup",
                kept.display()
            )));
        };
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        let aside = parent.join(format!(".skein-restored-{}", crate::system::random_hex::<4>()));
        self.folder.move_new(&now, &aside).map_err(failed)?;
        let placed = self.displace(path).and_then(|()| self.folder.move_new(&aside, path));
        placed
            .map_err(|error| Some(format!("the original is at `{}`; it cannot be restored: {error}", aside.display())))
    }

    /// Removes the entry at a path, into the folder of the attempt if that is on the same file system.
    fn displace(&self, path: &str) -> Result<(), FilePathError> {
        if self.folder.entry_kind(path)?.is_none() {
            return Ok(());
        }
        let place = Path::new(DISPLACED).join(path);
        if let Some(parent) = place.parent() {
            self.files.root().make_folders_unsynced(parent, true)?;
        }
        match self.folder.move_into(path, self.files.root(), &place) {
            Ok(()) => Ok(()),
            Err(_) => self.folder.remove(path).map(drop),
        }
    }

    /// True if nothing in a repository could make git run a program, even if all of it were new.
    fn is_harmless_repository(&self, place: &str, now: &RepositoryScan) -> bool {
        let own = now.control.iter().filter(|path| Path::new(path).starts_with(place));
        let patterns: Vec<PathPattern> = own.map(|path| PathPattern::from_literal(path)).collect();
        let Ok(survey) = FileSurvey::scan_folder(&self.folder, &patterns, &self.without) else {
            return false;
        };
        survey.files().all(|(path, seen)| matches!(seen, SurveyedFile::File { .. }) && self.is_harmless_file(path, now))
    }

    /// True if a difference is an allowed change of a nested repository: it may be removed, moved or created anew, and
    /// may get settings that make git run nothing.
    fn is_allowed(&self, path: &str, became: PathChange, changes: &RepositoryChanges, survey: &FileSurvey) -> bool {
        let Some(before) = &self.before.repositories else { return false };
        if is_at_or_below(path, &changes.lost) || is_at_or_below(path, &changes.renewed) && became == PathChange::Gone {
            return true;
        }
        if is_at_or_below(path, &changes.renewed) {
            return self.is_harmless_file(path, &changes.now);
        }
        if became == PathChange::New && self.was_moved(path, before, changes, survey) {
            return true;
        }
        let nested = before.control.contains(path) && !Path::new(path).starts_with(TOP);
        let config = path.ends_with("/config") || path.ends_with("/config.worktree");
        nested && config && became == PathChange::Changed && self.adds_nothing_harmful(path, &changes.now)
    }

    /// True if a file belongs to a repository that was moved with its folder, and is unchanged.
    fn was_moved(&self, path: &str, before: &RepositoryScan, changes: &RepositoryChanges, survey: &FileSurvey) -> bool {
        let Some((to, place)) = changes.now.find_place(path) else { return false };
        let from = before.places.iter().find(|(from, was)| {
            **was == place
                && matches!(place, GitPlace::Folder(_) | GitPlace::Bare(_))
                && changes.renewed.contains(*from)
        });
        let Some((from, _)) = from else { return false };
        let rest = Path::new(path).strip_prefix(to).expect("it is in it");
        let old = Path::new(from).join(rest);
        old.to_str().is_some_and(|old| survey.get(path) == self.before.files.get(old))
    }

    /// True if each entry of a configuration existed before or makes git run nothing.
    fn adds_nothing_harmful(&self, path: &str, now: &RepositoryScan) -> bool {
        let Some(SurveyedFile::File { hash, .. }) = self.before.files.get(path) else { return false };
        let old = self.run.baseline_folder().and_then(|kept| kept.read_file(hash.to_string(), COPY_BYTES));
        let (Ok(old), Ok(new)) = (old, self.folder.read_file(path, COPY_BYTES)) else { return false };
        let (old, _) = parse_git_config(&old);
        is_harmless_config(&new, |entry| {
            old.contains(entry) || entry.is_worktree() && self.is_own_worktree(path, &entry.value, now)
        })
    }

    /// True if a value of `core.worktree` points into the workspace, in the git folder of a submodule.
    fn is_own_worktree(&self, config: &str, value: &str, now: &RepositoryScan) -> bool {
        let Some(folder) = Path::new(config).parent() else { return false };
        folder.to_str().is_some_and(|folder| now.linked.contains(folder))
            && resolve_below(self.folder.path(), folder, value).is_some_and(|path| !path.is_empty())
    }

    /// True for a new file in a repository that makes git run nothing.
    fn is_harmless_change(&self, path: &str, became: PathChange, changes: Option<&RepositoryChanges>) -> bool {
        let Some(changes) = changes else { return false };
        if path.ends_with("rebase-merge/git-rebase-todo") {
            return became == PathChange::Gone || self.is_harmless_file(path, &changes.now);
        }
        became == PathChange::New && self.is_harmless_file(path, &changes.now)
    }

    /// True if a control file of a repository makes git run nothing: creating a repository also creates its
    /// configuration, sample hooks that git does not run, and references to git folders that are checked themselves.
    fn is_harmless_file(&self, path: &str, now: &RepositoryScan) -> bool {
        let whole = Path::new(path);
        let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let folder = whole.parent().unwrap_or(Path::new(""));
        let is_linked = |folder: &Path| folder.to_str().is_some_and(|folder| now.linked.contains(folder));
        let in_repository = folder.to_str().is_some_and(|text| now.places.contains_key(text)) || is_linked(folder);
        let read = || self.folder.read_file(path, COPY_BYTES).ok();
        let text = || String::from_utf8(read()?).ok();
        match name {
            TOP => text().is_some_and(|text| {
                let target = text.strip_prefix("gitdir:").map(str::trim);
                let target = target.and_then(|target| resolve_below(self.folder.path(), folder, target));
                target.is_some_and(|target| now.linked.contains(&target))
            }),
            "config" | "config.worktree" if in_repository => read().is_some_and(|bytes| {
                is_harmless_config(&bytes, |entry| entry.is_worktree() && self.is_own_worktree(path, &entry.value, now))
            }),
            "commondir" if is_linked(folder) => text().is_some_and(|text| text.trim() == "../.."),
            "gitdir" if is_linked(folder) => {
                text().is_some_and(|text| resolve_below(self.folder.path(), folder, text.trim()).is_some())
            }
            "git-rebase-todo" => text().is_some_and(|text| {
                !text.lines().any(|line| matches!(line.split_whitespace().next(), Some("exec" | "x")))
            }),
            name => {
                let hooks = folder.file_name().is_some_and(|name| name == "hooks");
                let of = folder.parent().and_then(Path::to_str);
                let known = of.is_some_and(|of| now.places.contains_key(of) || now.linked.contains(of));
                hooks && known && name.ends_with(".sample")
            }
        }
    }

    /// The folder of the new bare repository that contains a file, if there is one.
    fn find_new_bare<'a>(&self, path: &str, changes: &'a RepositoryChanges) -> Option<&'a str> {
        let (place, kind) = changes.now.find_place(path)?;
        let before = self.before.repositories.as_ref()?;
        (matches!(kind, GitPlace::Bare(_)) && !before.places.contains_key(place)).then_some(place)
    }

    /// Makes a new bare repository invalid by removing a part that did not exist before. Its other files stay.
    fn break_bare(&self, place: &str) -> bool {
        let Some(before) = &self.before.repositories else { return false };
        let parts = ["commondir", "HEAD", "refs", "objects"].map(|part| Path::new(place).join(part));
        let mut new = parts.iter().filter_map(|part| part.to_str()).filter(|part| !before.parts.contains(*part));
        let without_common = new.clone().next().filter(|part| part.ends_with("commondir"));
        if let Some(part) = without_common {
            self.set_aside(part);
            if self.folder.remove(part).is_err() {
                return false;
            }
        }
        let part = new.find(|part| !part.ends_with("commondir"));
        match part {
            Some(part) => {
                self.set_aside(part);
                self.folder.remove(part).is_ok()
            }
            None => without_common.is_some(),
        }
    }

    fn restore_file(&self, path: &str) -> Result<(), FilePathError> {
        self.set_aside(path);
        self.folder.remove(path)?;
        match self.before.files.get(path) {
            None => self.remove_empty_folders(Path::new(path)),
            Some(SurveyedFile::File { hash, executable }) => {
                let bytes = self.run.baseline_folder()?.read_file(hash.to_string(), COPY_BYTES)?;
                if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    self.folder.make_folders_unsynced(parent, false)?;
                }
                let mut pending = self.folder.create_file(path, *executable)?;
                let failed = |error| FilePathError::new(self.folder.path(), Path::new(path), error);
                pending.write_all(&bytes).map_err(failed)?;
                pending.persist()
            }
            Some(SurveyedFile::Link { to }) => self.folder.replace_link(path, Path::new(to)),
            Some(SurveyedFile::Other) => {
                let why = std::io::Error::other("only files and links can be restored");
                Err(FilePathError::new(self.folder.path(), Path::new(path), why))
            }
        }
    }

    /// Keeps the present file for people. A file that cannot be kept is lost.
    fn set_aside(&self, path: &str) {
        let Ok(bytes) = self.folder.read_file(path, COPY_BYTES) else { return };
        let place = Path::new(DISPLACED).join(path);
        if let Some(parent) = place.parent() {
            let _ = self.files.root().make_folders_unsynced(parent, true);
        }
        let _ = self.files.root().write_new(&place, &bytes);
    }

    /// Removes the parent folders that are now empty.
    fn remove_empty_folders(&self, path: &Path) -> Result<(), FilePathError> {
        let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        for parent in parents {
            if !self.folder.open_folder(parent)?.list_entries(1).is_ok_and(|entries| entries.is_empty()) {
                break;
            }
            self.folder.remove(parent)?;
        }
        Ok(())
    }
}

/// True if a path is one of these places or below one.
fn is_at_or_below(path: &str, places: &BTreeSet<String>) -> bool {
    !places.is_empty() && Path::new(path).ancestors().filter_map(Path::to_str).any(|path| places.contains(path))
}

fn describe_changes(found: &[ProtectionViolation], mended: bool) -> String {
    let name = |found: &ProtectionViolation| match &found.detail {
        Some(detail) => format!("`{}` ({}: {detail})", found.path, found.state),
        None => format!("`{}` ({})", found.path, found.state),
    };
    let names = summarize_names(found.iter().map(name));
    match mended {
        true => format!("it changed protected files, which were restored: {names}"),
        false => format!(
            "protected files were changed during the attempt, by it or by another worker in the same folder, and were not \
             restored: {names}; check them before you continue"
        ),
    }
}
