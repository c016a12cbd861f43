//! The workspace of one attempt: found or made before it starts, looked at when it has ended.

use std::path::{Path, PathBuf};

use skein_core::{
    engine::{AttemptEnd, AttemptMode, AttemptRole},
    ir::ConvergencePolicy,
    limits,
};

use super::{
    OnRetry, SnapshotSequence,
    checkout::{CheckoutError, SnapshotCheckout},
    lock_sequence, origin_repository,
    snapshot_repo::SnapshotRepo,
    step_worktree::{self, StepWorktree},
    take_snapshot::{SnapshotRules, SnapshotView, WorkspaceSnapshot},
    workspace_usage::{self, WorkspaceUsage},
};
use crate::{
    executor::{ExecutorContext, attempt::non_retryable, attempt_spec::AttemptSpec, session_carryover},
    process::ProcessMark,
    workspace::{AttemptDir, RootFolder, RunDir},
};

/// So much of what an earlier attempt changed is told in words.
const TOLD: u64 = 16 * 1024;

/// Where an attempt works, and what is known of it.
#[derive(Debug)]
pub(in crate::executor) struct AttemptWorkspace {
    /// The workspace that is shared.
    pub(super) base: RootFolder,
    /// Where it works.
    pub folder: RootFolder,
    pub(super) own: Option<StepWorktree>,
    pub(super) view: Option<SnapshotView>,
    /// Whether it may change something.
    counts: bool,
    /// Why its changes cannot be told.
    pub(super) unknown: Option<String>,
    pub(super) watched: Option<WorkspaceUsage>,
    /// Whether the workspace was put back to what it was.
    pub put_back: bool,
    /// Since when what is there has been worked on, and what was there before, if it is gone on with.
    goes_on: Option<(u64, Option<String>)>,
    /// What an earlier attempt changed, if that is to be told.
    pub earlier: Option<String>,
    /// What it is to settle.
    pub conflicts: Vec<super::ConflictDetails>,
    /// The paths in the workspace that it changed, where they are looked at.
    pub changed: Vec<String>,
    /// What is no part of a workspace.
    without: Vec<PathBuf>,
}

/// What a worker in a tree of its own must see and may write beyond its folder.
#[derive(Debug)]
pub(in crate::executor) struct WorktreeSandboxPaths {
    pub top: PathBuf,
    pub objects: PathBuf,
}

/// One attempt and what it has to do with its workspace.
#[derive(Clone, Copy)]
pub(in crate::executor) struct AttemptContext<'a> {
    pub shared: &'a ExecutorContext,
    pub job: &'a AttemptSpec,
    pub run: &'a RunDir,
    pub mark: &'a ProcessMark,
}

impl AttemptWorkspace {
    /// The workspace as the step wants it: shared or its own, kept or put back.
    pub fn enter(
        visit: AttemptContext<'_>,
        base: RootFolder,
        context: Option<&Path>,
    ) -> Result<AttemptWorkspace, AttemptEnd> {
        let AttemptContext { shared, job, .. } = visit;
        let without = visit.excluded_paths(context);
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
        let known = origin_repository::looks_like_repository(place.base.path()) || job.watched;
        let settles = !job.conflicts.is_empty();
        if !job.isolation.worktree && (job.is_read_only() || !known) && !settles {
            return Ok(place);
        }
        place.counts = !job.is_read_only();
        let turn = shared.trees.snapshot_sequence(&job.run);
        let _one = lock_sequence(&turn);
        let entered = match visit.enter_workspace(&mut place) {
            Ok(()) => {
                place.import_conflicts(visit)?;
                visit.handle_earlier_attempt(&mut place)
            }
            Err(why) => Err(why),
        };
        match entered {
            Ok(()) => Ok(place),
            Err(why) if job.isolation.worktree => {
                Err(non_retryable(format!("it cannot have a tree of its own: {why}")))
            }
            Err(why) if settles => {
                Err(non_retryable(format!("what it is to settle cannot be brought here: {why}")))
            }
            Err(why) if job.keeping.restores => {
                Err(non_retryable(format!("its workspace could not be put back if it must be: {why}")))
            }
            Err(why) => {
                place.unknown = Some(why);
                Ok(place)
            }
        }
    }

    /// The places that a sandbox must show for a tree of its own.
    pub fn sandbox_paths(&self, visit: AttemptContext<'_>) -> Result<Option<WorktreeSandboxPaths>, String> {
        let Some(own) = &self.own else { return Ok(None) };
        let shadow = self.open_snapshot_repo(visit)?;
        Ok(Some(WorktreeSandboxPaths {
            top: own.path().to_owned(),
            objects: step_worktree::borrowed_objects(&shadow),
        }))
    }

    /// The files of a tree of its own that are not as they were when it was made, by their names in a folder of it. None:
    /// there is no such tree, or they are to be compared with something else.
    pub fn changed_files(
        &self,
        visit: AttemptContext<'_>,
        folder: &RootFolder,
        convergence: &ConvergencePolicy,
    ) -> Option<Result<Vec<String>, String>> {
        let (own, view) = (self.own.as_ref()?, self.view.as_ref()?);
        if convergence.diff_base_ref.is_some() || convergence.diff_base_ref_file.is_some() {
            return None;
        }
        let turn = visit.shared.trees.snapshot_sequence(&visit.job.run);
        let _one = lock_sequence(&turn);
        let changed = || {
            let shadow = self.open_snapshot_repo(visit)?;
            let now = shadow.take_snapshot(view)?.tree;
            let below = folder.path().strip_prefix(own.path()).unwrap_or(Path::new(""));
            let changes = shadow.list_changes(&own.note.commit, &now)?;
            let named = changes.iter().filter_map(|change| change.path.strip_prefix(below).ok());
            Ok(named.map(|path| path.to_string_lossy().into_owned()).collect())
        };
        Some(changed())
    }

    /// A folder of the shared workspace as it is called in the tree that is worked in.
    pub fn resolve_shared_folder(&self, folder: &RootFolder) -> Result<RootFolder, String> {
        let said = |error: crate::workspace::root::FilePathError| error.to_string();
        let (Some(own), Some(view)) = (&self.own, &self.view) else { return Ok(folder.clone()) };
        let mut top = self.base.path();
        for _ in view.prefix.components() {
            top = top.parent().unwrap_or(top);
        }
        match folder.path().strip_prefix(top) {
            Ok(below) if !below.as_os_str().is_empty() => own.files.make_folders(below, false).map_err(said),
            _ => Ok(own.files.clone()),
        }
    }

    /// It is about to begin: what is there now is what its changes are told from.
    pub fn begin_attempt(&mut self, visit: AttemptContext<'_>, files: &AttemptDir) -> Result<(), AttemptEnd> {
        let AttemptContext { shared, job, run, .. } = visit;
        if self.view.is_none() && !(job.watched && self.counts) {
            return Ok(());
        }
        let turn = shared.trees.snapshot_sequence(&job.run);
        let mut turn = lock_sequence(&turn);
        let wrong = |why: String| non_retryable(format!("the state of its workspace cannot be kept: {why}"));
        let before = match self.take_snapshot(visit) {
            Ok(taken) => taken.map(|taken| taken.tree),
            Err(why) if job.isolation.worktree || job.keeping.restores => return Err(wrong(why)),
            Err(why) => {
                (self.unknown, self.view) = (Some(why), None);
                None
            }
        };
        if self.counts && self.view.is_some() {
            // It is for people; the work goes on without it.
            let _ = self.save_initial_tree(visit, before.as_deref());
        }
        let began = next_number(&mut turn, run).map_err(wrong)?;
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
        watched.write(files, job.keeping.restores).map_err(|error| wrong(error.to_string()))?;
        if let Some(earlier) = &self.earlier {
            files
                .root()
                .write_new(AttemptDir::EARLIER, earlier.as_bytes())
                .map_err(|error| wrong(error.to_string()))?;
        }
        self.watched = Some(watched);
        Ok(())
    }

    fn take_snapshot(&self, visit: AttemptContext<'_>) -> Result<Option<WorkspaceSnapshot>, String> {
        let Some(view) = &self.view else { return Ok(None) };
        self.open_snapshot_repo(visit)?.take_snapshot(view).map(Some)
    }

    pub(super) fn open_snapshot_repo<'a>(
        &self,
        visit: AttemptContext<'a>,
    ) -> Result<SnapshotRepo<'a>, String> {
        let mut shadow = SnapshotRepo::open(visit.run, &self.base, visit.mark, &self.without)?;
        shadow.filter = visit.shared.redaction_filter();
        Ok(shadow)
    }
}

/// The next number of a run.
pub(super) fn next_number(turn: &mut SnapshotSequence, run: &RunDir) -> Result<u64, String> {
    let next = match turn.next {
        Some(next) => next,
        None => workspace_usage::next_free_number(run).map_err(|error| error.to_string())?,
    };
    turn.next = Some(next + 1);
    Ok(next)
}

impl AttemptContext<'_> {
    /// Our own files and the context folder are no part of a workspace.
    pub(super) fn excluded_paths(&self, context: Option<&Path>) -> Vec<PathBuf> {
        std::iter::once(self.shared.state.path()).chain(context).map(Path::to_owned).collect()
    }

    fn enter_workspace(&self, place: &mut AttemptWorkspace) -> Result<(), String> {
        let job = self.job;
        let shadow = place.open_snapshot_repo(*self)?;
        if job.isolation.worktree {
            self.enter_step_worktree(&shadow, place)?;
        } else if shadow.origin.is_some() || job.keeping.restores {
            place.view = Some(shared_view(&shadow, place.base.path(), job.keeping.restores));
        }
        Ok(())
    }

    fn enter_step_worktree(
        &self,
        shadow: &SnapshotRepo<'_>,
        place: &mut AttemptWorkspace,
    ) -> Result<(), String> {
        if shadow.origin.is_none() {
            return Err(format!("{} is in no git repository", place.base.path().display()));
        }
        let attempt = self.job.attempt;
        if step_worktree::read_note(self.run, attempt)?.is_some_and(|note| note.done) {
            // What follows the work sees it where it went.
            return Ok(());
        }
        let own = StepWorktree::open(shadow, self.run, attempt, &self.job.path)?;
        let prefix = repository_prefix(shadow, place.base.path());
        place.view = Some(own.snapshot_view(shadow, attempt, &prefix)?);
        place.folder = match prefix.as_os_str().is_empty() {
            true => own.files.clone(),
            false => own.files.make_folders(&prefix, false).map_err(|error| error.to_string())?,
        };
        place.own = Some(own);
        Ok(())
    }

    /// What an earlier attempt left is put back or told of, as the step wants it.
    fn handle_earlier_attempt(&self, place: &mut AttemptWorkspace) -> Result<(), String> {
        let Some(view) = place.view.clone().filter(|_| self.job.attempt.role == AttemptRole::Main) else {
            return Ok(());
        };
        let shadow = &place.open_snapshot_repo(*self)?;
        let Some((id, files, mut note)) = workspace_usage::find_earlier_attempt(self.run, self.job.attempt)
        else {
            return Ok(());
        };
        let (Some(before), Some(begin)) = (note.before.clone(), note.back.clone()) else { return Ok(()) };
        if note.after.is_none() {
            // It was cut off, and nobody has looked since.
            let now = shadow.take_snapshot(&view)?;
            shadow.write_changes(&files, &before, &now)?;
            note.after = Some(now.tree);
            note.write(&files, false).map_err(|error| error.to_string())?;
        }
        let after = note.after.clone().unwrap_or_default();
        let back = self.wants_restore();
        if back && workspace_usage::was_alone(self.run, id, &note).map_err(|error| error.to_string())? {
            match (SnapshotCheckout { shadow, run: self.run, view: &view }).apply_changes(&after, &begin) {
                Ok(()) => place.put_back = true,
                // Someone else has changed the same files since; that is theirs.
                Err(CheckoutError::Changed(_)) => {}
                Err(CheckoutError::Failed(why)) => return Err(why),
            }
        }
        if !place.put_back && self.job.mode != AttemptMode::Again {
            place.goes_on = Some((note.since, note.back.clone()));
        }
        let tells = self.job.mode == AttemptMode::Again && self.job.keeping.on_retry == OnRetry::KeepAndTell;
        if !place.put_back && (tells || back) {
            place.earlier = read_earlier_changes(&files);
        }
        Ok(())
    }

    /// Whether the workspace is to be what it was before the last attempt.
    fn wants_restore(&self) -> bool {
        match self.job.mode {
            AttemptMode::Again => self.job.keeping.on_retry == OnRetry::Reset,
            AttemptMode::Restore => true,
            // An agent that cannot go on where it was cut off begins anew.
            AttemptMode::Resume => !session_carryover::has_session(self.job, self.run),
            AttemptMode::Fresh | AttemptMode::Rerun => false,
        }
    }
}

/// What an attempt changed, as far as it is told.
fn read_earlier_changes(files: &AttemptDir) -> Option<String> {
    let bytes = files.root().read_file(AttemptDir::CHANGES, limits::CHANGES_BYTES * 2).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let most = usize::try_from(TOLD).unwrap_or(usize::MAX);
    match text.len() > most {
        true => Some(text.chars().take(most).collect::<String>() + "\n# and more\n"),
        false => Some(text.into_owned()),
    }
}

/// Where a folder is in the repository.
pub(super) fn repository_prefix(shadow: &SnapshotRepo<'_>, folder: &Path) -> PathBuf {
    folder.strip_prefix(shadow.top.path()).unwrap_or(Path::new("")).to_owned()
}

/// The files of a shared workspace. Where they are only looked at, large ones are left out.
fn shared_view(shadow: &SnapshotRepo<'_>, folder: &Path, restores: bool) -> SnapshotView {
    let all = if restores { "all" } else { "most" };
    SnapshotView {
        root: shadow.top.clone(),
        prefix: repository_prefix(shadow, folder),
        index: format!("shared.{all}"),
        rules: if shadow.origin.is_some() { SnapshotRules::Repository } else { SnapshotRules::Plain },
        largest: (!restores).then_some(limits::CHANGED_FILE_BYTES),
    }
}
