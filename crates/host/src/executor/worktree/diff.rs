//! The diffs for people: the changes of one attempt beside its log, and all changes of a run in a workspace.
//!
//! Owns the initial snapshot of a run and the maximum size of a diff. If a diff cannot be written, the work is still
//! valid.

use std::{ffi::OsString, io::Write};

use skein_core::limits;

use super::{
    WorktreeError,
    attempt_workspace::{AttemptContext, AttemptWorkspace, repository_prefix},
    parse_object_id,
    snapshot::{SnapshotCommand, SnapshotRepo, SnapshotRules, SnapshotView, WorkspaceSnapshot},
};
use crate::workspace::{AttemptDir, RootFolder, RunDir};

impl SnapshotRepo<'_> {
    /// The diff of two snapshots, truncated if it is too long. Secrets are redacted.
    pub fn render_diff(&self, from: &str, to: &str) -> Result<Vec<u8>, WorktreeError> {
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
        let said = self.run_limited(call, Some(limits::CHANGES_BYTES))?;
        let more = said.more;
        Ok(truncate_diff(said.into_stdout()?, more))
    }

    /// Writes the diff of two snapshots to a file. If there is no difference, no file is written.
    pub fn write_changes(&self, files: &AttemptDir, from: &str, to: &WorkspaceSnapshot) -> Result<(), WorktreeError> {
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
    let mut file = files.create_file(AttemptDir::CHANGES, false)?;
    file.write_all(text)?;
    Ok(file.persist_unsynced()?)
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
        visit: AttemptContext<'_>,
        before: Option<&str>,
    ) -> Result<(), WorktreeError> {
        let shadow = self.open_snapshot_repo(visit)?;
        if shadow.origin.is_none() || read_initial_tree(&shadow).is_some() {
            return Ok(());
        }
        let tree = match before.filter(|_| self.matches_run_view()) {
            Some(before) => before.to_owned(),
            None => shadow.take_snapshot(&self.run_view(&shadow))?.tree,
        };
        Ok(shadow.root().replace_file(FIRST, tree.as_bytes())?)
    }

    /// Writes the diff of all changes so far.
    pub(crate) fn write_run_changes(
        &self,
        visit: AttemptContext<'_>,
        after: Option<&WorkspaceSnapshot>,
    ) -> Result<(), WorktreeError> {
        let shadow = self.open_snapshot_repo(visit)?;
        let Some(first) = read_initial_tree(&shadow) else { return Ok(()) };
        let now = match after.filter(|_| self.matches_run_view()) {
            Some(after) => after.tree.clone(),
            None => shadow.take_snapshot(&self.run_view(&shadow))?.tree,
        };
        match first == now {
            true => Ok(shadow.root().remove(RunDir::CHANGES).map(drop)?),
            false => write_changes_file(shadow.root(), &shadow.render_diff(&first, &now)?),
        }
    }

    /// True if the attempt's own snapshots show the same files as the run's diff.
    fn matches_run_view(&self) -> bool {
        let view = self.view.as_ref().filter(|_| self.own.is_none());
        view.is_some_and(|view| view.largest == Some(limits::CHANGED_FILE_BYTES))
    }

    /// The view of the shared workspace, without large files.
    fn run_view(&self, shadow: &SnapshotRepo<'_>) -> SnapshotView {
        SnapshotView {
            root: shadow.top.clone(),
            prefix: repository_prefix(shadow, self.base.path()),
            index: "run".to_owned(),
            rules: SnapshotRules::Repository,
            largest: Some(limits::CHANGED_FILE_BYTES),
        }
    }
}

fn read_initial_tree(shadow: &SnapshotRepo<'_>) -> Option<String> {
    parse_object_id(&shadow.root().read_file(FIRST, limits::DECISION_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_at_a_line_and_says_so() {
        assert_eq!(truncate_diff(b"a\nb\n".to_vec(), 0), b"a\nb\n");
        assert_eq!(truncate_diff(b"a\nbc".to_vec(), 10), b"a\n# cut here: 12 more bytes are not kept\n");
        assert_eq!(truncate_diff(b"abc".to_vec(), 1), b"# cut here: 4 more bytes are not kept\n");
    }
}
