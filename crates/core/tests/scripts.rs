//! Scripts: each test is one rule of the engine, as a small workflow and a sequence of inputs.
//!
//! After every input, the snapshot next to the test (`scripts/<area>/<test>.snap`) holds the decided events, the wanted
//! work, and the changes in the view. A missing or different snapshot fails the test; `INSTA_UPDATE=always cargo test
//! --test scripts` rewrites them, and the difference is then reviewed. Every script also checks that its events,
//! serialised to JSON and folded again, give the same state, and that refused inputs change nothing.

// Helpers outside test functions are test code too, which clippy does not detect in this folder; snapshots are files.
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
