//! Diagnostics: problems with their codes, their places in source files, and their rendering. Does not know formats or
//! trees.

mod code;
mod diagnostic;
pub mod render;
mod source_file;

pub use code::Code;
pub use diagnostic::{Diagnostic, DiagnosticLabel, DiagnosticSink, SuggestedFix};
pub(crate) use diagnostic::{MisspeltField, shorten_text};
pub use source_file::{SourceFile, SourcePosition};
