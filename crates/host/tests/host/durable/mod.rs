//! The host's promises: what was acknowledged survives, whoever is killed, and nothing is done twice that was recorded.

mod hands;
mod kit;
mod looping;
mod stage;
