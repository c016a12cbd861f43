//! Scripts: each test is one rule of the engine, told as a small workflow and what is said to it.
//!
//! After every stimulus the snapshot beside the test (`scripts/<area>/<test>.snap`) holds the events that were decided,
//! what the world should be doing, and what changed in the view. A snapshot that is missing or different fails;
//! `UPDATE_SNAPSHOTS=1 cargo test --test scripts` writes them anew, and the difference is then a matter for review.
//! Every script also checks that its events, through JSON and folded again, give the same state, and that what is
//! refused changes nothing.

// Helpers outside of test functions are tests too, which clippy cannot tell in this folder; snapshots are files.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "scripts/print.rs"]
mod print;
#[path = "scripts/script.rs"]
#[macro_use]
mod script;
#[path = "scripts/snapshot.rs"]
mod snapshot;
#[path = "scripts/support.rs"]
mod support;

#[path = "scripts/calls.rs"]
mod calls;
#[path = "scripts/cancel.rs"]
mod cancel;
#[path = "scripts/checks.rs"]
mod checks;
#[path = "scripts/composites.rs"]
mod composites;
#[path = "scripts/concurrency.rs"]
mod concurrency;
#[path = "scripts/conditions.rs"]
mod conditions;
#[path = "scripts/dependencies.rs"]
mod dependencies;
#[path = "scripts/forks.rs"]
mod forks;
#[path = "scripts/gates.rs"]
mod gates;
#[path = "scripts/holds.rs"]
mod holds;
#[path = "scripts/hosts.rs"]
mod hosts;
#[path = "scripts/interruption.rs"]
mod interruption;
#[path = "scripts/policies.rs"]
mod policies;
#[path = "scripts/retries.rs"]
mod retries;
#[path = "scripts/settles.rs"]
mod settles;
#[path = "scripts/timeouts.rs"]
mod timeouts;
#[path = "scripts/undo.rs"]
mod undo;
#[path = "scripts/waits.rs"]
mod waits;
