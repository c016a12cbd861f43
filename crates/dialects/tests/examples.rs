//! The examples of the repository: each is in the format of its folder, and has no errors.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_dialects::{Dialect, NotFound, Project, Reference, Source, check, render};

/// The name of the file of overrides that a folder may have.
const OVERRIDES: &str = ".skillmeat-workflow-overrides.yaml";

/// The folder around an example.
struct Around(PathBuf);

impl Project for Around {
    fn workflow(&self, _: &Source, reference: Reference<'_>) -> Result<Arc<Source>, NotFound> {
        let (Reference::Path(name) | Reference::Id(name)) = reference;
        let missing = |_| NotFound { why: "the file is not there".to_owned(), known: Vec::new() };
        fs::read_to_string(self.0.join(name)).map(|text| Source::new(name, text)).map_err(missing)
    }

    fn overrides(&self) -> Option<Arc<Source>> {
        fs::read_to_string(self.0.join(OVERRIDES)).ok().map(|text| Source::new(OVERRIDES, text))
    }
}

/// Every file of a folder of examples, and of the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("a folder can be listed").path()) {
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.retain(|path| path.file_name().is_some_and(|name| name != OVERRIDES));
    found.sort();
    found
}

/// Checks every example of a format.
fn examples(dialect: Dialect, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(dialect.as_str());
    let files = files(&folder);
    assert!(files.len() >= least, "{} examples in {}", files.len(), folder.display());
    for path in files {
        let text = fs::read_to_string(&path).expect("an example can be read");
        let around = Around(path.parent().expect("an example is in a folder").to_owned());
        let report = check(Source::new(path.display().to_string(), text), &around);
        let said: Vec<String> =
            report.diagnostics.iter().map(|diagnostic| render::human(diagnostic, false)).collect();
        assert!(report.definition.is_some(), "{} is refused:\n{}", path.display(), said.join("\n"));
        assert_eq!(report.dialect, Some(dialect), "{}", path.display());
    }
}

#[test]
fn swdl_examples() {
    examples(Dialect::Swdl, 5);
}
