//! Calls of tools by drivers: texts with placeholders for values, and the part of a response that counts.
//!
//! Owns the form of both. A value is only ever data: it fills its placeholder and is never parsed again. Does not know
//! the called service, or the encoding of a value where it is inserted.

mod call_template;
mod json_path;

pub use call_template::{
    CallTemplate, CallTemplateValues, CallText, CallTextError, CallTextPiece, UnfilledPlaceholder,
    collect_text_secrets, fill_text, parse_text, to_plain_text,
};
pub use json_path::{JsonPathError, JsonPathSegment};
