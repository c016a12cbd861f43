//! IOA's governance of a domain: read and write access by role, and the approvers of exceptions.

use std::{collections::BTreeSet, sync::Arc};

use skein_core::{
    ir::rules::{EscalationPath, GovernancePolicy, GovernanceRole},
    time::Millis,
};

use crate::{
    catalog::IoaMetadata,
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    fields::{DurationUnits, FieldReader, FieldTable, FieldValue},
    source::parse_front_matter,
};

const RESOURCE_FIELDS: FieldTable =
    FieldTable::closed(&["apiVersion", "kind", "metadata", "spec"]).with_unread(&["status"]);

/// Reads a resource of kind Governance.
pub fn read_governance(source: Arc<SourceFile>) -> Result<GovernancePolicy, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).and_then(|tree| {
        let fields = FieldReader::from_node(tree.root(), "a Governance resource", RESOURCE_FIELDS, &mut sink)?;
        read_resource(fields, &mut sink)
    });
    match read {
        Some(governance) if !sink.has_errors() => Ok(governance),
        _ => Err(sink.into_diagnostics()),
    }
}

const SPEC_FIELDS: FieldTable =
    FieldTable::open(&["domain", "extends", "accessControl", "escalation", "humanOverride", "failureModes"])
        .with_unread(&["promptVersioning", "audit", "compliance"]);

fn read_resource(mut fields: FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<GovernancePolicy> {
    let versions = &[("ioa.dev/v0.1", ()), ("ioa.dev/v0.2", ())];
    fields.required("apiVersion", sink).and_then(|given| given.read_one_of(versions, sink));
    fields.required("kind", sink).and_then(|given| given.read_one_of(&[("Governance", ())], sink));
    fields.required("metadata", sink);
    let metadata = fields.field("metadata").and_then(|field| IoaMetadata::read(field, sink));
    fields.required("spec", sink);
    let spec = fields.field("spec").and_then(|field| FieldReader::from_field(field, "`spec`", SPEC_FIELDS, sink));
    fields.finish(sink);
    let name = metadata.and_then(|metadata| metadata.name);
    let governance = spec.and_then(|spec| read_spec(spec, sink));
    Some(GovernancePolicy { name: name?.to_owned(), ..governance? })
}

fn read_spec(mut fields: FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<GovernancePolicy> {
    let domain = fields.required("domain", sink).and_then(|given| given.read_non_empty_text(sink));
    let extends = fields.optional("extends").and_then(|given| given.read_non_empty_text(sink));
    let access = fields.optional("accessControl").and_then(|given| read_access(given, sink));
    let escalation = fields.optional("escalation").and_then(|given| read_escalation(given, sink));
    let over = fields.optional("humanOverride").and_then(|given| read_override(given, sink));
    for given in fields.optional("failureModes").and_then(|given| given.read_list(sink)).unwrap_or_default() {
        check_failure_mode(given, sink);
    }
    fields.finish(sink);
    let (roles, default_role) = access.unwrap_or_default();
    let (paths, first) = escalation.unwrap_or_default();
    let (overrides, response_time) = over.unwrap_or_default();
    Some(GovernancePolicy {
        name: String::new(),
        domain: domain?.value.to_owned(),
        extends: extends.map(|text| text.value.to_owned()),
        roles,
        default_role,
        paths,
        first,
        overrides,
        response_time,
    })
}

const ACCESS_CONTROL_FIELDS: FieldTable = FieldTable::open(&["roles", "defaultRole"]);

fn read_access(
    given: FieldValue<'_>,
    sink: &mut DiagnosticSink,
) -> Option<(Option<Vec<GovernanceRole>>, Option<String>)> {
    let fields = FieldReader::from_node(given.node, "`accessControl`", ACCESS_CONTROL_FIELDS, sink)?;
    let listed = fields.optional("roles").and_then(|given| given.read_list(sink));
    let default = fields.optional("defaultRole");
    fields.finish(sink);
    let roles =
        listed.map(|items| items.into_iter().filter_map(|item| read_role(item, sink)).collect::<Vec<GovernanceRole>>());
    let named = default.and_then(|given| given.read_non_empty_text(sink));
    if let (Some(given), Some(named), Some(roles)) = (default, &named, &roles)
        && !roles.iter().any(|role| role.name == named.value)
    {
        let message = format!("`defaultRole` is `{}`, which is none of the roles", named.value);
        let diagnostic = Diagnostic::new(Code::FieldsClash, given.node.source(), given.node.first_line_span(), message);
        let known: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
        let near = skein_core::suggest::did_you_mean(named.value, known.into_iter());
        sink.push(diagnostic.with_optional_hint(near));
    }
    Some((roles, named.map(|text| text.value.to_owned())))
}

const ROLE_FIELDS: FieldTable = FieldTable::open(&["name", "permissions"]);

fn read_role(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<GovernanceRole> {
    let mut fields = FieldReader::from_node(given.node, "a role", ROLE_FIELDS, sink)?;
    let name = fields.required("name", sink).and_then(|given| given.read_non_empty_text(sink));
    let may = fields.required("permissions", sink).and_then(|given| given.read_list(sink)).unwrap_or_default();
    fields.finish(sink);
    let may = may.into_iter().filter_map(|item| item.read_non_empty_text(sink)).map(|text| text.value.to_owned());
    Some(GovernanceRole { name: name?.value.to_owned(), permissions: may.collect() })
}

const ESCALATION_FIELDS: FieldTable = FieldTable::open(&["paths", "defaultPath"]);

fn read_escalation(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<(Vec<EscalationPath>, Option<u32>)> {
    let fields = FieldReader::from_node(given.node, "`escalation`", ESCALATION_FIELDS, sink)?;
    let items = fields.optional("paths").and_then(|given| given.read_list(sink)).unwrap_or_default();
    let default = fields.optional("defaultPath");
    fields.finish(sink);
    let mut seen = BTreeSet::new();
    let mut paths = Vec::new();
    for item in items {
        let Some(path) = read_escalation_path(item, sink) else { continue };
        if !seen.insert(path.level) {
            let message = format!("there are two paths of level {}", path.level);
            sink.push(Diagnostic::new(Code::DuplicateName, item.node.source(), item.node.first_line_span(), message));
        }
        paths.push(path);
    }
    let first = default.and_then(|given| {
        let text = given.read_non_empty_text(sink)?.value;
        let level = text.strip_prefix("level-").unwrap_or(text).parse().ok();
        let level = level.or_else(|| paths.iter().find(|path| path.role == text).map(|path| path.level));
        let known = level.filter(|level| paths.iter().any(|path| path.level == *level));
        if known.is_none() {
            let message = format!("`defaultPath` is `{text}`, which is none of the paths");
            let diagnostic =
                Diagnostic::new(Code::FieldsClash, given.node.source(), given.node.first_line_span(), message);
            sink.push(diagnostic.with_hint("write its level, such as `level-1`"));
        }
        known
    });
    Some((paths, first))
}

const ESCALATION_PATH_FIELDS: FieldTable = FieldTable::open(&["level", "role", "channel", "timeout"]);

fn read_escalation_path(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<EscalationPath> {
    let mut fields = FieldReader::from_node(given.node, "an escalation path", ESCALATION_PATH_FIELDS, sink)?;
    let level = fields.required("level", sink).and_then(|given| given.read_whole_number(0..=100, sink));
    let role = fields.required("role", sink).and_then(|given| given.read_non_empty_text(sink));
    fields.optional("channel").and_then(|given| given.read_non_empty_text(sink));
    let timeout = fields.optional("timeout").and_then(|given| given.read_duration(DurationUnits::All, sink));
    fields.finish(sink);
    Some(EscalationPath {
        level: level?.value,
        role: role?.value.to_owned(),
        timeout: timeout.map(|length| length.value),
    })
}

const OVERRIDE_FIELDS: FieldTable = FieldTable::open(&["enabled", "channels", "maxResponseTime"]);

fn read_override(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<(Option<bool>, Option<Millis>)> {
    let fields = FieldReader::from_node(given.node, "`humanOverride`", OVERRIDE_FIELDS, sink)?;
    let enabled = fields.optional("enabled").and_then(|given| given.read_bool(sink));
    for item in fields.optional("channels").and_then(|given| given.read_list(sink)).unwrap_or_default() {
        item.read_non_empty_text(sink);
    }
    let time = fields.optional("maxResponseTime").and_then(|given| given.read_duration(DurationUnits::All, sink));
    fields.finish(sink);
    Some((enabled.map(|flag| flag.value), time.map(|length| length.value)))
}

const FAILURE_MODE_FIELDS: FieldTable = FieldTable::open(&["scenario", "response", "escalation"]);

fn check_failure_mode(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(mut fields) = FieldReader::from_node(given.node, "a failure mode", FAILURE_MODE_FIELDS, sink) else {
        return;
    };
    for name in ["scenario", "response", "escalation"] {
        fields.required(name, sink).and_then(|given| given.read_non_empty_text(sink));
    }
    fields.finish(sink);
}
