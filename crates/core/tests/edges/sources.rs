//! Reading of the workspace's sources.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A source file that ships, without its unit tests.
pub(crate) struct SourceText {
    pub path: PathBuf,
    pub text: String,
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads the sources in a folder and below it.
pub(crate) fn read_sources(folder: &Path) -> Vec<SourceText> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is readable").flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().expect("a name is text");
        if path.is_dir() && name != "tests" {
            found.extend(read_sources(&path));
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("the file is readable");
            let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
            found.push(SourceText { path, text: text[..end].to_owned() });
        }
    }
    found
}
