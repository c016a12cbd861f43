//! The state folder: where it is, and the store in it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_host::store::Sqlite;

use crate::{exit::Exit, output::Output};

/// Its name in a project.
pub const NAME: &str = ".skein";

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
}
