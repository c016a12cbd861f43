//! The host's guarantees: acknowledged events survive every kill, and recorded work is not done twice.

mod cut;
mod due;
mod golden;
mod hands;
mod kill;
pub(crate) mod kit;
pub(crate) mod life;
mod long;
mod looping;
mod owners;
mod reference;
mod snapshot;
mod sound;
pub(crate) mod stage;
mod trouble;
