//! Files that control a program. The results of a run are data, and Skein never creates such a file from them.

use std::path::Path;

use skein_core::agents;

/// Returns the control files in a workspace, which a worker must not change unless a step configures other files.
pub(crate) fn control_files() -> Vec<&'static str> {
    let agents = agents::KNOWN.iter().flat_map(|agent| [agent.folder].into_iter().chain(agent.files.iter().copied()));
    // Git reads its configuration and finds its hooks in the folder that `commondir` names. Repositories elsewhere, and
    // the files that their configuration names, are found by a scan: `repositories`.
    [".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks", ".husky"]
        .into_iter()
        .chain(agents)
        .collect()
}

/// Returns the program that owns a path or a folder above it.
pub(crate) fn owner(path: &Path) -> Option<&'static str> {
    path.iter().find_map(|part| part.to_str().and_then(agents::find_folder_owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_path_counts() {
        for (path, of) in [
            (".git", Some("Git")),
            ("a/.GIT/hooks/x", Some("Git")),
            ("./.claude/settings.json", Some("Claude Code")),
            (".github/x", None),
            ("git/.gitignore", None),
        ] {
            assert_eq!(owner(Path::new(path)), of, "{path}");
        }
    }
}
