//! One diff of all that a run changed in a workspace, whoever did it: from before its first step that may edit to now.
//!
//! Owns the state that it is told from, and the file. It is for people: where it cannot be written, the work stands without.

use std::io::Write;

use skein_core::limits;

use super::{
    id,
    place::{Place, Visit, prefix},
    shadow::Shadow,
    take::{Rules, Taken, View},
};
use crate::workspace::{Root, RunDir};

/// The state before the run, in the folder of the shadow.
const FIRST: &str = "first";

impl Place {
    /// Notes how the workspace is before anything of the run changes it.
    pub(super) fn note_first(&self, visit: Visit<'_>, before: Option<&str>) -> Result<(), String> {
        let shadow = self.shadow(visit)?;
        if shadow.origin.is_none() || first(&shadow).is_some() {
            return Ok(());
        }
        let tree = match before.filter(|_| self.is_shared_as_shown()) {
            Some(before) => before.to_owned(),
            None => shadow.take(&self.shown(&shadow))?.tree,
        };
        shadow.root().replace(FIRST, tree.as_bytes()).map_err(|error| error.to_string())
    }

    /// Writes down all that the run has changed so far.
    pub(super) fn tell_run_changes(&self, visit: Visit<'_>, after: Option<&Taken>) -> Result<(), String> {
        let shadow = self.shadow(visit)?;
        let Some(first) = first(&shadow) else { return Ok(()) };
        let now = match after.filter(|_| self.is_shared_as_shown()) {
            Some(after) => after.tree.clone(),
            None => shadow.take(&self.shown(&shadow))?.tree,
        };
        match first == now {
            true => shadow.root().remove(RunDir::CHANGES).map(drop).map_err(|error| error.to_string()),
            false => write(shadow.root(), &shadow.difference(&first, &now)?),
        }
    }

    /// Returns true if the attempt's own states show the same files as the run's diff.
    fn is_shared_as_shown(&self) -> bool {
        let view = self.view.as_ref().filter(|_| self.own.is_none());
        view.is_some_and(|view| view.largest == Some(limits::CHANGED_FILE_BYTES))
    }

    /// The files of the shared workspace, without large ones.
    fn shown(&self, shadow: &Shadow<'_>) -> View {
        View {
            root: shadow.top.clone(),
            prefix: prefix(shadow, self.base.path()),
            index: "run".to_owned(),
            rules: Rules::Repository,
            largest: Some(limits::CHANGED_FILE_BYTES),
        }
    }
}

fn first(shadow: &Shadow<'_>) -> Option<String> {
    id(&shadow.root().read(FIRST, limits::DECISION_BYTES).ok()?).ok()
}

fn write(folder: &Root, text: &[u8]) -> Result<(), String> {
    let mut file = folder.create(RunDir::CHANGES, false).map_err(|error| error.to_string())?;
    file.write_all(text).map_err(|error| error.to_string())?;
    file.place_unsynced().map_err(|error| error.to_string())
}
