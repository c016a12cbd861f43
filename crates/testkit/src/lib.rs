//! Test support for several crates: builders of small workflows, stores in memory and stores that fail,
//! snapshots, and temporary projects.
//!
//! Only tests depend on it. Unit tests of a crate that this one depends on cannot pass it their types, because they are
//! built from another build of the crate; tests through the public interface can.
#![allow(clippy::unwrap_used, reason = "this is test code")]

pub mod files;
#[cfg(feature = "host")]
pub mod store;
pub mod workflow;

pub use files::TemporaryProject;
pub use insta;
