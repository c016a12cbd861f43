mod audit;
mod child;
mod conformance;
mod dead;
mod failing;
mod sqlite;
pub mod support;

pub use child::{Child, say};
