//! Drawings of a workflow's steps: as text for a terminal, and in two languages that other tools draw.

mod ascii;
mod chart;

pub(crate) use ascii::draw_ascii;
pub(crate) use chart::draw_dot;
pub(crate) use chart::draw_mermaid;
