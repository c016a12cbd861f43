//! Files of tests: snapshots, pages that contain output, and temporary projects.
//!
//! A snapshot is a file of insta beside its test, and the text must equal the version that was last reviewed.
//! `INSTA_UPDATE=always` accepts all new texts; without it, a text that differs fails the test and is written beside the
//! snapshot as `.snap.new`.

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

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
fn accepts_new_texts() -> bool {
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

/// A temporary folder, removed afterwards.
#[derive(Debug)]
pub struct TemporaryProject(pub PathBuf);

impl TemporaryProject {
    #[expect(clippy::new_without_default, reason = "it creates a folder")]
    pub fn new() -> TemporaryProject {
        TemporaryProject::below(&env::temp_dir())
    }

    /// Creates the folder in another place than that for temporary files.
    pub fn below(parent: &Path) -> TemporaryProject {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let named = || {
            let name = format!("skein-test-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            parent.join(name)
        };
        // An existing folder was left by a killed test, in a process with the same id.
        let path = iter::repeat_with(named).take(1_000).find(|path| fs::create_dir(path).is_ok());
        let path = path.expect("a folder can be made");
        // Marks the root of a project, so that nothing above the folder matters.
        fs::create_dir(path.join(".git")).expect("a folder can be made");
        TemporaryProject(fs::canonicalize(path).expect("it is there"))
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &TemporaryProject {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        fs::write(path, bytes).expect("a file can be written");
        self
    }
}

impl Drop for TemporaryProject {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
