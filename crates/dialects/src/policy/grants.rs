//! AIP-38: grants to principals. Everything else is denied, unless the policy's default is `allow`.

use skein_core::{
    ir::Approver,
    ir::rules::{GrantAction, GrantCondition, GrantPolicy, GrantPrincipal, PolicyGrant, PolicyRequirement},
    limits,
    time::{Millis, Timestamp},
};

use super::{
    POLICY_FIELDS,
    rule::{check_quorum, read_slug},
    timestamp::parse_timestamp,
};
use crate::{
    catalog::definition_fields::read_version,
    diagnostics::{Code, Diagnostic, DiagnosticSink, shorten_text},
    fields::{FieldNames, FieldReader, FieldTable, FieldValue},
};

const DEFAULTS: &[(&str, bool)] = &[("deny", false), ("allow", true)];

pub(super) const GRANT_POLICY_FIELDS: &[&str] =
    &["id", "version", "default", "grants", "requirements", "limits", "defaults"];

/// Reads a policy of grants, with the parts of its file that are not supported.
pub(super) fn read_grant_policy(
    mut fields: FieldReader<'_>,
    sink: &mut DiagnosticSink,
) -> Option<(GrantPolicy, Vec<String>)> {
    let table = POLICY_FIELDS.for_kind(&[GRANT_POLICY_FIELDS]).with_unread(&["name", "description", "metadata"]);
    fields.narrow("a policy", table, sink);
    let id = fields.required("id", sink).and_then(|given| read_policy_id(given, sink));
    fields.optional("version").and_then(|given| read_version(given, sink));
    let allows = fields.optional("default").and_then(|given| given.read_one_of(DEFAULTS, sink));
    let grants = fields.optional("grants").and_then(|given| given.read_list(sink)).unwrap_or_default();
    let grants: Vec<PolicyGrant> = grants.into_iter().filter_map(|given| read_grant(given, sink)).collect();
    let required = fields.optional("requirements").and_then(|given| given.read_list(sink)).unwrap_or_default();
    let requirements: Vec<PolicyRequirement> =
        required.into_iter().filter_map(|given| read_requirement(given, sink)).collect();
    let limits = fields.optional("limits").and_then(|given| given.read_list(sink)).unwrap_or_default();
    let mut unsupported: Vec<String> = limits.into_iter().filter_map(|given| read_limit(given, sink)).collect();
    unsupported.extend(fields.optional("defaults").map(|_| "`defaults` of other blocks".to_owned()));
    fields.finish(sink);
    unsupported.extend(grants.iter().flat_map(unsupported_grant_parts));
    unsupported.extend(requirements.iter().filter_map(|one| unsupported_condition(&one.condition, "the requirement")));
    unsupported.sort();
    unsupported.dedup();
    let allows = allows.is_some_and(|word| word.value);
    Some((GrantPolicy { id: id?.to_owned(), allows, grants, requirements }, unsupported))
}

const GRANT_FIELDS: FieldTable =
    FieldTable::closed(&["principal", "actions", "conditions", "ttl_seconds", "granted_at", "revoked"])
        .with_unread(&["granted_by"]);

fn read_grant(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<PolicyGrant> {
    let mut fields = FieldReader::from_node(given.node, "a grant", GRANT_FIELDS, sink)?;
    let principal = fields.required("principal", sink).and_then(|given| read_principal(given, sink));
    let actions = fields.required("actions", sink).and_then(|given| read_actions(given, sink));
    let conditions = fields.optional("conditions").and_then(|given| given.read_list(sink)).unwrap_or_default();
    let conditions = conditions.into_iter().filter_map(|given| read_condition(given, false, sink)).collect();
    let ttl = fields.optional("ttl_seconds");
    let length = ttl.and_then(|given| given.read_whole_number(1..=u32::MAX, sink));
    let from = fields.optional("granted_at").and_then(|given| read_granted_at(given, sink));
    let revoked = fields.optional("revoked").and_then(|given| given.read_bool(sink));
    if let (Some(ttl), None) = (ttl, fields.field("granted_at")) {
        let message = "a grant with `ttl_seconds` needs `granted_at`";
        let diagnostic = Diagnostic::new(Code::MissingField, ttl.node.source(), ttl.node.first_line_span(), message);
        sink.push(diagnostic.with_hint("write `granted_at: 2026-03-01T09:00:00Z` beside it"));
    }
    fields.finish(sink);
    let until = from.zip(length).map(|(from, length)| from.saturating_add(Millis::from_secs(u64::from(length.value))));
    let revoked = revoked.is_some_and(|flag| flag.value);
    Some(PolicyGrant { principal: principal?, actions: actions?, conditions, until, revoked })
}

fn unsupported_grant_parts(grant: &PolicyGrant) -> Vec<String> {
    let principal = match &grant.principal {
        GrantPrincipal::Other(text) => Some(format!("the principal `{text}`, so its grant applies to nobody")),
        _ => None,
    };
    let conditions = grant.conditions.iter().filter_map(|one| unsupported_condition(one, "the condition"));
    conditions.chain(principal).collect()
}

const PRINCIPAL_FIELDS: FieldTable =
    FieldTable::closed(&["ref", "name", "file"]).with_unread(&["role", "email", "avatar", "gpg_key", "metadata"]);

fn read_principal(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<GrantPrincipal> {
    if given.node.raw_text().is_some() {
        return given.read_non_empty_text(sink).map(|text| parse_principal(text.value));
    }
    let fields = FieldReader::from_node(given.node, "a principal", PRINCIPAL_FIELDS, sink)?;
    let name = |given: Option<FieldValue<'_>>, sink: &mut DiagnosticSink| {
        given.and_then(|given| given.read_non_empty_text(sink)).map(|text| text.value.to_owned())
    };
    let reference = name(fields.optional("ref"), sink);
    let user = name(fields.optional("name"), sink);
    let file = name(fields.optional("file"), sink);
    fields.finish(sink);
    match (reference, user, file) {
        (Some(reference), None, None) => Some(parse_principal(&reference)),
        (None, Some(user), None) => Some(GrantPrincipal::User(user)),
        (None, None, Some(file)) => Some(GrantPrincipal::Other(file)),
        _ => {
            let message = "a principal has exactly one of `ref`, `name` and `file`";
            sink.push(Diagnostic::new(Code::FieldsClash, given.node.source(), given.node.first_line_span(), message));
            None
        }
    }
}

fn parse_principal(text: &str) -> GrantPrincipal {
    match text.split_once("://") {
        None if text == "*" => GrantPrincipal::Anyone,
        Some(("user" | "operator", name)) => GrantPrincipal::User(name.to_owned()),
        Some(("role" | "group" | "guild", name)) => GrantPrincipal::Role(name.to_owned()),
        _ => GrantPrincipal::Other(text.to_owned()),
    }
}

const CONDITION_FIELDS: FieldTable = FieldTable::closed(&["kind", "from", "quorum"]);

/// Reads a condition. A requirement is a condition with `applies_to`.
fn read_condition(given: FieldValue<'_>, required: bool, sink: &mut DiagnosticSink) -> Option<GrantCondition> {
    let kind = given.node.get("kind").and_then(|node| node.raw_text()).unwrap_or_default();
    if !kind.is_empty() && kind != "approval-from" {
        return Some(GrantCondition::Other(kind.to_owned()));
    }
    let (what, unread): (_, FieldNames) =
        if required { ("a requirement", &["applies_to"]) } else { ("a condition", &[]) };
    let mut fields = FieldReader::from_node(given.node, what, CONDITION_FIELDS.with_unread(unread), sink)?;
    fields.required("kind", sink)?;
    let from = fields.required("from", sink).map(|given| read_approvers(given, sink)).unwrap_or_default();
    let quorum = fields.optional("quorum").and_then(|given| given.read_whole_number(1..=limits::QUORUM, sink));
    let quorum = quorum.map_or(1, |quorum| quorum.value);
    check_quorum(&fields, &from, quorum, sink);
    fields.finish(sink);
    Some(GrantCondition::ApprovalFrom { approvers: from, quorum })
}

fn unsupported_condition(condition: &GrantCondition, what: &str) -> Option<String> {
    match condition {
        GrantCondition::ApprovalFrom { .. } => None,
        GrantCondition::Other(kind) => Some(format!("{what} `{kind}`, which therefore never holds")),
    }
}

fn read_requirement(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<PolicyRequirement> {
    let condition = read_condition(given, true, sink);
    let applies = given.node.get("applies_to").map(|node| FieldValue::new("applies_to", node));
    let applies = applies.and_then(|given| given.read_list(sink)).unwrap_or_default();
    let applies_to = applies
        .into_iter()
        .filter_map(|item| item.read_non_empty_text(sink))
        .map(|text| text.value.to_owned())
        .collect();
    Some(PolicyRequirement { condition: condition?, applies_to })
}

/// Reads an id: `@owner/name`, or a name.
fn read_policy_id<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = |part: &str| !part.is_empty() && part.chars().all(inner) && !part.starts_with('-');
    match text.strip_prefix('@').map(|rest| rest.split_once('/')) {
        None => read_slug(given, sink),
        Some(Some((owner, name))) if good(owner) && good(name) => Some(text),
        Some(_) => {
            let message = format!("`{}` cannot be the id of a policy", shorten_text(text));
            let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.first_line_span(), message);
            sink.push(diagnostic.with_hint("write the owner and the name, such as `@acme/payments`"));
            None
        }
    }
}

const GRANT_ACTION_FIELDS: &[&str] = &["action", "scope"];

fn read_actions(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Vec<GrantAction>> {
    let items = given.read_list(sink)?;
    if items.is_empty() {
        given.report_empty(sink);
    }
    let one = |item: FieldValue<'_>, sink: &mut DiagnosticSink| {
        let mut fields = FieldReader::from_node(item.node, "an action of a grant", GRANT_ACTION_FIELDS, sink)?;
        let action = fields.required("action", sink).and_then(|given| read_action_pattern(given, sink));
        let scope = fields.optional("scope").and_then(|given| given.read_non_empty_text(sink));
        fields.finish(sink);
        Some(GrantAction { action: action?, scope: scope.map(|text| text.value.to_owned()) })
    };
    Some(items.into_iter().filter_map(|item| one(item, sink)).collect())
}

/// Reads the id of an action, which may end with a star. The part before the last slash is its owner.
fn read_action_pattern(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<String> {
    let text = given.read_non_empty_text(sink)?.value;
    let name = text.rsplit('/').next().unwrap_or(text);
    if name.trim_end_matches('*').contains('*') {
        let message = format!("`{}` has a star that is not at its end", shorten_text(text));
        let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.first_line_span(), message);
        sink.push(diagnostic.with_hint("write `mail:*`, or each action"));
        return None;
    }
    Some(name.to_owned())
}

fn read_approvers(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<Approver> {
    let items = match given.node.items() {
        Some(_) => given.read_list(sink).unwrap_or_default(),
        None => vec![given],
    };
    let mut found = Vec::new();
    for item in items {
        match item.read_non_empty_text(sink).map(|text| parse_principal(text.value)) {
            Some(GrantPrincipal::User(name)) => found.push(Approver::User(name)),
            Some(GrantPrincipal::Role(role)) => found.push(Approver::Role(role)),
            Some(_) => sink.push(item.diagnose_type("a person or a role, such as `role://finance` or `user://ada`")),
            None => {}
        }
    }
    found
}

fn read_granted_at(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Timestamp> {
    let found = given.node.raw_text().and_then(parse_timestamp);
    if found.is_none() {
        sink.push(given.diagnose_type("a timestamp, such as `2026-03-01T09:00:00Z`"));
    }
    found
}

const LIMIT_FIELDS: &[&str] = &["kind", "value", "per"];

/// Reads a limit and returns its description. Limits are not enforced.
fn read_limit(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<String> {
    let mut fields = FieldReader::from_node(given.node, "a limit", LIMIT_FIELDS, sink)?;
    let kind = fields.required("kind", sink).and_then(|given| given.read_non_empty_text(sink));
    fields.required("value", sink).and_then(|given| given.read_number(sink));
    let per = &[("second", ()), ("minute", ()), ("hour", ()), ("day", ())];
    fields.optional("per").and_then(|given| given.read_one_of(per, sink));
    Some(format!("the limit `{}`", kind?.value))
}
