mod child;
mod conformance;
mod dead;
mod failing;
mod sqlite;
mod support;
