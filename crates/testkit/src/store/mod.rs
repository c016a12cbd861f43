//! Stores for tests: one in memory, and one whose appends fail on request. The conformance tests of the host hold for
//! them as for the store on disk.

mod failing_store;
mod memory_store;

pub use failing_store::{AppendFailure, AppendHook, FailingStore};
pub use memory_store::MemoryStore;
