//! Explains errors of the YAML parser to the author of the file.

use std::sync::Arc;

use granit_parser::ErrorKind;
use skein_core::{expr::ExprSpan, limits};

use crate::diagnostics::{Code, Diagnostic, SourceFile};

/// The maximum length of a key in YAML, which limits the parser's lookahead.
const KEY_CHARACTERS: usize = 1024;

/// Builds the diagnostic for an error of the parser.
pub(super) fn diagnose_syntax(kind: &ErrorKind, source: &Arc<SourceFile>, span: ExprSpan) -> Diagnostic {
    if matches!(kind, ErrorKind::RecursionLimitExceeded) {
        let message = format!("this is nested more than {} levels deep", limits::YAML_DEPTH);
        return Diagnostic::new(Code::TooDeepYaml, source, span, message);
    }
    if matches!(kind, ErrorKind::MappingValueNotAllowed | ErrorKind::MappingKeyNotAllowed)
        && let Some(uneven) = UnevenKey::find(&source.text, span.start as usize)
    {
        let diagnostic = Diagnostic::new(Code::BadYaml, source, span, uneven.message());
        return diagnostic.with_hint(format!("indent `{}` by {} spaces", uneven.key, uneven.siblings));
    }
    let (message, hint) = match explain_error(kind, &YamlErrorContext::from_span(source, span)) {
        Some((message, hint)) => (message.to_owned(), hint.to_owned()),
        None => explain_with_names(kind),
    };
    let diagnostic = Diagnostic::new(Code::BadYaml, source, span, format!("this is not YAML: {message}"));
    if hint.is_empty() { diagnostic } else { diagnostic.with_hint(hint) }
}

/// A key that is indented deeper than the key in the line before it, whose value is already a text.
struct UnevenKey<'a> {
    key: &'a str,
    spaces: usize,
    siblings: usize,
}

impl<'a> UnevenKey<'a> {
    fn find(text: &'a str, at: usize) -> Option<UnevenKey<'a>> {
        let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
        let line = text[start..].lines().next()?;
        let mut before = text[..start].lines().rev();
        let sibling = before.find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))?;
        let ((key, spaces, _), (_, siblings, value)) = (parse_key_line(line)?, parse_key_line(sibling)?);
        let has_text = !value.is_empty() && !value.starts_with(['|', '>', '#', '&']);
        (has_text && spaces > siblings).then_some(UnevenKey { key, spaces, siblings })
    }

    fn message(&self) -> String {
        let UnevenKey { key, spaces, siblings } = self;
        format!("inconsistent indentation: `{key}` has {spaces} spaces, its siblings {siblings}")
    }
}

/// Returns the key of a line, its column, and its value.
fn parse_key_line(line: &str) -> Option<(&str, usize, &str)> {
    let start = line.find(|c: char| c != ' ' && c != '-')?;
    let (key, value) = line[start..].split_once(':')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    (is_key && (value.is_empty() || value.starts_with(' '))).then_some((key, start, value.trim()))
}

/// The text before an error in its line.
struct YamlErrorContext {
    begins_line: bool,
    far: bool,
}

impl YamlErrorContext {
    fn from_span(source: &SourceFile, span: ExprSpan) -> YamlErrorContext {
        let before = source.slice(ExprSpan { start: 0, end: span.start });
        let line = before.rsplit('\n').next().unwrap_or_default();
        let begins_line = line.bytes().all(|b| matches!(b, b' ' | b'\t' | b'-'));
        YamlErrorContext { begins_line, far: line.chars().nth(KEY_CHARACTERS).is_some() }
    }
}

/// Returns message and hint of an error without names from the source.
fn explain_error(kind: &ErrorKind, around: &YamlErrorContext) -> Option<(&'static str, &'static str)> {
    // table
    use ErrorKind as K;
    Some(match kind {
        K::TabNotAllowed | K::TabInBlockIndentation | K::TabInIndentation => {
            ("a tab where spaces are needed", "indent with spaces")
        }
        K::TabInPlainScalar => ("a line after this text begins with a tab", "indent with spaces"),
        K::TabAtBlockScalarStart => ("the text begins with a tab", "indent with spaces"),
        K::UnexpectedEofFlowSequence => ("a `[` is never closed", "close it with `]`"),
        K::UnexpectedEofFlowMapping => ("a `{` is never closed", "close it with `}`"),
        K::UnexpectedEofImplicitFlowMapping => ("there is nothing before this `,`", "remove the `,`"),
        K::MisplacedFlowCollectionEnd => ("this closes nothing", "remove it, or put the text in quotes"),
        K::ExpectedFlowSequenceSeparator => ("a `,` or `]` is missing", ""),
        K::ExpectedFlowMappingSeparator => ("a `,` or `}` is missing", ""),
        K::InvalidIndentation | K::ExpectedBlockMappingKey | K::ExpectedBlockSequenceEntry if around.begins_line => (
            "this line is not indented like the ones around it",
            "keys of one mapping, and dashes of one list, start in the same column",
        ),
        K::InvalidIndentation
        | K::ExpectedBlockMappingKey
        | K::ExpectedBlockSequenceEntry
        | K::ExpectedDocumentStart
        | K::InvalidDocumentEnd => {
            ("a value has ended, and something follows it", "check the quotes and brackets before this")
        }
        K::SimpleKeyExpected | K::InvalidSimpleKey => {
            ("a key and its `:` were expected here", "write `key: value`; quote a text that holds `: `")
        }
        K::MappingValueNotAllowed if around.far => {
            ("a key is longer than 1024 characters", "write a long key after `? `, or shorten it")
        }
        K::MappingValueNotAllowed | K::MappingKeyNotAllowed | K::InvalidColonPlacement => {
            ("there cannot be a key here", "quote a text that holds `: `; put each key on a line of its own")
        }
        K::BlockSequenceEntryNotAllowed | K::BlockEntryInFlowCollection => {
            ("a list cannot begin here", "put its first `- ` on a line of its own, or write `[a, b]`")
        }
        K::PlainScalarStartsWithDashFlowIndicator => ("a `-` alone is not a text here", "put it in quotes"),
        K::UnclosedQuotedScalar | K::DocumentIndicatorInQuotedScalar => {
            ("a quote is never closed", "close it with the same quote")
        }
        K::InvalidQuotedScalarIndent => (
            "a quote is not closed before a line that is not indented",
            "close it, or indent the lines that continue the text",
        ),
        K::InvalidTrailingSingleQuotedScalar => {
            ("something follows the closing quote", "write `''` for a quote inside of the text")
        }
        K::InvalidTrailingDoubleQuotedScalar => {
            ("something follows the closing quote", "write `\\\"` for a quote inside of the text")
        }
        K::UnknownQuotedScalarEscape => (
            "a `\\` in double quotes without a valid escape",
            "write `\\\\` for the character itself, or use single quotes",
        ),
        K::InvalidQuotedScalarHexEscape
        | K::InvalidLowSurrogateHexEscape
        | K::InvalidLowSurrogate
        | K::MissingLowSurrogate
        | K::UnpairedLowSurrogate
        | K::InvalidUnicodeEscape => ("an escape in double quotes that is not a character", ""),
        K::MissingAnchorOrAliasName => {
            ("a name is missing after `&` or `*`", "quote a text that begins with one of them")
        }
        K::UndeclaredTagHandle | K::InvalidTagTerminator | K::MissingTagUri | K::UnclosedVerbatimTag => {
            ("a tag that cannot be read", "quote a text that begins with `!`")
        }
        K::InvalidBlockScalarHeader | K::ZeroBlockScalarIndent => {
            ("the text after `|` or `>` starts on the next line", "")
        }
        K::InvalidBlockScalarIndent => {
            ("this line is indented less than the text it belongs to", "indent all of its lines alike")
        }
        K::BomInsideDocument => ("a byte order mark in the middle of the file", "delete it"),
        _ => return None,
    })
}

/// Returns message and hint of an error with a character from the source.
fn explain_with_names(kind: &ErrorKind) -> (String, String) {
    match kind {
        ErrorKind::UnclosedFlowCollection { open } => {
            let close = if *open == '[' { ']' } else { '}' };
            (format!("a `{open}` is never closed"), format!("close it with `{close}`"))
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            (format!("a `{open}` is closed with `{close}`"), String::new())
        }
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            let number = u32::from(*character);
            let hint = format!("remove it, or write it as `\\u{number:04x}` in double quotes");
            (format!("the character U+{number:04X} cannot be here"), hint)
        }
        ErrorKind::UnexpectedCharacter { character } => {
            let shown = if *character == '`' { "a backtick".to_owned() } else { format!("`{character}`") };
            (format!("a text cannot begin with {shown}"), "put it in quotes".to_owned())
        }
        other => (other.to_string(), String::new()),
    }
}
