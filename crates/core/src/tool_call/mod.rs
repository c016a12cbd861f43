//! How a driver calls what does the work of a tool: texts that values fill in, and which part of an answer counts.
//!
//! Owns the form of both, and that a value is only ever a value: it fills its place and is not read again. Refuses to know
//! what is called, and how a value is written where it is put.

mod call_template;
mod json_path;

pub use call_template::{
    CallTemplate, CallTemplateValues, CallText, CallTextPiece, UnfilledPlaceholder, collect_text_secrets,
    fill_text, parse_text, to_plain_text,
};
pub use json_path::JsonPathSegment;
