//! The state folder: where it is, the store in it, and the run that someone means.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::{closest::did_you_mean, engine::RunState, ids::RunId, plan::Plan};
use skein_host::{
    host::Recall,
    store::{RunRow, Sqlite, Store, StoreError, Which},
    worker,
    workspace::RunDir,
};

use crate::{exit::Exit, output::Output, project::OnDisk};

/// Its name in a project.
pub const NAME: &str = ".skein";
/// What a folder must have in it to be one.
pub const DATABASE: &str = "skein.db";
/// So many runs are looked through for one that begins with what was typed.
const LOOKED_AT: u32 = 10_000;

/// A state folder, opened.
#[derive(Debug)]
pub struct State {
    pub path: PathBuf,
    pub store: Arc<Sqlite>,
}

impl State {
    /// The one that was named, or the project's own, which is made where there is none.
    pub fn open(given: Option<&Path>, project: &Path, output: Output) -> Result<State, Exit> {
        let path = given.map_or_else(|| project.join(NAME), Path::to_owned);
        let failed = |why: String| output.refuse(Exit::Store, &why, None);
        let store = Sqlite::open(&path).map_err(|error| failed(error.to_string()))?;
        let whole = std::fs::canonicalize(&path);
        let path = whole.map_err(|error| failed(format!("`{}` cannot be used: {error}", path.display())))?;
        Ok(State { path, store: Arc::new(store) })
    }

    /// The same around the current folder, for who only looks: where there is none, none is made.
    pub fn find(given: Option<&Path>, output: Output) -> Result<Option<State>, Exit> {
        let project = OnDisk::root_of(Path::new("."));
        let path = given.map_or_else(|| project.join(NAME), Path::to_owned);
        path.join(DATABASE).exists().then(|| State::open(Some(&path), &project, output)).transpose()
    }

    /// The state folder and the run that someone means by its id, or by how it begins.
    pub fn with_run(given: Option<&Path>, text: &str, output: Output) -> Result<(State, RunRow), Exit> {
        let missing = |hint: Option<String>| {
            let behind_a_wall = worker::anyones_worker().map(|mark| {
                format!("a worker of run {} does not see runs; only people outside of runs decide", mark.run)
            });
            let hint = behind_a_wall.or(hint).unwrap_or_else(|| "`skein runs` lists them".to_owned());
            output.refuse(Exit::Refused, &format!("there is no run `{text}`"), Some(&hint))
        };
        let Some(state) = State::find(given, output)? else { return Err(missing(None)) };
        if let Ok(id) = RunId::new(text)
            && let Some(row) = state.store.run(&id).map_err(|error| failed(&error, output))?
        {
            return Ok((state, row));
        }
        let newest = state.store.runs(Which::Newest(LOOKED_AT)).map_err(|error| failed(&error, output))?;
        let meant: Vec<&RunRow> = newest.iter().filter(|row| row.run.as_str().starts_with(text)).collect();
        match meant[..] {
            [one] if !text.is_empty() => Ok((state, one.clone())),
            [] => Err(missing(did_you_mean(text, newest.iter().map(|row| row.run.as_str())))),
            _ => {
                let named: Vec<&str> = meant.iter().take(5).map(|row| row.run.as_str()).collect();
                let more = if meant.len() > named.len() { ", …" } else { "" };
                let hint = format!("it could be {}{more}", named.join(", "));
                let message = format!("`{text}` is the beginning of {} runs", meant.len());
                Err(output.refuse(Exit::Refused, &message, Some(&hint)))
            }
        }
    }

    /// The folder in which the files of a run are.
    pub fn kept(&self, run: &RunId) -> PathBuf {
        RunDir::place(&self.path, run)
    }

    pub fn plan(&self, row: &RunRow, output: Output) -> Result<Plan, Exit> {
        Recall::new(&*self.store).plan(row).map_err(|error| failed(&error, output))
    }

    /// A run as its journal tells it.
    pub fn recall(&self, row: &RunRow, output: Output) -> Result<(Plan, RunState), Exit> {
        let recalled = Recall::new(&*self.store).run(row).map_err(|error| failed(&error, output))?;
        Ok(recalled.driver.into_parts())
    }
}

/// What to say of a store that says no.
pub fn failed(error: &StoreError, output: Output) -> Exit {
    match error {
        StoreError::Unknown(_) => output.refuse(Exit::Refused, &error.to_string(), None),
        _ => output.refuse(Exit::Store, &error.to_string(), None),
    }
}
