//! A SECRETS.md: the secrets of a project, who may have each, and how they are handed out. Never what they are.
//!
//! Owns the fields of AIP-19. Refuses to know where a value comes from, and that a file holds one.

use std::{collections::BTreeMap, fmt, sync::Arc};

use skein_core::{
    expr::Span,
    secret_name::{slug, variable},
};

use super::{
    defaults::{DESCRIPTION_CHARS, NAME_CHARS},
    policy,
    tool::texts,
};
use crate::{
    code::Code,
    detect::front_matter,
    diagnostic::{Diagnostic, Sink},
    read::{Fields, Given, brief},
    source::Source,
};

/// What a value could be written under.
const VALUES: &[&str] = &[
    "value",
    "values",
    "plaintext",
    "secret",
    "password",
    "passphrase",
    "token",
    "key",
    "private_key",
    "default",
    "data",
];
const EXPOSURES: &[(&str, Exposure)] =
    &[("env", Exposure::Env), ("file", Exposure::File), ("egress-substitute", Exposure::Substitute)];

/// A secret as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    pub slug: String,
    pub span: Span,
    pub description: Option<String>,
    /// Who may have it handed out; any one of these suffices. None: the file does not say.
    pub reveal: Option<Vec<Principal>>,
    /// How it may be handed out; none named is by the environment.
    pub exposures: Vec<Exposure>,
}

/// Someone or something that a secret may be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    Role(String),
    User(String),
    Tool(String),
    Workflow(String),
    /// A capability, which nobody here has.
    Cap(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    Env,
    File,
    /// Put in place of a mark in what is sent out.
    Substitute,
}

impl Principal {
    /// Whether it is this tool, which may be named with its version, or this workflow.
    pub fn is(&self, tool: Option<&str>, workflow: &str) -> bool {
        let plain = |name: &str| name.rsplit_once('@').map_or(name, |(id, _)| id).to_owned();
        match self {
            Principal::Tool(name) => tool.is_some_and(|tool| plain(tool) == plain(name)),
            Principal::Workflow(name) => name == workflow,
            Principal::Role(_) | Principal::User(_) | Principal::Cap(_) => false,
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sort, name) = match self {
            Principal::Role(name) => ("role", name),
            Principal::User(name) => ("user", name),
            Principal::Tool(name) => ("tool", name),
            Principal::Workflow(name) => ("workflow", name),
            Principal::Cap(name) => ("cap", name),
        };
        write!(f, "{sort}:{name}")
    }
}

/// Reads a SECRETS.md.
pub fn secrets(source: Arc<Source>) -> Result<Vec<Secret>, Vec<Diagnostic>> {
    let mut sink = Sink::new(source);
    let read = front_matter(&mut sink).and_then(|tree| {
        let mut fields = Fields::of(tree.root(), "a file of secrets", &mut sink)?;
        fields.allow(&["schema", "doctype", "name", "id", "description", "version", "tags", "metadata"]);
        let list = fields.required("secrets", &mut sink);
        fields.finish(&mut sink);
        let mut seen = BTreeMap::new();
        let items = list?.list(&mut sink).unwrap_or_default();
        Some(items.into_iter().filter_map(|item| read(item, &mut seen, &mut sink)).collect())
    });
    match read {
        Some(secrets) if !sink.has_errors() => Ok(secrets),
        _ => Err(sink.finish()),
    }
}

fn read<'a>(given: Given<'a>, seen: &mut BTreeMap<&'a str, Span>, sink: &mut Sink) -> Option<Secret> {
    let mut fields = Fields::of(given.node, "a secret", sink)?;
    refuse_values(&mut fields, sink);
    let name = fields.required("slug", sink).and_then(|given| good_slug(given, sink));
    if let Some((name, span)) = name
        && let Some(first) = seen.insert(name, span)
    {
        let message = format!("there is a secret `{name}` already");
        let diagnostic = Diagnostic::new(Code::DuplicateName, fields.node().source(), span, message);
        sink.push(diagnostic.also(first, "it is here"));
    }
    fields.optional("name").and_then(|given| policy::short_text(given, NAME_CHARS, sink));
    let description = fields.optional("description");
    let description = description.and_then(|given| policy::short_text(given, DESCRIPTION_CHARS, sink));
    let kinds = ["opaque", "oauth", "keypair", "json"].map(|kind| (kind, ()));
    fields.optional("kind").and_then(|given| given.one_of(&kinds, sink));
    fields.optional("backend").and_then(|given| given.words(sink));
    let reveal = fields.optional("access").and_then(|given| access(given, sink));
    if let Some(given) = fields.optional("audit") {
        audit(given, sink);
    }
    let exposures = fields.optional("exposures").and_then(|given| given.list(sink)).unwrap_or_default();
    let exposures = exposures.into_iter().filter_map(|item| item.one_of(EXPOSURES, sink));
    let exposures = exposures.map(|exposure| exposure.value).collect();
    fields.allow(&["tags", "metadata"]);
    fields.finish(sink);
    let ((slug, span), description) = (name?, description.map(str::to_owned));
    Some(Secret { slug: slug.to_owned(), span, description, reveal, exposures })
}

fn good_slug<'a>(given: Given<'a>, sink: &mut Sink) -> Option<(&'a str, Span)> {
    let text = given.words(sink)?;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = text.value.len() <= NAME_CHARS
        && text.value.starts_with(|c: char| c.is_ascii_lowercase())
        && text.value.chars().all(inner)
        && !text.value.ends_with('-');
    if good {
        return Some((text.value, text.span));
    }
    let message = format!("`{}` cannot be the slug of a secret", brief(text.value));
    let diagnostic = Diagnostic::new(Code::BadName, given.node.source(), given.node.mark(), message);
    sink.push(diagnostic.hint(format!(
        "lower case letters, digits and dashes, from a letter, such as `{}`",
        slug(text.value).trim_matches(|c: char| !c.is_ascii_alphanumeric())
    )));
    None
}

/// What could be a value is refused by its name, and is not shown.
fn refuse_values(fields: &mut Fields<'_>, sink: &mut Sink) {
    for name in VALUES {
        if let Some(field) = fields.retired(name) {
            let message = format!("a secret has no `{name}`: its value is never in a file that describes it");
            let diagnostic =
                Diagnostic::new(Code::RemovedField, field.value.source(), field.key_span, message);
            let hint = "take it out, replace the value if others have seen it, and say in `[secrets]` of skein.toml where it is";
            sink.push(diagnostic.hint(hint));
        }
    }
}

fn access(given: Given<'_>, sink: &mut Sink) -> Option<Vec<Principal>> {
    let mut fields = Fields::of(given.node, "`access`", sink)?;
    let [reveal, bind, rotate] = ["reveal", "bind", "rotate"].map(|name| fields.optional(name));
    fields.finish(sink);
    for given in [bind, rotate].into_iter().flatten() {
        principals(given, sink);
    }
    reveal.map(|given| principals(given, sink))
}

/// How a name becomes someone.
type Make = fn(String) -> Principal;

fn principals(given: Given<'_>, sink: &mut Sink) -> Vec<Principal> {
    let mut found = Vec::new();
    for item in given.list(sink).unwrap_or_default() {
        let Some(mut fields) = Fields::of(item.node, "who may", sink) else { continue };
        let makes: [(&'static str, Make); 5] = [
            ("role", Principal::Role),
            ("userId", Principal::User),
            ("tool", Principal::Tool),
            ("workflow", Principal::Workflow),
            ("cap", Principal::Cap),
        ];
        let mut named = Vec::new();
        for (name, make) in makes {
            let text = fields.optional(name).and_then(|given| given.words(sink));
            named.extend(text.map(|text| make(text.value.to_owned())));
        }
        fields.finish(sink);
        match named.len() {
            1 => found.append(&mut named),
            _ => sink.push(item.wrong("one of `role`, `userId`, `tool`, `workflow` and `cap`, with a name")),
        }
    }
    found
}

fn audit(given: Given<'_>, sink: &mut Sink) {
    let Some(mut fields) = Fields::of(given.node, "`audit`", sink) else { return };
    fields.optional("pii").and_then(|given| given.flag(sink));
    fields.allow(&["retention", "classification"]);
    fields.finish(sink);
}

/// The secrets that a tool or a workflow says that it needs.
pub(super) fn required(given: Given<'_>, sink: &mut Sink) -> Vec<String> {
    texts(given, sink).iter().map(|name| variable(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &str) -> Result<Vec<Secret>, Vec<String>> {
        let said = |all: Vec<Diagnostic>| all.into_iter().map(|one| one.message).collect();
        secrets(Source::new("SECRETS.md", format!("---\nname: Ours\nsecrets:\n{list}---\nProse.\n")))
            .map_err(said)
    }

    #[test]
    fn a_secret_says_who_may_have_it_and_how() {
        let found = read(
            "  - slug: stripe-api-key\n    kind: opaque\n    backend: env\n    access:\n      reveal: [{role: ops}, {tool: pay}]\n      \
             rotate: [{userId: ada}]\n    audit: {retention: 90d, pii: false}\n    exposures: [env, file]\n  - slug: other\n",
        )
        .unwrap();
        let reveal = Some(vec![Principal::Role("ops".into()), Principal::Tool("pay".into())]);
        let exposures = vec![Exposure::Env, Exposure::File];
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
