//! Attempts that work in the same folder at the same time.
//!
//! Owns the answer to one question: was an attempt alone in its folder the whole time? Knows only the workers of this
//! engine.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub(super) struct FolderOccupancy {
    present: Mutex<OccupancyState>,
}

#[derive(Debug, Default)]
struct OccupancyState {
    next: u64,
    all: Vec<FolderOccupant>,
}

#[derive(Debug)]
struct FolderOccupant {
    number: u64,
    folder: PathBuf,
    /// True if another attempt was in the same folder meanwhile.
    met: bool,
}

/// Marks a folder as occupied until it is dropped.
#[derive(Debug)]
pub(super) struct OccupancyGuard {
    company: Arc<FolderOccupancy>,
    number: u64,
}

impl FolderOccupancy {
    pub fn enter_folder(self: &Arc<FolderOccupancy>, folder: &Path) -> OccupancyGuard {
        let mut present = self.lock_state();
        let number = present.next;
        present.next += 1;
        let same =
            |other: &FolderOccupant| other.folder.starts_with(folder) || folder.starts_with(&other.folder);
        let mut met = false;
        for other in present.all.iter_mut().filter(|other| same(other)) {
            other.met = true;
            met = true;
        }
        present.all.push(FolderOccupant { number, folder: folder.to_owned(), met });
        OccupancyGuard { company: Arc::clone(self), number }
    }

    fn lock_state(&self) -> MutexGuard<'_, OccupancyState> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OccupancyGuard {
    pub fn was_alone(&self) -> bool {
        let present = self.company.lock_state();
        present.all.iter().any(|worker| worker.number == self.number && !worker.met)
    }
}

impl Drop for OccupancyGuard {
    fn drop(&mut self) {
        self.company.lock_state().all.retain(|worker| worker.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_there_meanwhile_was_met() {
        let company = Arc::new(FolderOccupancy::default());
        let enter = |folder: &str| company.enter_folder(Path::new(folder));
        let (outer, other) = (enter("/shop/a"), enter("/shop/ab"));
        assert!(outer.was_alone() && other.was_alone());
        let inner = enter("/shop/a/deep");
        assert!(!inner.was_alone() && !outer.was_alone() && other.was_alone());
        drop(inner);
        assert!(!outer.was_alone(), "it had not been alone");
        drop(outer);
        assert!(enter("/shop/a").was_alone());
    }
}
