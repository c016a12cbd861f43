//! Files that decide what a program does. What a run makes is data, and never becomes one of these by our hand.

use std::path::Path;

use skein_core::agents;

/// Where in a workspace they are that a worker does not change, unless it is told to protect other files.
pub(crate) fn control_files() -> Vec<&'static str> {
    let agents =
        agents::KNOWN.iter().flat_map(|agent| [agent.folder].into_iter().chain(agent.files.iter().copied()));
    // Git reads its configuration and finds its hooks where `commondir` says. Repositories that are somewhere else, and what
    // their configuration names, are found by a scan: `repositories`.
    [".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks", ".husky"]
        .into_iter()
        .chain(agents)
        .collect()
}

/// Whose own file a path is or is in.
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
