//! The examples of the repository: each is what it says it is, and can be run as it stands.

use std::{fs, path::Path};

use skein_dialects::{Dialect, Source, check, render};

/// Checks every file below a folder of examples.
fn examples(dialect: Dialect, folder: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.sort();
    assert!(files.len() >= least, "{} examples in {}", files.len(), folder.display());
    for path in files {
        let text = fs::read_to_string(&path).expect("an example can be read");
        let report = check(Source::new(path.display().to_string(), text), &());
        let said: Vec<String> =
            report.diagnostics.iter().map(|diagnostic| render::human(diagnostic, false)).collect();
        assert!(report.definition.is_some(), "{} is refused:\n{}", path.display(), said.join("\n"));
        assert_eq!(report.dialect, Some(dialect), "{}", path.display());
    }
}

#[test]
fn ioa_examples() {
    examples(Dialect::Ioa, "ioa", 5);
}
