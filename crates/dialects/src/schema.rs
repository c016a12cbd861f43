//! JSON Schemas of the formats, for editors. What a schema cannot say, only checking a source does.

use crate::detect::Dialect;

/// The JSON Schema of a format, where there is one: draft 2020-12, as text.
pub fn schema(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::AgentCore => Some(include_str!("../schemas/agentcore.json")),
        Dialect::Aip15 | Dialect::Ioa | Dialect::Swdl => None,
    }
}
