//! Tests of the host's effects on the real system.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod begin;
mod dice;
mod durable;
mod power;
mod retry;
mod store;
mod worker;
mod workspace;
