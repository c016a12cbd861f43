//! Makes runs real on one machine: a journal that survives the process, workers that do not, workspaces, secrets.
//!
//! Owns everything that touches the world on behalf of a run. Refuses to know the formats of sources, terminals and
//! how to serve, and decides nothing: what a run does next is the core's `Driver`'s to say. Read [`host`] first, then [`store`] and
//! [`hands`].

pub mod agent;
pub mod audit;
pub mod bench;
pub mod cancel_token;
pub mod clock;
pub mod decision_inbox;
pub mod executor;
pub mod executor_api;
pub mod host;
pub mod http;
pub mod identity;
pub mod json_text;
pub mod kernel_features;
pub mod memory;
pub mod notify;
pub mod process;
mod random;
pub mod recording;
pub mod redact;
pub mod sandbox;
pub mod secret;
pub mod store;
pub mod workspace;
