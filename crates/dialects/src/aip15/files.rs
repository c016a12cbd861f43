//! The input and output files of a run: `inputsFiles` and `outputsFiles`, by AIP-16.

use std::collections::BTreeMap;

use serde_json::json;
use skein_core::{
    expr::ExprSpan,
    ids::ArtifactName,
    ir::{InputFileSpec, OutputFileSpec, Schema},
    suggest::find_closest_name,
};

use super::defaults::PATH_TOKENS;
use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{FieldReader, FieldValue, Spanned, refuse_twins, workspace_path::check_path},
};

/// The input that holds the folder of the run's files.
const ROOT: &str = "_workflowFsRoot";

/// Adds the input to a schema that allows no additional properties: the host sets it before inputs are checked.
pub(super) fn declare_root(inputs: &mut Schema) {
    let Some(mut document) = inputs.document().cloned() else { return };
    if document.get("additionalProperties") != Some(&false.into()) || inputs.property(ROOT).is_some() {
        return;
    }
    document["properties"][ROOT] = json!({"type": "string"});
    *inputs = Schema::new(document);
}

/// One input or output file.
struct Aip15File<'a> {
    path: Spanned<&'a str>,
    writable: bool,
    content_type: Option<&'a str>,
}

pub(super) fn read_input_files(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> BTreeMap<String, InputFileSpec> {
    let files = read_files(given, sink).into_iter().map(|(name, file)| {
        let content_type = file.content_type.map(str::to_owned);
        (name, InputFileSpec { path: file.path.value.to_owned(), writable: file.writable, content_type })
    });
    files.collect()
}

pub(super) fn read_output_files(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> BTreeMap<String, OutputFileSpec> {
    let files = read_files(given, sink);
    refuse_same_path(&files, sink);
    let files = files.into_iter().map(|(name, file)| {
        let content_type = file.content_type.map(str::to_owned);
        (name, OutputFileSpec { path: file.path.value.to_owned(), content_type, schema: Schema::default() })
    });
    files.collect()
}

const FILE_FIELDS: &[&str] = &["path", "mode", "contentType"];

/// Reads files by key. A key becomes the name of the file in the run's folder, so it must be a safe name.
fn read_files<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Vec<(String, Aip15File<'a>)> {
    let Some(entries) = given.node.fields() else {
        sink.push(given.diagnose_type("a mapping of files by name"));
        return Vec::new();
    };
    refuse_twins(entries.clone().map(|field| (field.key, field.key_span)), "the file", sink);
    let mut files = Vec::new();
    for field in entries {
        if let Err(why) = ArtifactName::new(field.key) {
            let message = format!("`{}` cannot be a name: {why}", field.key);
            sink.push(Diagnostic::new(Code::BadName, field.value.source(), field.key_span, message));
        }
        let Some(mut fields) = FieldReader::from_field(field, "a file", FILE_FIELDS, sink) else { continue };
        let path = fields.required("path", sink).and_then(|given| read_file_path(given, sink));
        let mode = fields.optional("mode").and_then(|given| given.read_one_of(&[("ro", false), ("rw", true)], sink));
        let content_type = fields.optional("contentType").and_then(|given| given.read_non_empty_text(sink));
        fields.finish(sink);
        let writable = mode.is_some_and(|mode| mode.value);
        let content_type = content_type.map(|text| text.value);
        files.extend(path.map(|path| (field.key.to_owned(), Aip15File { path, writable, content_type })));
    }
    files
}

/// Reads a path in the workspace. The host fills in some words between `<` and `>`.
fn read_file_path<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<Spanned<&'a str>> {
    let path = given.read_text(sink)?;
    check_path(given, path.value, sink);
    let mut from = 0;
    while let Some(start) = path.value[from..].find('<').map(|at| from + at + 1) {
        let Some(length) = path.value[start..].find('>') else { break };
        let token = &path.value[start..start + length];
        if !PATH_TOKENS.contains(&token) {
            let message = format!("unknown placeholder `<{token}>`");
            let span = given.node.locate_part(ExprSpan::new(start - 1, start + length + 1));
            let diagnostic = Diagnostic::new(Code::UnknownWord, given.node.source(), span, message);
            sink.push(match find_closest_name(token, PATH_TOKENS.iter().copied()) {
                Some(near) => {
                    diagnostic.with_hint(format!("did you mean `<{near}>`?")).with_fix(span, format!("<{near}>"))
                }
                None => diagnostic.with_hint("use one of `<runId>`, `<workflowId>`, `<isoDate>`"),
            });
        }
        from = start + length + 1;
    }
    Some(path)
}

/// Refuses two files with the same path: one would overwrite the other.
fn refuse_same_path(files: &[(String, Aip15File<'_>)], sink: &mut DiagnosticSink) {
    let mut seen: BTreeMap<&str, ExprSpan> = BTreeMap::new();
    for (_, file) in files {
        let first = *seen.entry(file.path.value).or_insert(file.path.span);
        if first != file.path.span {
            let message = format!("two files have the path `{}`", file.path.value);
            let source = sink.source.clone();
            let diagnostic = Diagnostic::new(Code::DuplicateName, &source, file.path.span, message);
            sink.push(diagnostic.with_label("again here").with_related(first, "first here"));
        }
    }
}
