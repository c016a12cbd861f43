//! A survey of the files in a folder, from which later changes can be determined, and the patterns that select files.
//!
//! Owns how files are found and compared: by content, not by time. No link is followed, and no special file that could
//! block is opened. Does not know why a survey is made.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::{limits, plan::ContentHash};

use crate::workspace::{
    RootFolder,
    root::{EntryKind, FileIdentity, FilePathError, PathProblem},
};

/// Files by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FileSurvey {
    files: BTreeMap<String, SurveyedFile>,
}

/// The description of an entry that is not a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SurveyedFile {
    File {
        hash: ContentHash,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        executable: bool,
    },
    Link {
        to: String,
    },
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathChange {
    New,
    Changed,
    Gone,
}

impl FileSurvey {
    /// Scans the files in a folder that match the patterns, except for some folders in it.
    pub(crate) fn scan_folder(
        root: &RootFolder,
        patterns: &[PathPattern],
        without: &[FileIdentity],
    ) -> Result<FileSurvey, FilePathError> {
        let (names, bytes) = (limits::SURVEY_NAMES, limits::SURVEY_BYTES);
        let mut walk = SurveyWalk { root, without, names, bytes, files: BTreeMap::new() };
        for pattern in patterns {
            walk.follow_pattern(pattern)?;
        }
        Ok(FileSurvey { files: walk.files })
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &SurveyedFile)> {
        self.files.iter().map(|(path, seen)| (path.as_str(), seen))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&SurveyedFile> {
        self.files.get(path)
    }

    /// Returns the differences of a later survey, in the order of paths.
    pub(crate) fn compare_with(&self, later: &FileSurvey) -> Vec<(String, PathChange)> {
        let gone = self.files.keys().filter(|path| !later.files.contains_key(*path));
        let mut all: Vec<_> = gone.map(|path| (path.clone(), PathChange::Gone)).collect();
        for (path, seen) in &later.files {
            match self.files.get(path) {
                None => all.push((path.clone(), PathChange::New)),
                Some(before) if before != seen => all.push((path.clone(), PathChange::Changed)),
                Some(_) => {}
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

struct SurveyWalk<'a> {
    root: &'a RootFolder,
    without: &'a [FileIdentity],
    /// The numbers of names and bytes that may still be read. Exceeding them is an error.
    names: usize,
    bytes: u64,
    files: BTreeMap<String, SurveyedFile>,
}

impl SurveyWalk<'_> {
    fn follow_pattern(&mut self, pattern: &PathPattern) -> Result<(), FilePathError> {
        let start = PathBuf::from(pattern.literal_prefix());
        let mut way = PathBuf::new();
        for part in start.iter() {
            way.push(part);
            match self.root.entry_kind(&way)? {
                Some(EntryKind::Folder) => {}
                None => return Ok(()),
                // Any other entry on the path determines what is found behind it.
                Some(thing) => return self.note_file(&way, thing),
            }
        }
        // One folder is open at a time, however deeply they are nested.
        let mut todo = vec![way];
        while let Some(folder) = todo.pop() {
            self.search_folder(&folder, pattern, &mut todo)?;
        }
        Ok(())
    }

    fn search_folder(
        &mut self,
        at: &Path,
        pattern: &PathPattern,
        todo: &mut Vec<PathBuf>,
    ) -> Result<(), FilePathError> {
        let folder = match self.root.open_folder(if at.as_os_str().is_empty() { Path::new(".") } else { at }) {
            Ok(folder) => folder,
            // It was removed meanwhile.
            Err(error) if error.is_missing() => return Ok(()),
            Err(error) => return Err(error),
        };
        if self.without.contains(&folder.identity()?) {
            return Ok(());
        }
        let entries = folder.list_entries(self.names)?;
        self.names -= entries.len();
        for entry in entries {
            let path = at.join(&entry.name);
            match entry.thing {
                // The files of git are not work, unless a pattern names them.
                EntryKind::Folder if entry.name == ".git" && !pattern.is_whole() => {}
                EntryKind::Folder if pattern.depth().is_some_and(|depth| path.iter().count() > depth) => {}
                EntryKind::Folder => todo.push(path),
                thing if pattern.is_whole() || pattern.matches(&path.to_string_lossy()) => {
                    self.note_file(&path, thing)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn note_file(&mut self, path: &Path, thing: EntryKind) -> Result<(), FilePathError> {
        let name = path.to_string_lossy().into_owned();
        if self.files.contains_key(&name) {
            return Ok(());
        }
        let seen = match thing {
            EntryKind::File => match self.root.open_file(path) {
                Ok((file, mark)) => {
                    let size = mark.size;
                    self.bytes = self.bytes.checked_sub(size).ok_or_else(|| {
                        FilePathError::new(
                            self.root.path(),
                            path,
                            PathProblem::TooLarge { size, max: limits::SURVEY_BYTES },
                        )
                    })?;
                    let hash = hash_file(file).map_err(|error| FilePathError::new(self.root.path(), path, error))?;
                    SurveyedFile::File { hash, executable: mark.executable }
                }
                Err(error) if error.is_missing() => return Ok(()),
                Err(error) => return Err(error),
            },
            EntryKind::Link => {
                let to = std::fs::read_link(self.root.path().join(path)).unwrap_or_default();
                SurveyedFile::Link { to: to.to_string_lossy().into_owned() }
            }
            _ => SurveyedFile::Other,
        };
        self.files.insert(name, seen);
        Ok(())
    }
}

fn hash_file(file: File) -> io::Result<ContentHash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(ContentHash(*hasher.finalize().as_bytes()))
}

/// A path pattern, as convergence control uses them. Without a wildcard, a pattern matches a path and everything below
/// it. `*` matches anything within one name, `**` anything at all, `?` one character of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    parts: Vec<PatternPart>,
    /// True if everything below a matching path matches, too.
    below: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternPart {
    Char(char),
    /// `?`
    One,
    /// `*`
    Name,
    /// `**`
    Any,
}

impl PathPattern {
    pub(crate) fn new(text: &str) -> PathPattern {
        let text = normalize_path(text);
        if !text.contains(['*', '?']) {
            let parts = text.trim_end_matches('/').chars().map(PatternPart::Char).collect();
            return PathPattern { parts, below: true };
        }
        let mut parts = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if chars.next_if_eq(&'*').is_some() => PatternPart::Any,
                '*' => PatternPart::Name,
                '?' => PatternPart::One,
                c => PatternPart::Char(c),
            });
        }
        PathPattern { parts, below: false }
    }

    /// Creates a pattern for one path and everything below it, whatever characters are in the path.
    pub(crate) fn from_literal(path: &str) -> PathPattern {
        PathPattern { parts: path.chars().map(PatternPart::Char).collect(), below: true }
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                PatternPart::Char(c) => text.push(*c),
                PatternPart::One => text.push('?'),
                PatternPart::Name => text.push('*'),
                PatternPart::Any => text.push_str("**"),
            }
        }
        text
    }

    /// Returns the path that contains everything that the pattern can match.
    pub(crate) fn literal_prefix(&self) -> String {
        let literal: String = self
            .parts
            .iter()
            .map_while(|part| match part {
                PatternPart::Char(c) => Some(*c),
                _ => None,
            })
            .collect();
        match (self.below, literal.rfind('/')) {
            (true, _) => literal,
            (false, Some(end)) => literal[..end].to_owned(),
            (false, None) => String::new(),
        }
    }

    /// True if it matches everything below its literal prefix.
    pub(crate) fn is_whole(&self) -> bool {
        let (start, parts) = (self.literal_prefix().chars().count(), self.parts.as_slice());
        self.below || start > 0 && matches!(parts[start..], [PatternPart::Char('/'), PatternPart::Any])
    }

    /// Returns the number of folders above everything that it matches, or `None` if it matches at any depth.
    pub(crate) fn depth(&self) -> Option<usize> {
        let deep = self.below || self.parts.contains(&PatternPart::Any);
        (!deep).then(|| self.parts.iter().filter(|part| **part == PatternPart::Char('/')).count())
    }

    /// True if a path matches. The time is proportional to the lengths of both, for any pattern.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let path = normalize_path(path);
        let mut at = vec![false; self.parts.len() + 1];
        at[0] = true;
        self.skip_stars(&mut at);
        let end = self.parts.len();
        for c in path.chars() {
            if self.below && at[end] && c == '/' {
                return true;
            }
            let mut next = vec![false; at.len()];
            for (i, part) in self.parts.iter().enumerate().filter(|(i, _)| at[*i]) {
                match part {
                    PatternPart::Char(wanted) if *wanted == c => next[i + 1] = true,
                    PatternPart::One if c != '/' => next[i + 1] = true,
                    PatternPart::Name if c != '/' => next[i] = true,
                    PatternPart::Any => next[i] = true,
                    _ => {}
                }
            }
            self.skip_stars(&mut next);
            at = next;
        }
        // An empty path means the whole workspace.
        at[end] || self.below && self.parts.is_empty()
    }

    /// Skips stars, which may match nothing.
    fn skip_stars(&self, at: &mut [bool]) {
        for (i, part) in self.parts.iter().enumerate() {
            if at[i] && matches!(part, PatternPart::Name | PatternPart::Any) {
                at[i + 1] = true;
            }
        }
    }
}

/// Returns a path with forward slashes that starts with a name.
fn normalize_path(text: &str) -> String {
    let text = text.trim().replace('\\', "/");
    let mut rest = text.as_str();
    loop {
        rest = match rest.strip_prefix("./").or_else(|| rest.strip_prefix('/')) {
            Some(shorter) => shorter,
            None => break if rest == "." { String::new() } else { rest.to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new(files: &[(&str, &str)]) -> Place {
            let place = Place(tempfile::tempdir().unwrap());
            files.iter().for_each(|(name, text)| place.write(name, text));
            place
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn survey(&self, patterns: &[&str]) -> FileSurvey {
            let root = RootFolder::open(self.0.path()).unwrap();
            let patterns: Vec<PathPattern> = patterns.iter().map(|text| PathPattern::new(text)).collect();
            FileSurvey::scan_folder(&root, &patterns, &[]).unwrap()
        }
    }

    fn paths(survey: &FileSurvey) -> Vec<&str> {
        survey.files().map(|(path, _)| path).collect()
    }

    #[test]
    fn what_patterns_mean_is_found() {
        let place = Place::new(&[("a.lock", ""), ("d/b.lock", ""), ("d/c.md", ""), (".git/x.lock", ""), ("e/f/g", "")]);
        assert_eq!(paths(&place.survey(&["*.lock"])), ["a.lock"]);
        assert_eq!(paths(&place.survey(&["*/*.lock", "e/*/g"])), ["d/b.lock", "e/f/g"]);
        assert_eq!(paths(&place.survey(&["**/*.lock", "*.lock", "e"])), ["a.lock", "d/b.lock", "e/f/g"]);
        assert_eq!(paths(&place.survey(&[".git", "none", "none/x", "d/c.md"])), [".git/x.lock", "d/c.md"]);
    }

    #[test]
    fn what_is_different_is_told() {
        let place = Place::new(&[("d/same", "1"), ("d/changed", "1"), ("d/gone", "1"), ("d/link-to-be", "1")]);
        let before = place.survey(&["d"]);
        place.write("d/same", "1");
        place.write("d/changed", "2");
        place.write("d/new/deep", "");
        for name in ["d/gone", "d/link-to-be"] {
            fs::remove_file(place.0.path().join(name)).unwrap();
        }
        symlink("same", place.0.path().join("d/link-to-be")).unwrap();
        let became = before.compare_with(&place.survey(&["d"]));
        let expected = [
            ("d/changed", PathChange::Changed),
            ("d/gone", PathChange::Gone),
            ("d/link-to-be", PathChange::Changed),
            ("d/new/deep", PathChange::New),
        ];
        assert_eq!(became, expected.map(|(path, became)| (path.to_owned(), became)));
    }

    /// A folder that becomes a link or a file leads elsewhere.
    #[test]
    fn what_stands_in_the_way_is_seen() {
        let place = Place::new(&[("evil/config", "x")]);
        let before = place.survey(&[".git/config"]);
        assert_eq!(before, FileSurvey::default());
        symlink("evil", place.0.path().join(".git")).unwrap();
        let after = place.survey(&[".git/config"]);
        assert_eq!(before.compare_with(&after), [(".git".to_owned(), PathChange::New)]);
        assert_eq!(after.get(".git"), Some(&SurveyedFile::Link { to: "evil".into() }));
    }

    #[test]
    fn a_pipe_is_seen_and_not_opened() {
        let place = Place::new(&[]);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, place.0.path().join("p"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(place.survey(&["p"]).get("p"), Some(&SurveyedFile::Other));
    }

    #[test]
    fn patterns_mean_what_is_written() {
        for (pattern, inside, outside) in [
            ("src", &["src", "src/a.rs", "./src/b/c.rs"][..], &["src2/a", "a/src", "sr"][..]),
            ("src/", &["src/a.rs"], &["source"]),
            ("./docs/a.md", &["docs/a.md", "/docs/a.md"], &["docs/b.md"]),
            ("*.md", &["a.md", ".md"], &["docs/a.md", "a.mdx"]),
            ("docs/*.md", &["docs/a.md"], &["docs/b/a.md"]),
            ("docs/**", &["docs/a.md", "docs/b/a.md"], &["docs", "doc/a"]),
            ("**/*.rs", &["a/b.rs", "a/b/c.rs"], &["b.rs", "a/b.rsx"]),
            ("a?c", &["abc", "aéc"], &["a/c", "ac"]),
            ("src\\win", &["src/win/a"], &["src/wine"]),
            (".", &["anything/at/all"], &[]),
            ("**", &["anything/at/all", "x"], &[]),
        ] {
            let read = PathPattern::new(pattern);
            for path in inside {
                assert!(read.matches(path), "{pattern} means {path}");
            }
            for path in outside {
                assert!(!read.matches(path), "{pattern} does not mean {path}");
            }
        }
    }

    #[test]
    fn it_is_known_where_to_look() {
        for (pattern, start, whole) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/", "src", true),
            ("src/**", "src", true),
            ("src/*", "src", false),
            ("a/b*/c", "a", false),
            ("**/*.lock", "", false),
            ("**", "", false),
        ] {
            let read = PathPattern::new(pattern);
            assert_eq!((read.literal_prefix().as_str(), read.is_whole()), (start, whole), "{pattern}");
            assert_eq!(PathPattern::new(&read.to_text()), read, "{pattern}");
        }
    }

    /// Many stars make a backtracking matcher slow.
    #[test]
    fn a_wild_pattern_takes_no_longer() {
        let pattern = PathPattern::new(&"*a**".repeat(200));
        assert!(!pattern.matches(&"b".repeat(4_000)));
    }
}
