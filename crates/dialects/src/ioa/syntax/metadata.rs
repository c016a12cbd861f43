//! `metadata`: the name by which a workflow is run, and what people say about it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::text;
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given},
    yaml::Field,
};

#[derive(Debug, Default)]
pub(crate) struct Metadata<'a> {
    pub name: Option<&'a str>,
    pub version: Option<&'a str>,
    /// The owner, labels, annotations and times, as they are written.
    pub kept: BTreeMap<String, Value>,
}

impl<'a> Metadata<'a> {
    pub fn read(field: Field<'a>, sink: &mut Sink) -> Option<Metadata<'a>> {
        let mut fields = Fields::under(field, "`metadata`", sink)?;
        let name = fields.required("name", sink).and_then(|given| read_name(given, sink));
        let version = text(fields.optional("version"), sink);
        let mut kept = BTreeMap::new();
        let mut keep = |given: Given<'_>| kept.insert(given.name.to_owned(), given.node.json());
        if let Some(owner) = fields.optional("owner") {
            read_owner(owner, sink);
            keep(owner);
        }
        for name in ["labels", "annotations"] {
            if let Some(marks) = fields.optional(name) {
                read_marks(marks, sink);
                keep(marks);
            }
        }
        for name in ["createdAt", "updatedAt"] {
            if let Some(time) = fields.optional(name) {
                time.words(sink);
                keep(time);
            }
        }
        fields.finish_open(sink);
        Some(Metadata { name, version, kept })
    }
}

/// A lower-case letter, then lower-case letters, digits and dashes.
fn read_name<'a>(given: Given<'a>, sink: &mut Sink) -> Option<&'a str> {
    let name = given.text(sink)?.value;
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Some(name);
    }
    let message = format!("`{name}` cannot be the name of a resource");
    let hint = "a name is a small letter, then small letters, digits and dashes";
    sink.push(Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message).hint(hint));
    None
}

/// A name, or a name and a role.
fn read_owner(given: Given<'_>, sink: &mut Sink) {
    if given.node.raw().is_some() {
        given.words(sink);
    } else if given.node.items().is_some() {
        sink.push(given.wrong("a name, or a mapping with `name` and `role`"));
    } else if let Some(mut fields) = Fields::of(given.node, "an owner", sink) {
        fields.required("name", sink).map(|given| given.words(sink));
        text(fields.optional("role"), sink);
        fields.finish_open(sink);
    }
}

/// Labels and annotations: names with one value each. They are only kept, so a number is as good as a text.
fn read_marks(given: Given<'_>, sink: &mut Sink) {
    let Some(marks) = given.node.fields() else {
        sink.push(given.wrong("a mapping of names to values"));
        return;
    };
    for mark in marks.filter(|mark| mark.value.scalar().is_none()) {
        sink.push(Given::new(mark.key, mark.value).wrong("one value"));
    }
}
