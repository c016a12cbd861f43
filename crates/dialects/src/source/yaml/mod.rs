//! YAML with source places: one tree for every format.
//!
//! Owns the accepted subset of YAML (1.2 with its core schema, one document, keys that are text, no tags, no merge
//! keys; JSON is part of it) and the size limits. Does not know the meaning of any key.

mod error;
mod merge;
mod node;
mod parse;
mod plain;

pub use crate::source::yaml::node::{YamlScalar, resolve_scalar};
pub use node::{YamlField, YamlNode, YamlTree};
pub use parse::parse_yaml;
