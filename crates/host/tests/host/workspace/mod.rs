//! The context folder of whole runs, as files.

mod context;
mod tree;
mod trial;
