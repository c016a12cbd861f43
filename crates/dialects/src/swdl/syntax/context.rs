//! The context of agents besides their instructions: context modules and memories.

use skein_core::suggest::find_closest_name;

use super::{is_plain_name, read_plain_text};
use crate::{
    diagnostics::{Code, DiagnosticSink},
    fields::{FieldNames, FieldReader, FieldValue},
    swdl::defaults::{CONTEXT_MODULE, MEMORY_CATEGORIES},
};

/// The `context` of the workflow or of a stage.
#[derive(Debug, Default)]
pub(in crate::swdl) struct StageContext<'a> {
    /// References such as `ctx:rules`, and their places.
    pub modules: Vec<(FieldValue<'a>, &'a str)>,
    pub memory: Option<MemoryDef<'a>>,
}

/// A `memory` block. A stage's fields take precedence over the workflow's.
#[derive(Debug, Clone, Default)]
pub(in crate::swdl) struct MemoryDef<'a> {
    pub project_scope: Option<&'a str>,
    pub min_confidence: Option<f64>,
    pub categories: Option<Vec<&'a str>>,
    pub max_tokens: Option<u32>,
}

/// The fields of the workflow's block, and of a stage's block. The first is the list of modules.
pub(super) const WORKFLOW_CONTEXT_FIELDS: &[&str] = &["global_modules", "memory"];
pub(super) const STAGE_CONTEXT_FIELDS: &[&str] = &["modules", "memory"];

impl<'a> StageContext<'a> {
    /// Reads a block by one of the two tables.
    pub(crate) fn read(given: FieldValue<'a>, table: FieldNames, sink: &mut DiagnosticSink) -> StageContext<'a> {
        let Some(fields) = FieldReader::from_node(given.node, "`context`", table, sink) else {
            return StageContext::default();
        };
        let items = fields.optional(table[0]).and_then(|given| given.read_list(sink)).unwrap_or_default();
        let context = StageContext {
            modules: items.into_iter().filter_map(|item| Some((item, read_module(item, sink)?))).collect(),
            memory: fields.optional("memory").and_then(|given| MemoryDef::read(given, sink)),
        };
        fields.finish(sink);
        context
    }
}

/// Reads the reference of a module, such as `ctx:rules`.
fn read_module<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = read_plain_text(Some(given), sink)?;
    let name = text.strip_prefix(CONTEXT_MODULE).and_then(|rest| rest.strip_prefix(':'));
    if name.is_some_and(is_plain_name) {
        return Some(text);
    }
    let message = format!("`{text}` is not a context module");
    let diagnostic = given.diagnose(Code::BadName, message);
    sink.push(match text.contains(':') {
        true => diagnostic.with_hint(format!("modules are written `{CONTEXT_MODULE}:NAME`")),
        false => diagnostic
            .with_hint(format!("write `{CONTEXT_MODULE}:{text}`"))
            .with_fix(given.span(), format!("\"{CONTEXT_MODULE}:{text}\"")),
    });
    None
}

const MEMORY_FIELDS: &[&str] = &["max_tokens", "project_scope", "min_confidence", "categories"];

impl<'a> MemoryDef<'a> {
    fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<MemoryDef<'a>> {
        let fields = FieldReader::from_node(given.node, "`memory`", MEMORY_FIELDS, sink)?;
        let tokens = fields.optional("max_tokens");
        let memory = MemoryDef {
            project_scope: read_plain_text(fields.optional("project_scope"), sink),
            min_confidence: fields.optional("min_confidence").and_then(|given| read_confidence(given, sink)),
            categories: fields.optional("categories").map(|given| read_categories(given, sink)),
            max_tokens: tokens.and_then(|given| given.read_whole_number(1..=u32::MAX, sink)).map(|tokens| tokens.value),
        };
        fields.finish(sink);
        Some(memory)
    }
}

fn read_confidence(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<f64> {
    let value = given.read_number(sink)?.value;
    if !(0.0..=1.0).contains(&value) {
        let message = format!("`{}` is from 0 to 1, not {value}", given.name);
        sink.push(given.diagnose(Code::BadNumber, message));
        return None;
    }
    Some(value)
}

/// Reads categories of memories. An unknown one only has no effect.
fn read_categories<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<&'a str> {
    let mut categories = Vec::new();
    for item in given.read_list(sink).unwrap_or_default() {
        let Some(name) = read_plain_text(Some(item), sink) else { continue };
        if !MEMORY_CATEGORIES.contains(&name) {
            let message = format!("unknown memory category `{name}`: no memory matches it");
            let diagnostic = item.diagnose(Code::IgnoredField, message);
            sink.push(match find_closest_name(name, MEMORY_CATEGORIES.iter().copied()) {
                Some(near) => diagnostic.with_suggestion(item.span(), near),
                None => diagnostic.with_hint(format!("categories are {}", MEMORY_CATEGORIES.join(", "))),
            });
        }
        categories.push(name);
    }
    categories
}
