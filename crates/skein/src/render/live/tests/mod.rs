//! Runs of small workflows, driven as the host drives them, and their display.

mod cases;
mod drawn;
mod large;
mod lines;
mod objects;
mod terminal;
mod trial;
