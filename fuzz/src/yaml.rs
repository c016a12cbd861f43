//! YAML that the fast reader accepts, compared with the result of the full YAML parser.

use skein_core::expr::ExprSpan;
use skein_dialects::{
    Code, DiagnosticSink, SourceFile,
    yaml::{YamlNode, parse_yaml},
};

/// A comment that changes only the positions of what follows. It has a letter that is not ASCII, which disables the
/// fast reader.
const COMMENT: &str = "# é\n";

/// Reads one text both ways and compares values and diagnostics.
pub fn fuzz_plain_yaml(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // A directive is only recognized at the very start.
    if !text.is_ascii() || text.starts_with('%') {
        return;
    }
    let (quick, full) = (read_values(text), read_values(&format!("{COMMENT}{text}")));
    assert_eq!(quick, full, "{text:?}");
}

/// The values with their positions, and the codes of the diagnostics, as if the comment were absent.
fn read_values(text: &str) -> (Vec<String>, Vec<Code>) {
    let mut sink = DiagnosticSink::new(SourceFile::new("a.yaml", text));
    let tree = parse_yaml(ExprSpan::new(0, text.len()), &mut sink);
    let before = if text.starts_with(COMMENT) { COMMENT.len() } else { 0 };
    let mut values = Vec::new();
    if let Some(tree) = &tree {
        collect_values(tree.root(), before, &mut values);
    }
    (values, sink.into_diagnostics().iter().map(|diagnostic| diagnostic.code).collect())
}

/// Collects values recursively. The depth is bounded by the nesting limit of YAML, and repetition by aliases by the
/// limit on values.
fn collect_values(node: YamlNode<'_>, before: usize, values: &mut Vec<String>) {
    let place = |span: ExprSpan| (span.start as usize - before, span.end as usize - before);
    values.push(format!("{:?} {:?}", place(node.span()), node.scalar()));
    for item in node.items().into_iter().flatten() {
        collect_values(item, before, values);
    }
    for field in node.fields().into_iter().flatten() {
        values.push(format!("{} {:?}", field.key, place(field.key_span)));
        collect_values(field.value, before, values);
    }
}
