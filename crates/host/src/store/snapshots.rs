//! States of long runs, one file for each: a cache, so nothing here is synced and nothing here fails.

use std::{fs, path::PathBuf, sync::Arc};

use skein_core::{ids::RunId, plan::Hash};

use super::aside::{Aside, make_dir};

#[derive(Debug)]
pub struct Snapshots {
    dir: PathBuf,
    aside: Arc<Aside>,
}

impl Snapshots {
    pub fn new(dir: PathBuf, aside: Arc<Aside>) -> Snapshots {
        Snapshots { dir, aside }
    }

    pub fn keep(&self, run: &RunId, bytes: &[u8]) {
        // Without it, there is more to read the next time.
        let _ = make_dir(&self.dir).and_then(|_| self.aside.write(&self.path(run), bytes, false));
    }

    pub fn get(&self, run: &RunId) -> Option<Vec<u8>> {
        let path = self.path(run);
        fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
        fs::read(path).ok()
    }

    /// By the hash of its name: names may be as long as those of files, or differ in nothing but case.
    fn path(&self, run: &RunId) -> PathBuf {
        self.dir.join(Hash::of(run.as_str().as_bytes()).to_string())
    }
}
