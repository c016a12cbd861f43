//! A thread of the store, which ends with it.

use std::{
    io,
    thread::{self, Builder, JoinHandle},
};

#[derive(Debug)]
pub(super) struct StoreThread(Option<JoinHandle<()>>);

impl StoreThread {
    pub(super) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<StoreThread> {
        Ok(StoreThread(Some(Builder::new().name(name.into()).spawn(run)?)))
    }

    pub(super) fn is_current(&self) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id())
    }

    /// Waits for the thread after it was told to end. A thread that drops the store does not wait for itself.
    pub(super) fn join(&mut self) {
        if !self.is_current()
            && let Some(handle) = self.0.take()
        {
            let _ = handle.join();
        }
    }
}
