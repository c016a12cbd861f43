//! A project in a folder, for tests.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_dialects::{CatalogKind, Project, SourceFile, WorkflowNotFound, WorkflowReference};

/// A project. Called workflows are in `_called` below the folder of a case: by path, or by id in a folder of that name.
/// The project's definitions are in `_project`, in a folder of the case's name or, for all cases, directly there:
/// `overrides.yaml`, and `agents.txt`, `tools.txt`, `roles.txt` and `domains.txt` with one name per line.
pub(crate) struct Folder {
    path: PathBuf,
    case: String,
}

impl Folder {
    pub(crate) fn of(path: &Path, case: &str) -> Folder {
        Folder { path: path.to_owned(), case: case.to_owned() }
    }

    fn project(&self, file: &str) -> Option<String> {
        let project = self.path.join("_project");
        let of_case = fs::read_to_string(project.join(&self.case).join(file));
        of_case.or_else(|_| fs::read_to_string(project.join(file))).ok()
    }
}

impl Project for Folder {
    fn resolve_workflow(
        &self,
        from: &SourceFile,
        reference: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        let name = match reference {
            WorkflowReference::Path(path) => {
                let folder = from.name.rsplit_once('/').map(|(folder, _)| format!("{folder}/"));
                folder.unwrap_or_default() + path.trim_start_matches("./")
            }
            WorkflowReference::Id(id) => format!("_called/{id}/WORKFLOW.md"),
        };
        let missing = |_| WorkflowNotFound { why: "the file is not there".to_owned(), known: Vec::new() };
        fs::read_to_string(self.path.join(&name)).map(|text| SourceFile::new(name, text)).map_err(missing)
    }

    fn catalog_names(&self, sort: CatalogKind) -> Vec<String> {
        let file = match sort {
            CatalogKind::Agent => "agents.txt",
            CatalogKind::Tool => "tools.txt",
            CatalogKind::Action => "actions.txt",
            CatalogKind::Role => "roles.txt",
            CatalogKind::Domain => "domains.txt",
            CatalogKind::Driver => "drivers.txt",
            _ => return Vec::new(),
        };
        self.project(file).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn override_source(&self) -> Option<Arc<SourceFile>> {
        self.project("overrides.yaml").map(|text| SourceFile::new("overrides.yaml", text))
    }
}
