//! Detects the format of a source by its contents, not by its name.

use std::{fmt, sync::Arc};

use serde_json::Value;
use skein_core::{expr::ExprSpan, suggest::find_closest_name};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile, shorten_text},
    source::yaml::{YamlNode, YamlTree, parse_yaml},
};

/// The four formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    AgentCore,
    Aip15,
    Ioa,
    Swdl,
}

impl Dialect {
    pub const ALL: [Dialect; 4] = [Dialect::AgentCore, Dialect::Aip15, Dialect::Ioa, Dialect::Swdl];

    /// Its name on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::AgentCore => "agentcore",
            Dialect::Aip15 => "aip15",
            Dialect::Ioa => "ioa",
            Dialect::Swdl => "swdl",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A source that has been parsed as YAML, and its format.
#[derive(Debug)]
pub struct DetectedSource {
    pub dialect: Dialect,
    pub tree: YamlTree,
}

/// Parses a source and detects its format. None if it cannot be parsed or is none of the four.
pub fn detect_dialect(sink: &mut DiagnosticSink) -> Option<DetectedSource> {
    let source = sink.source.clone();
    let parts = FrontMatterParts::parse(&source.text);
    if let Some(diagnostic) = diagnose_front_matter(&source, &parts) {
        sink.push(diagnostic);
        return None;
    }
    let tree = parse_yaml(parts.front.unwrap_or(parts.whole), sink)?;
    let root = tree.root();
    let wrong = match (detect_by_fields(root), &parts) {
        (None, _) => diagnose_unknown_format(root),
        (Some(Dialect::Aip15), FrontMatterParts { front: None, opening, .. }) => {
            diagnose_missing_front_matter(root, *opening)
        }
        (Some(dialect), FrontMatterParts { front: Some(_), rest, .. })
            if dialect != Dialect::Aip15 && !source.slice(*rest).trim().is_empty() =>
        {
            let message = "a second document starts here, and one file holds one workflow";
            Diagnostic::new(Code::ManyDocuments, &source, ExprSpan { end: rest.start, ..*rest }, message)
        }
        (Some(dialect), _) => return Some(DetectedSource { dialect, tree }),
    };
    sink.push(wrong);
    None
}

/// Parses the front matter of a file that must have one.
pub(crate) fn parse_front_matter(sink: &mut DiagnosticSink) -> Option<YamlTree> {
    let source = sink.source.clone();
    let parts = FrontMatterParts::parse(&source.text);
    if let Some(diagnostic) = diagnose_front_matter(&source, &parts) {
        sink.push(diagnostic);
        return None;
    }
    parse_yaml(parts.front.unwrap_or(parts.whole), sink)
}

/// Returns the YAML part of a file: its front matter, or all of a file that is not Markdown. None if it has none.
pub(crate) fn front_matter_span(source: &Arc<SourceFile>) -> Option<ExprSpan> {
    let parts = FrontMatterParts::parse(&source.text);
    match diagnose_front_matter(source, &parts) {
        Some(_) => None,
        None => Some(parts.front.unwrap_or(parts.whole)),
    }
}

/// Reads the data of a file that is not a workflow, as JSON: its front matter if it has one, else all of it.
pub fn read_as_json(source: Arc<SourceFile>) -> Result<Value, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).map(|tree| tree.root().to_json());
    match read {
        Some(value) if !sink.has_errors() => Ok(value),
        _ => Err(sink.into_diagnostics()),
    }
}

/// Returns the id of an AIP-15 or SWDL workflow, without checking the rest.
pub fn read_workflow_id(source: &Arc<SourceFile>) -> Option<String> {
    let value = read_as_json(source.clone()).ok()?;
    let id = value.get("workflow").map_or(&value["id"], |workflow| &workflow["id"]);
    id.as_str().map(str::to_owned)
}

/// True if a text begins with front matter.
pub fn has_front_matter(source: &SourceFile) -> bool {
    FrontMatterParts::parse(&source.text).front.is_some()
}

/// Returns the text after the front matter, or all of it if there is none.
pub fn markdown_body(source: &SourceFile) -> &str {
    let parts = FrontMatterParts::parse(&source.text);
    source.slice(if parts.front.is_some() { parts.rest } else { parts.whole })
}

/// The parts of a text that may be Markdown with front matter: YAML between two lines of `---`, then prose.
struct FrontMatterParts {
    whole: ExprSpan,
    /// The first `---`.
    opening: Option<ExprSpan>,
    /// None if it is not opened, or never closed.
    front: Option<ExprSpan>,
    rest: ExprSpan,
}

impl FrontMatterParts {
    fn parse(text: &str) -> FrontMatterParts {
        let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let whole = ExprSpan::new(at, text.len());
        let mut parts =
            FrontMatterParts { whole, opening: None, front: None, rest: ExprSpan::new(text.len(), text.len()) };
        for line in text[at..].split_inclusive('\n') {
            let (start, end) = (at, at + line.len());
            let is_rule = is_rule(line);
            match parts.opening {
                None if is_rule => parts.opening = Some(ExprSpan::new(start, start + line.trim_end().len())),
                None if line.trim().is_empty() => {}
                None => break,
                Some(opening) if is_rule => {
                    parts.front = Some(ExprSpan::new(opening.end as usize, start));
                    parts.rest = ExprSpan::new(end, text.len());
                    break;
                }
                Some(_) => {}
            }
            at = end;
        }
        parts
    }
}

/// True for the line that opens and closes front matter.
fn is_rule(line: &str) -> bool {
    line.trim_end() == "---"
}

/// Returns the problem with the front matter of a Markdown file. Without this check, the YAML parser would complain
/// about the prose.
fn diagnose_front_matter(source: &Arc<SourceFile>, parts: &FrontMatterParts) -> Option<Diagnostic> {
    let is_markdown = source.name.len() > 3 && source.name.to_ascii_lowercase().ends_with(".md");
    let first = ExprSpan { end: parts.whole.start, ..parts.whole };
    let (span, message) = match (parts.opening, parts.front) {
        _ if !is_markdown => return None,
        (Some(opening), None) => (opening, NEVER_CLOSED),
        (Some(opening), Some(front)) if source.slice(front).trim().is_empty() => {
            (opening, "this front matter is empty")
        }
        (Some(_), Some(_)) => return None,
        (None, _) if source.text.lines().any(is_rule) => (first, "there is text before the front matter"),
        (None, _) => (first, "this Markdown file has no front matter"),
    };
    Some(Diagnostic::new(Code::BadFrontMatter, source, span, message).with_hint(RULES))
}

const NEVER_CLOSED: &str = "this front matter is never closed";
const RULES: &str = "put a line that holds only `---` before the first field and after the last";

fn detect_by_fields(root: YamlNode<'_>) -> Option<Dialect> {
    let has = |key: &str| root.get(key).is_some();
    let steps = root.get("steps");
    if is_ioa(root) {
        Some(Dialect::Ioa)
    } else if has("apiVersion") || has("kind") && has("spec") {
        // A resource of something else.
        None
    } else if has("stages") || has("workflow") && steps.is_none() {
        Some(Dialect::Swdl)
    } else if steps.is_some_and(|steps| steps.items().is_some()) && !is_agentcore_with_list(root)
        || has("id") && has("inputs")
    {
        Some(Dialect::Aip15)
    } else if steps.is_some_and(|steps| has("name") || has("version") || has_agentcore_step(steps))
        || has("name") && has("timeout")
    {
        Some(Dialect::AgentCore)
    } else {
        None
    }
}

/// Returns true if a file with errors that nobody named is reported as a workflow. Pipelines of other systems also have
/// `steps` and `stages`, so one of the fields is required that only a workflow of these formats has. A file that cannot
/// be parsed is reported if it has such a key at all.
pub fn is_probably_workflow(source: &Arc<SourceFile>) -> bool {
    let is_named = ["WORKFLOW.md", "WORKFLOW.yaml", "WORKFLOW.yml", "WORKFLOW.json"];
    let name = source.name.rsplit('/').next().unwrap_or_default();
    if is_named.contains(&name) {
        return true;
    }
    let parts = FrontMatterParts::parse(&source.text);
    let tree = parse_yaml(parts.front.unwrap_or(parts.whole), &mut DiagnosticSink::new(source.clone()));
    tree.map_or_else(|| has_steps_key(&source.text), |tree| has_own_fields(tree.root()))
}

fn has_steps_key(text: &str) -> bool {
    let is_key = |line: &str| {
        let line = line.trim_start().trim_start_matches('"');
        let rest = line.strip_prefix("steps").or_else(|| line.strip_prefix("stages"));
        rest.is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with(':'))
    };
    text.lines().any(is_key)
}

/// Returns true if a document has fields of one of the four formats that pipelines of other systems do not have.
fn has_own_fields(root: YamlNode<'_>) -> bool {
    let has = |key: &str| root.get(key).is_some();
    match detect_by_fields(root) {
        None => false,
        Some(Dialect::Ioa) => true,
        Some(Dialect::Swdl) => {
            // Plans and definitions that this program prints have `hash` or `origin` there.
            let is_written = |workflow: YamlNode<'_>| {
                workflow.get("id").is_some() && workflow.get("hash").is_none() && workflow.get("origin").is_none()
            };
            root.get("workflow").is_some_and(is_written)
                || root.get("stages").is_some_and(|stages| has_any_key(stages, &["id", "roles"]))
        }
        // Results of a run also have `workflow` and `steps`, and no `id` of their own.
        Some(Dialect::Aip15) => has("id") && root.get("steps").is_some_and(|steps| has_any_key(steps, &["kind", "id"])),
        Some(Dialect::AgentCore) => {
            root.get("steps").is_some_and(has_agentcore_step) || has("name") && has("timeout") && has("version")
        }
    }
}

/// Returns true if one of the first items of a list has one of these fields.
fn has_any_key(list: YamlNode<'_>, keys: &[&str]) -> bool {
    let says = |item: YamlNode<'_>| keys.iter().any(|key| item.get(key).is_some());
    list.items().is_some_and(|mut items| items.by_ref().take(8).any(says))
}

/// True for a workflow of IOA, or a misspelt one. Its other resources are not workflows.
fn is_ioa(root: YamlNode<'_>) -> bool {
    let text = |key: &str| root.get(key).and_then(YamlNode::raw_text).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let is_workflow = kind.is_empty() || find_closest_name(kind, ["Workflow"].into_iter()).is_some();
    let has_steps = root.get("spec").is_some_and(|spec| spec.get("steps").is_some());
    is_workflow && (version.starts_with("ioa.") || version.is_empty() && root.get("spec").is_some() || has_steps)
}

/// True if one of the first steps has a field that only steps of AgentCore have.
fn has_agentcore_step(steps: YamlNode<'_>) -> bool {
    let says = |step: YamlNode<'_>| ["worker", "instructions", "workflow"].iter().any(|key| step.get(key).is_some());
    steps.fields().is_some_and(|mut fields| fields.by_ref().take(8).any(|field| says(field.value)))
}

/// True for a list of steps beside fields that only AgentCore has: then the list is the error.
fn is_agentcore_with_list(root: YamlNode<'_>) -> bool {
    root.get("timeout").is_some() && root.get("name").is_some() && root.get("id").is_none()
}

fn diagnose_unknown_format(root: YamlNode<'_>) -> Diagnostic {
    if let Some(kind) = root.get("kind").filter(|kind| kind.raw_text().is_some()) {
        let message = format!(
            "this is a resource of kind `{}`, not a workflow",
            shorten_text(kind.raw_text().unwrap_or_default())
        );
        let hint = "a workflow of IOA has `apiVersion: ioa.dev/v0.2` and `kind: Workflow`";
        return kind.diagnose(Code::UnknownFormat, message).with_hint(hint);
    }
    let message = "this is not a workflow in any of the four formats";
    let hint = "AgentCore has `name`, `timeout` and a mapping `steps`; AIP-15 is Markdown whose front matter has `id` \
                and a list `steps`; IOA has `apiVersion` and `kind: Workflow`; SWDL has `workflow` and `stages`";
    root.diagnose(Code::UnknownFormat, message).with_hint(hint)
}

fn diagnose_missing_front_matter(root: YamlNode<'_>, opening: Option<ExprSpan>) -> Diagnostic {
    let (span, message) = match opening {
        Some(opening) => (opening, NEVER_CLOSED),
        None => (root.first_line_span(), "an AIP-15 workflow is the front matter of a Markdown file"),
    };
    Diagnostic::new(Code::BadFrontMatter, root.source(), span, message).with_hint(RULES)
}

/// Returns the JSON Schema of a format (of the front matter for AIP-15): draft 2020-12, as text.
pub fn dialect_schema(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::AgentCore => include_str!("../../schemas/agentcore.json"),
        Dialect::Aip15 => include_str!("../../schemas/aip15.json"),
        Dialect::Ioa => include_str!("../../schemas/ioa.json"),
        Dialect::Swdl => include_str!("../../schemas/swdl.json"),
    }
}
