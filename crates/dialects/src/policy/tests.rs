//! Tests the decisions of each form of policy, and the errors in their files.

use skein_core::{
    ir::rules::{PolicyDecision, PolicyFinding, PolicyOperation, PolicyPrincipal, PolicyRequest},
    ir::{Approver, EscalationLevel},
    time::{Millis, Timestamp},
};

use super::*;

fn read(text: &str) -> PolicyDocument {
    let (policy, said) = read_policy(SourceFile::new("POLICY.md", format!("---\n{text}\n---\n")));
    policy.unwrap_or_else(|| panic!("{:?}", said.iter().map(|one| &one.message).collect::<Vec<_>>()))
}

fn wrong(text: &str) -> Vec<String> {
    let (policy, said) = read_policy(SourceFile::new("POLICY.md", format!("---\n{text}\n---\n")));
    assert!(policy.is_none(), "{text}");
    said.into_iter().map(|one| one.message).collect()
}

fn person(roles: &[&str]) -> PolicyPrincipal {
    PolicyPrincipal { name: "ada".into(), roles: roles.iter().map(|role| (*role).to_owned()).collect() }
}

/// Evaluates a policy for `ada` with these roles, who wants the tool `mailer` to send a mail.
fn judged(policy: &PolicyDocument, roles: &[&str]) -> PolicyFinding {
    let operation = PolicyOperation {
        class: "tool.call".into(),
        action: Some("mail:send".into()),
        subject: "mailer".into(),
        mutates: vec!["external:mail".into()],
        changes: true,
        risk: 2,
    };
    policy.judge(&PolicyRequest { principal: &person(roles), now: Timestamp(1_000_000), operation: &operation })
}

fn decided(policy: &PolicyDocument, roles: &[&str]) -> PolicyDecision {
    judged(policy, roles).decision
}

fn role(name: &str) -> Approver {
    Approver::Role(name.into())
}

fn grant(more: &str) -> PolicyDocument {
    read(&format!("schema: policy/v1\nid: '@acme/mail'\ngrants:\n  - {more}"))
}

#[test]
fn what_is_not_granted_is_denied() {
    let sends = |who: &str| grant(&format!("{{principal: '{who}', actions: [{{action: 'mail:send'}}]}}"));
    assert_eq!(decided(&sends("user://ada"), &[]), PolicyDecision::Allow);
    assert_eq!(decided(&sends("role://post"), &["post"]), PolicyDecision::Allow);
    assert_eq!(decided(&sends("*"), &[]), PolicyDecision::Allow);
    let no = judged(&sends("role://post"), &["sales"]);
    assert_eq!(no.decision, PolicyDecision::Deny);
    assert_eq!(no.why, "the policy `@acme/mail` does not grant mail:send to ada");
    assert_eq!(decided(&read("schema: policy/v1\nid: open-door\ndefault: allow"), &[]), PolicyDecision::Allow);
}

#[test]
fn grants_are_for_actions_within_a_scope_and_a_time() {
    let of = |what: &str, more: &str| decided(&grant(&format!("{{principal: '*', actions: [{{{what}}}]{more}}}")), &[]);
    assert_eq!(of("action: 'mail:*'", ""), PolicyDecision::Allow);
    assert_eq!(of("action: 'tool:mailer'", ""), PolicyDecision::Allow);
    assert_eq!(of("action: '@acme/actions/mail:send'", ""), PolicyDecision::Allow);
    assert_eq!(of("action: 'mail:read'", ""), PolicyDecision::Deny);
    assert_eq!(of("action: 'mail:send', scope: 'external:*'", ""), PolicyDecision::Allow);
    assert_eq!(of("action: 'mail:send', scope: 'workspace:*'", ""), PolicyDecision::Deny);
    assert_eq!(of("action: 'mail:send'", ", revoked: true"), PolicyDecision::Deny);
    let since = ", granted_at: 1970-01-01T00:00:00Z, ttl_seconds: ";
    assert_eq!(of("action: 'mail:send'", &format!("{since}1001")), PolicyDecision::Allow);
    assert_eq!(of("action: 'mail:send'", &format!("{since}1000")), PolicyDecision::Deny);
}

#[test]
fn conditions_and_requirements_ask_people_or_deny() {
    let grants = |conditions: &str| {
        format!("{{principal: '*', actions: [{{action: 'mail:send'}}], conditions: [{conditions}]}}")
    };
    let asks = grant(&grants("{kind: approval-from, from: 'role://legal', quorum: 2}"));
    assert_eq!(decided(&asks, &[]), PolicyDecision::Ask { approvers: vec![role("legal")], quorum: 2 });
    // An unsupported condition never holds.
    let office = grant(&grants("{kind: during-business-hours}"));
    assert_eq!(decided(&office, &[]), PolicyDecision::Deny);
    let text = format!("schema: policy/v1\nid: '@acme/mail'\ngrants:\n  - {}", grants("{kind: during-business-hours}"));
    let (_, said) = read_policy(SourceFile::new("POLICY.md", format!("---\n{text}\n---\n")));
    assert_eq!(said.len(), 1);
    let required = |requirement: &str| {
        read(&format!("schema: policy/v1\nid: open-door\ndefault: allow\nrequirements: [{requirement}]"))
    };
    let two = required("{kind: approval-from, from: [user://bob, role://legal]}");
    let people = vec![Approver::User("bob".into()), role("legal")];
    assert_eq!(decided(&two, &[]), PolicyDecision::Ask { approvers: people, quorum: 1 });
    assert_eq!(decided(&required("{kind: mfa-recent}"), &[]), PolicyDecision::Deny);
    assert_eq!(decided(&required("{kind: mfa-recent, applies_to: ['disk:*']}"), &[]), PolicyDecision::Allow);
}

fn rule(more: &str) -> PolicyDocument {
    read(&format!("schema: agentgovernance/v1\ndoctype: policy\nslug: mail-rule\nversion: 1.0.0\n{more}"))
}

#[test]
fn a_rule_says_what_becomes_of_what_it_matches() {
    let says = |decision: &str| {
        decided(
            &rule(&format!("match: {{action: 'tool.*'}}\ndecision: {decision}\nsigners: [{{role: legal}}]\nquorum: 2")),
            &[],
        )
    };
    assert_eq!(says("allow"), PolicyDecision::Allow);
    assert_eq!(says("deny"), PolicyDecision::Deny);
    assert_eq!(says("require-approval"), PolicyDecision::Ask { approvers: vec![role("legal")], quorum: 2 });
    assert_eq!(says("escalate"), PolicyDecision::escalate_to(vec![role("legal")], 2));
    let matches = |what: &str| decided(&rule(&format!("match: {{{what}}}\ndecision: deny")), &[]);
    assert_eq!(matches("action: mail.send, subject: 'mail*', risk_level_min: 2"), PolicyDecision::Deny);
    // A person decides about requests that no rule matches.
    let asked = PolicyDecision::Ask { approvers: Vec::new(), quorum: 1 };
    for other in ["action: agent.run", "action: tool.call, subject: ftp", "action: tool.call, risk_level_min: 3"] {
        assert_eq!(matches(other), asked, "{other}");
    }
}

fn governed(spec: &str) -> PolicyDocument {
    let text = format!(
        "apiVersion: ioa.dev/v0.2\nkind: Governance\nmetadata: {{name: care}}\nspec: {{domain: art, {spec}}}\n"
    );
    let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect::<Vec<_>>();
    PolicyDocument::Governance(read_governance(SourceFile::new("care.yaml", text)).map_err(said).unwrap())
}

const ROLES: &str = "accessControl: {roles: [{name: boss, permissions: [read, override]}, {name: clerk, permissions: [write]}, \
                     {name: root, permissions: [admin]}], defaultRole: boss}";

#[test]
fn governance_stops_and_escalates() {
    assert_eq!(decided(&governed("extends: other"), &[]), PolicyDecision::Allow);
    let paths = "escalation: {paths: [{level: 2, role: chair}, {level: 1, role: boss, timeout: 15m}]}";
    let policy = governed(&format!("{ROLES}, {paths}, humanOverride: {{maxResponseTime: 1h}}"));
    assert_eq!(decided(&policy, &["clerk"]), PolicyDecision::Allow);
    assert_eq!(decided(&policy, &["root"]), PolicyDecision::Allow);
    let levels = vec![
        EscalationLevel { approvers: vec![role("boss"), role("root")], timeout: Some(Millis::from_mins(15)) },
        EscalationLevel {
            approvers: vec![role("chair"), role("boss"), role("root")],
            timeout: Some(Millis::from_hours(1)),
        },
    ];
    let stopped = judged(&policy, &["visitor"]);
    assert_eq!(stopped.decision, PolicyDecision::Escalate { levels, quorum: 1 });
    assert_eq!(stopped.why, "the governance `care` does not let ada write");
    let no = governed(&format!("{ROLES}, humanOverride: {{enabled: false}}"));
    assert_eq!(decided(&no, &[]), PolicyDecision::Deny);
    let second = format!("{}, defaultPath: level-2}}", &paths[..paths.len() - 1]);
    let PolicyDecision::Escalate { levels, .. } = decided(&governed(&format!("{ROLES}, {second}")), &[]) else {
        panic!("it is stopped")
    };
    assert_eq!(levels.len(), 1);
}

#[test]
fn what_is_wrong_with_a_policy_is_said() {
    let grants = "schema: policy/v1\nid: '@acme/mail'\n";
    let rule = "schema: agentgovernance/v1\ndoctype: policy\nslug: mail-rule\nversion: 1.0.0\n";
    for (text, says) in [
        ("schema: policy/v2\nid: mail".to_owned(), "`schema` cannot be `policy/v2`"),
        ("schema: policy/v1\nid: '@acme'".to_owned(), "cannot be the id of a policy"),
        (format!("{grants}grant: []"), "a policy has no field `grant`"),
        (format!("{grants}default: maybe"), "`default` cannot be `maybe`"),
        (format!("{grants}grants: [{{actions: [{{action: x}}]}}]"), "`principal`"),
        (format!("{grants}grants: [{{principal: '*', actions: []}}]"), "`actions`"),
        (format!("{grants}grants: [{{principal: '*', actions: [{{action: 'a*b'}}]}}]"), "star that is not at its end"),
        (
            format!("{grants}grants: [{{principal: '*', actions: [{{action: x}}], ttl_seconds: 5}}]"),
            "needs `granted_at`",
        ),
        (
            format!("{grants}requirements: [{{kind: approval-from, from: [user://ada], quorum: 2}}]"),
            "2 people must approve, but only 1 are named",
        ),
        (format!("{rule}match: {{action: tool.call}}\ndecision: perhaps"), "`decision` cannot be `perhaps`"),
        (format!("{rule}match: {{action: Tool}}\ndecision: deny"), "cannot be a class of actions"),
        (format!("{rule}match: {{action: tool.call}}\ndecision: require-approval"), "needs `signers`"),
        (format!("{rule}decision: deny"), "`match`"),
        (
            format!("{rule}match: {{action: tool.call}}\ndecision: escalate\nsigners: [{{role: a, userId: b}}]"),
            "exactly one of `role` and `userId`",
        ),
    ] {
        let said = wrong(&text);
        assert!(said.iter().any(|one| one.contains(says)), "{text}: {said:?}");
    }
}

#[test]
fn what_is_wrong_with_a_governance_is_said() {
    for (text, says) in [
        ("kind: Governor\nmetadata: {name: a}\nspec: {domain: art}", "`kind` cannot be `Governor`"),
        ("kind: Governance\nmetadata: {name: A}\nspec: {domain: art}", "cannot be the name of a resource"),
        ("kind: Governance\nmetadata: {name: a}\nspec: {}", "`domain`"),
        ("kind: Governance\nmetadata: {name: a}\nspec: {domain: art, escalation: {paths: [{role: x}]}}", "`level`"),
        (
            "kind: Governance\nmetadata: {name: a}\nspec: {domain: art, escalation: {paths: [{level: 1, role: x}], defaultPath: level-2}}",
            "none of the paths",
        ),
        (
            "kind: Governance\nmetadata: {name: a}\nspec: {domain: art, accessControl: {roles: [{name: x, permissions: []}], defaultRole: y}}",
            "none of the roles",
        ),
        ("kind: Governance\nmetadata: {name: a}\nspec: {domain: art, failureModes: [{scenario: x}]}", "`response`"),
    ] {
        let read = read_governance(SourceFile::new("a.yaml", format!("apiVersion: ioa.dev/v0.2\n{text}\n")));
        let said: Vec<String> = read.unwrap_err().into_iter().map(|one| one.message).collect();
        assert!(said.iter().any(|one| one.contains(says)), "{text}: {said:?}");
    }
}
