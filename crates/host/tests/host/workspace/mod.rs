//! Files going in and out of workspaces.

mod context;
mod full;
mod tree;
mod trial;
