//! Snapshots: a text must equal the version that was last reviewed.
//!
//! A snapshot is a file of insta beside its test. `INSTA_UPDATE=always` accepts all new texts; without it, a text that
//! differs fails the test and is written beside the snapshot as `.snap.new`.

use std::{env, fs, path::Path};

/// Compares a text with the snapshot of a name in a folder. The name may begin with a folder below that one.
#[macro_export]
macro_rules! assert_snapshot {
    ($folder:expr, $name:expr, $text:expr) => {{
        let path = ::std::path::Path::new(&$folder).join($name);
        let mut settings = $crate::insta::Settings::clone_current();
        settings.set_snapshot_path(path.parent().expect("a snapshot is in a folder"));
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let name = path.file_name().and_then(|name| name.to_str()).expect("a snapshot has a name");
        settings.bind(|| $crate::insta::assert_snapshot!(name, $text));
    }};
}

/// True if new texts are accepted, also in files that are not snapshots of insta.
pub fn accepts_new_texts() -> bool {
    env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always")
}

/// Compares a whole file, such as a page with blocks of output, with its text as it should be.
#[track_caller]
pub fn assert_file(path: &Path, text: &str) {
    let old = fs::read_to_string(path).unwrap_or_default();
    if accepts_new_texts() && old != text {
        fs::write(path, text).unwrap();
    } else {
        assert_eq!(old, text, "{} differs; INSTA_UPDATE=always accepts the new text", path.display());
    }
}
