//! YAML files as JSON, the way the formats read them.

use std::{fs, path::Path};

use serde_json::Value;
use skein_core::expr::Span;
use skein_dialects::{Sink, load, yaml::parse};

/// None if it is not one YAML document.
pub fn read(path: &Path) -> Option<Value> {
    let source = load("case.yaml", fs::read(path).map_err(|error| error.to_string())).ok()?;
    let start = if source.text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let window = Span::new(start, source.text.len());
    let mut sink = Sink::new(source);
    parse(window, &mut sink).map(|tree| tree.root().json())
}
