//! Every input of every format, damaged in small ways: nothing panics, and what is said about it can be shown.

mod project;

use std::{fs, path::Path};

use project::Folder;
use skein_dialects::{Diagnostic, Source, check, render};

/// A text without each of its lines, cut off after each, with each twice, with each indented further, and with each
/// character of a sort replaced.
fn damaged(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut all = Vec::new();
    for at in 0..lines.len() {
        let (before, line, after) = (lines[..at].concat(), lines[at], lines[at + 1..].concat());
        all.push(format!("{before}{after}"));
        all.push(format!("{before}{line}{line}{after}"));
        all.push(format!("{before} {line}{after}"));
        all.push(before);
    }
    let swaps = [
        (":", ""),
        ("-", ""),
        ("[", ""),
        ("]", "}"),
        ("\"", ""),
        ("{", "["),
        ("a", "\u{e9}"),
        ("1", "-"),
        ("\n", "\r"),
    ];
    all.extend(swaps.iter().map(|(from, to)| text.replace(from, to)));
    all
}

fn check_shown(name: &str, diagnostic: &Diagnostic) {
    let shown = render::human(diagnostic, false);
    assert!(shown.contains(diagnostic.code.as_str()), "{name}: {shown}");
    assert!(!diagnostic.message.is_empty() && !diagnostic.message.contains('\n'), "{name}: {shown}");
    for label in &diagnostic.labels {
        assert!(
            label.span.end as usize <= label.source.text.len() + 3,
            "{name}: {:?} is outside",
            label.span
        );
    }
    assert!(render::object(diagnostic)["line"].as_u64().is_some_and(|line| line > 0), "{name}");
}

#[test]
fn a_damaged_source_is_only_refused() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs");
    let list = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder)
            .expect("it is there")
            .map(|entry| entry.expect("it can be listed").path())
            .collect()
    };
    let folders = list(&inputs).into_iter().flat_map(|format| list(&format)).filter(|path| path.is_dir());
    let mut count = 0;
    for folder in folders {
        let project = Folder::of(&folder, "");
        for path in list(&folder) {
            let Some(text) = fs::read_to_string(&path).ok().filter(|text| text.len() < 8_000) else {
                continue;
            };
            if path.extension().is_some_and(|extension| extension == "snap") {
                continue;
            }
            let name = path.display().to_string();
            for text in damaged(&text) {
                let report = check(Source::new(name.as_str(), text), &project);
                assert!(
                    report.definition.is_none() || report.is_valid(),
                    "{name}: a plan in spite of errors"
                );
                report.diagnostics.iter().chain(&report.notes).for_each(|said| check_shown(&name, said));
                count += 1;
            }
        }
    }
    assert!(count > 1_000, "only {count} sources were damaged");
}
