//! The files that a run is given and gives: `inputsFiles` and `outputsFiles`, by AIP-16.

use std::collections::BTreeMap;

use serde_json::json;
use skein_core::{
    closest::closest,
    expr::Span,
    ids::ArtifactName,
    ir::{FileIn, FileOut, Schema},
};

use super::defaults::PATH_TOKENS;
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    names::refuse_twins,
    read::{Fields, Given, Spanned},
    xskein::check_path,
};

/// The input by which a run is told where its files are.
const ROOT: &str = "_workflowFsRoot";

/// The host gives it before inputs are checked, so inputs that allow no others allow it.
pub(super) fn declare_root(inputs: &mut Schema) {
    let Some(mut document) = inputs.document().cloned() else { return };
    if document.get("additionalProperties") != Some(&false.into()) || inputs.property(ROOT).is_some() {
        return;
    }
    document["properties"][ROOT] = json!({"type": "string"});
    *inputs = Schema::new(document);
}

/// One file of either sort.
struct File<'a> {
    path: Spanned<&'a str>,
    writable: bool,
    content_type: Option<&'a str>,
}

pub(super) fn inputs(given: Given<'_>, sink: &mut Sink) -> BTreeMap<String, FileIn> {
    let files = files(given, sink).into_iter().map(|(name, file)| {
        let content_type = file.content_type.map(str::to_owned);
        (name, FileIn { path: file.path.value.to_owned(), writable: file.writable, content_type })
    });
    files.collect()
}

pub(super) fn outputs(given: Given<'_>, sink: &mut Sink) -> BTreeMap<String, FileOut> {
    let files = files(given, sink);
    refuse_same_place(&files, sink);
    let files = files.into_iter().map(|(name, file)| {
        let content_type = file.content_type.map(str::to_owned);
        (name, FileOut { path: file.path.value.to_owned(), content_type, schema: Schema::default() })
    });
    files.collect()
}

/// A key is the name of the file in the run's own folder, so it must be safe there.
fn files<'a>(given: Given<'a>, sink: &mut Sink) -> Vec<(String, File<'a>)> {
    let Some(entries) = given.node.fields() else {
        sink.push(given.wrong("a mapping of files by name"));
        return Vec::new();
    };
    refuse_twins(entries.clone().map(|field| (field.key, field.key_span)), "the file", sink);
    let mut files = Vec::new();
    for field in entries {
        if let Err(why) = ArtifactName::new(field.key) {
            let message = format!("`{}` cannot be a name: {why}", field.key);
            sink.push(Diagnostic::new(Code::BadName, field.value.source(), field.key_span, message));
        }
        let Some(mut fields) = Fields::under(field, "a file", sink) else { continue };
        let path = fields.required("path", sink).and_then(|given| path(given, sink));
        let mode =
            fields.optional("mode").and_then(|given| given.one_of(&[("ro", false), ("rw", true)], sink));
        let content_type = fields.optional("contentType").and_then(|given| given.words(sink));
        fields.finish(sink);
        let writable = mode.is_some_and(|mode| mode.value);
        let content_type = content_type.map(|text| text.value);
        files.extend(path.map(|path| (field.key.to_owned(), File { path, writable, content_type })));
    }
    files
}

/// A path of the workspace, in which some words between `<` and `>` are filled in.
fn path<'a>(given: Given<'a>, sink: &mut Sink) -> Option<Spanned<&'a str>> {
    let path = given.text(sink)?;
    check_path(given, path.value, sink);
    let mut from = 0;
    while let Some(start) = path.value[from..].find('<').map(|at| from + at + 1) {
        let Some(length) = path.value[start..].find('>') else { break };
        let token = &path.value[start..start + length];
        if !PATH_TOKENS.contains(&token) {
            let message = format!("nothing is known to put in the place of `<{token}>`");
            let span = given.node.within(Span::new(start - 1, start + length + 1));
            let diagnostic = Diagnostic::new(Code::UnknownWord, given.node.source(), span, message);
            sink.push(match closest(token, PATH_TOKENS.iter().copied()) {
                Some(near) => {
                    diagnostic.hint(format!("did you mean `<{near}>`?")).fix(span, format!("<{near}>"))
                }
                None => diagnostic.hint("it is one of `<runId>`, `<workflowId>`, `<isoDate>`"),
            });
        }
        from = start + length + 1;
    }
    Some(path)
}

/// Two files in one place would leave one.
fn refuse_same_place(files: &[(String, File<'_>)], sink: &mut Sink) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for (_, file) in files {
        let first = *seen.entry(file.path.value).or_insert(file.path.span);
        if first != file.path.span {
            let message = format!("two files go to `{}`", file.path.value);
            let source = sink.source.clone();
            let diagnostic = Diagnostic::new(Code::DuplicateName, &source, file.path.span, message);
            sink.push(diagnostic.label("again here").also(first, "first here"));
        }
    }
}
