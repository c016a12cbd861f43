//! The fuzzed functions: each one panics if a promise is broken, and a target in `fuzz_targets` calls it.

pub mod decode;
pub mod expr;
pub mod replay;
pub mod source;
pub mod yaml;
