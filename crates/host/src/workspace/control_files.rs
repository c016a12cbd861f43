//! Files that control a program. The results of a run are data, and Skein never creates such a file from them.
//!
//! Owns the list of these files, a parser for git configuration, and the entries that cannot make git run a program.

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
pub(crate) fn control_owner(path: &Path) -> Option<&'static str> {
    path.iter().find_map(|part| part.to_str().and_then(agents::find_folder_owner))
}

/// One entry of a git configuration file. Section and key are in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GitConfigEntry {
    pub section: String,
    pub subsection: String,
    pub key: String,
    pub value: String,
}

/// The entries that git writes when a repository is created, cloned or used without naming a program, by section.
const HARMLESS_KEYS: [(&str, &[&str]); 11] = [
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
            "autocrlf",
            "eol",
            "sparsecheckout",
            "sparsecheckoutcone",
        ],
    ),
    ("extensions", &["objectformat", "refstorage", "partialclone", "worktreeconfig"]),
    ("remote", &["url", "fetch", "pushurl", "tagopt", "promisor", "partialclonefilter"]),
    ("branch", &["remote", "merge", "rebase"]),
    ("submodule", &["url", "active"]),
    ("user", &["name", "email"]),
    ("init", &["defaultbranch"]),
    ("commit", &["gpgsign"]),
    ("tag", &["gpgsign"]),
    ("pull", &["rebase"]),
    ("index", &["sparse"]),
];

impl GitConfigEntry {
    /// True if this entry makes git neither run a program nor write elsewhere.
    fn is_harmless(&self) -> bool {
        HARMLESS_KEYS.iter().any(|(section, keys)| *section == self.section && keys.contains(&self.key.as_str()))
    }

    /// True if the entry is `core.worktree`, which tells git where to write files.
    pub(crate) fn is_worktree(&self) -> bool {
        self.section == "core" && self.key == "worktree"
    }
}

/// True if a configuration has only entries by which git runs no program, besides those that `accepts` permits.
pub(crate) fn is_harmless_config(bytes: &[u8], accepts: impl Fn(&GitConfigEntry) -> bool) -> bool {
    let (entries, complete) = parse_git_config(bytes);
    // Git does not write values that continue on the next line; they may be an attempt to be parsed differently.
    let continued = bytes.windows(2).any(|pair| pair == b"\\\n" || pair == b"\\\r");
    complete && !continued && entries.iter().all(|entry| entry.is_harmless() || accepts(entry))
}

/// Returns the entries of a configuration file up to the first syntax error, and true if there was none.
pub(crate) fn parse_git_config(bytes: &[u8]) -> (Vec<GitConfigEntry>, bool) {
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)).into_owned();
    let text = text.replace("\r\n", "\n");
    let mut parser = GitConfigParser { rest: text.chars().peekable(), entries: Vec::new() };
    let complete = parser.parse().is_some();
    (parser.entries, complete)
}

struct GitConfigParser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    entries: Vec<GitConfigEntry>,
}

impl GitConfigParser<'_> {
    fn parse(&mut self) -> Option<()> {
        let (mut section, mut subsection) = (String::new(), String::new());
        while let Some(c) = self.rest.next() {
            match c {
                c if c.is_whitespace() => {}
                '#' | ';' => self.skip_line(),
                '[' => (section, subsection) = self.parse_section()?,
                c if c.is_ascii_alphabetic() && !section.is_empty() => {
                    let (key, value) = self.parse_entry(c)?;
                    let (section, subsection) = (section.clone(), subsection.clone());
                    self.entries.push(GitConfigEntry { section, subsection, key, value });
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn skip_line(&mut self) {
        self.rest.by_ref().find(|c| *c == '\n');
    }

    fn parse_section(&mut self) -> Option<(String, String)> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                ']' => {
                    // `[section.subsection]` is the old syntax.
                    let (section, subsection) = name.split_once('.').unwrap_or((&name, ""));
                    return Some((section.to_owned(), subsection.to_owned()));
                }
                c if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') => name.push(c.to_ascii_lowercase()),
                ' ' | '\t' => break,
                _ => return None,
            }
        }
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        self.rest.next_if_eq(&'"')?;
        let mut subsection = String::new();
        loop {
            match self.rest.next()? {
                '"' => break,
                '\n' => return None,
                '\\' => subsection.push(self.rest.next().filter(|c| *c != '\n')?),
                c => subsection.push(c),
            }
        }
        self.rest.next_if_eq(&']')?;
        Some((name, subsection))
    }

    fn parse_entry(&mut self, first: char) -> Option<(String, String)> {
        let mut key = String::from(first.to_ascii_lowercase());
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '-') {
            key.push(c.to_ascii_lowercase());
        }
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        match self.rest.next() {
            None | Some('\n') => Some((key, String::new())),
            Some('=') => Some((key, self.parse_value()?)),
            Some('#' | ';') => {
                self.skip_line();
                Some((key, String::new()))
            }
            Some(_) => None,
        }
    }

    fn parse_value(&mut self) -> Option<String> {
        let (mut value, mut quoted) = (String::new(), false);
        while let Some(c) = self.rest.next() {
            match c {
                '\n' if quoted => return None,
                '\n' => break,
                '"' => quoted = !quoted,
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    'n' => value.push('\n'),
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    c @ ('"' | '\\') => value.push(c),
                    _ => return None,
                },
                '#' | ';' if !quoted => {
                    self.skip_line();
                    break;
                }
                c => value.push(c),
            }
        }
        Some(value.trim().to_owned()).filter(|_| !quoted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harmless_config(text: &str) -> bool {
        is_harmless_config(text.as_bytes(), |_| false)
    }

    #[test]
    fn a_new_repository_is_told_from_one_that_runs_programs() {
        let plain = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = ../x\n";
        assert!(harmless_config(plain));
        assert!(harmless_config(""));
        for bad in [
            "[core]\n\thooksPath = evil",
            "[core] fsmonitor = evil",
            "[core]\n bare = false \\\n fsmonitor = evil",
            "[core]\n bare = \"a\\\n\"\n fsmonitor = evil",
            "[alias]\n st = !evil",
            "[include]\n path = ../evil",
            "[remote \"x\"] uploadpack = evil\n[core]",
            "fsmonitor = evil",
            "[Filter \"x\"]\nclean = evil",
            "[core]\n\tworktree = /home/someone",
            "[core] ; comment\nfsmonitor = evil",
            "[core]\r\nfsmonitor = evil\r\n",
            "\u{feff}[core]\nfsmonitor = evil",
            "[submodule \"x\"]\n update = !evil",
        ] {
            assert!(!harmless_config(bad), "{bad}");
        }
    }

    #[test]
    fn entries_are_read_as_git_reads_them() {
        let text =
            "[Core] hooksPath = \"a b\" ; comment\n[includeIf \"gitdir:~/x\\\"/\"]\n path=..\\\n/y # z\n[a.B]\nflag\n";
        let entry = |section: &str, subsection: &str, key: &str, value: &str| GitConfigEntry {
            section: section.into(),
            subsection: subsection.into(),
            key: key.into(),
            value: value.into(),
        };
        let expected = vec![
            entry("core", "", "hookspath", "a b"),
            entry("includeif", "gitdir:~/x\"/", "path", "../y"),
            entry("a", "b", "flag", ""),
        ];
        assert_eq!(parse_git_config(text.as_bytes()), (expected, true));
        let (entries, complete) = parse_git_config(b"[core]\nhooksPath = x\n]");
        assert_eq!((entries.len(), complete), (1, false));
    }

    #[test]
    fn any_part_of_a_path_counts() {
        for (path, of) in [
            (".git", Some("Git")),
            ("a/.GIT/hooks/x", Some("Git")),
            ("./.claude/settings.json", Some("Claude Code")),
            (".github/x", None),
            ("git/.gitignore", None),
        ] {
            assert_eq!(control_owner(Path::new(path)), of, "{path}");
        }
    }
}
