//! YAML that is read the quick way, beside what the parser for all of YAML makes of it.

use skein_core::expr::Span;
use skein_dialects::{
    Code, Sink, Source,
    yaml::{Node, parse},
};

/// A comment changes nothing of what comes after it but its place. With a letter that is not ASCII in it, nothing is
/// read the quick way.
const COMMENT: &str = "# é\n";

/// One text, read both ways: the same is made of it, and the same is said.
pub fn plain(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // A directive is one only where nothing stands before it.
    if !text.is_ascii() || text.starts_with('%') {
        return;
    }
    let (quick, full) = (read(text), read(&format!("{COMMENT}{text}")));
    assert_eq!(quick, full, "{text:?}");
}

/// The values with their places, and what was said, as if no comment were there.
fn read(text: &str) -> (Vec<String>, Vec<Code>) {
    let mut sink = Sink::new(Source::new("a.yaml", text));
    let tree = parse(Span::new(0, text.len()), &mut sink);
    let before = if text.starts_with(COMMENT) { COMMENT.len() } else { 0 };
    let mut values = Vec::new();
    if let Some(tree) = &tree {
        value(tree.root(), before, &mut values);
    }
    (values, sink.finish().iter().map(|diagnostic| diagnostic.code).collect())
}

/// Recursion is bounded by how deep YAML may nest, and what aliases repeat by how many values it may have.
fn value(node: Node<'_>, before: usize, values: &mut Vec<String>) {
    let place = |span: Span| (span.start as usize - before, span.end as usize - before);
    values.push(format!("{:?} {:?}", place(node.span()), node.scalar()));
    for item in node.items().into_iter().flatten() {
        value(item, before, values);
    }
    for field in node.fields().into_iter().flatten() {
        values.push(format!("{} {:?}", field.key, place(field.key_span)));
        value(field.value, before, values);
    }
}
