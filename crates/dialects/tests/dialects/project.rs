//! A project in a folder, as the tests have it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_dialects::{NotFound, Project, Reference, Sort, Source};

/// Called workflows are in `_called` below the folder of a case: by path, or by id in a folder of that name. What the
/// project defines is in `_project`, in a folder of the case's name or, for all cases, right there: `overrides.yaml`, and
/// `agents.txt`, `tools.txt`, `roles.txt` and `domains.txt` with a name in each line.
pub struct Folder {
    path: PathBuf,
    case: String,
}

impl Folder {
    pub fn of(path: &Path, case: &str) -> Folder {
        Folder { path: path.to_owned(), case: case.to_owned() }
    }

    fn project(&self, file: &str) -> Option<String> {
        let project = self.path.join("_project");
        let of_case = fs::read_to_string(project.join(&self.case).join(file));
        of_case.or_else(|_| fs::read_to_string(project.join(file))).ok()
    }
}

impl Project for Folder {
    fn workflow(&self, from: &Source, reference: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        let name = match reference {
            Reference::Path(path) => {
                let folder = from.name.rsplit_once('/').map(|(folder, _)| format!("{folder}/"));
                folder.unwrap_or_default() + path.trim_start_matches("./")
            }
            Reference::Id(id) => format!("_called/{id}/WORKFLOW.md"),
        };
        let missing = |_| NotFound { why: "the file is not there".to_owned(), known: Vec::new() };
        fs::read_to_string(self.path.join(&name)).map(|text| Source::new(name, text)).map_err(missing)
    }

    fn names(&self, sort: Sort) -> Vec<String> {
        let file = match sort {
            Sort::Agent => "agents.txt",
            Sort::Tool => "tools.txt",
            Sort::Action => "actions.txt",
            Sort::Role => "roles.txt",
            Sort::Domain => "domains.txt",
            Sort::Driver => "drivers.txt",
            _ => return Vec::new(),
        };
        self.project(file).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn overrides(&self) -> Option<Arc<Source>> {
        self.project("overrides.yaml").map(|text| Source::new("overrides.yaml", text))
    }
}
