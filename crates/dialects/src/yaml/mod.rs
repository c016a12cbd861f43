//! YAML with places: one tree for every format.
//!
//! Owns what is accepted of YAML (1.2 with its core schema, one document, keys that are text, no tags, no merging; JSON
//! is part of it) and how large it may be. Refuses to know what any key means.

mod error;
mod merge;
mod node;
mod parse;
mod plain;
mod scalar;

pub use node::{YamlField, YamlNode, YamlTree};
pub use parse::parse_yaml;
pub use scalar::{YamlScalar, resolve_scalar};
