//! Runs of small workflows, driven as the host drives them, and what is shown of them.

mod cases;
mod drawn;
mod large;
mod lines;
mod objects;
mod terminal;
mod trial;
