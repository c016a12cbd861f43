//! Diagnostics: problems with their codes, their places in source files, and their rendering. Does not know formats or
//! trees.

mod code;
mod diagnostic;
pub mod render;
mod source_file;

pub use code::Code;
pub(crate) use diagnostic::shorten_text;
pub use diagnostic::{Diagnostic, DiagnosticLabel, DiagnosticSink, SuggestedFix};
pub use source_file::{SourceFile, SourcePosition};
