//! AIP-38: what is granted to whom. Nothing else is, unless the policy says so.

use skein_core::{
    ir::Approver,
    limits,
    time::{Millis, Time},
};

use super::{
    evaluate::{Decision, Finding, strictest},
    moment::moment,
    pattern::fits,
    request::Request,
    rule::{check_quorum, slug},
};
use crate::{
    aip15::version,
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given, brief},
};

/// A policy of grants as its file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Grants {
    pub id: String,
    /// Whether what no grant is about may be done.
    pub allows: bool,
    pub grants: Vec<Grant>,
    pub requirements: Vec<Requirement>,
    pub(crate) unkept: Vec<String>,
}

/// What somebody may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    pub principal: Principal,
    /// Patterns of actions, each with what it is limited to.
    pub actions: Vec<(String, Option<String>)>,
    pub conditions: Vec<Condition>,
    /// When it is over.
    pub until: Option<Time>,
    pub revoked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    Anyone,
    User(String),
    Role(String),
    /// Written in a way that is understood by nobody here.
    Other(String),
}

/// Something that has to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    ApprovalFrom {
        approvers: Vec<Approver>,
        quorum: u32,
    },
    /// Of a kind that is known to nobody here.
    Other(String),
}

/// A condition for some actions, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub condition: Condition,
    pub applies_to: Vec<String>,
}

const DEFAULTS: &[(&str, bool)] = &[("deny", false), ("allow", true)];

impl Grants {
    pub(super) fn read(mut fields: Fields<'_>, sink: &mut Sink) -> Option<Grants> {
        let id = fields.required("id", sink).and_then(|given| id(given, sink));
        fields.optional("version").and_then(|given| version(given, sink));
        let allows = fields.optional("default").and_then(|given| given.one_of(DEFAULTS, sink));
        let grants = fields.optional("grants").and_then(|given| given.list(sink)).unwrap_or_default();
        let grants: Vec<Grant> = grants.into_iter().filter_map(|given| Grant::read(given, sink)).collect();
        let required = fields.optional("requirements").and_then(|given| given.list(sink)).unwrap_or_default();
        let requirements: Vec<Requirement> =
            required.into_iter().filter_map(|given| Requirement::read(given, sink)).collect();
        let limits = fields.optional("limits").and_then(|given| given.list(sink)).unwrap_or_default();
        let mut unkept: Vec<String> = limits.into_iter().filter_map(|given| limit(given, sink)).collect();
        unkept.extend(fields.optional("defaults").map(|_| "`defaults` of other blocks".to_owned()));
        fields.allow(&["name", "description", "metadata"]);
        fields.finish(sink);
        unkept.extend(grants.iter().flat_map(Grant::unkept));
        unkept.extend(requirements.iter().filter_map(|one| one.condition.unkept("the requirement")));
        unkept.sort();
        unkept.dedup();
        let allows = allows.is_some_and(|word| word.value);
        Some(Grants { id: id?.to_owned(), allows, grants, requirements, unkept })
    }

    /// What it says of one request.
    pub(super) fn judge(&self, request: &Request<'_>) -> Finding {
        let (id, what, who) = (&self.id, request.what(), &request.who.name);
        let granted = self.grants.iter().filter(|grant| grant.covers(request)).map(Grant::decision);
        let granted = granted.flatten().min_by_key(|decision| matches!(decision, Decision::Ask { .. }));
        let mut finding = match granted {
            Some(Decision::Ask { approvers, quorum }) => {
                let why = format!("the policy `{id}` grants {what} to {who} with an approval");
                Finding::new(Decision::Ask { approvers, quorum }, why)
            }
            Some(decision) => Finding::new(decision, format!("the policy `{id}` grants {what} to {who}")),
            None if self.allows => {
                Finding::new(Decision::Allow, format!("the policy `{id}` allows what it does not name"))
            }
            None => Finding::new(Decision::Deny, format!("the policy `{id}` does not grant {what} to {who}")),
        };
        for requirement in self.requirements.iter().filter(|one| one.applies(request)) {
            finding = strictest(finding, requirement.judge(id, &what));
        }
        finding
    }
}

impl Grant {
    fn read(given: Given<'_>, sink: &mut Sink) -> Option<Grant> {
        let mut fields = Fields::of(given.node, "a grant", sink)?;
        let principal = fields.required("principal", sink).and_then(|given| Principal::read(given, sink));
        let actions = fields.required("actions", sink).and_then(|given| actions(given, sink));
        let conditions = fields.optional("conditions").and_then(|given| given.list(sink)).unwrap_or_default();
        let conditions =
            conditions.into_iter().filter_map(|given| Condition::read(given, false, sink)).collect();
        let ttl = fields.optional("ttl_seconds");
        let length = ttl.and_then(|given| given.whole(1..=u32::MAX, sink));
        let from = fields.optional("granted_at").and_then(|given| granted_at(given, sink));
        let revoked = fields.optional("revoked").and_then(|given| given.flag(sink));
        fields.allow(&["granted_by"]);
        if let (Some(ttl), None) = (ttl, fields.field("granted_at")) {
            let message = "a grant that ends has to say when it began";
            let diagnostic = Diagnostic::new(Code::MissingField, ttl.node.source(), ttl.node.mark(), message);
            sink.push(diagnostic.hint("write `granted_at: 2026-03-01T09:00:00Z` beside it"));
        }
        fields.finish(sink);
        let until =
            from.zip(length).map(|(from, length)| from.after(Millis::seconds(u64::from(length.value))));
        let revoked = revoked.is_some_and(|flag| flag.value);
        Some(Grant { principal: principal?, actions: actions?, conditions, until, revoked })
    }

    /// Whether it is about this request, now.
    fn covers(&self, request: &Request<'_>) -> bool {
        let lives = !self.revoked && self.until.is_none_or(|until| request.now < until);
        let names = request.names();
        let mut actions =
            self.actions.iter().filter(|(action, _)| names.iter().any(|name| fits(action, name)));
        lives
            && self.principal.is(request)
            && actions.any(|(_, scope)| scope.as_ref().is_none_or(|scope| within(scope, request)))
    }

    /// What it comes to; nothing where a condition cannot be seen to.
    fn decision(&self) -> Option<Decision> {
        let mut finding = Finding::new(Decision::Allow, "");
        for condition in &self.conditions {
            let Condition::ApprovalFrom { approvers, quorum } = condition else { return None };
            let (approvers, quorum) = (approvers.clone(), *quorum);
            finding = strictest(finding, Finding::new(Decision::Ask { approvers, quorum }, ""));
        }
        Some(finding.decision).filter(|decision| *decision != Decision::Deny)
    }

    fn unkept(&self) -> Vec<String> {
        let who = match &self.principal {
            Principal::Other(text) => Some(format!("the principal `{text}`, so its grant counts for nobody")),
            _ => None,
        };
        let conditions = self.conditions.iter().filter_map(|one| one.unkept("the condition"));
        conditions.chain(who).collect()
    }
}

/// Whether all that is changed is within a scope; of what changes nothing that is known, whether it is that.
fn within(scope: &str, request: &Request<'_>) -> bool {
    match request.mutates {
        [] => !request.changes && fits(scope, request.subject),
        all => all.iter().all(|what| fits(scope, what)),
    }
}

impl Principal {
    fn read(given: Given<'_>, sink: &mut Sink) -> Option<Principal> {
        if given.node.raw().is_some() {
            return given.words(sink).map(|text| Principal::of(text.value));
        }
        let mut fields = Fields::of(given.node, "a principal", sink)?;
        let name = |given: Option<Given<'_>>, sink: &mut Sink| {
            given.and_then(|given| given.words(sink)).map(|text| text.value.to_owned())
        };
        let reference = name(fields.optional("ref"), sink);
        let user = name(fields.optional("name"), sink);
        let file = name(fields.optional("file"), sink);
        fields.allow(&["role", "email", "avatar", "gpg_key", "metadata"]);
        fields.finish(sink);
        match (reference, user, file) {
            (Some(reference), None, None) => Some(Principal::of(&reference)),
            (None, Some(user), None) => Some(Principal::User(user)),
            (None, None, Some(file)) => Some(Principal::Other(file)),
            _ => {
                let message = "a principal has a `ref`, a `name` or a `file`, one of them";
                sink.push(Diagnostic::new(
                    Code::FieldsClash,
                    given.node.source(),
                    given.node.mark(),
                    message,
                ));
                None
            }
        }
    }

    fn of(text: &str) -> Principal {
        match text.split_once("://") {
            None if text == "*" => Principal::Anyone,
            Some(("user" | "operator", name)) => Principal::User(name.to_owned()),
            Some(("role" | "group" | "guild", name)) => Principal::Role(name.to_owned()),
            _ => Principal::Other(text.to_owned()),
        }
    }

    fn is(&self, request: &Request<'_>) -> bool {
        match self {
            Principal::Anyone => true,
            Principal::User(name) => *name == request.who.name,
            Principal::Role(role) => request.who.roles.contains(role),
            Principal::Other(_) => false,
        }
    }
}

impl Condition {
    /// A requirement is one with `applies_to`.
    fn read(given: Given<'_>, required: bool, sink: &mut Sink) -> Option<Condition> {
        let kind = given.node.get("kind").and_then(|node| node.raw()).unwrap_or_default();
        if !kind.is_empty() && kind != "approval-from" {
            return Some(Condition::Other(kind.to_owned()));
        }
        let what = if required { "a requirement" } else { "a condition" };
        let mut fields = Fields::of(given.node, what, sink)?;
        fields.required("kind", sink)?;
        let from = fields.required("from", sink).map(|given| approvers(given, sink)).unwrap_or_default();
        let quorum = fields.optional("quorum").and_then(|given| given.whole(1..=limits::QUORUM, sink));
        let quorum = quorum.map_or(1, |quorum| quorum.value);
        if required {
            fields.allow(&["applies_to"]);
        }
        check_quorum(&fields, &from, quorum, sink);
        fields.finish(sink);
        Some(Condition::ApprovalFrom { approvers: from, quorum })
    }

    fn unkept(&self, what: &str) -> Option<String> {
        match self {
            Condition::ApprovalFrom { .. } => None,
            Condition::Other(kind) => Some(format!("{what} `{kind}`, which therefore never holds")),
        }
    }
}

impl Requirement {
    fn read(given: Given<'_>, sink: &mut Sink) -> Option<Requirement> {
        let applies = given.node.get("applies_to").map(|node| Given::new("applies_to", node));
        let applies = applies.and_then(|given| given.list(sink)).unwrap_or_default();
        let applies_to = applies
            .into_iter()
            .filter_map(|item| item.words(sink))
            .map(|text| text.value.to_owned())
            .collect();
        Some(Requirement { condition: Condition::read(given, true, sink)?, applies_to })
    }

    fn applies(&self, request: &Request<'_>) -> bool {
        let names = request.names();
        let named = |pattern: &String| names.iter().any(|name| fits(pattern, name));
        self.applies_to.is_empty() || self.applies_to.iter().any(named)
    }

    fn judge(&self, id: &str, what: &str) -> Finding {
        match &self.condition {
            Condition::ApprovalFrom { approvers, quorum } => {
                let decision = Decision::Ask { approvers: approvers.clone(), quorum: *quorum };
                Finding::new(decision, format!("the policy `{id}` requires approval for {what}"))
            }
            Condition::Other(kind) => {
                let why =
                    format!("the policy `{id}` requires `{kind}` for {what}, which nobody here can see to");
                Finding::new(Decision::Deny, why)
            }
        }
    }
}

/// `@owner/name`, or a name.
fn id<'a>(given: Given<'a>, sink: &mut Sink) -> Option<&'a str> {
    let text = given.words(sink)?.value;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = |part: &str| !part.is_empty() && part.chars().all(inner) && !part.starts_with('-');
    match text.strip_prefix('@').map(|rest| rest.split_once('/')) {
        None => slug(given, sink),
        Some(Some((owner, name))) if good(owner) && good(name) => Some(text),
        Some(_) => {
            let message = format!("`{}` cannot be the id of a policy", brief(text));
            let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message);
            sink.push(diagnostic.hint("write whose it is and its name, such as `@acme/payments`"));
            None
        }
    }
}

fn actions(given: Given<'_>, sink: &mut Sink) -> Option<Vec<(String, Option<String>)>> {
    let items = given.list(sink)?;
    if items.is_empty() {
        given.empty(sink);
    }
    let one = |item: Given<'_>, sink: &mut Sink| {
        let mut fields = Fields::of(item.node, "an action of a grant", sink)?;
        let action = fields.required("action", sink).and_then(|given| action(given, sink));
        let scope = fields.optional("scope").and_then(|given| given.words(sink));
        fields.finish(sink);
        Some((action?, scope.map(|text| text.value.to_owned())))
    };
    Some(items.into_iter().filter_map(|item| one(item, sink)).collect())
}

/// The id of an action, which a star may end; what stands before the last slash is whose it is.
fn action(given: Given<'_>, sink: &mut Sink) -> Option<String> {
    let text = given.words(sink)?.value;
    let name = text.rsplit('/').next().unwrap_or(text);
    if name.trim_end_matches('*').contains('*') {
        let message = format!("`{}` has a star that is not at its end", brief(text));
        let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message);
        sink.push(diagnostic.hint("write `mail:*`, or each action"));
        return None;
    }
    Some(name.to_owned())
}

fn approvers(given: Given<'_>, sink: &mut Sink) -> Vec<Approver> {
    let items = match given.node.items() {
        Some(_) => given.list(sink).unwrap_or_default(),
        None => vec![given],
    };
    let mut found = Vec::new();
    for item in items {
        match item.words(sink).map(|text| Principal::of(text.value)) {
            Some(Principal::User(name)) => found.push(Approver::User(name)),
            Some(Principal::Role(role)) => found.push(Approver::Role(role)),
            Some(_) => sink.push(item.wrong("a person or a role, such as `role://finance` or `user://ada`")),
            None => {}
        }
    }
    found
}

fn granted_at(given: Given<'_>, sink: &mut Sink) -> Option<Time> {
    let found = given.node.raw().and_then(moment);
    if found.is_none() {
        sink.push(given.wrong("a moment, such as `2026-03-01T09:00:00Z`"));
    }
    found
}

/// What a limit is about. Nobody counts here.
fn limit(given: Given<'_>, sink: &mut Sink) -> Option<String> {
    let mut fields = Fields::of(given.node, "a limit", sink)?;
    let kind = fields.required("kind", sink).and_then(|given| given.words(sink));
    fields.required("value", sink).and_then(|given| given.number(sink));
    let per = &[("second", ()), ("minute", ()), ("hour", ()), ("day", ())];
    fields.optional("per").and_then(|given| given.one_of(per, sink));
    Some(format!("the limit `{}`", kind?.value))
}
