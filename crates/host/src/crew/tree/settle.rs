//! What others could not merge, for the step that settles it: what of it fits is brought to where that step works,
//! and the step is told which files do not fit and where the others' are.
//!
//! Owns that order. What fits is brought before the first attempt, so that whoever settles the rest sees all of it and can try
//! what comes of it. It is brought once: what is there afterwards is the work of the step.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Serialize;
use skein_core::{
    engine::{AttemptEnd, AttemptId, Outcome, Role, RunState, StepAt},
    ir::ErrorClass,
    plan::ScopeEntry,
};

use super::{
    merge::{self, WorkedOut},
    own::{self, OwnTree},
    place::{Place, Visit},
    put::{Putting, Unput},
    shadow::{Call, Shadow},
    take::View,
    whole,
};
use crate::crew::attempt::failed;

/// Others may change the workspace while it is worked out; so often it is worked out again.
const TRIES: usize = 5;

/// A step whose changes did not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// An attempt of the visit whose tree it is.
    pub of: AttemptId,
    /// The step, for people.
    pub step: String,
}

/// What a step that settles conflicts is told of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    pub step: String,
    /// The files that do not fit.
    pub files: Vec<String>,
    /// Where the files of the step are as it left them. They can be read.
    pub tree: PathBuf,
    /// The commit that it began with; the repository in its tree knows it.
    pub base: String,
}

impl Conflict {
    /// What an attempt has to settle.
    pub fn of(
        entry: &ScopeEntry,
        state: &RunState,
        attempt: AttemptId,
        name: impl Fn(AttemptId) -> String,
    ) -> Vec<Conflict> {
        if !matches!(attempt.role, Role::Main | Role::Check) {
            return Vec::new();
        }
        let of = |step: &u32| {
            let at = StepAt(attempt.at.0, *step);
            let now = state.step(at);
            let unsettled = now.more.as_ref().is_some_and(|more| more.settler == Some(attempt.at.1));
            let failed = matches!(now.outcome, Some(Outcome::Failed(_)));
            let of = AttemptId { at, visit: now.visit, iteration: 1, role: Role::Main, attempt: 1 };
            (unsettled && failed).then(|| Conflict { of, step: name(of) })
        };
        entry.settles(attempt.at.1).iter().filter_map(of).collect()
    }
}

impl Place {
    /// Brings what fits of the conflicts that it settles, and knows what does not.
    pub(super) fn bring_conflicts(&mut self, visit: Visit<'_>) -> Result<(), AttemptEnd> {
        if visit.job.conflicts.is_empty() {
            return Ok(());
        }
        let wrong = |step: &str, why: String| {
            let message = format!("what `{step}` could not merge cannot be brought here: {why}");
            failed(ErrorClass::Transient, message)
        };
        for conflict in &visit.job.conflicts {
            let brought = self.bring(visit, conflict).map_err(|why| wrong(&conflict.step, why))?;
            self.conflicts.extend(brought);
        }
        Ok(())
    }

    fn bring(&self, visit: Visit<'_>, conflict: &Conflict) -> Result<Option<Told>, String> {
        let Some(mut theirs) = OwnTree::find(visit.run, conflict.of)? else { return Ok(None) };
        let Some(mut unfit) = theirs.note.unfit.clone() else { return Ok(None) };
        let files = match unfit.left {
            Some(files) => files,
            None => {
                let shadow = self.shadow(visit)?;
                let view = match (&self.own, &self.view) {
                    (Some(_), Some(view)) => view.clone(),
                    _ => whole(&shadow),
                };
                let left = bring_into(&shadow, visit, &view, [&theirs.note.commit, &unfit.theirs])?;
                unfit.left = Some(left.clone());
                theirs.note.unfit = Some(unfit);
                theirs.save()?;
                left
            }
        };
        let (tree, base) = (theirs.path().to_owned(), theirs.note.commit.clone());
        Ok(Some(Told { step: conflict.step.clone(), files, tree, base }))
    }

    /// The places that a sandbox must show so that the conflicts can be read.
    pub fn beside(&self, visit: Visit<'_>) -> Result<Vec<PathBuf>, String> {
        if self.conflicts.is_empty() {
            return Ok(Vec::new());
        }
        let objects = own::borrowed(&self.shadow(visit)?);
        Ok(self.conflicts.iter().map(|told| told.tree.clone()).chain([objects]).collect())
    }
}

/// Puts what fits of a tree into a folder. The files that do not fit.
fn bring_into(
    shadow: &Shadow<'_>,
    visit: Visit<'_>,
    view: &View,
    [base, theirs]: [&str; 2],
) -> Result<Vec<String>, String> {
    let putting = Putting { shadow, run: visit.run, view };
    for _ in 0..TRIES {
        let ours = shadow.take(view)?.tree;
        let out = merge::work_out(shadow, view, [base, &ours, theirs])?;
        let to = without_unfit(shadow, view, &ours, &out)?;
        match putting.put(&ours, &to) {
            Ok(()) => return Ok(out.unfit.iter().map(|file| file.to_string_lossy().into_owned()).collect()),
            Err(Unput::Changed(_)) => {}
            Err(Unput::Failed(why)) => return Err(why),
        }
    }
    Err("others change the same files all the time".to_owned())
}

/// What two states come to, with the files that do not fit as ours has them.
fn without_unfit(shadow: &Shadow<'_>, view: &View, ours: &str, out: &WorkedOut) -> Result<String, String> {
    if out.unfit.is_empty() {
        return Ok(out.tree.clone());
    }
    const INDEX: &str = "settle";
    shadow.unlock(INDEX);
    let ask = |name, arguments: &[&str], stdin| {
        let arguments = arguments.iter().map(Into::into).collect();
        shadow.ask(Call { name, arguments, files: view.root.path(), index: INDEX, stdin })?.well()
    };
    ask("settle-read", &["read-tree", &out.tree], Vec::new())?;
    let mut stdin = Vec::new();
    let mut entry = |mode: &str, id: &str, path: &Path| {
        stdin.extend_from_slice(format!("{mode} {id}\t").as_bytes());
        stdin.extend_from_slice(path.as_os_str().as_encoded_bytes());
        stdin.push(0);
    };
    let unfit: BTreeSet<&Path> = out.unfit.iter().map(PathBuf::as_path).collect();
    let none = ("0".to_owned(), "0".repeat(ours.len()));
    let mut changes = shadow.changes(&out.tree, ours)?;
    changes.retain(|change| unfit.contains(change.path.as_path()));
    // A file may be where a folder was: what goes makes room first.
    changes.sort_by_key(|change| change.new.is_some());
    for change in &changes {
        let (mode, id) = change.new.as_ref().unwrap_or(&none);
        entry(mode, id, &change.path);
    }
    ask("settle-put", &["update-index", "-z", "--index-info"], stdin)?;
    super::id(&ask("settle-write", &["write-tree"], Vec::new())?)
}

/// What a step settled is where it belongs. The trees stay with the run, because who died before this was told does the
/// work again.
pub(super) fn settled(visit: Visit<'_>) -> Result<(), AttemptEnd> {
    let done = |conflict: &Conflict| {
        let Some(mut theirs) = OwnTree::find(visit.run, conflict.of)? else { return Ok(()) };
        theirs.note.done = true;
        theirs.save()
    };
    let all: Result<(), String> = visit.job.conflicts.iter().try_for_each(done);
    all.map_err(|why| failed(ErrorClass::Transient, format!("what it settled cannot be noted: {why}")))
}
