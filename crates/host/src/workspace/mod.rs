//! Workspaces: where work happens, and how files go in and out without a name leading astray.

pub mod root;

pub use root::Root;
