//! Runs: started, followed, decided, cancelled, resumed and forked; listed and shown with their logs and events.
//!
//! Owns the hosts of this process. A front end shows runs through [`follow::RunFrontEnd`].

pub mod cancel;
pub mod decide;
pub mod follow;
pub mod fork;
pub mod inspect;
pub mod logs;
pub mod recording;
pub mod resume;
pub mod send_input;
pub mod session;
pub mod start;
