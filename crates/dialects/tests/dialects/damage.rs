//! Damages every case and every example in many small ways. Nothing panics, and every diagnostic has a valid place.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_dialects::{Project, SourceFile, WorkflowNotFound, WorkflowReference, check_source, render};

/// The replacements of values.
const ODD: &[&str] = &[
    "", "null", "[]", "{}", "[[]]", "{a: b}", "5", "-1", "1.5", "true", "''", "\"", "*x", "&x y", "!t x", "<<", "🦀",
    "a\u{301}", "${{ x }}", "${{", "$.a", "GATE:", "99999999999h", "..", "- - -", "|", ">-", "\t", "# x", ": :",
];

/// A project in which every called workflow is the same odd one.
struct Odd(Arc<SourceFile>);

impl Project for Odd {
    fn resolve_workflow(&self, _: &SourceFile, _: WorkflowReference<'_>) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        Ok(self.0.clone())
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            files(&path, found);
        } else if !path.to_string_lossy().ends_with(".snap") {
            found.push(path);
        }
    }
}

/// Every case and every example, in order.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    files(&root.join("tests/inputs"), &mut found);
    files(&root.join("../../examples"), &mut found);
    found.sort();
    let text = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).expect("a case can be read")).into_owned();
    found.iter().map(|path| (path.display().to_string(), text(path))).collect()
}

/// Checks a text, and that its diagnostics can be rendered.
fn survives(text: &str, name: &str) {
    let source = SourceFile::new("a.yaml", text);
    let report = check_source(source.clone(), &Odd(SourceFile::new("odd.yaml", "steps: {a: {workflow: a.yaml}}")));
    assert_eq!(report.is_valid(), report.definition.is_some(), "{name}:\n{text}");
    for diagnostic in report.diagnostics.iter().chain(&report.notes) {
        for label in &diagnostic.labels {
            let (start, end) = (label.span.start as usize, label.span.end as usize);
            let is_place = start <= end && label.source.text.get(start..end).is_some();
            assert!(is_place, "{name}: {} at {start}..{end}:\n{text}", diagnostic.message);
        }
        assert!(!diagnostic.message.contains('\n'), "{name}: {:?}", diagnostic.message);
        render::render_text(diagnostic, false);
        render::render_json(diagnostic);
    }
}

/// Replaces the value after the first colon or dash of a line.
fn replaced(line: &str, value: &str) -> String {
    let end = [": ", "- "].iter().filter_map(|mark| line.find(mark).map(|at| at + mark.len())).min();
    format!("{}{value}", &line[..end.unwrap_or(line.len())])
}

/// Returns a sample of places, different ones in each source. All places would take too long; the fuzz targets cover
/// them.
fn some(number: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |at| (at + number).is_multiple_of(5))
}

#[test]
fn a_value_that_is_something_else() {
    for (number, (name, text)) in sources().into_iter().enumerate() {
        let lines: Vec<&str> = text.split('\n').collect();
        for at in some(number, lines.len()) {
            // Each line gets one of the values, and all lines together get all of them.
            let value = ODD[(number + at * 7) % ODD.len()];
            let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            lines[at] = replaced(&lines[at], value);
            survives(&lines.join("\n"), &name);
        }
    }
}

#[test]
fn a_line_that_is_missing_or_there_twice() {
    for (number, (name, text)) in sources().into_iter().enumerate() {
        let lines: Vec<&str> = text.split('\n').collect();
        for at in some(number, lines.len()) {
            let (before, after) = lines.split_at(at);
            survives(&[before, &after[1..]].concat().join("\n"), &name);
            survives(&[before, &after[..1], after].concat().join("\n"), &name);
            survives(&before.join("\n"), &name);
        }
    }
}

#[test]
fn a_text_that_ends_in_the_middle() {
    for (name, text) in sources() {
        let ends = text.char_indices().map(|(at, _)| at).filter(|at| at % 149 == 5);
        ends.for_each(|end| survives(&text[..end], &name));
    }
}

#[test]
fn a_character_too_much() {
    for (number, (name, text)) in sources().into_iter().enumerate() {
        let places = text.char_indices().map(|(at, _)| at).filter(|at| at % 151 == 3);
        for (turn, at) in places.enumerate() {
            let extra = ["\"", "'", "[", "}", ":", "\t", "\n", "é", "\0", "- ", "#", "\u{feff}", "\r"];
            let extra = extra[(number + turn) % extra.len()];
            survives(&format!("{}{extra}{}", &text[..at], &text[at..]), &name);
        }
    }
}
