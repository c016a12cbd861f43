//! The known coding agents: their names in sources and projects, and the repository files that configure them.
//!
//! Owns the one table of them. Does not know how an agent is started or how its output is read; the host does.

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownAgent {
    /// The word for it in sources and `skein.toml`.
    pub word: &'static str,
    /// The name shown to people.
    pub name: &'static str,
    /// The folder in a repository that configures it; `files` are further such files.
    pub folder: &'static str,
    pub files: &'static [&'static str],
}

pub const KNOWN: &[KnownAgent] = &[
    KnownAgent { word: "CODEX_CLI", name: "Codex", folder: ".codex", files: &[] },
    KnownAgent { word: "CLAUDE_CODE", name: "Claude Code", folder: ".claude", files: &[".mcp.json"] },
    KnownAgent { word: "OPENCODE", name: "OpenCode", folder: ".opencode", files: &["opencode.json", "opencode.jsonc"] },
];

/// Other programs with a folder that configures them.
const OTHERS: [(&str, &str); 2] = [(".git", "Git"), (".skein", "Skein")];

/// Returns the program whose configuration folder has the name `part`, in any case.
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
