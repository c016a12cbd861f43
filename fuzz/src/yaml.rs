//! YAML that is read the quick way, beside what the parser for all of YAML makes of it.

use skein_core::expr::ExprSpan;
use skein_dialects::{
    Code, DiagnosticSink, SourceFile,
    yaml::{YamlNode, parse_yaml},
};

/// A comment changes nothing of what comes after it but its place. With a letter that is not ASCII in it, nothing is
/// read the quick way.
const COMMENT: &str = "# é\n";

/// One text, read both ways: the same is made of it, and the same is said.
pub fn fuzz_plain_yaml(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // A directive is one only where nothing stands before it.
    if !text.is_ascii() || text.starts_with('%') {
        return;
    }
    let (quick, full) = (read_values(text), read_values(&format!("{COMMENT}{text}")));
    assert_eq!(quick, full, "{text:?}");
}

/// The values with their places, and what was said, as if no comment were there.
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

/// Recursion is bounded by how deep YAML may nest, and what aliases repeat by how many values it may have.
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
