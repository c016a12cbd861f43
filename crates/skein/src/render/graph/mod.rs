//! Drawings of a workflow's steps: as text for a terminal, and in two languages that other tools draw.

mod ascii;
mod chart;
mod dot;
mod mermaid;
mod rails;

pub(crate) use ascii::draw_ascii;
pub(crate) use dot::draw_dot;
pub(crate) use mermaid::draw_mermaid;
