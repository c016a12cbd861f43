//! The host's promises: what was acknowledged survives, whoever is killed, and nothing is done twice that was recorded.

mod hands;
mod kill;
mod kit;
mod life;
mod looping;
mod reference;
mod sound;
mod stage;
