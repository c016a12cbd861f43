//! Drivers that are servers, over HTTP or MCP.

mod festival;
mod http;
mod mcp;
mod own;
pub(crate) mod server;
