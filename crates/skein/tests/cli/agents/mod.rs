//! Real coding agents, driven by the built program, with a model that does what a test tells it.

mod kind;
mod model;
mod speak;

mod apart;
mod checks;
mod ends;
mod limits;
mod relay;
mod resumed;
mod walls;
mod works;

/// The same test for each agent.
macro_rules! for_each_agent {
    ($($name:ident),* $(,)?) => {
        mod claude {
            $(#[test] fn $name() { super::$name(crate::agents::kind::CLAUDE); })*
        }
        mod codex {
            $(#[test] fn $name() { super::$name(crate::agents::kind::CODEX); })*
        }
        mod opencode {
            $(#[test] fn $name() { super::$name(crate::agents::kind::OPENCODE); })*
        }
    };
}
pub(crate) use for_each_agent;
