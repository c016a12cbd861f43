//! Rules of the formats and of the contract with workers, each tested with the built program.

mod agentcore;
mod aip15;
mod ioa;
mod shared;
mod swdl;
