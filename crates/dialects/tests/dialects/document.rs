//! Sources as JSON, the way the formats read them.

use std::{fs, path::Path};

use serde_json::Value;
use skein_core::expr::Span;
use skein_dialects::{Sink, detect, load, yaml::parse};

/// The fields of a source; of Markdown, those of its front matter. None if it is not one YAML document.
pub fn read(path: &Path) -> Option<Value> {
    let name = path.file_name()?.to_str()?;
    let source = load(name, fs::read(path).map_err(|error| error.to_string())).ok()?;
    if let Some(detected) = detect(&mut Sink::new(source.clone())) {
        return Some(detected.tree.root().json());
    }
    // None of the formats can still be YAML; Markdown of which nothing can be told is not.
    let start = if source.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let window = Span::new(start, source.text.len());
    let tree = if name.ends_with(".md") { None } else { parse(window, &mut Sink::new(source)) };
    tree.map(|tree| tree.root().json())
}
