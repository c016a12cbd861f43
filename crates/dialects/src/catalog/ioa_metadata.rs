//! `metadata` of an IOA resource: the name by which it is used, and its descriptive fields.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    diagnostics::{Code, DiagnosticSink},
    fields::{FieldReader, FieldTable, FieldValue},
    source::yaml::YamlField,
};

#[derive(Debug, Default)]
pub(crate) struct IoaMetadata<'a> {
    pub name: Option<&'a str>,
    pub version: Option<&'a str>,
    /// The owner, labels, annotations and times, as they are written.
    pub kept: BTreeMap<String, Value>,
}

const METADATA_FIELDS: FieldTable =
    FieldTable::open(&["name", "version", "owner", "labels", "annotations", "createdAt", "updatedAt"]);

impl<'a> IoaMetadata<'a> {
    pub(crate) fn read(field: YamlField<'a>, sink: &mut DiagnosticSink) -> Option<IoaMetadata<'a>> {
        let mut fields = FieldReader::from_field(field, "`metadata`", METADATA_FIELDS, sink)?;
        let name = fields.required("name", sink).and_then(|given| read_name(given, sink));
        let version = read_text(fields.optional("version"), sink);
        let mut kept = BTreeMap::new();
        let mut keep = |given: FieldValue<'_>| kept.insert(given.name.to_owned(), given.node.to_json());
        if let Some(owner) = fields.optional("owner") {
            read_owner(owner, sink);
            keep(owner);
        }
        for name in ["labels", "annotations"] {
            if let Some(marks) = fields.optional(name) {
                read_labels(marks, sink);
                keep(marks);
            }
        }
        for name in ["createdAt", "updatedAt"] {
            if let Some(time) = fields.optional(name) {
                time.read_non_empty_text(sink);
                keep(time);
            }
        }
        fields.finish(sink);
        Some(IoaMetadata { name, version, kept })
    }
}

/// Reads a name: a lower case letter, then lower case letters, digits and dashes.
fn read_name<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let name = given.read_text(sink)?.value;
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Some(name);
    }
    let message = format!("`{name}` cannot be the name of a resource");
    let hint = "use lower case letters, digits and dashes, starting with a letter";
    sink.push(given.diagnose(Code::BadName, message).with_hint(hint));
    None
}

const OWNER_FIELDS: FieldTable = FieldTable::open(&["name", "role"]);

/// Reads an owner: a name, or a mapping with a name and a role.
fn read_owner(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    if given.node.raw_text().is_some() {
        given.read_non_empty_text(sink);
    } else if given.node.items().is_some() {
        sink.push(given.diagnose_type("a name, or a mapping with `name` and `role`"));
    } else if let Some(mut fields) = FieldReader::from_node(given.node, "an owner", OWNER_FIELDS, sink) {
        fields.required("name", sink).map(|given| given.read_non_empty_text(sink));
        read_text(fields.optional("role"), sink);
        fields.finish(sink);
    }
}

/// Checks labels and annotations: names with one value each. They are only kept, so numbers are accepted, too.
fn read_labels(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(marks) = given.node.fields() else {
        sink.push(given.diagnose_type("a mapping of names to values"));
        return;
    };
    for mark in marks.filter(|mark| mark.value.scalar().is_none()) {
        sink.push(FieldValue::new(mark.key, mark.value).diagnose_type("one value"));
    }
}

fn read_text<'a>(given: Option<FieldValue<'a>>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    given.and_then(|given| given.read_text(sink)).map(|text| text.value)
}
