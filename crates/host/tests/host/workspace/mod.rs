//! Files that are copied in and out of workspaces.

mod context;
mod full;
mod tree;
mod trial;
