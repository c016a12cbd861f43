//! Snapshots: a text must equal the version that was last reviewed.

use std::{fs, path::PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// Compares a text with the snapshot of this name.
pub(crate) fn compare(name: &str, text: &str) {
    skein_testkit::assert_snapshot!(folder(), name, text);
}

/// A snapshot without a script would document a rule that nothing checks.
#[test]
fn every_snapshot_has_its_script() {
    for area in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        if !area.is_dir() {
            continue;
        }
        let source = fs::read_to_string(area.with_extension("rs")).unwrap();
        let files = fs::read_dir(&area).unwrap().map(|entry| entry.unwrap().path());
        for snap in files.filter(|path| path.extension().is_some_and(|extension| extension == "snap")) {
            let test = snap.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(source.contains(&format!("fn {test}()")), "{} has no script", snap.display());
        }
    }
}
