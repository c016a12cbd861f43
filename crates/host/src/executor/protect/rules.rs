//! The files that a step must leave as they are, and the places of them that a sandbox keeps.
//!
//! Owns the decision which files are protected: control files of git and agents, the definitions of the project, and the files that the
//! workflow names. Refuses to compare anything.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::super::{
    attempt_spec::AttemptSpec,
    run_settings::{DefinitionFiles, RunSettings},
    sandbox_setup::WriteAccess,
};
use crate::workspace::{
    FileSurvey, PathPattern, RepositoryScan, RootFolder, SurveyedFile, control_files,
    root::{EntryKind, FileIdentity, FilePathError},
};

/// As many places as a sandbox keeps by themselves. What is beyond is only found.
const PLACES: usize = 256;

/// The repository of the workspace itself.
pub(super) const TOP: &str = ".git";

/// The files that one step must leave as they are.
pub(in crate::executor) struct ProtectionRules {
    pub(super) patterns: Vec<PathPattern>,
    /// The files among them that its workflow lets it change.
    unprotected: Vec<PathPattern>,
    /// The artifacts that it is to leave.
    gives: BTreeSet<String>,
    /// True if git repositories are compared.
    pub repositories: bool,
}

impl ProtectionRules {
    /// A tool does what it is for: only what its workflow names and the definitions of the project are protected from it.
    pub fn from_spec(job: &AttemptSpec) -> ProtectionRules {
        ProtectionRules::new(job, WriteAccess::from_spec(job) != WriteAccess::Anywhere)
    }

    /// The rules of a step, with or without the control files of git and agents.
    pub fn new(job: &AttemptSpec, control: bool) -> ProtectionRules {
        let own = job.isolation.workspace.as_deref();
        let folder = own.map_or_else(|| job.about.workspace.clone(), |own| job.about.workspace.join(own));
        let usual = control_files().into_iter().filter(|_| control).map(str::to_owned);
        let texts =
            usual.chain(definition_patterns(&job.about, &folder)).chain(job.isolation.protect.clone());
        let unprotected: Vec<PathPattern> =
            job.isolation.unprotect.iter().map(|text| PathPattern::new(text)).collect();
        let repositories = control && !unprotected.iter().any(|pattern| pattern.matches(TOP));
        let gives = job.own_files().map(|path| PathPattern::new(path).literal_prefix()).collect();
        let patterns = texts.map(|text| PathPattern::new(&text)).collect();
        ProtectionRules { patterns, unprotected, gives, repositories }
    }

    /// The rules of a step that protects these patterns in a folder without definitions.
    #[cfg(test)]
    pub fn from_patterns(own: &[&str]) -> ProtectionRules {
        let patterns = control_files().into_iter().chain(own.iter().copied()).map(PathPattern::new).collect();
        let (unprotected, gives) = (Vec::new(), BTreeSet::new());
        ProtectionRules { patterns, unprotected, gives, repositories: true }
    }

    /// Returns true if the workflow lets the step change a protected file.
    pub fn is_unprotected(&self, path: &str) -> bool {
        self.gives.contains(path) || self.unprotected.iter().any(|pattern| pattern.matches(path))
    }

    /// Returns true if a path may not be changed, as far as names tell it.
    pub fn covers(&self, path: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(path)) && !self.is_unprotected(path)
    }

    /// Returns true if something protected is at or below a path in a folder, or may be.
    pub fn has_protected_below(&self, path: &Path, folder: &RootFolder) -> bool {
        let places = self.existing_places(folder, &[]);
        places.map_or(true, |places| places.iter().any(|place| Path::new(place).starts_with(path)))
    }

    /// Returns true if a sandbox can keep a place as a whole: nothing at or below it may be changed.
    fn is_closed(&self, place: &str) -> bool {
        let place = Path::new(place);
        let meets = |start: &str| Path::new(start).starts_with(place) || place.starts_with(start);
        !self.unprotected.iter().any(|pattern| meets(&pattern.literal_prefix()))
            && !self.gives.iter().any(|path| Path::new(path).starts_with(place))
    }

    /// The protected places that are there and closed.
    fn existing_places(
        &self,
        folder: &RootFolder,
        without: &[FileIdentity],
    ) -> Result<Vec<String>, FilePathError> {
        let (whole, wild): (Vec<&PathPattern>, Vec<&PathPattern>) =
            self.patterns.iter().partition(|pattern| pattern.is_whole());
        let mut places: Vec<String> = whole
            .into_iter()
            .map(PathPattern::literal_prefix)
            .filter(|name| is_file_or_folder(name, folder))
            .collect();
        let wild: Vec<PathPattern> = wild.into_iter().cloned().collect();
        let found = FileSurvey::scan_folder(folder, &wild, without)?;
        let files = found.files().filter(|(_, seen)| matches!(seen, SurveyedFile::File { .. }));
        places.extend(files.map(|(path, _)| path.to_owned()));
        if self.repositories {
            let scan = RepositoryScan::scan_folder(folder, without)?;
            places.extend(
                repository_places(&scan).filter(|name| is_file_or_folder(name, folder)).map(str::to_owned),
            );
        }
        places.retain(|place| self.is_closed(place));
        Ok(places)
    }
}

/// The patterns of the project's definitions, as they are called from a folder that steps work in. The folder may be a
/// project itself later, so it is protected like one.
fn definition_patterns(about: &RunSettings, folder: &Path) -> Vec<String> {
    let DefinitionFiles { patterns, sources } = &about.definitions;
    let of_project = patterns.iter().chain(sources);
    let mut all: Vec<String> =
        of_project.filter_map(|text| rebase_pattern(text, &about.project, folder)).collect();
    all.extend(patterns.iter().filter(|text| !all.contains(text)).cloned().collect::<Vec<_>>());
    all
}

/// A pattern of one folder as it is called from another that is around or inside of the first.
fn rebase_pattern(text: &str, of: &Path, from: &Path) -> Option<String> {
    if let Ok(above) = of.strip_prefix(from) {
        return Some(above.join(text).to_str()?.to_owned());
    }
    let mut rest = text;
    for part in from.strip_prefix(of).ok()?.iter().filter(|part| *part != ".") {
        let (first, more) = rest.split_once('/')?;
        rest = PathPattern::new(first).matches(part.to_str()?).then_some(more)?;
    }
    Some(rest.to_owned())
}

/// The protected places of a step that are there, which a sandbox can keep.
pub(in crate::executor) fn protected_places(
    job: &AttemptSpec,
    folder: &RootFolder,
    without: &[FileIdentity],
) -> Result<Vec<PathBuf>, FilePathError> {
    let mut all = resolve_places(folder, ProtectionRules::from_spec(job).existing_places(folder, without)?);
    if folder.path() != job.about.project {
        all.extend(definition_places(&job.about, &RootFolder::open(&job.about.project)?, without)?);
    }
    Ok(all)
}

/// The protected places of a folder for a program that the engine starts beside steps.
pub(in crate::executor) fn hook_protected_places(
    about: &RunSettings,
    folder: &RootFolder,
    without: &[FileIdentity],
) -> Result<Vec<PathBuf>, FilePathError> {
    let control = control_files()
        .into_iter()
        .filter(|name| is_file_or_folder(name, folder))
        .map(str::to_owned)
        .collect();
    let mut all = resolve_places(folder, control);
    all.extend(definition_places(about, folder, without)?);
    Ok(all)
}

/// The definitions that are in a folder.
fn definition_places(
    about: &RunSettings,
    folder: &RootFolder,
    without: &[FileIdentity],
) -> Result<Vec<PathBuf>, FilePathError> {
    let patterns =
        definition_patterns(about, folder.path()).iter().map(|text| PathPattern::new(text)).collect();
    let (unprotected, gives) = (Vec::new(), BTreeSet::new());
    let rules = ProtectionRules { patterns, unprotected, gives, repositories: false };
    Ok(resolve_places(folder, rules.existing_places(folder, without)?))
}

/// The paths of places in a folder. Whatever is within another is kept with it.
fn resolve_places(folder: &RootFolder, mut places: Vec<String>) -> Vec<PathBuf> {
    places.sort();
    places.dedup_by(|later, earlier| Path::new(later).starts_with(&*earlier));
    places.truncate(PLACES);
    places.into_iter().map(|name| folder.path().join(name)).collect()
}

/// The part of repositories that a sandbox keeps: what is in the one of the workspace, and what configuration names. Those further
/// down may be removed with the folders that they are in, and are compared afterwards.
fn repository_places(scan: &RepositoryScan) -> impl Iterator<Item = &str> {
    let of_top =
        |path: &&String| path.strip_prefix(TOP).is_some_and(|rest| rest.starts_with('/') || rest.is_empty());
    scan.control.iter().filter(of_top).chain(&scan.named).map(String::as_str).filter(|path| !path.is_empty())
}

/// Returns true if something of the workspace itself is there. A link may lead anywhere.
fn is_file_or_folder(name: &str, folder: &RootFolder) -> bool {
    folder.entry_kind(name).is_ok_and(|thing| matches!(thing, Some(EntryKind::File | EntryKind::Folder)))
}

/// Returns true if a sandbox keeps a file so that it can be neither changed nor moved away: it exists, and is at the top.
pub(super) fn is_enforced_by_sandbox(
    pattern: &PathPattern,
    rules: &ProtectionRules,
    folder: &RootFolder,
) -> bool {
    let start = pattern.literal_prefix();
    pattern.is_whole() && !start.contains('/') && is_file_or_folder(&start, folder) && rules.is_closed(&start)
}
