//! Files that decide what a program does. What a run makes is data, and never becomes one of these by our hand.

use std::path::Path;

use skein_core::agents;

/// Where in a workspace they are that a worker does not change, unless it is told to protect other files.
pub(crate) fn control_files() -> Vec<&'static str> {
    let agents =
        agents::KNOWN.iter().flat_map(|agent| [agent.folder].into_iter().chain(agent.files.iter().copied()));
    // Git would read its configuration and find its hooks where `commondir` says.
    [".git/config", ".git/commondir", ".git/hooks", ".gemini"].into_iter().chain(agents).collect()
}

/// Whose own file a path is or is in.
pub(super) fn owner(path: &Path) -> Option<&'static str> {
    path.iter().find_map(|part| part.to_str().and_then(agents::owner))
}

/// What git writes into the configuration of a repository that is made or cloned, by section.
const HARMLESS: [(&str, &[&str]); 6] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
        ],
    ),
    ("extensions", &["objectformat", "refstorage"]),
    ("remote", &["url", "fetch"]),
    ("branch", &["remote", "merge"]),
    ("user", &["name", "email"]),
    ("init", &["defaultbranch"]),
];

/// Whether a configuration of git says nothing that git would run a program by.
pub(crate) fn harmless_config(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut keys: &[&str] = &[];
    text.lines().map(str::trim).all(|line| {
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        if let Some(rest) = line.strip_prefix('[') {
            // A key could stand behind it.
            let Some(section) = rest.strip_suffix(']').filter(|section| !section.contains(']')) else {
                return false;
            };
            let section = section.split([' ', '.']).next().unwrap_or_default().to_ascii_lowercase();
            let known = HARMLESS.iter().find(|(name, _)| *name == section);
            keys = known.map_or(&[], |(_, keys)| keys);
            return known.is_some();
        }
        let key = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        // A line that ends so goes on with the next.
        keys.contains(&key.as_str()) && !line.ends_with('\\')
    })
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

    #[test]
    fn a_new_repository_is_told_from_one_that_runs_programs() {
        let plain =
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = ../x\n";
        assert!(harmless_config(plain.as_bytes()));
        for bad in [
            "[core]\n\thooksPath = evil",
            "[core] fsmonitor = evil",
            "[core]\n bare = false \\\n fsmonitor = evil",
            "[alias]\n st = !evil",
            "[include]\n path = ../evil",
            "[remote \"x\"] uploadpack = evil\n[core]",
            "fsmonitor = evil",
            "[Filter \"x\"]\nclean = evil",
        ] {
            assert!(!harmless_config(bad.as_bytes()), "{bad}");
        }
    }
}
