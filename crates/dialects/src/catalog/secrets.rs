//! A SECRETS.md: the secrets of a project, the principals that may have each, and the ways in which they are handed
//! out. It never holds their values.
//!
//! Owns the fields of AIP-19. Does not know the source of a value, and refuses a file that holds one.

use std::{collections::BTreeMap, fmt, sync::Arc};

use skein_core::{
    expr::ExprSpan,
    secret_name::{to_slug, to_variable_name},
};

use super::{
    definition_fields::{self, DESCRIPTION_CHARS, NAME_CHARS},
    tool::read_texts,
};
use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile, shorten_text},
    fields::{FieldReader, FieldTable, FieldValue, ForeignKey},
    source::parse_front_matter,
};

/// Field names that could hold a value.
const VALUES: &[&str] = &[
    "value", "values", "plaintext", "secret", "password", "passphrase", "token", "key", "private_key", "default",
    "data",
];
const EXPOSURES: &[(&str, SecretExposure)] =
    &[("env", SecretExposure::Env), ("file", SecretExposure::File), ("egress-substitute", SecretExposure::Substitute)];

/// A secret as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretDeclaration {
    pub slug: String,
    pub span: ExprSpan,
    pub description: Option<String>,
    /// The principals that may have it; any one of these suffices. None if the file does not name any.
    pub reveal: Option<Vec<SecretPrincipal>>,
    /// The ways in which it may be handed out. Empty: by an environment variable.
    pub exposures: Vec<SecretExposure>,
}

/// A principal that may have a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPrincipal {
    Role(String),
    User(String),
    Tool(String),
    Workflow(String),
    /// A capability. No principal of Skein has one.
    Cap(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretExposure {
    Env,
    File,
    /// Replaces a placeholder in outgoing requests.
    Substitute,
}

impl SecretPrincipal {
    /// True if it is this tool, which may be named with its version, or this workflow.
    pub fn matches(&self, tool: Option<&str>, workflow: &str) -> bool {
        let plain = |name: &str| name.rsplit_once('@').map_or(name, |(id, _)| id).to_owned();
        match self {
            SecretPrincipal::Tool(name) => tool.is_some_and(|tool| plain(tool) == plain(name)),
            SecretPrincipal::Workflow(name) => name == workflow,
            SecretPrincipal::Role(_) | SecretPrincipal::User(_) | SecretPrincipal::Cap(_) => false,
        }
    }
}

impl fmt::Display for SecretPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sort, name) = match self {
            SecretPrincipal::Role(name) => ("role", name),
            SecretPrincipal::User(name) => ("user", name),
            SecretPrincipal::Tool(name) => ("tool", name),
            SecretPrincipal::Workflow(name) => ("workflow", name),
            SecretPrincipal::Cap(name) => ("cap", name),
        };
        write!(f, "{sort}:{name}")
    }
}

const SECRETS_FIELDS: FieldTable = FieldTable::closed(&["secrets"])
    .with_unread(&["schema", "doctype", "name", "id", "description", "version", "tags", "metadata"]);

/// Reads a SECRETS.md.
pub fn read_secrets(source: Arc<SourceFile>) -> Result<Vec<SecretDeclaration>, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).and_then(|tree| {
        let mut fields = FieldReader::from_node(tree.root(), "a file of secrets", SECRETS_FIELDS, &mut sink)?;
        let list = fields.required("secrets", &mut sink);
        fields.finish(&mut sink);
        let mut seen = BTreeMap::new();
        let items = list?.read_list(&mut sink).unwrap_or_default();
        Some(items.into_iter().filter_map(|item| read_secret(item, &mut seen, &mut sink)).collect())
    });
    match read {
        Some(secrets) if !sink.has_errors() => Ok(secrets),
        _ => Err(sink.into_diagnostics()),
    }
}

const SECRET_FIELDS: FieldTable =
    FieldTable::closed(&["slug", "name", "description", "kind", "backend", "access", "audit", "exposures"])
        .with_unread(&["tags", "metadata"])
        .with_explanations(explain_value);

fn read_secret<'a>(
    given: FieldValue<'a>,
    seen: &mut BTreeMap<&'a str, ExprSpan>,
    sink: &mut DiagnosticSink,
) -> Option<SecretDeclaration> {
    let mut fields = FieldReader::from_node(given.node, "a secret", SECRET_FIELDS, sink)?;
    let name = fields.required("slug", sink).and_then(|given| read_slug(given, sink));
    if let Some((name, span)) = name
        && let Some(first) = seen.insert(name, span)
    {
        let message = format!("there is a secret `{name}` already");
        let diagnostic = Diagnostic::new(Code::DuplicateName, fields.node().source(), span, message);
        sink.push(diagnostic.with_related(first, "it is here"));
    }
    fields.optional("name").and_then(|given| definition_fields::read_short_text(given, NAME_CHARS, sink));
    let description = fields.optional("description");
    let description = description.and_then(|given| definition_fields::read_short_text(given, DESCRIPTION_CHARS, sink));
    let kinds = ["opaque", "oauth", "keypair", "json"].map(|kind| (kind, ()));
    fields.optional("kind").and_then(|given| given.read_one_of(&kinds, sink));
    fields.optional("backend").and_then(|given| given.read_non_empty_text(sink));
    let reveal = fields.optional("access").and_then(|given| read_access(given, sink));
    if let Some(given) = fields.optional("audit") {
        check_audit(given, sink);
    }
    let exposures = fields.optional("exposures").and_then(|given| given.read_list(sink)).unwrap_or_default();
    let exposures = exposures.into_iter().filter_map(|item| item.read_one_of(EXPOSURES, sink));
    let exposures = exposures.map(|exposure| exposure.value).collect();
    fields.finish(sink);
    let ((slug, span), description) = (name?, description.map(str::to_owned));
    Some(SecretDeclaration { slug: slug.to_owned(), span, description, reveal, exposures })
}

fn read_slug<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<(&'a str, ExprSpan)> {
    let text = given.read_non_empty_text(sink)?;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = text.value.len() <= NAME_CHARS
        && text.value.starts_with(|c: char| c.is_ascii_lowercase())
        && text.value.chars().all(inner)
        && !text.value.ends_with('-');
    if good {
        return Some((text.value, text.span));
    }
    let message = format!("`{}` cannot be the slug of a secret", shorten_text(text.value));
    let diagnostic = given.diagnose(Code::BadName, message);
    sink.push(diagnostic.with_hint(format!(
        "use lower case letters, digits and dashes, starting with a letter, such as `{}`",
        to_slug(text.value).trim_matches(|c: char| !c.is_ascii_alphanumeric())
    )));
    None
}

/// Refuses fields that could hold a value, by their names. The message does not show the value.
fn explain_value(name: &str) -> Option<ForeignKey> {
    let hint =
        "remove it, rotate the secret if others have seen it, and configure its source in `[secrets]` of skein.toml";
    VALUES.contains(&name).then(|| ForeignKey::Refused {
        code: Code::RemovedField,
        message: format!("a secret has no `{name}`: its value is never in a file that describes it"),
        hint: hint.to_owned(),
    })
}

const ACCESS_FIELDS: &[&str] = &["reveal", "bind", "rotate"];

fn read_access(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Vec<SecretPrincipal>> {
    let fields = FieldReader::from_node(given.node, "`access`", ACCESS_FIELDS, sink)?;
    let [reveal, bind, rotate] = ["reveal", "bind", "rotate"].map(|name| fields.optional(name));
    fields.finish(sink);
    for given in [bind, rotate].into_iter().flatten() {
        read_principals(given, sink);
    }
    reveal.map(|given| read_principals(given, sink))
}

/// Makes a principal from its name.
type PrincipalConstructor = fn(String) -> SecretPrincipal;

const PRINCIPAL_FIELDS: &[&str] = &["role", "userId", "tool", "workflow", "cap"];

fn read_principals(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<SecretPrincipal> {
    let mut found = Vec::new();
    for item in given.read_list(sink).unwrap_or_default() {
        let Some(fields) = FieldReader::from_node(item.node, "an entry of `access`", PRINCIPAL_FIELDS, sink) else {
            continue;
        };
        let makes: [(&'static str, PrincipalConstructor); 5] = [
            ("role", SecretPrincipal::Role),
            ("userId", SecretPrincipal::User),
            ("tool", SecretPrincipal::Tool),
            ("workflow", SecretPrincipal::Workflow),
            ("cap", SecretPrincipal::Cap),
        ];
        let mut named = Vec::new();
        for (name, make) in makes {
            let text = fields.optional(name).and_then(|given| given.read_non_empty_text(sink));
            named.extend(text.map(|text| make(text.value.to_owned())));
        }
        fields.finish(sink);
        match named.len() {
            1 => found.append(&mut named),
            _ => sink.push(item.diagnose_type("one of `role`, `userId`, `tool`, `workflow` and `cap`, with a name")),
        }
    }
    found
}

const AUDIT_FIELDS: FieldTable = FieldTable::closed(&["pii"]).with_unread(&["retention", "classification"]);

fn check_audit(given: FieldValue<'_>, sink: &mut DiagnosticSink) {
    let Some(fields) = FieldReader::from_node(given.node, "`audit`", AUDIT_FIELDS, sink) else {
        return;
    };
    fields.optional("pii").and_then(|given| given.read_bool(sink));
    fields.finish(sink);
}

/// Reads the secrets that a tool or a workflow requires.
pub(super) fn read_required_secrets(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Vec<String> {
    read_texts(given, sink).iter().map(|name| to_variable_name(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &str) -> Result<Vec<SecretDeclaration>, Vec<String>> {
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        read_secrets(SourceFile::new("SECRETS.md", format!("---\nname: Ours\nsecrets:\n{list}---\nProse.\n")))
            .map_err(said)
    }

    #[test]
    fn a_secret_says_who_may_have_it_and_how() {
        let found = read(
            "  - slug: stripe-api-key\n    kind: opaque\n    backend: env\n    access:\n      reveal: [{role: ops}, {tool: pay}]\n      \
             rotate: [{userId: ada}]\n    audit: {retention: 90d, pii: false}\n    exposures: [env, file]\n  - slug: other\n",
        )
        .unwrap();
        let reveal = Some(vec![SecretPrincipal::Role("ops".into()), SecretPrincipal::Tool("pay".into())]);
        let exposures = vec![SecretExposure::Env, SecretExposure::File];
        assert_eq!(
            (&found[0].slug[..], &found[0].reveal, &found[0].exposures),
            ("stripe-api-key", &reveal, &exposures)
        );
        assert_eq!((&found[1].slug[..], &found[1].reveal, found[1].exposures.len()), ("other", &None, 0));
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_and_never_its_value() {
        for (list, says) in [
            ("  - {slug: a, value: hunter2-hunter2}\n", "a secret has no `value`"),
            ("  - {slug: a, token: hunter2-hunter2}\n", "a secret has no `token`"),
            ("  - {slug: A_KEY}\n", "`A_KEY` cannot be the slug"),
            ("  - {slug: a, kind: magic}\n", "`kind` cannot be `magic`"),
            ("  - {slug: a}\n  - {slug: a}\n", "there is a secret `a` already"),
            ("  - {slug: a, exposures: [post]}\n", "cannot be `post`"),
            ("  - {slug: a, access: {reveal: [{role: a, tool: b}]}}\n", "one of `role`, `userId`"),
            ("  - {slug: a, access: {show: []}}\n", "`access` has no field `show`"),
            ("  - {name: a}\n", "`slug`"),
        ] {
            let said = read(list).unwrap_err();
            assert!(said.iter().any(|one| one.contains(says)), "{list}: {said:?}");
            assert!(!said.iter().any(|one| one.contains("hunter2")), "{said:?}");
        }
    }
}
