//! What a YAML parser says, in words for whoever wrote the file.

use std::sync::Arc;

use granit_parser::ErrorKind;
use skein_core::{expr::Span, limits};

use crate::{code::Code, diagnostic::Diagnostic, source::Source};

/// The diagnostic for an error of the parser.
pub(super) fn diagnostic(kind: &ErrorKind, source: &Arc<Source>, span: Span) -> Diagnostic {
    if matches!(kind, ErrorKind::RecursionLimitExceeded) {
        let message = format!("this is nested more than {} levels deep", limits::YAML_DEPTH);
        return Diagnostic::new(Code::TooDeepYaml, source, span, message);
    }
    let (message, hint) = words(kind);
    let diagnostic = Diagnostic::new(Code::BadYaml, source, span, format!("this is not YAML: {message}"));
    match hint {
        "" => diagnostic,
        hint => diagnostic.hint(hint),
    }
}

fn words(kind: &ErrorKind) -> (String, &'static str) {
    use ErrorKind as K;
    let (message, hint) = match kind {
        K::TabNotAllowed | K::TabInBlockIndentation => {
            ("a tab where spaces are needed", "indent with spaces")
        }
        K::UnexpectedEofFlowSequence => ("a `[` is never closed", "close it with `]`"),
        K::UnexpectedEofFlowMapping | K::UnexpectedEofImplicitFlowMapping => {
            ("a `{` is never closed", "close it with `}`")
        }
        K::ExpectedFlowSequenceSeparator => ("a `,` or `]` is missing", ""),
        K::ExpectedFlowMappingSeparator => ("a `,` or `}` is missing", ""),
        K::InvalidIndentation | K::ExpectedBlockMappingKey | K::ExpectedBlockSequenceEntry => (
            "this line is not indented like the ones around it",
            "keys of one mapping, and dashes of one list, start in the same column",
        ),
        K::SimpleKeyExpected | K::InvalidSimpleKey => {
            ("a key and its `:` were expected here", "write `key: value`; quote a text that holds `: `")
        }
        K::UnclosedQuotedScalar | K::InvalidQuotedScalarIndent => {
            ("a quote is never closed", "close it with the same quote")
        }
        K::BomInsideDocument => ("a byte order mark in the middle of the file", "delete it"),
        other => return (other.to_string(), ""),
    };
    (message.to_owned(), hint)
}
