//! The semantics of Skein's workflows: a deterministic core with no clock, no randomness and no IO.
//!
//! A [`ir::Workflow`] is checked and frozen into a [`plan`]. [`engine`] decides the effect of each input on a run and
//! folds the decisions into its state; [`view`] shows it. The host and the simulator both drive the same
//! [`engine::Driver`].

/// Defines an enum without values, and `ALL`, the list of its variants in order.
#[macro_export]
macro_rules! listed_enum {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$note:meta])* $variant:ident,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$note])* $variant,)* }

        impl $name {
            pub const ALL: [$name; [$($name::$variant,)*].len()] = [$($name::$variant,)*];
        }
    };
}

/// Defines an enum without values, its words, which are those of its JSON, and `ALL`.
macro_rules! worded_enum {
    ($(#[doc = $doc:literal])* $name:ident { $($variant:ident = $word:literal,)* }) => {
        listed_enum! {
            $(#[doc = $doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
            #[serde(rename_all = "snake_case")]
            pub enum $name { $($variant,)* }
        }

        impl $name {
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub mod agents;
pub mod builder;
pub mod engine;
pub mod expr;
pub mod ids;
pub mod ir;
pub mod limits;
pub mod plan;
pub mod reserved_variables;
pub mod schedule;
pub mod secret_name;
pub mod suggest;
pub mod terms;
pub mod time;
pub mod tool_call;
pub mod view;
