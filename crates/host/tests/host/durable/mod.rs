//! The host's promises: what was acknowledged survives, whoever is killed, and nothing is done twice that was recorded.

mod cut;
mod golden;
mod hands;
mod kill;
mod kit;
mod life;
mod looping;
mod owners;
mod reference;
mod snapshot;
mod sound;
mod stage;
mod trouble;
