//! Executes runs on one machine: a journal that survives the process, workers, workspaces, secrets.
//!
//! Owns everything that touches the outside world on behalf of a run. Does not know source formats, terminals and
//! servers, and decides nothing: the core's `Driver` determines what a run does next. Read [`host`] first, then
//! [`store`] and [`executor_api`].

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
pub mod memory;
pub mod notify;
pub mod process;
pub mod recording;
pub mod redact;
pub mod run_settings;
pub mod sandbox;
pub mod secret;
pub mod start_error;
pub mod store;
pub mod system;
pub mod terminal_escape;
pub mod workspace;
