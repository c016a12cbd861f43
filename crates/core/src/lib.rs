//! What Skein's workflows mean.
pub mod expr;
