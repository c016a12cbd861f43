//! A survey of the files in a folder, from which later changes can be determined.
//!
//! Owns how files are found by patterns and compared: by content, not by time. No link is followed, and no special file
//! that could block is opened. Does not know why a survey is made.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::{limits, plan::ContentHash};

use super::{
    PathPattern, RootFolder,
    root::{EntryKind, FileIdentity, FilePathError, PathProblem},
};

/// The numbers of names and bytes that may still be read. Exceeding them is an error.
#[derive(Debug)]
struct SurveyBudget {
    names: usize,
    bytes: u64,
}

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

/// The change of a path.
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
        let left = SurveyBudget { names: limits::SURVEY_NAMES, bytes: limits::SURVEY_BYTES };
        let mut walk = SurveyWalk { root, without, left, files: BTreeMap::new() };
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

/// One search.
struct SurveyWalk<'a> {
    root: &'a RootFolder,
    without: &'a [FileIdentity],
    left: SurveyBudget,
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
        let entries = folder.list_entries(self.left.names)?;
        self.left.names -= entries.len();
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
                    self.left.bytes = self.left.bytes.checked_sub(size).ok_or_else(|| {
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
}
