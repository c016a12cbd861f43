//! The workspace of one attempt: found or made before it starts, looked at when it has ended.

use std::path::{Path, PathBuf};

use skein_core::{
    engine::{AttemptEnd, Mode, Role},
    ir::Convergence,
    limits,
};

use super::{
    OnRetry, Turn, locked, origin,
    own::{self, OwnTree},
    put::{Putting, Unput},
    shadow::Shadow,
    take::{Rules, Taken, View},
    watch::{self, Watched},
};
use crate::{
    crew::{Shared, attempt::never, before, job::Job},
    worker::Mark,
    workspace::{AttemptDir, Root, RunDir},
};

/// So much of what an earlier attempt changed is told in words.
const TOLD: u64 = 16 * 1024;

/// Where an attempt works, and what is known of it.
#[derive(Debug)]
pub(in crate::crew) struct Place {
    /// The workspace that is shared.
    pub(super) base: Root,
    /// Where it works.
    pub folder: Root,
    pub(super) own: Option<OwnTree>,
    pub(super) view: Option<View>,
    /// Whether it may change something.
    counts: bool,
    /// Why its changes cannot be told.
    pub(super) unknown: Option<String>,
    pub(super) watched: Option<Watched>,
    /// Whether the workspace was put back to what it was.
    pub put_back: bool,
    /// Since when what is there has been worked on, and what was there before, if it is gone on with.
    goes_on: Option<(u64, Option<String>)>,
    /// What an earlier attempt changed, if that is to be told.
    pub earlier: Option<String>,
    /// What it is to settle.
    pub conflicts: Vec<super::Told>,
    /// The paths in the workspace that it changed, where they are looked at.
    pub changed: Vec<String>,
    /// What is no part of a workspace.
    without: Vec<PathBuf>,
}

/// What a worker in a tree of its own must see and may write beyond its folder.
#[derive(Debug)]
pub(in crate::crew) struct Behind {
    pub top: PathBuf,
    pub objects: PathBuf,
}

/// One attempt and what it has to do with its workspace.
#[derive(Clone, Copy)]
pub(in crate::crew) struct Visit<'a> {
    pub shared: &'a Shared,
    pub job: &'a Job,
    pub run: &'a RunDir,
    pub mark: &'a Mark,
}

impl Place {
    /// The workspace as the step wants it: shared or its own, kept or put back.
    pub fn enter(visit: Visit<'_>, base: Root, context: Option<&Path>) -> Result<Place, AttemptEnd> {
        let Visit { shared, job, .. } = visit;
        let without = visit.without(context);
        let mut place = Place {
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
        let known = origin::is_likely(place.base.path()) || job.watched;
        let settles = !job.conflicts.is_empty();
        if !job.isolation.worktree && (job.only_reads() || !known) && !settles {
            return Ok(place);
        }
        place.counts = !job.only_reads();
        let turn = shared.trees.turn(&job.run);
        let _one = locked(&turn);
        let entered = match visit.enter_workspace(&mut place) {
            Ok(()) => {
                place.bring_conflicts(visit)?;
                visit.look_back(&mut place)
            }
            Err(why) => Err(why),
        };
        match entered {
            Ok(()) => Ok(place),
            Err(why) if job.isolation.worktree => {
                Err(never(format!("it cannot have a tree of its own: {why}")))
            }
            Err(why) if settles => Err(never(format!("what it is to settle cannot be brought here: {why}"))),
            Err(why) if job.keeping.restores => {
                Err(never(format!("its workspace could not be put back if it must be: {why}")))
            }
            Err(why) => {
                place.unknown = Some(why);
                Ok(place)
            }
        }
    }

    /// The places that a sandbox must show for a tree of its own.
    pub fn behind(&self, visit: Visit<'_>) -> Result<Option<Behind>, String> {
        let Some(own) = &self.own else { return Ok(None) };
        let shadow = self.shadow(visit)?;
        Ok(Some(Behind { top: own.path().to_owned(), objects: own::borrowed(&shadow) }))
    }

    /// The files of a tree of its own that are not as they were when it was made, by their names in a folder of it. None:
    /// there is no such tree, or they are to be compared with something else.
    pub fn changed_files(
        &self,
        visit: Visit<'_>,
        folder: &Root,
        convergence: &Convergence,
    ) -> Option<Result<Vec<String>, String>> {
        let (own, view) = (self.own.as_ref()?, self.view.as_ref()?);
        if convergence.diff_base_ref.is_some() || convergence.diff_base_ref_file.is_some() {
            return None;
        }
        let turn = visit.shared.trees.turn(&visit.job.run);
        let _one = locked(&turn);
        let changed = || {
            let shadow = self.shadow(visit)?;
            let now = shadow.take(view)?.tree;
            let below = folder.path().strip_prefix(own.path()).unwrap_or(Path::new(""));
            let changes = shadow.changes(&own.note.commit, &now)?;
            let named = changes.iter().filter_map(|change| change.path.strip_prefix(below).ok());
            Ok(named.map(|path| path.to_string_lossy().into_owned()).collect())
        };
        Some(changed())
    }

    /// A folder of the shared workspace as it is called in the tree that is worked in.
    pub fn of_shared(&self, folder: &Root) -> Result<Root, String> {
        let said = |error: crate::workspace::root::PathError| error.to_string();
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
    pub fn begin(&mut self, visit: Visit<'_>, files: &AttemptDir) -> Result<(), AttemptEnd> {
        let Visit { shared, job, run, .. } = visit;
        if self.view.is_none() && !(job.watched && self.counts) {
            return Ok(());
        }
        let turn = shared.trees.turn(&job.run);
        let mut turn = locked(&turn);
        let wrong = |why: String| never(format!("the state of its workspace cannot be kept: {why}"));
        let before = match self.taken(visit) {
            Ok(taken) => taken.map(|taken| taken.tree),
            Err(why) if job.isolation.worktree || job.keeping.restores => return Err(wrong(why)),
            Err(why) => {
                (self.unknown, self.view) = (Some(why), None);
                None
            }
        };
        if self.counts && self.view.is_some() {
            // It is for people; the work goes on without it.
            let _ = self.note_first(visit, before.as_deref());
        }
        let began = number(&mut turn, run).map_err(wrong)?;
        let (since, back) = self.goes_on.clone().unwrap_or((began, before.clone()));
        let watched = Watched {
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

    fn taken(&self, visit: Visit<'_>) -> Result<Option<Taken>, String> {
        let Some(view) = &self.view else { return Ok(None) };
        self.shadow(visit)?.take(view).map(Some)
    }

    pub(super) fn shadow<'a>(&self, visit: Visit<'a>) -> Result<Shadow<'a>, String> {
        let mut shadow = Shadow::open(visit.run, &self.base, visit.mark, &self.without)?;
        shadow.filter = visit.shared.filter();
        Ok(shadow)
    }
}

/// The next number of a run.
pub(super) fn number(turn: &mut Turn, run: &RunDir) -> Result<u64, String> {
    let next = match turn.next {
        Some(next) => next,
        None => watch::next(run).map_err(|error| error.to_string())?,
    };
    turn.next = Some(next + 1);
    Ok(next)
}

impl Visit<'_> {
    /// Our own files and the context folder are no part of a workspace.
    pub(super) fn without(&self, context: Option<&Path>) -> Vec<PathBuf> {
        std::iter::once(self.shared.state.path()).chain(context).map(Path::to_owned).collect()
    }

    fn enter_workspace(&self, place: &mut Place) -> Result<(), String> {
        let job = self.job;
        let shadow = place.shadow(*self)?;
        if job.isolation.worktree {
            self.own_tree(&shadow, place)?;
        } else if shadow.origin.is_some() || job.keeping.restores {
            place.view = Some(shared_view(&shadow, place.base.path(), job.keeping.restores));
        }
        Ok(())
    }

    fn own_tree(&self, shadow: &Shadow<'_>, place: &mut Place) -> Result<(), String> {
        if shadow.origin.is_none() {
            return Err(format!("{} is in no git repository", place.base.path().display()));
        }
        let attempt = self.job.attempt;
        if own::note(self.run, attempt)?.is_some_and(|note| note.done) {
            // What follows the work sees it where it went.
            return Ok(());
        }
        let own = OwnTree::open(shadow, self.run, attempt, &self.job.path)?;
        let prefix = prefix(shadow, place.base.path());
        place.view = Some(own.view(shadow, attempt, &prefix)?);
        place.folder = match prefix.as_os_str().is_empty() {
            true => own.files.clone(),
            false => own.files.make_folders(&prefix, false).map_err(|error| error.to_string())?,
        };
        place.own = Some(own);
        Ok(())
    }

    /// What an earlier attempt left is put back or told of, as the step wants it.
    fn look_back(&self, place: &mut Place) -> Result<(), String> {
        let Some(view) = place.view.clone().filter(|_| self.job.attempt.role == Role::Main) else {
            return Ok(());
        };
        let shadow = &place.shadow(*self)?;
        let Some((id, files, mut note)) = watch::earlier(self.run, self.job.attempt) else { return Ok(()) };
        let (Some(before), Some(begin)) = (note.before.clone(), note.back.clone()) else { return Ok(()) };
        if note.after.is_none() {
            // It was cut off, and nobody has looked since.
            let now = shadow.take(&view)?;
            shadow.write_changes(&files, &before, &now)?;
            note.after = Some(now.tree);
            note.write(&files, false).map_err(|error| error.to_string())?;
        }
        let after = note.after.clone().unwrap_or_default();
        let back = self.goes_back();
        if back && watch::was_alone(self.run, id, &note).map_err(|error| error.to_string())? {
            match (Putting { shadow, run: self.run, view: &view }).put(&after, &begin) {
                Ok(()) => place.put_back = true,
                // Someone else has changed the same files since; that is theirs.
                Err(Unput::Changed(_)) => {}
                Err(Unput::Failed(why)) => return Err(why),
            }
        }
        if !place.put_back && self.job.mode != Mode::Again {
            place.goes_on = Some((note.since, note.back.clone()));
        }
        let tells = self.job.mode == Mode::Again && self.job.keeping.on_retry == OnRetry::KeepAndTell;
        if !place.put_back && (tells || back) {
            place.earlier = earlier(&files);
        }
        Ok(())
    }

    /// Whether the workspace is to be what it was before the last attempt.
    fn goes_back(&self) -> bool {
        match self.job.mode {
            Mode::Again => self.job.keeping.on_retry == OnRetry::Reset,
            Mode::Restore => true,
            // An agent that cannot go on where it was cut off begins anew.
            Mode::Resume => !before::has_session(self.job, self.run),
            Mode::Fresh | Mode::Rerun => false,
        }
    }
}

/// What an attempt changed, as far as it is told.
fn earlier(files: &AttemptDir) -> Option<String> {
    let bytes = files.root().read(AttemptDir::CHANGES, limits::CHANGES_BYTES * 2).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let most = usize::try_from(TOLD).unwrap_or(usize::MAX);
    match text.len() > most {
        true => Some(text.chars().take(most).collect::<String>() + "\n# and more\n"),
        false => Some(text.into_owned()),
    }
}

/// Where a folder is in the repository.
pub(super) fn prefix(shadow: &Shadow<'_>, folder: &Path) -> PathBuf {
    folder.strip_prefix(shadow.top.path()).unwrap_or(Path::new("")).to_owned()
}

/// The files of a shared workspace. Where they are only looked at, large ones are left out.
fn shared_view(shadow: &Shadow<'_>, folder: &Path, restores: bool) -> View {
    let all = if restores { "all" } else { "most" };
    View {
        root: shadow.top.clone(),
        prefix: prefix(shadow, folder),
        index: format!("shared.{all}"),
        rules: if shadow.origin.is_some() { Rules::Repository } else { Rules::Plain },
        largest: (!restores).then_some(limits::CHANGED_FILE_BYTES),
    }
}
