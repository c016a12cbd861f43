//! What the host does to the world, tried on the real one.

mod store;
mod workspace;
