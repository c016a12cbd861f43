//! The tests of the host, in one binary.

mod store;
