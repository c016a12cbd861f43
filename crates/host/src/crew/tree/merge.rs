//! Merging: what a step changed in its own tree goes into the workspace, all of it or nothing.
//!
//! Owns the order of things: the merge is worked out without touching a file; then it is noted, with what is to be told
//! of the attempt; then the workspace is written. Whoever dies in between has it done by the next one, which does
//! not work again.

use std::{path::PathBuf, sync::Arc};

use skein_core::{
    engine::{AttemptEnd, AttemptId, Report},
    ir::ErrorClass,
};

use super::{
    id,
    own::{Merging, OwnTree, Unfit},
    put::{Putting, Unput},
    shadow::Shadow,
    take::View,
};
use crate::{crew::git::names, workspace::RunDir};

/// So many files are named in a message.
const NAMED: usize = 20;

/// What a tree came to.
pub(super) struct Merge<'a> {
    pub shadow: &'a Shadow<'a>,
    pub run: &'a RunDir,
    /// All of the workspace.
    pub whole: View,
}

/// What two states with a common past come to.
pub(super) struct WorkedOut {
    /// What fits. Files that do not are full of marks.
    pub tree: String,
    /// The files that do not fit.
    pub unfit: Vec<PathBuf>,
}

impl Merge<'_> {
    /// Brings the changes of a tree home. What then is the end of the attempt, unless it is the one that is given.
    pub fn merge(
        &self,
        own: &mut OwnTree,
        theirs: &str,
        attempt: AttemptId,
        report: Report,
    ) -> Result<(), AttemptEnd> {
        let ours = self.shadow.take(&self.whole).map_err(|why| self.failed(own, &why))?.tree;
        let out = work_out(self.shadow, &self.whole, [&own.note.commit, &ours, theirs])
            .map_err(|why| self.failed(own, &why))?;
        own.note.unfit = Some(Unfit { theirs: theirs.to_owned(), left: None });
        if !out.unfit.is_empty() {
            own.save().map_err(|why| self.failed(own, &why))?;
            return Err(conflicts(own, &out.unfit, &report));
        }
        own.note.merging = Some(Merging { attempt, from: ours, to: out.tree, report });
        own.save().map_err(|why| self.failed(own, &why))?;
        self.carry_out(own)
    }

    /// Does what was noted. Done again, it comes to the same.
    pub fn carry_out(&self, own: &mut OwnTree) -> Result<(), AttemptEnd> {
        let Some(merging) = own.note.merging.clone() else { return Ok(()) };
        let putting = Putting { shadow: self.shadow, run: self.run, view: &self.whole };
        match putting.put(&merging.from, &merging.to) {
            Ok(()) => {}
            Err(Unput::Changed(files)) => {
                // It must be worked out again with what is there now.
                own.note.merging = None;
                own.save().map_err(|why| self.failed(own, &why))?;
                return Err(conflicts(own, &files, &merging.report));
            }
            Err(Unput::Failed(why)) => return Err(self.failed(own, &why)),
        }
        own.note.done = true;
        own.save().and_then(|()| own.remove()).map_err(|why| self.failed(own, &why))
    }

    fn failed(&self, own: &OwnTree, why: &str) -> AttemptEnd {
        let message = format!("what it changed in {} cannot be merged: {why}", own.path().display());
        AttemptEnd::Failed {
            class: ErrorClass::Transient,
            code: Some("merge_failed".to_owned()),
            message: crate::crew::back::cut(message),
            retry_at: None,
        }
    }
}

/// What comes of a past and the two states that were made of it.
pub(super) fn work_out(
    shadow: &Shadow<'_>,
    view: &View,
    [base, ours, theirs]: [&str; 3],
) -> Result<WorkedOut, String> {
    let commit = |tree: &str| {
        let arguments = ["commit-tree", "-m", "skein", "-p", base, tree];
        id(&shadow.ask(shadow.call(view, "merge-commit", &arguments))?.well()?)
    };
    let (ours, theirs) = (commit(ours)?, commit(theirs)?);
    let arguments = ["merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", &ours, &theirs];
    let said = shadow.ask(shadow.call(view, "merge", &arguments))?;
    let status = said.status;
    let out = if status == 1 { said.out } else { said.well()? };
    let mut parts = names(&out);
    let tree = id(parts.next().unwrap_or_default())?;
    Ok(WorkedOut { tree, unfit: if status == 1 { parts.map(super::path).collect() } else { Vec::new() } })
}

/// What it gave counts once somebody has settled it.
fn conflicts(own: &OwnTree, files: &[PathBuf], report: &Report) -> AttemptEnd {
    // The message names them, too.
    let _ = own.note_conflicts(files);
    let shown = |path: &PathBuf| format!("`{}`", crate::worker::shown(path.as_os_str().as_encoded_bytes()));
    let mut named: Vec<String> = files.iter().take(NAMED).map(shown).collect();
    if files.len() > NAMED {
        named.push(format!("{} more", files.len() - NAMED));
    }
    let message = format!(
        "what it changed does not fit what others changed meanwhile: {}; the workspace is as it was, and its own \
         files are in {}",
        named.join(", "),
        own.path().display()
    );
    let output = match &report.end {
        AttemptEnd::Succeeded { output } => Arc::clone(output),
        _ => Arc::default(),
    };
    AttemptEnd::Unmerged { output, message: crate::crew::back::cut(message) }
}
