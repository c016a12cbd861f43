//! How a driver calls what does the work of a tool: texts that values fill in, and which part of an answer counts.
//!
//! Owns the form of both, and that a value is only ever a value: it fills its place and is not read again. Refuses to know
//! what is called, and how a value is written where it is put.

mod part;
mod text;

pub use part::Part;
pub use text::{Piece, Template, Text, Unfilled, Values, fill, parse, plain, secrets};
