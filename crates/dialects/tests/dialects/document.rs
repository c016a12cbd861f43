//! Reads sources as JSON, as the formats do.

use std::{fs, path::Path};

use serde_json::Value;
use skein_core::expr::ExprSpan;
use skein_dialects::{DiagnosticSink, detect_dialect, load_source, yaml::parse_yaml};

/// Returns the fields of a source, or of the front matter in Markdown. None if it is not one YAML document.
pub(crate) fn read(path: &Path) -> Option<Value> {
    let name = path.file_name()?.to_str()?;
    let source = load_source(name, fs::read(path).map_err(|error| error.to_string())).ok()?;
    if let Some(detected) = detect_dialect(&mut DiagnosticSink::new(source.clone())) {
        return Some(detected.tree.root().to_json());
    }
    // A source of unknown format can still be YAML; Markdown without usable front matter cannot.
    let start = if source.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let window = ExprSpan::new(start, source.text.len());
    let tree = if name.ends_with(".md") { None } else { parse_yaml(window, &mut DiagnosticSink::new(source)) };
    tree.map(|tree| tree.root().to_json())
}
