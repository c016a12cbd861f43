//! Snapshots: a text must equal the version that was last reviewed.

use std::{env, fs, path::PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// Compares a text with the snapshot of this name, or writes it if `UPDATE_SNAPSHOTS` is set.
pub fn compare(name: &str, text: &str) {
    let path = folder().join(format!("{name}.snap"));
    let old = fs::read_to_string(&path).ok();
    if old.as_deref() == Some(text) {
        return;
    }
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        return;
    }
    let Some(old) = old else { panic!("there is no snapshot {name}:\n{text}") };
    let line = old.lines().zip(text.lines()).position(|(old, new)| old != new);
    let line = line.unwrap_or_else(|| old.lines().count().min(text.lines().count()));
    let near = |text: &str| text.lines().skip(line.saturating_sub(3)).take(8).collect::<Vec<_>>().join("\n");
    panic!("{name} differs at line {}:\n--- was\n{}\n--- is\n{}", line + 1, near(&old), near(text));
}

/// A snapshot without a script would document a rule that nothing checks.
#[test]
fn every_snapshot_has_its_script() {
    for area in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        if !area.is_dir() {
            continue;
        }
        let source = fs::read_to_string(area.with_extension("rs")).unwrap();
        for snap in fs::read_dir(&area).unwrap().map(|entry| entry.unwrap().path()) {
            let test = snap.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(source.contains(&format!("fn {test}()")), "{} has no script", snap.display());
        }
    }
}
