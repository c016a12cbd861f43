//! Who writes which context folder: one run at a time, over all processes of this machine.
//!
//! A lock on the folder itself, which the kernel lets go of with the process. So a run that was killed holds nothing.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
};

use skein_core::ids::RunId;

use super::Context;
use crate::workspace::{ArtifactError, root::Identity};

/// The context folders that runs of this process write.
#[derive(Debug, Default)]
pub struct Contexts {
    held: Mutex<BTreeMap<Identity, (RunId, OwnedFd)>>,
}

impl Contexts {
    /// From now on the folder is this run's, until it is let go.
    pub fn hold(&self, context: &Context, run: &RunId) -> Result<(), ArtifactError> {
        let folder = context.root();
        let identity = folder.identity()?;
        let in_use = || ArtifactError::ContextInUse { folder: folder.path().display().to_string() };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get(&identity) {
            Some((of, _)) if of == run => return Ok(()),
            Some(_) => return Err(in_use()),
            None => {}
        }
        let lock = folder.lock()?.ok_or_else(in_use)?;
        held.insert(identity, (run.clone(), lock));
        Ok(())
    }

    /// The folders of a run are up for others.
    pub fn release(&self, run: &RunId) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (of, _)| of != run);
    }
}
