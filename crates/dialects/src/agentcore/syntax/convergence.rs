//! `convergence`: the reaction to a series of checks that find the same things missing.

use super::{read_count, read_path, read_text};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue, Spanned},
    workspace_path::{WorkspacePathError, check_workspace_path},
    yaml::YamlNode,
};

#[derive(Debug)]
pub(in crate::agentcore) struct ConvergenceDef<'a> {
    pub node: YamlNode<'a>,
    pub enabled: bool,
    pub stall_threshold: Option<u32>,
    pub max_stage: Option<u32>,
    pub fail_on_max_stage: Option<bool>,
    pub stages: Vec<(Spanned<u32>, &'a str)>,
    pub allowed_paths: Vec<String>,
    pub ignored_paths: Vec<String>,
    pub diff_base_ref: Option<&'a str>,
    pub diff_base_ref_file: Option<&'a str>,
    pub max_changed_files: Option<u32>,
}

impl<'a> ConvergenceDef<'a> {
    pub(super) fn read(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<ConvergenceDef<'a>> {
        let mut fields = FieldReader::from_node(given.node, "`convergence`", sink)?;
        let flag = |given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink| {
            given.and_then(|given| given.read_bool(sink)).map(|flag| flag.value)
        };
        let definition = ConvergenceDef {
            node: given.node,
            // An invalid value has already been reported; its author wanted the guard to be enabled.
            enabled: fields.optional("enabled").is_some_and(|given| flag(Some(given), sink).unwrap_or(true)),
            stall_threshold: read_count(fields.optional("stall_threshold"), 1, sink),
            max_stage: read_count(fields.optional("max_stage"), 2, sink),
            fail_on_max_stage: flag(fields.optional("fail_on_max_stage"), sink),
            stages: read_stages(fields.optional("stages"), sink),
            allowed_paths: read_patterns(fields.optional("allowed_paths"), false, sink),
            ignored_paths: read_patterns(fields.optional("ignored_paths"), true, sink),
            diff_base_ref: fields.optional("diff_base_ref").and_then(|given| read_git_ref(given, sink)),
            diff_base_ref_file: read_path(fields.optional("diff_base_ref_file"), sink),
            max_changed_files: read_count(fields.optional("max_changed_files"), 0, sink),
        };
        fields.finish(sink);
        Some(definition)
    }
}

fn read_stages<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Vec<(Spanned<u32>, &'a str)> {
    let mut stages: Vec<(Spanned<u32>, &'a str)> = Vec::new();
    let mut seen = std::collections::BTreeMap::new();
    for item in given.and_then(|given| given.read_list(sink)).unwrap_or_default() {
        let Some(mut fields) = FieldReader::from_node(item.node, "a stage", sink) else { continue };
        let stage =
            fields.required("stage", sink).and_then(|given| given.read_whole_number(2..=u32::MAX, sink));
        let append = read_text(fields.optional("append_instructions"), sink);
        fields.finish(sink);
        let Some(stage) = stage else { continue };
        if let Some(first) = seen.insert(stage.value, stage.span) {
            let message = format!("stage {} is defined twice", stage.value);
            let diagnostic = Diagnostic::new(Code::DuplicateName, &sink.source, stage.span, message);
            sink.push(diagnostic.with_related(first, "first here"));
        }
        stages.push((stage, append.unwrap_or_default()));
    }
    stages
}

/// Reads patterns of paths in the workspace. With `control`, they may name files that no worker may change.
fn read_patterns(given: Option<FieldValue<'_>>, control: bool, sink: &mut DiagnosticSink) -> Vec<String> {
    let items = given.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let mut patterns = Vec::new();
    for item in items {
        let Some(text) = item.read_non_empty_text(sink) else { continue };
        match check_workspace_path(text.value) {
            Err(WorkspacePathError::ControlFile(_)) if control => {}
            Ok(()) => {}
            Err(_) => drop(crate::extension_block::check_path(item, text.value, sink)),
        }
        patterns.push(text.value.to_owned());
    }
    patterns
}

/// Reads the Git revision to compare with: a commit, a branch or a tag. Refuses a text that Git would parse as an
/// option, a range or a reflog entry.
fn read_git_ref<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let refused = |c: char| c.is_whitespace() || c.is_control() || ";|&$<>\"'`\\*?[]{}()!:,".contains(c);
    let why = if text.starts_with('-') {
        "Git would parse it as an option".to_owned()
    } else if text.contains("..") {
        "it is a range, not one commit".to_owned()
    } else if let Some(c) = text.chars().find(|c| refused(*c)) {
        format!("it contains {c:?}")
    } else {
        return Some(text);
    };
    let message = format!("`diff_base_ref` cannot be `{}`: {why}", text.escape_default());
    let hint = "name a commit, a branch or a tag, such as `main` or `HEAD~1`";
    sink.push(
        Diagnostic::new(Code::BadName, given.node.source(), given.node.first_line_span(), message)
            .with_hint(hint),
    );
    None
}
