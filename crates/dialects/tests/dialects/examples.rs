//! Checks that the published examples are valid and use every field.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::document;
use serde_json::Value;
use skein_dialects::{
    Dialect, Project, SourceFile, SourceReport, WorkflowNotFound, WorkflowReference, check_source, dialect_schema,
    render,
};

/// The name of the file of overrides in a folder.
const OVERRIDES: &str = ".skillmeat-workflow-overrides.yaml";

/// The examples of a format, which may call one another: by path, or by id in a folder of that name.
pub(crate) struct Examples {
    folder: PathBuf,
    /// The folder of the example that is being checked.
    here: PathBuf,
}

impl Examples {
    pub(crate) fn of(dialect: Dialect) -> Examples {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(dialect.as_str());
        Examples { here: folder.clone(), folder }
    }

    /// Returns every source, including called ones.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        below(&self.folder, &mut files);
        files.retain(|path| path.file_name().is_some_and(|name| name != OVERRIDES));
        // Resources of IOA that are not workflows.
        let other = |path: &Path| ["domains", "governance"].iter().any(|name| path.ends_with(name));
        files.retain(|path| !path.parent().is_some_and(other));
        files.sort();
        files
    }

    fn check(&mut self, path: &Path) -> SourceReport {
        self.here = path.parent().expect("an example is in a folder").to_owned();
        check_source(source(path).expect("an example can be read"), self)
    }

    /// Checks another text in the place of an example, without overrides.
    pub(crate) fn check_text(&self, path: &Path, text: &str) -> SourceReport {
        check_source(SourceFile::new(path.display().to_string(), text), self)
    }
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("a folder can be listed").path()) {
        if path.is_dir() {
            below(&path, found);
        } else if is_workflow(&path) {
            found.push(path);
        }
    }
}

/// True for workflows. The folders also hold the tools, agents and settings that they need.
fn is_workflow(path: &Path) -> bool {
    let has = |ending: &str| path.extension().is_some_and(|found| found == ending);
    path.ends_with("WORKFLOW.md") || path.ends_with(OVERRIDES) || has("yaml") || has("yml") || has("json")
}

fn source(path: &Path) -> Result<Arc<SourceFile>, WorkflowNotFound> {
    let missing = |error: std::io::Error| WorkflowNotFound { why: error.to_string(), known: Vec::new() };
    fs::read_to_string(path).map(|text| SourceFile::new(path.display().to_string(), text)).map_err(missing)
}

impl Project for Examples {
    fn resolve_workflow(
        &self,
        from: &SourceFile,
        reference: WorkflowReference<'_>,
    ) -> Result<Arc<SourceFile>, WorkflowNotFound> {
        match reference {
            WorkflowReference::Path(path) => source(&Path::new(&from.name).with_file_name(path)),
            WorkflowReference::Id(id) => {
                let beside = Path::new(&from.name).parent().and_then(Path::parent).unwrap_or(&self.folder);
                source(&beside.join(id).join("WORKFLOW.md"))
            }
        }
    }

    fn override_source(&self) -> Option<Arc<SourceFile>> {
        source(&self.here.join(OVERRIDES)).ok()
    }
}

/// Checks that every example of a format is valid. Returns their reports.
fn all_are_right(dialect: Dialect) -> Vec<(PathBuf, SourceReport)> {
    let mut examples = Examples::of(dialect);
    let files = examples.files();
    assert!(files.len() >= 5, "{} examples of {dialect}", files.len());
    let mut reports = Vec::new();
    for path in files {
        let report = examples.check(&path);
        assert!(report.definition.is_some(), "{} is refused:\n{}", path.display(), said(&report));
        assert_eq!(report.dialect, Some(dialect), "{}", path.display());
        reports.push((path, report));
    }
    reports
}

fn said(report: &SourceReport) -> String {
    report.diagnostics.iter().map(|diagnostic| render::render_text(diagnostic, false)).collect::<Vec<_>>().join("\n")
}

/// Returns the fields of an example, as JSON.
fn fields(path: &Path) -> Value {
    document::read(path).expect("an example can be read")
}

/// Collects the names of all fields in a value.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.keys().cloned());
            fields.values().for_each(|inner| keys(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| keys(inner, found)),
        _ => {}
    }
}

/// Collects the names of all fields in a schema.
fn known(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            found.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
            fields.values().for_each(|inner| known(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| known(inner, found)),
        _ => {}
    }
}

/// Checks that every field of a format's schema occurs in some example.
fn all_is_shown(dialect: Dialect) {
    let mut all = BTreeSet::new();
    known(&serde_json::from_str(dialect_schema(dialect)).expect("a schema is JSON"), &mut all);
    let mut shown = BTreeSet::new();
    Examples::of(dialect).files().iter().for_each(|path| keys(&fields(path), &mut shown));
    let missing: Vec<&String> = all.difference(&shown).collect();
    assert!(missing.is_empty(), "no example of {dialect} has {missing:?}");
}

fn text(dialect: Dialect) -> Vec<String> {
    Examples::of(dialect).files().iter().map(|path| fs::read_to_string(path).expect("it was just read")).collect()
}

#[test]
fn agentcore_examples() {
    all_are_right(Dialect::AgentCore);
    all_is_shown(Dialect::AgentCore);
    let agents = ["CODEX_CLI", "CLAUDE_CODE", "OPENCODE"];
    let plain = text(Dialect::AgentCore).into_iter().filter(|text| !agents.iter().any(|agent| text.contains(agent)));
    assert!(plain.count() >= 2, "some examples need no agent");
}

/// Every word that changes the behaviour of a step.
const AIP15_WORDS: &str = "tool branch parallel suspend approval map loop subworkflow manual webhook event schedule \
    literal cancel continue escalate fixed exponential auto always on-mutate per-step $end $item $index";

#[test]
fn aip15_examples() {
    for (path, report) in all_are_right(Dialect::Aip15) {
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        assert_eq!(fields(&path)["id"].as_str(), folder, "a workflow is in a folder of its id");
        // Without a project, the only warning is that the tools cannot be checked.
        let others = report.diagnostics.iter().any(|diagnostic| diagnostic.code.as_str() != "SK0702");
        assert!(!others, "{}", said(&report));
    }
    all_is_shown(Dialect::Aip15);
    let text = text(Dialect::Aip15).concat();
    let missing: Vec<&str> = AIP15_WORDS.split_whitespace().filter(|word| !text.contains(word)).collect();
    assert!(missing.is_empty(), "no example has {missing:?}");
}

#[test]
fn ioa_examples() {
    all_are_right(Dialect::Ioa);
    all_is_shown(Dialect::Ioa);
}

#[test]
fn swdl_examples() {
    all_are_right(Dialect::Swdl);
    all_is_shown(Dialect::Swdl);
}
