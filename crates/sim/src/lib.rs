//! A simulator for Skein: random workflows, seeded outcomes, and references that the engine must agree with.
//!
//! Read `generate` (the workflows) and `outcome` (the answers of the world), then `reference` (the expected result when
//! timing does not matter) and `acceptor` (the histories that the rules allow when it does).

mod acceptor;
pub mod coverage;
mod faults;
pub mod generate;
mod invariants;
mod outcome;
mod reference;
mod rng;
pub mod rule_monitor;
pub mod simulate;
#[cfg(test)]
mod tests;
pub mod violation;
pub mod world;
