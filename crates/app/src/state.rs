//! The state folder: its place, the store in it, and the lookup of runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::{engine::RunState, ids::RunId, plan::Plan, suggest::did_you_mean};
use skein_host::{
    host::{ResumeError, RunLoader},
    process,
    store::{
        ClaimError, RunRow, RunSelection, SqliteStore, StateRegistry, Store, StoreError, StoreOpenError,
        is_shortened,
    },
    workspace::RunDir,
};

use crate::{
    app_error::{AppError, AppErrorKind},
    project::DiskProject,
};

/// The name of the state folder in a project.
pub const NAME: &str = ".skein";
/// The file that makes a folder a state folder.
pub const DATABASE: &str = "skein.db";
/// Maximum number of runs that are searched by a prefix of their id.
const LOOKED_AT: u32 = 10_000;

/// The runs that match a text.
#[derive(Debug)]
pub enum RunLookup {
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
        let failed = |why: String| AppError::new(AppErrorKind::Store, &why, None);
        admit_folder(given, &path)
            .map_err(|why| AppError::new(AppErrorKind::Refused, &why, Some(&acceptance_hint(given))))?;
        let store = SqliteStore::open(&path).map_err(|error| match error {
            StoreOpenError::Foreign { .. } | StoreOpenError::Open { .. } => {
                AppError::new(AppErrorKind::Refused, &error.to_string(), None)
            }
            error => failed(error.to_string()),
        })?;
        let whole = std::fs::canonicalize(&path);
        let path = whole.map_err(|error| failed(format!("`{}` cannot be used: {error}", path.display())))?;
        Ok(StateHandle { path, store: Arc::new(store) })
    }

    /// Opens the state folder for reading commands: a missing one is not created.
    pub fn open_existing(given: Option<&Path>) -> Result<Option<StateHandle>, AppError> {
        let path = StateHandle::locate(given);
        path.join(DATABASE).exists().then(|| StateHandle::open(Some(&path), &path)).transpose()
    }

    /// Returns the path of the state folder, whether or not it exists.
    pub fn locate(given: Option<&Path>) -> PathBuf {
        given.map_or_else(|| DiskProject::current_root().join(NAME), Path::to_owned)
    }

    /// Opens the state folder and a run for reading commands: the newest run if none or `-` is named.
    pub fn open_run_or_newest(
        given: Option<&Path>,
        text: Option<&str>,
    ) -> Result<(StateHandle, RunRow), AppError> {
        if let Some(text) = text.filter(|text| *text != "-") {
            return StateHandle::open_run(given, text);
        }
        let none = |place: &Path| {
            let message = format!("there are no runs in the state folder `{}`", display_path(place));
            AppError::new(AppErrorKind::Refused, &message, Some("`skein run FILE` starts one"))
        };
        let Some(state) = StateHandle::open_existing(given)? else {
            return Err(none(&StateHandle::locate(given)));
        };
        let newest = state
            .store
            .select_runs(RunSelection::Newest(1))
            .map_err(|error| refuse_store_error(&error))?
            .pop();
        let row = newest.ok_or_else(|| none(&state.path))?;
        Ok((state, row))
    }

    /// Opens the state folder and finds a run by its id, or by a prefix of its id.
    pub fn open_run(given: Option<&Path>, text: &str) -> Result<(StateHandle, RunRow), AppError> {
        let place = StateHandle::locate(given);
        let missing = |hint: Option<String>| {
            let behind_a_wall = process::find_any_worker_mark().map(|mark| {
                format!(
                    "a worker of run {} does not see runs; only people outside of runs can decide",
                    mark.run
                )
            });
            let hint = behind_a_wall.or(hint).unwrap_or_else(|| "`skein runs` lists them".to_owned());
            let there = if place.join(DATABASE).exists() { "" } else { ", which does not exist" };
            let message =
                format!("there is no run `{text}` in the state folder `{}`{there}", display_path(&place));
            AppError::new(AppErrorKind::Refused, &message, Some(&hint))
        };
        let Some(state) = StateHandle::open_existing(given)? else { return Err(missing(None)) };
        match state.look_up_run(text).map_err(|error| refuse_store_error(&error))? {
            RunLookup::One(row) => Ok((state, *row)),
            RunLookup::None { hint } => Err(missing(hint)),
            RunLookup::Several(runs) => {
                let named: Vec<&str> = runs.iter().take(5).map(RunId::as_str).collect();
                let more = if runs.len() > named.len() { ", …" } else { "" };
                let hint = format!("it could be {}{more}", named.join(", "));
                let message = format!("`{text}` matches {} runs", runs.len());
                Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)))
            }
        }
    }

    /// Looks up a run by its id, or by a prefix of its id.
    pub fn look_up_run(&self, text: &str) -> Result<RunLookup, StoreError> {
        if let Ok(id) = RunId::new(text)
            && let Some(row) = self.store.find_run(&id)?
        {
            return Ok(RunLookup::One(Box::new(row)));
        }
        let newest = self.store.select_runs(RunSelection::Newest(LOOKED_AT))?;
        let meant: Vec<&RunRow> = newest.iter().filter(|row| row.run.as_str().starts_with(text)).collect();
        Ok(match meant[..] {
            [one] if !text.is_empty() => RunLookup::One(Box::new(one.clone())),
            [] => RunLookup::None { hint: did_you_mean(text, newest.iter().map(|row| row.run.as_str())) },
            _ => RunLookup::Several(meant.iter().map(|row| row.run.clone()).collect()),
        })
    }

    /// Returns the folder with the files of a run.
    pub fn run_folder(&self, run: &RunId) -> PathBuf {
        RunDir::run_path(&self.path, run)
    }

    pub fn load_plan(&self, row: &RunRow) -> Result<Plan, AppError> {
        RunLoader::new(&*self.store).load_plan(row).map_err(|error| refuse_store_error(&error))
    }

    /// Loads a run from its journal.
    pub fn load_run(&self, row: &RunRow) -> Result<(Plan, RunState), AppError> {
        let recalled =
            RunLoader::new(&*self.store).load_run(row).map_err(|error| refuse_store_error(&error))?;
        Ok(recalled.driver.into_parts())
    }
}

/// Formats the path of a state folder for people: relative if it is below the current folder, else absolute.
fn display_path(place: &Path) -> String {
    let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    place.strip_prefix(here).unwrap_or(place).display().to_string()
}

/// Returns the kind of error for a quarantined run: a store failure if acknowledged rows are lost.
pub fn quarantine_kind(why: &str) -> AppErrorKind {
    if is_shortened(why) { AppErrorKind::Store } else { AppErrorKind::Refused }
}

/// Returns the reason why a run cannot be claimed.
pub fn refuse_claim(run: &RunId, error: &ResumeError) -> AppError {
    match error {
        ResumeError::Claim(ClaimError::Owned(who)) => AppError::new(
            AppErrorKind::Refused,
            &format!("run `{run}` is being run by {who}"),
            Some(&format!("`skein runs {run} --follow` shows it")),
        ),
        ResumeError::Claim(ClaimError::Store(error)) | ResumeError::Store(error) => refuse_store_error(error),
        ResumeError::Claim(ClaimError::Quarantined(why)) => {
            refuse_quarantined(quarantine_kind(why), run, why)
        }
        // The damage was found just now.
        ResumeError::SetAside(why) => refuse_quarantined(AppErrorKind::Store, run, why),
        ResumeError::Claim(error @ ClaimError::Unknown(_)) => {
            AppError::new(AppErrorKind::Refused, &error.to_string(), None)
        }
    }
}

fn refuse_quarantined(kind: AppErrorKind, run: &RunId, why: &str) -> AppError {
    let hint = match is_shortened(why) {
        true => shortened_hint(run),
        false => format!("`skein events {run}` shows what happened"),
    };
    AppError::new(kind, &format!("run `{run}` was set aside: {why}"), Some(&hint))
}

/// Refuses a run whose journal is shortened.
pub fn refuse_shortened(row: &RunRow) -> Result<(), AppError> {
    match row.quarantined.as_ref().filter(|why| is_shortened(why)) {
        Some(why) => Err(refuse_claim(&row.run, &ClaimError::Quarantined(why.clone()).into())),
        None => Ok(()),
    }
}

/// Returns the hint for a run whose journal is shortened.
pub fn shortened_hint(run: &RunId) -> String {
    format!(
        "restore a complete copy of the state folder; or see what is left with `skein events {run}`, and repeat the \
         lost steps with `skein resume {run} --accept-shortened-journal`"
    )
}

/// Returns warnings about the runs whose journals are shortened.
pub fn shortened_warnings(state: &StateHandle) -> Result<Vec<String>, AppError> {
    let shortened = state.store.list_shortened().map_err(|error| refuse_store_error(&error))?;
    let mut warnings: Vec<String> =
        shortened.iter().map(|(run, why)| format!("run {run} is set aside: {why}")).collect();
    let first = shortened.first().and_then(|(run, _)| RunId::new(run).ok());
    warnings.extend(first.map(|run| shortened_hint(&run)));
    Ok(warnings)
}

/// Admits a state folder if this user created it on this machine, or accepted it. A missing one is created.
pub fn admit_folder(given: Option<&Path>, path: &Path) -> Result<(), String> {
    let admitted = check_link(given, path)
        .and_then(|()| StateRegistry::from_environment().admit(path).map_err(|error| error.to_string()));
    // A worker has another environment, and is refused later because it is a worker.
    admitted.or_else(|why| if process::find_any_worker_mark().is_some() { Ok(()) } else { Err(why) })
}

/// Refuses a symbolic link: a repository may contain a link to the state folder of another project.
pub fn check_link(given: Option<&Path>, path: &Path) -> Result<(), String> {
    let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    if is_link && given.is_none_or(|given| given.ends_with(NAME)) {
        return Err(format!(
            "the state folder `{}` is a symbolic link, which may have come with the repository; name the folder that it \
             leads to with `--state DIR` or SKEIN_STATE, or remove the link",
            path.display()
        ));
    }
    Ok(())
}

/// Returns the hint on accepting a state folder.
pub fn acceptance_hint(given: Option<&Path>) -> String {
    let state = given.map(|given| format!(" --state {}", given.display())).unwrap_or_default();
    format!(
        "if you created it or trust its creator, `skein doctor --trust-state{state}` accepts it; otherwise remove it or choose \
         another with `--state DIR`"
    )
}

/// Reports an error of the store.
pub fn refuse_store_error(error: &StoreError) -> AppError {
    match error {
        StoreError::Unknown(_) => AppError::new(AppErrorKind::Refused, &error.to_string(), None),
        _ => AppError::new(AppErrorKind::Store, &error.to_string(), None),
    }
}
