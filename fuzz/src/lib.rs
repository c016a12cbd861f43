//! What is tried on bytes: each function panics if a promise is broken, and a target in `fuzz_targets` calls it.

pub mod decode;
pub mod expr;
pub mod replay;
pub mod source;
pub mod yaml;
