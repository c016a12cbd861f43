//! Who works in which folder at the same time.
//!
//! Owns whether someone had a folder to themselves for as long as they worked there. Knows only who works for this
//! engine.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub(super) struct Company {
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    all: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    number: u64,
    folder: PathBuf,
    /// Whether someone else was in the same folder meanwhile.
    met: bool,
}

/// From when someone begins to work in a folder until this is dropped.
#[derive(Debug)]
pub(super) struct Stay {
    company: Arc<Company>,
    number: u64,
}

impl Company {
    pub fn enter(self: &Arc<Company>, folder: &Path) -> Stay {
        let mut present = self.present();
        let number = present.next;
        present.next += 1;
        let same = |other: &Worker| other.folder.starts_with(folder) || folder.starts_with(&other.folder);
        let mut met = false;
        for other in present.all.iter_mut().filter(|other| same(other)) {
            other.met = true;
            met = true;
        }
        present.all.push(Worker { number, folder: folder.to_owned(), met });
        Stay { company: Arc::clone(self), number }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stay {
    pub fn was_alone(&self) -> bool {
        let present = self.company.present();
        present.all.iter().any(|worker| worker.number == self.number && !worker.met)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.company.present().all.retain(|worker| worker.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_there_meanwhile_was_met() {
        let company = Arc::new(Company::default());
        let enter = |folder: &str| company.enter(Path::new(folder));
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
