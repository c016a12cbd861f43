mod child;
mod conformance;
mod failing;
mod sqlite;
mod support;
