//! Runs a folder of sources per format, each with a snapshot of the result: the IR and the warnings of accepted
//! sources, or the diagnostics of refused ones. To add a case, add a file; `UPDATE_SNAPSHOTS=1` writes missing and
//! changed snapshots.

use std::{fmt::Write, fs, path::Path};

use crate::project::Folder;
use skein_dialects::{Dialect, SourceReport, check_source, load_source, render};

/// Renders a report for a snapshot.
fn shown(report: &SourceReport) -> String {
    let mut text = String::new();
    for diagnostic in &report.diagnostics {
        writeln!(text, "{}\n", render::render_text(diagnostic, false)).expect("a string can be written to");
    }
    if report.is_valid() {
        let workflow = report.workflow.as_deref().expect("what is valid has been lowered");
        text += &serde_json::to_string_pretty(workflow).expect("a workflow is JSON");
        text.push('\n');
    }
    text
}

fn cases(dialect: Dialect, sort: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs").join(dialect.as_str()).join(sort);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    let is_case = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("names of cases are text");
        path.is_file() && !name.starts_with('_') && !name.ends_with(".snap")
    };
    files.retain(|path| is_case(path));
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", folder.display());
    files
}

/// Runs every case of a folder, and lists the snapshots that differ.
fn run(dialect: Dialect, sort: &str, valid: bool) {
    let mut wrong = Vec::new();
    for path in cases(dialect, sort) {
        let name = path.file_name().and_then(|name| name.to_str()).expect("names of cases are text");
        let folder = Folder::of(path.parent().expect("a case is in a folder"), name);
        let report = match load_source(name, fs::read(&path).map_err(|error| error.to_string())) {
            Ok(source) => check_source(source, &folder),
            Err(diagnostic) => SourceReport::from_read_error(diagnostic),
        };
        let detected = report.dialect.is_none_or(|found| found == dialect);
        if report.is_valid() != valid || !detected {
            wrong.push(format!(
                "{name} is {}, as {:?}",
                if valid { "refused" } else { "accepted" },
                report.dialect
            ));
        }
        let snapshot = path.with_file_name(format!("{name}.snap"));
        let (now, before) = (shown(&report), fs::read_to_string(&snapshot).unwrap_or_default());
        if now == before {
            continue;
        }
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            fs::write(&snapshot, &now).expect("a snapshot can be written");
        } else {
            wrong.push(format!("{name} gives something else:\n{now}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn agentcore_accepted() {
    run(Dialect::AgentCore, "accepted", true);
}

#[test]
fn agentcore_refused() {
    run(Dialect::AgentCore, "refused", false);
}

#[test]
fn aip15_accepted() {
    run(Dialect::Aip15, "accepted", true);
}

#[test]
fn aip15_refused() {
    run(Dialect::Aip15, "refused", false);
}

#[test]
fn ioa_accepted() {
    run(Dialect::Ioa, "accepted", true);
}

#[test]
fn ioa_refused() {
    run(Dialect::Ioa, "refused", false);
}

/// Cases without a project that defines names.
#[test]
fn ioa_alone() {
    run(Dialect::Ioa, "alone", true);
}

#[test]
fn swdl_accepted() {
    run(Dialect::Swdl, "accepted", true);
}

#[test]
fn swdl_refused() {
    run(Dialect::Swdl, "refused", false);
}
