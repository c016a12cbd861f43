//! Drivers that are servers: asked over HTTP, or spoken to in MCP.

mod http;
mod mcp;
mod server;
