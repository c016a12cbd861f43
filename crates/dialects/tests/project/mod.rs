//! A project in a folder, as the tests have it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_dialects::{NotFound, Project, Reference, Sort, Source};

/// Called workflows are in `_called` below the folder of a case: by path, or by id in a folder of that name. The names
/// that it defines are the lines of `_agents.txt`, `_tools.txt`, `_roles.txt` and `_domains.txt` beside the case.
pub struct Folder(PathBuf);

impl Folder {
    pub fn of(path: &Path) -> Folder {
        Folder(path.to_owned())
    }
}

impl Project for Folder {
    fn workflow(&self, _: &Source, reference: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        let name = match reference {
            Reference::Path(path) => path.trim_start_matches("./").to_owned(),
            Reference::Id(id) => format!("_called/{id}/WORKFLOW.md"),
        };
        let missing = |_| NotFound { why: "the file is not there".to_owned(), known: Vec::new() };
        fs::read_to_string(self.0.join(&name)).map(|text| Source::new(name, text)).map_err(missing)
    }

    fn names(&self, sort: Sort) -> Vec<String> {
        let file = match sort {
            Sort::Agent => "_agents.txt",
            Sort::Tool => "_tools.txt",
            Sort::Role => "_roles.txt",
            Sort::Domain => "_domains.txt",
        };
        let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
