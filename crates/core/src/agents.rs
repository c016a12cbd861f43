//! The coding agents that there are: what sources and projects call them, and by which files a repository could tell them
//! what to do.
//!
//! Owns the one table of them. How one is started and understood is for the host to know.

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownAgent {
    /// What sources and `skein.toml` call it.
    pub word: &'static str,
    /// What people call it.
    pub name: &'static str,
    /// The folder in a repository that it obeys, and further files.
    pub folder: &'static str,
    pub files: &'static [&'static str],
}

pub const KNOWN: &[KnownAgent] = &[
    KnownAgent { word: "CODEX_CLI", name: "Codex", folder: ".codex", files: &[] },
    KnownAgent { word: "CLAUDE_CODE", name: "Claude Code", folder: ".claude", files: &[".mcp.json"] },
    KnownAgent {
        word: "OPENCODE",
        name: "OpenCode",
        folder: ".opencode",
        files: &["opencode.json", "opencode.jsonc"],
    },
];

/// Other programs with a folder that decides what they do.
const OTHERS: [(&str, &str); 2] = [(".git", "Git"), (".skein", "Skein")];

/// Whose own folder a part of a path is.
pub fn find_folder_owner(part: &str) -> Option<&'static str> {
    let known = KNOWN.iter().map(|agent| (agent.folder, agent.name));
    OTHERS.into_iter().chain(known).find(|(name, _)| part.eq_ignore_ascii_case(name)).map(|(_, of)| of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_an_owner_however_it_is_written() {
        assert_eq!(find_folder_owner(".GIT"), Some("Git"));
        assert_eq!(find_folder_owner(".Codex"), Some("Codex"));
        assert_eq!(find_folder_owner("codex"), None);
    }
}
