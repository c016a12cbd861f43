//! An ACTION.md: an operation, independent of the tool that does it.
//!
//! Owns the fields of AIP-39, and the limits that an action sets for the tools that implement it.

use std::sync::Arc;

use skein_core::builder::{ApprovalClass, RiskLevel};

use super::{
    definition_fields::{self, DESCRIPTION_CHARS},
    tool::{approval_strictness, read_mutates, read_texts},
};
use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile, shorten_text},
    fields::{FieldReader, FieldTable, FieldValue},
    source::parse_front_matter,
};

/// An action as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Aip15Action {
    pub id: String,
    pub version: String,
    /// The least that every tool that implements it changes.
    pub mutates: Vec<String>,
    pub approval: ApprovalClass,
    pub risk_level: Option<RiskLevel>,
}

const ACTION_FIELDS: FieldTable = FieldTable::closed(&[
    "schema", "id", "description", "version", "name", "category", "verb", "target_kind", "mutates", "approval",
    "risk_level", "fires_events", "tags",
])
.with_unread(&["requires", "implementations", "examples", "metadata"]);

/// Reads an ACTION.md.
pub fn read_action(source: Arc<SourceFile>) -> Result<Aip15Action, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).and_then(|tree| {
        let fields = FieldReader::from_node(tree.root(), "an action", ACTION_FIELDS, &mut sink)?;
        Aip15Action::read(fields, &mut sink)
    });
    match read {
        Some(action) if !sink.has_errors() => Ok(action),
        _ => Err(sink.into_diagnostics()),
    }
}

impl Aip15Action {
    fn read(mut fields: FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<Aip15Action> {
        if let Some(given) = fields.required("schema", sink) {
            given.read_one_of(&[("action/v1", ())], sink);
        }
        let id = fields.required("id", sink).and_then(|given| read_action_id(given, sink));
        let description = fields.required("description", sink);
        description.and_then(|given| definition_fields::read_short_text(given, DESCRIPTION_CHARS, sink));
        let version = fields.optional("version").and_then(|given| definition_fields::read_version(given, sink));
        for name in ["name", "category", "verb", "target_kind"] {
            fields.optional(name).and_then(|given| given.read_non_empty_text(sink));
        }
        let changes = fields.optional("mutates").map(|given| read_mutates(given, sink)).unwrap_or_default();
        let approval = fields.optional("approval").and_then(|given| definition_fields::read_approval(given, sink));
        let risk_level =
            fields.optional("risk_level").and_then(|given| definition_fields::read_risk_level(given, sink));
        for name in ["fires_events", "tags"] {
            fields.optional(name).map(|given| read_texts(given, sink));
        }
        fields.finish(sink);
        Some(Aip15Action {
            id: id?.to_owned(),
            version: version.unwrap_or("1.0.0").to_owned(),
            mutates: changes,
            approval: approval.unwrap_or(ApprovalClass::Auto),
            risk_level,
        })
    }

    /// Refuses a tool that declares itself less strict or less risky than the action that it implements.
    pub(crate) fn check_tool(&self, tool: &super::Aip15Tool, fields: &FieldReader<'_>, sink: &mut DiagnosticSink) {
        let mut wider = |name: &'static str, message: String| {
            let field = fields.field(name).or_else(|| fields.field("implements"));
            let span = field.map_or(fields.head_span(), |field| field.key_span);
            let mut diagnostic = Diagnostic::new(Code::Wider, fields.node().source(), span, message);
            diagnostic.severity = skein_core::plan::Severity::Error;
            sink.push(diagnostic.with_hint(format!("it implements the action `{}` and can only be stricter", self.id)));
        };
        if approval_strictness(&tool.approval) < approval_strictness(&self.approval) {
            wider("approval", "this tool requires approval less often than its action".to_owned());
        }
        let risk = |level: Option<RiskLevel>| level.map_or(0, |level| level as u8);
        if risk(tool.risk_level) < risk(self.risk_level) {
            wider("risk_level", "this tool claims less risk than its action".to_owned());
        }
        if let Some(missing) = self.mutates.iter().find(|what| !tool.mutates.contains(what)) {
            wider(
                "mutates",
                format!("this tool does not declare that it changes `{}`, but its action does", shorten_text(missing)),
            );
        }
    }
}

/// Reads the id of an action: the target and the verb, with one colon between them.
fn read_action_id<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
    let name = |part: &str| !part.is_empty() && part.chars().all(inner);
    if text.split_once(':').is_some_and(|(target, verb)| name(target) && name(verb)) {
        return Some(text);
    }
    let message = format!("`{}` cannot be the id of an action", shorten_text(text));
    let diagnostic = given.diagnose(Code::BadName, message);
    sink.push(diagnostic.with_hint("write the target, a colon and the verb, such as `mail:send`"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &str) -> Result<Aip15Action, Vec<String>> {
        let text = format!("---\nschema: action/v1\ndescription: Sends a mail.\n{more}\n---\n");
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        read_action(SourceFile::new("ACTION.md", text)).map_err(said)
    }

    #[test]
    fn an_action_says_what_every_tool_for_it_must() {
        let action = read("id: mail:send\nmutates: [external:mail]\napproval: on-mutate\nrisk_level: 2").unwrap();
        assert_eq!((action.id.as_str(), action.version.as_str()), ("mail:send", "1.0.0"));
        assert_eq!(action.approval, ApprovalClass::OnMutate);
        assert_eq!(action.risk_level, Some(RiskLevel::ExternalEffects));
    }

    #[test]
    fn what_is_wrong_with_an_action_is_said() {
        for (more, says) in [
            ("id: mail", "cannot be the id of an action"),
            ("id: mail:send:now", "cannot be the id of an action"),
            ("id: mail:send\nmutate: []", "an action has no field `mutate`"),
            ("id: mail:send\nmutates: [mail]", "`mutates` is what is changed"),
        ] {
            let said = read(more).unwrap_err();
            assert!(said.iter().any(|one| one.contains(says)), "{more}: {said:?}");
        }
    }
}
