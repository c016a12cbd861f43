//! A run as it is shown while it goes on and when it ends.
//!
//! Owns what is said of each event, the few lines that show what runs now, and the summary. Refuses to know stores,
//! processes, clocks and threads: it is given rows of a journal, the last lines of workers and the time, and whoever
//! gives them owns the loop. Read `show` first, then `lines`.

mod area;
mod jsonl;
mod lines;
mod next;
mod rows;
mod screen;
mod show;
mod style;
mod summary;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use jsonl::Jsonl;
pub(crate) use screen::{Size, Surface};
pub(crate) use show::{Live, Options};
