//! SWDL: a list of stages. Each is done by an agent, decided by a person, or done once for each item of a list.
//! `${{ }}` passes values between them, and a file of overrides can change them.

mod defaults;
mod lower;
mod overrides;
mod syntax;

pub(crate) use lower::lower;
