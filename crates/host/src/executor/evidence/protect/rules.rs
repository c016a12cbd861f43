//! The files that a step must not change, and those places among them that a sandbox enforces.
//!
//! Owns the list of protected files: control files of git and agents, the definitions of the project, and the files
//! that the workflow names. Does not compare files.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    executor::attempt::{
        sandbox_setup::{WriteAccess, is_file_or_folder},
        spec::AttemptSpec,
    },
    run_settings::{DefinitionFiles, RunSettings},
    workspace::{
        FileSurvey, PathPattern, RepositoryScan, RootFolder, SurveyedFile, control_files,
        root::{FileIdentity, FilePathError},
    },
};

/// The maximum number of places that a sandbox enforces. Changes of further ones are only detected.
const PLACES: usize = 256;

/// The repository of the workspace itself.
pub(crate) const TOP: &str = ".git";
pub(crate) struct ProtectionRules {
    pub(crate) patterns: Vec<PathPattern>,
    /// Protected files that the workflow lets the step change.
    unprotected: Vec<PathPattern>,
    /// The artifacts that the step must write.
    gives: BTreeSet<String>,
    /// True if git repositories are compared.
    pub repositories: bool,
}

impl ProtectionRules {
    /// The rules of an attempt. A tool may change control files; only definitions and files that its workflow names are
    /// protected from it.
    pub(crate) fn from_spec(job: &AttemptSpec) -> ProtectionRules {
        ProtectionRules::new(job, WriteAccess::from_spec(job) != WriteAccess::Anywhere)
    }

    /// The rules of a step, with or without the control files of git and agents.
    pub(crate) fn new(job: &AttemptSpec, control: bool) -> ProtectionRules {
        let own = job.isolation.workspace.as_deref();
        let folder = own.map_or_else(|| job.settings.workspace.clone(), |own| job.settings.workspace.join(own));
        let usual = control_files().into_iter().filter(|_| control).map(str::to_owned);
        let texts = usual.chain(definition_patterns(&job.settings, &folder)).chain(job.isolation.protect.clone());
        let unprotected: Vec<PathPattern> = job.isolation.unprotect.iter().map(|text| PathPattern::new(text)).collect();
        let repositories = control && !unprotected.iter().any(|pattern| pattern.matches(TOP));
        let gives = job.own_files().map(|path| PathPattern::new(path).literal_prefix()).collect();
        let patterns = texts.map(|text| PathPattern::new(&text)).collect();
        ProtectionRules { patterns, unprotected, gives, repositories }
    }

    /// The rules of a step that protects these patterns in a folder without definitions.
    #[cfg(test)]
    pub(crate) fn from_patterns(own: &[&str]) -> ProtectionRules {
        let patterns = control_files().into_iter().chain(own.iter().copied()).map(PathPattern::new).collect();
        let (unprotected, gives) = (Vec::new(), BTreeSet::new());
        ProtectionRules { patterns, unprotected, gives, repositories: true }
    }

    /// True if the workflow lets the step change a protected file.
    pub(crate) fn is_unprotected(&self, path: &str) -> bool {
        self.gives.contains(path) || self.unprotected.iter().any(|pattern| pattern.matches(path))
    }

    /// True if a path may not be changed, judged by names alone.
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(path)) && !self.is_unprotected(path)
    }

    /// True if something protected is or may be at or below a path in a folder.
    pub(crate) fn has_protected_below(&self, path: &Path, folder: &RootFolder) -> bool {
        let places = self.existing_places(folder, &[]);
        places.map_or(true, |places| places.iter().any(|place| Path::new(place).starts_with(path)))
    }

    /// True if a sandbox can protect a place as a whole: nothing at or below it may be changed.
    fn is_closed(&self, place: &str) -> bool {
        let place = Path::new(place);
        let meets = |start: &str| Path::new(start).starts_with(place) || place.starts_with(start);
        !self.unprotected.iter().any(|pattern| meets(&pattern.literal_prefix()))
            && !self.gives.iter().any(|path| Path::new(path).starts_with(place))
    }

    /// The protected places that exist and are closed.
    fn existing_places(&self, folder: &RootFolder, without: &[FileIdentity]) -> Result<Vec<String>, FilePathError> {
        let (whole, wild): (Vec<&PathPattern>, Vec<&PathPattern>) =
            self.patterns.iter().partition(|pattern| pattern.is_whole());
        let mut places: Vec<String> =
            whole.into_iter().map(PathPattern::literal_prefix).filter(|name| is_file_or_folder(name, folder)).collect();
        let wild: Vec<PathPattern> = wild.into_iter().cloned().collect();
        let found = FileSurvey::scan_folder(folder, &wild, without)?;
        let files = found.files().filter(|(_, seen)| matches!(seen, SurveyedFile::File { .. }));
        places.extend(files.map(|(path, _)| path.to_owned()));
        if self.repositories {
            let scan = RepositoryScan::scan_folder(folder, without)?;
            places.extend(repository_places(&scan).filter(|name| is_file_or_folder(name, folder)).map(str::to_owned));
        }
        places.retain(|place| self.is_closed(place));
        Ok(places)
    }
}

/// The patterns of the project's definitions, relative to a folder that steps work in. The folder may become a project
/// later, so it is protected like one.
fn definition_patterns(settings: &RunSettings, folder: &Path) -> Vec<String> {
    let DefinitionFiles { patterns, sources } = &settings.definitions;
    let of_project = patterns.iter().chain(sources);
    let mut all: Vec<String> = of_project.filter_map(|text| rebase_pattern(text, &settings.project, folder)).collect();
    all.extend(patterns.iter().filter(|text| !all.contains(text)).cloned().collect::<Vec<_>>());
    all
}

/// Rebases a pattern to another folder, which contains the first one or is inside it.
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

/// The existing protected places of a step, which a sandbox can enforce.
pub(crate) fn protected_places(
    job: &AttemptSpec,
    folder: &RootFolder,
    without: &[FileIdentity],
) -> Result<Vec<PathBuf>, FilePathError> {
    let mut all = resolve_places(folder, ProtectionRules::from_spec(job).existing_places(folder, without)?);
    if folder.path() != job.settings.project {
        all.extend(definition_places(&job.settings, &RootFolder::open(&job.settings.project)?, without)?);
    }
    Ok(all)
}

/// The protected places of a folder for a program that the engine starts beside steps.
pub(crate) fn hook_protected_places(
    settings: &RunSettings,
    folder: &RootFolder,
    without: &[FileIdentity],
) -> Result<Vec<PathBuf>, FilePathError> {
    let control =
        control_files().into_iter().filter(|name| is_file_or_folder(name, folder)).map(str::to_owned).collect();
    let mut all = resolve_places(folder, control);
    all.extend(definition_places(settings, folder, without)?);
    Ok(all)
}

/// The definitions in a folder.
fn definition_places(
    settings: &RunSettings,
    folder: &RootFolder,
    without: &[FileIdentity],
) -> Result<Vec<PathBuf>, FilePathError> {
    let patterns = definition_patterns(settings, folder.path()).iter().map(|text| PathPattern::new(text)).collect();
    let (unprotected, gives) = (Vec::new(), BTreeSet::new());
    let rules = ProtectionRules { patterns, unprotected, gives, repositories: false };
    Ok(resolve_places(folder, rules.existing_places(folder, without)?))
}

/// The paths of places in a folder. A place inside another is protected with it.
fn resolve_places(folder: &RootFolder, mut places: Vec<String>) -> Vec<PathBuf> {
    places.sort();
    places.dedup_by(|later, earlier| Path::new(later).starts_with(&*earlier));
    places.truncate(PLACES);
    places.into_iter().map(|name| folder.path().join(name)).collect()
}

/// The parts of repositories that a sandbox enforces: those of the workspace's own repository, and those that
/// configuration names. Nested ones may be removed with their folders, and are compared afterwards.
fn repository_places(scan: &RepositoryScan) -> impl Iterator<Item = &str> {
    let of_top = |path: &&String| path.strip_prefix(TOP).is_some_and(|rest| rest.starts_with('/') || rest.is_empty());
    scan.control.iter().filter(of_top).chain(&scan.named).map(String::as_str).filter(|path| !path.is_empty())
}

/// True if a sandbox keeps a file from being changed or moved: it exists, and is at the top level.
pub(crate) fn is_enforced_by_sandbox(pattern: &PathPattern, rules: &ProtectionRules, folder: &RootFolder) -> bool {
    let start = pattern.literal_prefix();
    pattern.is_whole() && !start.contains('/') && is_file_or_folder(&start, folder) && rules.is_closed(&start)
}
