//! JSON Schemas of the formats, for editors. Rules beyond a schema are only checked with the source.

use crate::detect::Dialect;

/// Returns the JSON Schema of a format (of the front matter for AIP-15): draft 2020-12, as text.
pub fn dialect_schema(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::AgentCore => include_str!("../schemas/agentcore.json"),
        Dialect::Aip15 => include_str!("../schemas/aip15.json"),
        Dialect::Ioa => include_str!("../schemas/ioa.json"),
        Dialect::Swdl => include_str!("../schemas/swdl.json"),
    }
}
