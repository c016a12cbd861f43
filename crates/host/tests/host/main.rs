//! What the host does to the world, tried on the real one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod begin;
mod dice;
mod durable;
mod power;
mod retry;
mod store;
mod worker;
mod workspace;
