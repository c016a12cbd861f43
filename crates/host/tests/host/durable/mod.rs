//! The host's promises: what was acknowledged survives, whoever is killed, and nothing is done twice that was recorded.

mod cut;
mod due;
mod golden;
mod hands;
mod kill;
pub mod kit;
pub mod life;
mod long;
mod looping;
mod owners;
mod reference;
mod snapshot;
mod sound;
pub mod stage;
mod trouble;
