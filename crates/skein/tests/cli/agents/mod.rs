//! Real coding agents, driven by the built program, with a scripted model.

pub(crate) mod alone;
mod kind;
mod model;
mod speak;

mod apart;
mod asked;
mod attacks;
mod checks;
mod ends;
mod flows;
mod hangs;
mod limits;
mod named;
mod relay;
mod resumed;
mod servers;
mod ships;
#[path = "tidings/answer.rs"]
mod tidings;
mod trees;
mod walls;
mod works;

pub(crate) use self::{
    kind::CLAUDE,
    model::{Call, Model, call, say},
};
