//! Files that decide what a program does. What a run makes is data, and never becomes one of these by our hand.

use std::path::Path;

const CONTROL: [(&str, &str); 5] = [
    (".git", "Git"),
    (".skein", "Skein"),
    (".claude", "Claude Code"),
    (".codex", "Codex"),
    (".opencode", "OpenCode"),
];

/// Where in a workspace they are that a worker does not change, unless it is told to protect other files.
pub(crate) const PROTECTED: [&str; 9] = [
    ".git/config",
    ".git/hooks",
    ".claude",
    ".codex",
    ".opencode",
    ".gemini",
    ".mcp.json",
    "opencode.json",
    "opencode.jsonc",
];

/// Whose own file a path is or is in.
pub(crate) fn owner(path: &Path) -> Option<&'static str> {
    let own =
        |part: &str| CONTROL.iter().find(|(name, _)| part.eq_ignore_ascii_case(name)).map(|(_, of)| *of);
    path.iter().find_map(|part| part.to_str().and_then(own))
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
