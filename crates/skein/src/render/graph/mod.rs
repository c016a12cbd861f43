//! Drawings of a workflow's steps: as text for a terminal, and in two languages that other tools draw.

mod ascii;
mod chart;
mod dot;
mod mermaid;
mod rails;

pub use ascii::draw_ascii;
pub use dot::draw_dot;
pub use mermaid::draw_mermaid;
