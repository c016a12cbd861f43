//! A thread of the store, which ends with it.

use std::{
    io,
    thread::{self, Builder, JoinHandle},
};

#[derive(Debug)]
pub struct StoreThread(Option<JoinHandle<()>>);

impl StoreThread {
    pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<StoreThread> {
        Ok(StoreThread(Some(Builder::new().name(name.into()).spawn(run)?)))
    }

    pub fn is_current(&self) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id())
    }

    /// Waits for the thread after it was told to end. A thread that drops the store does not wait for itself.
    pub fn join(&mut self) {
        if !self.is_current()
            && let Some(handle) = self.0.take()
        {
            let _ = handle.join();
        }
    }
}
