//! The workspace of one attempt: opened or created before it starts, examined after it has ended.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use skein_core::{
    engine::{AttemptMode, AttemptRole},
    ir::ConvergencePolicy,
    limits,
};

use super::{
    OnRetry, SnapshotSequence, WorkspaceUsage, WorktreeError, is_repository, lock_sequence,
    snapshot::{SnapshotRepo, SnapshotView, WorkspaceSnapshot},
    step_worktree::{self, CheckoutError, SnapshotCheckout, StepWorktree},
    whole_view,
};
use crate::{
    executor::{
        agents::home,
        attempt::{AttemptContext, StageError, non_retryable},
        worktree,
    },
    workspace::{AttemptDir, RootFolder, RunDir},
};

/// The maximum size of an earlier attempt's changes in the prompt.
const TOLD: u64 = 16 * 1024;
#[derive(Debug)]
pub(crate) struct AttemptWorkspace {
    /// The shared workspace.
    pub(crate) base: RootFolder,
    /// The folder where it works.
    pub folder: RootFolder,
    pub(crate) own: Option<StepWorktree>,
    pub(crate) view: Option<SnapshotView>,
    /// True if it may change files.
    counts: bool,
    /// The reason why its changes are unknown.
    pub(crate) unknown: Option<String>,
    pub(crate) watched: Option<WorkspaceUsage>,
    /// True if the workspace was restored.
    pub put_back: bool,
    /// If it continues earlier work: the number at which that work began, and the snapshot from before.
    goes_on: Option<(u64, Option<String>)>,
    /// The changes of an earlier attempt, if the prompt shows them.
    pub earlier: Option<String>,
    /// The conflicts that it must resolve.
    pub conflicts: Vec<super::ConflictDetails>,
    /// The paths in the workspace that it changed, if they are tracked.
    pub changed: Vec<String>,
    /// The paths that are not part of a workspace.
    without: Vec<PathBuf>,
}

/// The paths beyond its folder that a worker in a step worktree must see or may write.
#[derive(Debug)]
pub(crate) struct WorktreeSandboxPaths {
    pub top: PathBuf,
    pub objects: PathBuf,
}

impl AttemptWorkspace {
    /// Enters the workspace that the step requests: shared or its own worktree, kept or restored.
    pub(crate) fn enter(
        attempt: &AttemptContext,
        base: RootFolder,
        context: Option<&Path>,
    ) -> Result<AttemptWorkspace, StageError> {
        let job = &attempt.job;
        let without = attempt.excluded_paths(context);
        let mut place = AttemptWorkspace {
            folder: base.clone(),
            base,
            own: None,
            view: None,
            changed: Vec::new(),
            counts: false,
            unknown: None,
            watched: None,
            put_back: false,
            goes_on: None,
            earlier: None,
            conflicts: Vec::new(),
            without,
        };
        let known = is_repository(place.base.path()) || job.workspace.tracked;
        let resolves = !job.workspace.conflicts.is_empty();
        if !job.isolation.worktree && (job.is_read_only() || !known) && !resolves {
            return Ok(place);
        }
        place.counts = !job.is_read_only();
        let sequence = attempt.snapshot_sequence();
        let _one = lock_sequence(&sequence);
        let entered = match attempt.open_workspace_view(&mut place) {
            Ok(()) => {
                place.import_conflicts(attempt)?;
                attempt.handle_earlier_attempt(&mut place)
            }
            Err(why) => Err(why),
        };
        match entered {
            Ok(()) => Ok(place),
            Err(why) if job.isolation.worktree => Err(non_retryable(format!("cannot create its worktree: {why}"))),
            Err(why) if resolves => Err(non_retryable(format!("the conflicts to resolve cannot be imported: {why}"))),
            Err(why) if job.workspace.policy.restores => {
                Err(non_retryable(format!("its workspace could not be restored if that became necessary: {why}")))
            }
            Err(why) => {
                place.unknown = Some(why.to_string());
                Ok(place)
            }
        }
    }

    /// The paths that a sandbox must show for a step worktree.
    pub(crate) fn sandbox_paths(
        &self,
        attempt: &AttemptContext,
    ) -> Result<Option<WorktreeSandboxPaths>, WorktreeError> {
        let Some(own) = &self.own else { return Ok(None) };
        let repo = self.open_snapshot_repo(attempt)?;
        Ok(Some(WorktreeSandboxPaths { top: own.path().to_owned(), objects: repo.objects_folder() }))
    }

    /// The files of a step worktree that changed since its creation, relative to a folder in it. `None` if there is no
    /// such worktree, or if the files are compared with another base.
    pub(crate) fn changed_files(
        &self,
        attempt: &AttemptContext,
        folder: &RootFolder,
        convergence: &ConvergencePolicy,
    ) -> Option<Result<Vec<String>, WorktreeError>> {
        let (own, view) = (self.own.as_ref()?, self.view.as_ref()?);
        if convergence.diff_base_ref.is_some() || convergence.diff_base_ref_file.is_some() {
            return None;
        }
        let sequence = attempt.snapshot_sequence();
        let _one = lock_sequence(&sequence);
        let changed = || {
            let repo = self.open_snapshot_repo(attempt)?;
            let now = repo.take_snapshot(view)?.tree;
            let below = folder.path().strip_prefix(own.path()).unwrap_or(Path::new(""));
            let changes = repo.list_changes(&own.note.commit, &now)?;
            let named = changes.iter().filter_map(|change| change.path.strip_prefix(below).ok());
            Ok(named.map(|path| path.to_string_lossy().into_owned()).collect())
        };
        Some(changed())
    }

    /// Resolves a folder of the shared workspace in the worktree of the attempt.
    pub(crate) fn resolve_shared_folder(&self, folder: &RootFolder) -> Result<RootFolder, WorktreeError> {
        let (Some(own), Some(view)) = (&self.own, &self.view) else { return Ok(folder.clone()) };
        let mut top = self.base.path();
        for _ in view.prefix.components() {
            top = top.parent().unwrap_or(top);
        }
        match folder.path().strip_prefix(top) {
            Ok(below) if !below.as_os_str().is_empty() => Ok(own.files.make_folders(below, false)?),
            _ => Ok(own.files.clone()),
        }
    }

    /// Takes the snapshot with which the changes of the attempt are compared.
    pub(crate) fn begin_attempt(&mut self, attempt: &AttemptContext) -> Result<(), StageError> {
        let AttemptContext { shared, job, run, files, .. } = attempt;
        if self.view.is_none() && !(job.workspace.tracked && self.counts) {
            return Ok(());
        }
        let sequence = attempt.snapshot_sequence();
        let mut sequence = lock_sequence(&sequence);
        let wrong = |why: WorktreeError| non_retryable(format!("the state of its workspace cannot be saved: {why}"));
        let before = match self.take_snapshot(attempt) {
            Ok(taken) => taken.map(|taken| taken.tree),
            Err(why) if job.isolation.worktree || job.workspace.policy.restores => return Err(wrong(why)),
            Err(why) => {
                (self.unknown, self.view) = (Some(why.to_string()), None);
                None
            }
        };
        if self.counts && self.view.is_some() {
            // The run's diff is for people; the work continues without it.
            let _ = self.save_initial_tree(attempt, before.as_deref());
        }
        let began = next_number(&mut sequence, run).map_err(wrong)?;
        let (since, back) = self.goes_on.clone().unwrap_or((began, before.clone()));
        let watched = WorkspaceUsage {
            folder: self.folder.path().to_owned(),
            began,
            since,
            back,
            ended: None,
            life: shared.trees.life.clone(),
            before,
            after: None,
            own: self.own.is_some(),
        };
        watched.write(files, job.workspace.policy.restores).map_err(|error| wrong(error.into()))?;
        if let Some(earlier) = &self.earlier {
            files.root().write_new(AttemptDir::EARLIER, earlier.as_bytes()).map_err(|error| wrong(error.into()))?;
        }
        self.watched = Some(watched);
        Ok(())
    }

    fn take_snapshot(&self, attempt: &AttemptContext) -> Result<Option<WorkspaceSnapshot>, WorktreeError> {
        let Some(view) = &self.view else { return Ok(None) };
        let repo = self.open_snapshot_repo(attempt)?;
        let taken = repo.take_snapshot(view)?;
        if attempt.job.workspace.policy.restores {
            repo.sync_objects()?;
        }
        Ok(Some(taken))
    }

    pub(crate) fn open_snapshot_repo<'a>(
        &self,
        attempt: &'a AttemptContext,
    ) -> Result<SnapshotRepo<'a>, WorktreeError> {
        let mut repo = SnapshotRepo::open(attempt, &self.base, &self.without)?;
        repo.filter = attempt.shared.redaction_filter();
        Ok(repo)
    }
}
pub(crate) fn next_number(sequence: &mut SnapshotSequence, run: &RunDir) -> Result<u64, WorktreeError> {
    let next = match sequence.next {
        Some(next) => next,
        None => worktree::next_free_number(run)?,
    };
    sequence.next = Some(next + 1);
    Ok(next)
}

impl AttemptContext {
    /// The lock for the snapshots of its run.
    pub(crate) fn snapshot_sequence(&self) -> Arc<Mutex<SnapshotSequence>> {
        self.shared.trees.snapshot_sequence(&self.job.run)
    }

    /// The state folder and the context folder, which are not part of a workspace.
    pub(crate) fn excluded_paths(&self, context: Option<&Path>) -> Vec<PathBuf> {
        std::iter::once(self.shared.state.path()).chain(context).map(Path::to_owned).collect()
    }

    fn open_workspace_view(&self, place: &mut AttemptWorkspace) -> Result<(), WorktreeError> {
        let job = &self.job;
        let repo = place.open_snapshot_repo(self)?;
        if job.isolation.worktree {
            self.enter_step_worktree(&repo, place)?;
        } else if repo.origin.is_some() || job.workspace.policy.restores {
            place.view = Some(shared_view(&repo, place.base.path(), job.workspace.policy.restores));
        }
        Ok(())
    }

    fn enter_step_worktree(&self, repo: &SnapshotRepo<'_>, place: &mut AttemptWorkspace) -> Result<(), WorktreeError> {
        if repo.origin.is_none() {
            return Err(WorktreeError::NoRepository(place.base.path().to_owned()));
        }
        let attempt = self.job.attempt;
        if step_worktree::read_note(&self.run, attempt)?.is_some_and(|note| note.done) {
            // Later parts of the step see the work in the shared workspace, where it was merged.
            return Ok(());
        }
        let own = StepWorktree::open(repo, &self.run, attempt, &self.job.path)?;
        let prefix = repository_prefix(repo, place.base.path());
        place.view = Some(own.snapshot_view(repo, attempt, &prefix)?);
        place.folder = match prefix.as_os_str().is_empty() {
            true => own.files.clone(),
            false => own.files.make_folders(&prefix, false)?,
        };
        place.own = Some(own);
        Ok(())
    }

    /// Restores the workspace to its state before an earlier attempt, or reports that attempt's changes, as the step
    /// requests.
    fn handle_earlier_attempt(&self, place: &mut AttemptWorkspace) -> Result<(), WorktreeError> {
        let Some(view) = place.view.clone().filter(|_| self.job.attempt.role == AttemptRole::Main) else {
            return Ok(());
        };
        let repo = &place.open_snapshot_repo(self)?;
        let with_note = |files: AttemptDir| WorkspaceUsage::read(&files).map(|note| (files, note));
        let Some((files, mut note)) = self.earlier_attempts().find_map(with_note) else { return Ok(()) };
        let (Some(before), Some(begin)) = (note.before.clone(), note.back.clone()) else { return Ok(()) };
        if note.after.is_none() {
            // It was interrupted, and no snapshot was taken since.
            let now = repo.take_snapshot(&view)?;
            repo.write_changes(&files, &before, &now)?;
            note.after = Some(now.tree);
            note.write(&files, false)?;
        }
        let after = note.after.clone().unwrap_or_default();
        let back = self.wants_restore();
        if back && worktree::was_alone(&self.run, self.job.attempt, &note)? {
            match (SnapshotCheckout { repo, run: &self.run, view: &view }).apply_changes(&after, &begin) {
                Ok(()) => place.put_back = true,
                // Others have changed the same files since; their changes are kept.
                Err(CheckoutError::Changed(_)) => {}
                Err(CheckoutError::Failed(why)) => return Err(why),
            }
        }
        if !place.put_back && self.job.mode != AttemptMode::Again {
            place.goes_on = Some((note.since, note.back.clone()));
        }
        let shows = self.job.mode == AttemptMode::Again && self.job.workspace.policy.on_retry == OnRetry::KeepAndTell;
        if !place.put_back && (shows || back) {
            place.earlier = read_earlier_changes(&files);
        }
        Ok(())
    }

    /// True if the workspace must be restored to its state before the last attempt.
    fn wants_restore(&self) -> bool {
        match self.job.mode {
            AttemptMode::Again => self.job.workspace.policy.on_retry == OnRetry::Reset,
            AttemptMode::Restore => true,
            // An agent that cannot resume its session starts over.
            AttemptMode::Resume => !home::has_session(self),
            AttemptMode::Fresh | AttemptMode::Rerun => false,
        }
    }
}

/// The changes of an attempt, truncated for the prompt.
fn read_earlier_changes(files: &AttemptDir) -> Option<String> {
    let bytes = files.root().read_file(AttemptDir::CHANGES, limits::CHANGES_BYTES * 2).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let most = usize::try_from(TOLD).unwrap_or(usize::MAX);
    match text.len() > most {
        true => Some(text.chars().take(most).collect::<String>() + "\n# and more\n"),
        false => Some(text.into_owned()),
    }
}

/// The path of a folder inside the repository.
fn repository_prefix(repo: &SnapshotRepo<'_>, folder: &Path) -> PathBuf {
    folder.strip_prefix(repo.top.path()).unwrap_or(Path::new("")).to_owned()
}

/// The view of a shared workspace. Large files are skipped if it is never restored.
pub(crate) fn shared_view(repo: &SnapshotRepo<'_>, folder: &Path, restores: bool) -> SnapshotView {
    let prefix = repository_prefix(repo, folder);
    let part = blake3::hash(prefix.as_os_str().as_bytes()).to_hex();
    SnapshotView {
        prefix,
        index: format!("{}.{}", if restores { "all" } else { "most" }, &part.as_str()[..16]),
        largest: (!restores).then_some(limits::CHANGED_FILE_BYTES),
        ..whole_view(repo)
    }
}
