//! The fields that the definitions of AIP files share: names, versions, approval, risk, cost, retry and schemas.

use std::ops::RangeInclusive;

use serde_json::Value;
use skein_core::builder::{ApprovalClass, BackoffKind, CostClass, RetryDefinition, RiskLevel};

use crate::{
    diagnostics::{Code, DiagnosticSink},
    fields::{FieldReader, FieldValue, check_delay},
};

pub(crate) const NAME_CHARS: usize = 80;
pub(crate) const DESCRIPTION_CHARS: usize = 2_000;
pub(crate) const ATTEMPTS: RangeInclusive<u32> = 1..=20;

const RISKS: [RiskLevel; 4] =
    [RiskLevel::ReadOnly, RiskLevel::ScopedWrites, RiskLevel::ExternalEffects, RiskLevel::Irreversible];

pub(crate) const COSTS: &[(&str, CostClass)] =
    &[("trivial", CostClass::Trivial), ("metered", CostClass::Metered), ("expensive", CostClass::Expensive)];

pub(crate) const BACKOFFS: &[(&str, BackoffKind)] =
    &[("fixed", BackoffKind::Fixed), ("exponential", BackoffKind::Exponential)];

const POLICY: &str = "policy:";
const CLASSES: &[(&str, &ApprovalClass)] = &[
    ("auto", &ApprovalClass::Auto),
    ("always", &ApprovalClass::Always),
    ("on-mutate", &ApprovalClass::OnMutate),
    ("per-step", &ApprovalClass::PerStep),
    // Only for the list of alternatives: a policy is given by its reference.
    ("policy:<ref>", &ApprovalClass::PerStep),
];

/// Parses a class of approval by its word, as `skein.toml` writes it.
pub fn parse_approval_class(word: &str) -> Result<ApprovalClass, &'static [&'static str]> {
    const WORDS: &[&str] = &["auto", "on-mutate", "always", "policy:<ref>"];
    match word.strip_prefix(POLICY).map(str::trim) {
        Some("" | "<ref>") => Err(WORDS),
        Some(reference) => Ok(ApprovalClass::Policy(reference.to_owned())),
        None => {
            let known = CLASSES.iter().find(|(known, _)| *known == word && WORDS.contains(known));
            known.map(|(_, class)| (*class).clone()).ok_or(WORDS)
        }
    }
}

pub(crate) fn read_approval(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<ApprovalClass> {
    match given.node.raw_text().and_then(|raw| raw.strip_prefix(POLICY)).map(str::trim) {
        Some("" | "<ref>") => {
            let message = format!("`{}` names no policy", given.name);
            let diagnostic = given.diagnose(Code::NoValue, message);
            sink.push(diagnostic.with_hint("write its reference after the colon, such as `policy:finance`"));
            None
        }
        Some(reference) => Some(ApprovalClass::Policy(reference.to_owned())),
        None => given.read_one_of(CLASSES, sink).map(|class| class.value.clone()),
    }
}

pub(crate) fn read_risk_level(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<RiskLevel> {
    let level = given.read_whole_number(0..=3, sink)?.value;
    RISKS.get(usize::try_from(level).ok()?).copied()
}

const RETRY_FIELDS: &[&str] = &["max_attempts", "backoff", "initial_ms"];

pub(crate) fn read_retry(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<RetryDefinition> {
    let mut fields = FieldReader::from_node(given.node, "`retry`", RETRY_FIELDS, sink)?;
    let max_attempts = fields.required("max_attempts", sink).and_then(|given| given.read_whole_number(ATTEMPTS, sink));
    let backoff = fields.required("backoff", sink).and_then(|given| given.read_one_of(BACKOFFS, sink));
    let initial_ms = fields.optional("initial_ms");
    let initial_ms = initial_ms.and_then(|given| check_delay(given, given.read_millis(0, sink), sink));
    fields.finish(sink);
    Some(RetryDefinition {
        max_attempts: max_attempts?.value,
        backoff: backoff?.value,
        initial_ms: initial_ms.map(|length| length.value.0),
    })
}

/// Reads a JSON Schema. The plan checks that it is valid.
pub(crate) fn read_schema(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<Value> {
    let value = given.node.to_json();
    if value.is_object() || value.is_boolean() {
        return Some(value);
    }
    sink.push(given.diagnose_type("a JSON Schema"));
    None
}

/// Reads a text of at most `most` characters.
pub(crate) fn read_short_text<'a>(given: FieldValue<'a>, most: usize, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let text = given.read_non_empty_text(sink)?.value;
    let length = text.chars().count();
    if length > most {
        let message = format!("`{}` has {length} characters; the maximum is {most}", given.name);
        sink.push(given.diagnose(Code::WrongType, message));
    }
    Some(text)
}

/// Reads a version: three numbers with dots, then perhaps a pre-release and a build.
pub(crate) fn read_version<'a>(given: FieldValue<'a>, sink: &mut DiagnosticSink) -> Option<&'a str> {
    let Some(text) = given.node.raw_text() else {
        sink.push(given.diagnose_type(VERSION));
        return None;
    };
    if !is_semver(text) {
        let parts = text.split('.').count();
        let numbers = !text.is_empty() && text.split('.').all(is_number);
        let diagnostic = given.diagnose_type(VERSION);
        sink.push(match parts {
            1 | 2 if numbers => {
                let whole = format!("{text}{}", ".0".repeat(3 - parts));
                diagnostic.with_hint(format!("write {whole}")).with_word_fix(given.span(), &whole)
            }
            _ => diagnostic,
        });
        return None;
    }
    Some(text)
}

const VERSION: &str = "a version of three numbers, such as `1.0.0`";

fn is_semver(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(rest, pre)| (rest, Some(pre)));
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_pre = |word: &str| is_word(word) && (is_number(word) || !word.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_pre))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// True for digits without a leading zero.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_as_semver_says() {
        for good in ["0.1.0", "1.0.0", "10.20.30", "1.0.0-rc.1", "1.0.0-x-y.7+build.01", "1.0.0+5"] {
            assert!(is_semver(good), "{good}");
        }
        for bad in ["", "1", "1.0", "1.0.0.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0+", "1.0.x"] {
            assert!(!is_semver(bad), "{bad}");
        }
    }
}
