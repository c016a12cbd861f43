//! Drivers that are servers: asked over HTTP, or spoken to in MCP.

mod festival;
mod http;
mod mcp;
mod own;
pub mod server;
