//! Runs: started, followed, decided, cancelled, resumed and forked; listed and shown with their logs and events.
//!
//! Owns the hosts of this process. A front end shows runs through [`follow::RunFrontEnd`].

pub mod attempt_logs;
pub mod cancel;
pub mod decide;
pub mod detach;
pub mod events;
pub mod file_changes;
pub mod follow;
pub mod fork;
mod inbox;
pub mod list;
pub mod logs;
mod orphans;
pub mod recording;
pub mod resume;
pub mod resume_all;
pub mod run_json;
pub mod send_input;
pub mod session;
pub mod start;
