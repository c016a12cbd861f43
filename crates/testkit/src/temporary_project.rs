//! A folder for a test that is the root of a project.

use std::{
    env, fs, iter,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

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
