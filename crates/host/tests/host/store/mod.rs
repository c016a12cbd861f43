mod audit;
mod child;
mod conformance;
mod dead;
mod failing;
mod sqlite;
pub(crate) mod support;

pub(crate) use child::{Child, say};
