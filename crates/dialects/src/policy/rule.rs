//! AIP-7: one rule, with its effect on matching requests, its approvers and its quorum.

use skein_core::{
    ir::Approver,
    ir::rules::{PolicyRule, RuleEffect},
    limits,
};

use super::POLICY_FIELDS;
use crate::{
    catalog::definition_fields::read_version,
    diagnostics::{Code, Diagnostic, DiagnosticSink, shorten_text},
    fields::{FieldReader, FieldValue},
};

const EFFECTS: &[(&str, RuleEffect)] = &[
    ("allow", RuleEffect::Allow),
    ("deny", RuleEffect::Deny),
    ("require-approval", RuleEffect::RequireApproval),
    ("escalate", RuleEffect::Escalate),
];

pub(super) const RULE_FIELDS: &[&str] =
    &["doctype", "slug", "version", "match", "decision", "signers", "quorum", "autonomy", "budget"];

/// Reads a rule, with the parts of its file that are not supported.
pub(super) fn read_rule(mut fields: FieldReader<'_>, sink: &mut DiagnosticSink) -> Option<(PolicyRule, Vec<String>)> {
    fields.narrow("a policy", POLICY_FIELDS.for_kind(&[RULE_FIELDS]).with_unread(&["metadata"]), sink);
    let doctype = fields.required("doctype", sink);
    doctype.and_then(|given| given.read_one_of(&[("policy", ())], sink));
    let slug = fields.required("slug", sink).and_then(|given| read_slug(given, sink));
    fields.required("version", sink).and_then(|given| read_version(given, sink));
    let matches = fields.required("match", sink).and_then(|given| RuleMatch::read(given, sink));
    let effect = fields.required("decision", sink).and_then(|given| given.read_one_of(EFFECTS, sink));
    let listed = fields.optional("signers");
    let signers = listed.map(|given| read_signers(given, sink)).unwrap_or_default();
    let quorum = fields.optional("quorum").and_then(|given| given.read_whole_number(1..=limits::QUORUM, sink));
    fields.optional("autonomy").and_then(|given| given.read_whole_number(0..=4, sink));
    let budget = fields.optional("budget").is_some();
    let nobody = effect.as_ref().filter(|_| signers.is_empty()).and_then(|effect| match effect.value {
        RuleEffect::RequireApproval => Some("a rule that requires approval needs `signers`"),
        RuleEffect::Escalate => Some("a rule that escalates needs `signers`"),
        RuleEffect::Allow | RuleEffect::Deny => None,
    });
    if let Some(message) = nobody {
        let span = listed.map_or(fields.head_span(), |given| given.node.first_line_span());
        let diagnostic = Diagnostic::new(Code::NoValue, fields.node().source(), span, message);
        sink.push(diagnostic.with_hint("write `signers: [{ role: finance }]`"));
    }
    let quorum = quorum.map_or(1, |quorum| quorum.value);
    check_quorum(&fields, &signers, quorum, sink);
    fields.finish(sink);
    let matches = matches?;
    let rule = PolicyRule {
        slug: slug?.to_owned(),
        action: matches.action,
        subject: matches.subject,
        least_risk: matches.least_risk,
        effect: effect?.value,
        signers,
        quorum,
    };
    let unsupported = budget.then(|| "`budget`, a limit on count and cost".to_owned());
    Some((rule, unsupported.into_iter().collect()))
}

/// The match criteria of a rule.
struct RuleMatch {
    action: String,
    subject: Option<String>,
    least_risk: u8,
}

const MATCH_FIELDS: &[&str] = &["action", "subject", "risk_level_min"];

impl RuleMatch {
    fn read(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<RuleMatch> {
        let mut fields = FieldReader::from_node(given.node, "`match`", MATCH_FIELDS, sink)?;
        let action = fields.required("action", sink).and_then(|given| read_action_class(given, sink));
        let subject = fields.optional("subject").and_then(|given| given.read_non_empty_text(sink));
        let risk = fields.optional("risk_level_min").and_then(|given| given.read_whole_number(0..=3, sink));
        fields.finish(sink);
        Some(RuleMatch {
            action: action?.to_owned(),
            subject: subject.map(|text| text.value.to_owned()),
            least_risk: risk.and_then(|risk| u8::try_from(risk.value).ok()).unwrap_or(0),
        })
    }
}

/// Reads a class of actions: words with dots, in which a star stands for any text.
fn read_action_class<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '*');
    if text.chars().all(inner) && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*') {
        return Some(text);
    }
    let message = format!("`{}` cannot be a class of actions", shorten_text(text));
    let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.first_line_span(), message);
    sink.push(diagnostic.with_hint("use words separated by dots, such as `tool.call`, `tool.*` or `mail.send`"));
    None
}

/// Reads a slug: lower case letters, digits and dashes.
pub(super) fn read_slug<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = (2..=64).contains(&text.len())
        && text.chars().all(|c| inner(c) || c == '-')
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(inner);
    if good {
        return Some(text);
    }
    let message = format!("`{}` cannot be the name of a policy", shorten_text(text));
    let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.first_line_span(), message);
    sink.push(diagnostic.with_hint("use 2 to 64 lower case letters, digits and dashes, such as `payments`"));
    None
}

fn read_signers(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<Approver> {
    let items = given.read_list(sink).unwrap_or_default();
    items.into_iter().filter_map(|item| read_signer(item, sink)).collect()
}

const SIGNER_FIELDS: &[&str] = &["role", "userId"];

fn read_signer(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Approver> {
    let fields = FieldReader::from_node(given.node, "a signer", SIGNER_FIELDS, sink)?;
    let role = fields.optional("role").and_then(|given| given.read_non_empty_text(sink));
    let user = fields.optional("userId").and_then(|given| given.read_non_empty_text(sink));
    fields.finish(sink);
    match (role, user) {
        (Some(role), None) => Some(Approver::Role(role.value.to_owned())),
        (None, Some(user)) => Some(Approver::User(user.value.to_owned())),
        _ => {
            let message = "a signer has exactly one of `role` and `userId`";
            sink.push(Diagnostic::new(Code::FieldsClash, given.node.source(), given.node.first_line_span(), message));
            None
        }
    }
}

/// Refuses a quorum above the number of named people.
pub(super) fn check_quorum(fields: &FieldReader<'_>, people: &[Approver], quorum: u32, sink: &mut DiagnosticSink) {
    let all_named = !people.is_empty() && people.iter().all(|one| matches!(one, Approver::User(_)));
    if !all_named || people.len() >= quorum as usize {
        return;
    }
    let span = fields.field("quorum").map_or(fields.head_span(), |field| field.key_span);
    let message = format!("{quorum} people must approve, but only {} are named", people.len());
    let diagnostic = Diagnostic::new(Code::FieldsClash, fields.node().source(), span, message);
    sink.push(diagnostic.with_hint("name more people, or a role"));
}
