//! JSON Schemas of the formats, for editors. What a schema cannot say, only checking a source does.

use crate::detect::Dialect;

/// The JSON Schema of a format, of AIP-15 that of its front matter: draft 2020-12, as text.
pub fn dialect_schema(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::AgentCore => include_str!("../schemas/agentcore.json"),
        Dialect::Aip15 => include_str!("../schemas/aip15.json"),
        Dialect::Ioa => include_str!("../schemas/ioa.json"),
        Dialect::Swdl => include_str!("../schemas/swdl.json"),
    }
}
