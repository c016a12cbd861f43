//! Runs a folder of sources per format, each with a snapshot of the result: the IR and the warnings of accepted
//! sources, or the diagnostics of refused ones. To add a case, add a file; `INSTA_UPDATE=always` writes missing and
//! changed snapshots.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{compact, project::Folder};
use skein_dialects::{Dialect, SourceReport, check_source, load_source, render};

/// Renders a report for a snapshot. Of the workflow, only what differs from the smallest one of the format is shown.
fn shown(report: &SourceReport, smallest: Option<&Value>) -> String {
    let mut text = String::new();
    for diagnostic in &report.diagnostics {
        writeln!(text, "{}\n", render::render_text(diagnostic, false)).expect("a string can be written to");
    }
    if report.is_valid() {
        let workflow = lowered(report);
        text += &compact::print(&match smallest {
            Some(smallest) => compact::difference(workflow, smallest),
            None => workflow,
        });
    }
    text
}

fn lowered(report: &SourceReport) -> Value {
    let workflow = report.workflow.as_deref().expect("what is valid has been lowered");
    serde_json::to_value(workflow).expect("a workflow is JSON")
}

fn folder(dialect: Dialect, sort: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs").join(dialect.as_str()).join(sort)
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("names of cases are text")
}

fn cases(dialect: Dialect, sort: &str) -> Vec<PathBuf> {
    let folder = folder(dialect, sort);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    let is_snapshot = |name: &str| name.ends_with(".snap") || name.ends_with(".snap.new");
    let is_case = |path: &Path| {
        let name = name_of(path);
        path.is_file() && !name.starts_with('_') && !is_snapshot(name)
    };
    files.retain(|path| is_case(path));
    files.sort();
    assert!(!files.is_empty(), "no cases in {}", folder.display());
    files
}

fn check(path: &Path) -> SourceReport {
    let name = name_of(path);
    let folder = Folder::of(path.parent().expect("a case is in a folder"), name);
    match load_source(name, fs::read(path).map_err(|error| error.to_string())) {
        Ok(source) => check_source(source, &folder),
        Err(diagnostic) => SourceReport::from_read_error(diagnostic),
    }
}

/// The case that shows the defaults of a format.
fn is_smallest(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "smallest")
}

/// Runs every case of a folder, and lists the snapshots that differ.
fn run(dialect: Dialect, sort: &str, valid: bool) {
    let smallest = cases(dialect, "accepted").into_iter().find(|path| is_smallest(path));
    let smallest = lowered(&check(&smallest.expect("a format has a smallest case")));
    let mut wrong = Vec::new();
    for path in cases(dialect, sort) {
        let (name, report) = (name_of(&path), check(&path));
        let detected = report.dialect.is_none_or(|found| found == dialect);
        if report.is_valid() != valid || !detected {
            wrong.push(format!("{name} is {}, as {:?}", if valid { "refused" } else { "accepted" }, report.dialect));
        }
        let text = shown(&report, (!is_smallest(&path)).then_some(&smallest));
        let compare = || skein_testkit::assert_snapshot!(folder(dialect, sort), name, text);
        if std::panic::catch_unwind(compare).is_err() {
            wrong.push(format!("{name} gives something else:\n{text}"));
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
