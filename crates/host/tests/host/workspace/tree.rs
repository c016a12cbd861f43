//! A folder and its contents, as text.

use std::{fs, path::Path};

/// Returns every folder and file with its content, in order.
pub(crate) fn of(root: &Path) -> String {
    let mut text = String::new();
    add(root, "", &mut text);
    text
}

fn add(folder: &Path, path: &str, text: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{path}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            text.push_str(&format!("{name}/\n"));
            add(&entry.path(), &format!("{name}/"), text);
        } else {
            text.push_str(&format!("{name}\n"));
            for line in fs::read_to_string(entry.path()).unwrap().lines() {
                text.push_str(&format!("    {line}\n"));
            }
        }
    }
}

/// Compares with the stored snapshot.
pub(crate) fn expect(name: &str, found: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/workspace/expected");
    skein_testkit::assert_snapshot!(folder, name, found);
}
