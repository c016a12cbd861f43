//! The state folder: its place, the store in it, and the lookup of runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::{
    engine::{RunInput, RunProjection},
    ids::RunId,
    plan::Plan,
    suggest::did_you_mean,
};
use skein_host::{
    host::{ResumeError, RunLoader},
    process,
    store::{
        ClaimError, InboxRequestId, RunRow, RunSelection, SqliteStore, StateRegistry, Store, StoreError,
        StoreOpenError, UntrustedState, is_shortened,
    },
    workspace::RunDir,
};

use crate::app_error::{AppError, AppErrorKind};

/// The name of the state folder in a project.
pub const NAME: &str = ".skein";
/// The file that makes a folder a state folder.
pub(crate) const DATABASE: &str = "skein.db";
/// Maximum number of runs that are searched by a prefix of their id.
const LOOKED_AT: u32 = 10_000;

/// The runs that match a text.
#[derive(Debug)]
pub(crate) enum RunLookup {
    One(Box<RunRow>),
    None { hint: Option<String> },
    Several(Vec<RunId>),
}

/// An open state folder.
#[derive(Debug)]
pub struct StateHandle {
    pub path: PathBuf,
    pub store: Arc<SqliteStore>,
}

impl StateHandle {
    /// Opens the given state folder, or the project's own, which is created if it does not exist.
    pub fn open(given: Option<&Path>, project: &Path) -> Result<StateHandle, AppError> {
        let path = given.map_or_else(|| project.join(NAME), Path::to_owned);
        admit_folder(given, &path)
            .map_err(|why| AppError::refused(why.to_string()).with_hint(acceptance_hint(given)))?;
        let store = SqliteStore::open(&path).map_err(|error| match error {
            StoreOpenError::Foreign { .. } | StoreOpenError::Open { .. } => AppError::refused(error.to_string()),
            error => AppError::store(error.to_string()),
        })?;
        let whole = std::fs::canonicalize(&path);
        let path = whole.map_err(|error| AppError::store(format!("`{}` cannot be used: {error}", path.display())))?;
        Ok(StateHandle { path, store: Arc::new(store) })
    }

    /// Looks up a run by its id, or by a prefix of its id.
    pub(crate) fn look_up_run(&self, text: &str) -> Result<RunLookup, StoreError> {
        if let Ok(id) = RunId::new(text)
            && let Some(row) = self.store.find_run(&id)?
        {
            return Ok(RunLookup::One(Box::new(row)));
        }
        let newest = self.store.select_runs(RunSelection::Newest(LOOKED_AT))?;
        let matching: Vec<&RunRow> = newest.iter().filter(|row| row.run.as_str().starts_with(text)).collect();
        Ok(match matching[..] {
            [one] if !text.is_empty() => RunLookup::One(Box::new(one.clone())),
            [] => RunLookup::None { hint: did_you_mean(text, newest.iter().map(|row| row.run.as_str())) },
            _ => RunLookup::Several(matching.iter().map(|row| row.run.clone()).collect()),
        })
    }

    /// Returns the folder with the files of a run.
    pub(crate) fn run_folder(&self, run: &RunId) -> PathBuf {
        RunDir::run_path(&self.path, run)
    }

    pub fn load_plan(&self, row: &RunRow) -> Result<Plan, AppError> {
        Ok(RunLoader::new(&*self.store).load_plan(row)?)
    }

    /// Loads a run from its journal.
    pub fn load_run(&self, row: &RunRow) -> Result<RunProjection, AppError> {
        Ok(RunLoader::new(&*self.store).load_run(row)?.projection)
    }

    /// Sends an input to the present or next owner of a run.
    pub(crate) fn send_request(&self, run: &RunId, input: &RunInput) -> Result<InboxRequestId, StoreError> {
        self.store.send_request(run, &serde_json::to_vec(input).expect("an input serialises to JSON"))
    }

    /// Finds the run with this id.
    pub fn find_run(&self, run: &RunId) -> Result<RunRow, AppError> {
        let row = self.store.find_run(run)?;
        row.ok_or_else(|| AppError::refused(format!("there is no run `{run}`")))
    }
}

/// Creates the state folder of a project, and closes it again.
pub fn create_state_folder(project: &Path) -> Result<(), AppError> {
    StateHandle::open(None, project).map(drop)
}

/// Formats the path of a state folder for people: relative if it is below the current folder, else absolute.
pub(crate) fn display_path(place: &Path) -> String {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    place.strip_prefix(here).unwrap_or(place).display().to_string()
}

/// Quotes a path so that a shell takes it as one word.
pub fn quote_path(path: &Path) -> String {
    let word = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%:,=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word;
    }
    // A path with a leading dash would be taken for a flag.
    let dot = if word.starts_with('-') { "./" } else { "" };
    format!("'{dot}{}'", word.replace('\'', r"'\''"))
}

/// Returns the kind of error for a quarantined run: a store failure if acknowledged rows are lost.
pub(crate) fn quarantine_kind(why: &str) -> AppErrorKind {
    if is_shortened(why) { AppErrorKind::Store } else { AppErrorKind::Refused }
}

/// Returns the reason why a run cannot be claimed.
pub(crate) fn refuse_claim(run: &RunId, error: ResumeError) -> AppError {
    match error {
        ResumeError::Claim(ClaimError::Owned(owner)) => {
            AppError::refused(format!("run `{run}` is being run by {owner}"))
                .with_hint(format!("`skein runs {run} --follow` shows it"))
        }
        ResumeError::Claim(ClaimError::Store(error)) | ResumeError::Store(error) => error.into(),
        ResumeError::Claim(ClaimError::Quarantined(why)) => refuse_quarantined(quarantine_kind(&why), run, &why),
        // The damage was found just now.
        ResumeError::SetAside(why) => refuse_quarantined(AppErrorKind::Store, run, &why),
        ResumeError::Claim(error @ ClaimError::Unknown(_)) => AppError::refused(error.to_string()),
        ResumeError::Settings(error) => AppError::store(error.to_string()),
    }
}

fn refuse_quarantined(kind: AppErrorKind, run: &RunId, why: &str) -> AppError {
    let hint = match is_shortened(why) {
        true => shortened_hint(run),
        false => format!("`skein events {run}` shows what happened"),
    };
    AppError::new(kind, format!("run `{run}` was set aside: {why}")).with_hint(hint)
}

/// Refuses a run whose journal is shortened.
pub(crate) fn refuse_shortened(row: &RunRow) -> Result<(), AppError> {
    match row.quarantined.as_ref().filter(|why| is_shortened(why)) {
        Some(why) => Err(refuse_claim(&row.run, ClaimError::Quarantined(why.clone()).into())),
        None => Ok(()),
    }
}

/// Returns the hint for a run whose journal is shortened.
pub(crate) fn shortened_hint(run: &RunId) -> String {
    format!(
        "restore a complete copy of the state folder; or see what is left with `skein events {run}`, and repeat the \
         lost steps with `skein resume {run} --accept-shortened-journal`"
    )
}

/// Returns warnings about the runs whose journals are shortened.
pub(crate) fn shortened_warnings(state: &StateHandle) -> Result<Vec<String>, AppError> {
    let shortened = state.store.list_shortened()?;
    let mut warnings: Vec<String> =
        shortened.iter().map(|(run, why)| format!("run {run} is set aside: {why}")).collect();
    let first = shortened.first().and_then(|(run, _)| RunId::new(run).ok());
    warnings.extend(first.map(|run| shortened_hint(&run)));
    Ok(warnings)
}

/// The reason why a state folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum StateAdmissionError {
    #[error(
        "the state folder `{}` is a symbolic link, which may have come with the repository; name the folder that it \
         leads to with `--state DIR` or SKEIN_STATE, or remove the link", .0.display()
    )]
    Link(PathBuf),
    #[error(transparent)]
    Registry(#[from] UntrustedState),
}

/// Admits a state folder if this user created it on this machine, or accepted it. A missing one is created.
pub fn admit_folder(given: Option<&Path>, path: &Path) -> Result<(), StateAdmissionError> {
    let admitted = check_link(given, path).and_then(|()| Ok(StateRegistry::from_environment().admit(path)?));
    // A worker has another environment, and is refused later because it is a worker.
    admitted.or_else(|why| if process::find_any_worker_mark().is_some() { Ok(()) } else { Err(why) })
}

/// Refuses a symbolic link: a repository may contain a link to the state folder of another project.
pub(crate) fn check_link(given: Option<&Path>, path: &Path) -> Result<(), StateAdmissionError> {
    let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    match is_link && given.is_none_or(|given| given.ends_with(NAME)) {
        true => Err(StateAdmissionError::Link(path.to_owned())),
        false => Ok(()),
    }
}

/// Returns the hint on accepting a state folder.
pub(crate) fn acceptance_hint(given: Option<&Path>) -> String {
    let state = given.map(|given| format!(" --state {}", given.display())).unwrap_or_default();
    format!(
        "if you created it or trust its creator, `skein doctor --trust-state{state}` accepts it; otherwise remove it or choose \
         another with `--state DIR`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_quoted_path_as_one_word() {
        let quoted = |path: &str| quote_path(Path::new(path));
        assert_eq!(quoted("a/b-c.d"), "a/b-c.d");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("-x"), "'./-x'");
        assert_eq!(quoted(""), "''");
    }
}
