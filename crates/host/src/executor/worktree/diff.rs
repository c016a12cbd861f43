//! The diff of an attempt for people: a file beside its log, with a maximum size.

use std::{ffi::OsString, io::Write};

use skein_core::limits;

use super::{
    snapshot_repo::{SnapshotCommand, SnapshotRepo},
    take_snapshot::WorkspaceSnapshot,
};
use crate::workspace::{AttemptDir, RootFolder};

impl SnapshotRepo<'_> {
    /// The diff of two snapshots, truncated if it is too long. Secrets are redacted.
    pub fn render_diff(&self, from: &str, to: &str) -> Result<Vec<u8>, String> {
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
    pub fn write_changes(
        &self,
        files: &AttemptDir,
        from: &str,
        to: &WorkspaceSnapshot,
    ) -> Result<(), String> {
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
pub(super) fn write_unknown_changes(files: &AttemptDir, why: &str) -> Result<(), String> {
    write_changes_file(files.root(), format!("# changes unknown: {}\n", why.replace('\n', " ")).as_bytes())
}

fn write_changes_file(files: &RootFolder, text: &[u8]) -> Result<(), String> {
    let mut file = files.create_file(AttemptDir::CHANGES, false).map_err(|error| error.to_string())?;
    file.write_all(text).map_err(|error| error.to_string())?;
    file.persist_unsynced().map_err(|error| error.to_string())
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
