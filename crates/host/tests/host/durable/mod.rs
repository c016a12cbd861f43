//! The host's guarantees: acknowledged events survive every kill, and recorded work is not done twice.

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
