//! A simulator for Skein: random workflows, seeded outcomes, and references that the engine must agree with.
//!
//! Read `generate` (the workflows) and `outcome` (the answers of the world), then `reference` (the expected result when
//! timing does not matter) and `acceptor` (the histories that the rules allow when it does).

pub mod acceptor;
pub mod coverage;
pub mod faults;
pub mod generate;
pub mod invariants;
pub mod outcome;
pub mod reference;
pub mod rng;
pub mod rule_monitor;
pub mod simulate;
#[cfg(test)]
mod tests;
pub mod violation;
pub mod world;
