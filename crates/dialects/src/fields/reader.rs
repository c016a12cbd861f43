//! Reads fields, with the same diagnostics for every format.
//!
//! Owns the diagnostics about fields that are missing, unknown, mistyped or out of range. Does not know the fields of a
//! format.

use std::{fmt, ops::RangeInclusive};

use skein_core::{expr::ExprSpan, ids::IdError, limits, suggest::find_closest_name, time::Millis};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, shorten_text},
    fields::DurationUnits,
    source::yaml::{YamlField, YamlNode, YamlScalar},
};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Spanned<T> {
    pub value: T,
    pub span: ExprSpan,
}

impl<T> Spanned<T> {
    pub fn new(value: T, span: ExprSpan) -> Spanned<T> {
        Spanned { value, span }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: f(self.value), span: self.span }
    }
}

/// Steps that are read but not lowered yet. Each is boxed, so that lowering one frees its memory for the result.
pub type UnloweredSteps<T> = Vec<Box<T>>;

/// The fields of one mapping, taken one by one. Those that remain at the end are unknown.
#[derive(Debug)]
pub struct FieldReader<'a> {
    /// The name of the mapping with its article, such as `a step`.
    subject: &'static str,
    node: YamlNode<'a>,
    /// The place of diagnostics about missing fields. None: the start of the mapping.
    head: Option<ExprSpan>,
    requested: Vec<&'static str>,
    /// The indexes of the fields that were found, as bits; only the first 64.
    found: u64,
    /// Required fields that are absent. They are reported at the end, because they may only be misspelt.
    missing: Vec<&'static str>,
    /// Fields of older versions, which have diagnostics of their own.
    retired: Vec<&'static str>,
}

/// The usual maximum number of requested fields.
const USUAL_FIELDS: usize = 24;

/// The value of one field.
#[derive(Debug, Clone, Copy)]
pub struct FieldValue<'a> {
    pub name: &'a str,
    pub node: YamlNode<'a>,
    /// True if it is an item of a list of that name.
    item: bool,
}

impl<'a> FieldReader<'a> {
    /// Opens a mapping. Reports a node of another type and returns None.
    pub fn from_node(node: YamlNode<'a>, subject: &'static str, sink: &mut DiagnosticSink) -> Option<FieldReader<'a>> {
        if node.fields().is_none() {
            let message = format!("{subject} is a mapping of fields, found {}", node.describe());
            sink.push(Diagnostic::new(Code::WrongType, node.source(), node.first_line_span(), message));
            return None;
        }
        Some(FieldReader {
            subject,
            node,
            head: None,
            requested: Vec::with_capacity(USUAL_FIELDS),
            found: 0,
            missing: Vec::new(),
            retired: Vec::new(),
        })
    }

    /// Opens the mapping of a field. Missing fields are reported at its key.
    pub fn from_field(
        field: YamlField<'a>,
        subject: &'static str,
        sink: &mut DiagnosticSink,
    ) -> Option<FieldReader<'a>> {
        FieldReader::from_node(field.value, subject, sink)
            .map(|fields| FieldReader { head: Some(field.key_span), ..fields })
    }

    pub fn node(&self) -> YamlNode<'a> {
        self.node
    }

    /// Returns the start of the mapping, or its key.
    pub fn head_span(&self) -> ExprSpan {
        self.head.unwrap_or_else(|| self.node.first_line_span())
    }

    /// Reads an optional field. One without a value counts as absent.
    pub fn optional(&mut self, name: &'static str) -> Option<FieldValue<'a>> {
        self.requested.push(name);
        let (place, field) = self.node.find_field(name)?;
        self.found |= u32::try_from(place).ok().and_then(|place| 1u64.checked_shl(place)).unwrap_or(0);
        (!field.value.is_null()).then_some(FieldValue::new(name, field.value))
    }

    pub fn required(&mut self, name: &'static str, sink: &mut DiagnosticSink) -> Option<FieldValue<'a>> {
        let given = self.optional(name);
        if given.is_none() {
            match self.node.field(name) {
                Some(field) => {
                    let message = format!("`{name}` has no value");
                    sink.push(Diagnostic::new(Code::NoValue, field.value.source(), field.key_span, message));
                }
                None => self.missing.push(name),
            }
        }
        given
    }

    /// Accepts fields that are not read.
    pub fn allow_fields(&mut self, names: &[&'static str]) {
        self.requested.extend(names);
    }

    /// Returns a field with the place of its key.
    pub fn field(&self, name: &str) -> Option<YamlField<'a>> {
        self.node.field(name)
    }

    /// True if a field of this name has been requested.
    pub fn was_requested(&self, name: &str) -> bool {
        self.requested.contains(&name)
    }

    /// Returns a field of older versions. Its name never appears in suggestions.
    pub fn take_retired(&mut self, name: &'static str) -> Option<YamlField<'a>> {
        self.retired.push(name);
        self.field(name)
    }

    /// Refuses every field that was not requested.
    pub fn finish(self, sink: &mut DiagnosticSink) {
        self.report_unknown(sink, Code::UnknownField, |_| None);
    }

    /// Refuses every field that was not requested. `elsewhere` returns a hint for fields that belong to another
    /// mapping.
    pub fn finish_with(self, sink: &mut DiagnosticSink, elsewhere: impl Fn(&str) -> Option<String>) {
        self.report_unknown(sink, Code::UnknownField, elsewhere);
    }

    /// Warns of every field that was not requested: the format is open to additional fields. Refuses one that is
    /// probably a misspelling of a missing field.
    pub fn finish_open(self, sink: &mut DiagnosticSink) {
        self.report_unknown(sink, Code::IgnoredField, |_| None);
    }

    fn report_unknown(mut self, sink: &mut DiagnosticSink, code: Code, elsewhere: impl Fn(&str) -> Option<String>) {
        let fields = self.node.fields().filter(|fields| self.found.count_ones() as usize != fields.len());
        for field in fields.into_iter().flatten() {
            if self.requested.contains(&field.key) || self.retired.contains(&field.key) {
                continue;
            }
            // A merge key has been refused; fields that it would have provided are not missing.
            if field.value.source().slice(field.key_span) == "<<" {
                self.missing.clear();
                continue;
            }
            let near = || find_closest_name(field.key, self.requested.iter().copied());
            let near = if sink.is_full(code) { None } else { near() };
            let near = near.filter(|near| self.node.get(near).is_none());
            let missing = near.and_then(|near| self.missing.iter().position(|name| *name == near));
            let code = if missing.is_some() { Code::UnknownField } else { code };
            let message = format!("{} has no field `{}`", self.subject, shorten_text(field.key));
            let diagnostic = Diagnostic::new(code, field.value.source(), field.key_span, message);
            let diagnostic = match (elsewhere(field.key), near) {
                (Some(hint), _) => diagnostic.with_hint(hint),
                (None, Some(near)) => {
                    missing.map(|at| self.missing.remove(at));
                    let refused = diagnostic.with_suggestion(field.key_span, near);
                    sink.record_misspelling(field.key_span, near, &refused);
                    refused
                }
                (None, None) => diagnostic.with_hint(format!("its fields are {}", quote_names(&self.requested))),
            };
            sink.push(diagnostic);
        }
        // One diagnostic for all, because they share one place.
        if !self.missing.is_empty() {
            let message = format!("{} needs {}", self.subject, join_names(&self.missing));
            sink.push(Diagnostic::new(Code::MissingField, self.node.source(), self.head_span(), message));
        }
    }
}

/// Joins quoted names with "and".
fn join_names(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and `{last}`", quote_names(first)),
        names => quote_names(names),
    }
}

/// Joins quoted names with commas.
fn quote_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl<'a> FieldValue<'a> {
    pub fn new(name: &'a str, node: YamlNode<'a>) -> FieldValue<'a> {
        FieldValue { name, node, item: false }
    }

    /// Returns the name that messages use.
    fn display_name(self) -> String {
        let article = if self.item { "an item of " } else { "" };
        format!("{article}`{}`", self.name)
    }

    pub fn span(self) -> ExprSpan {
        self.node.span()
    }

    /// Builds a diagnostic about the value.
    pub fn diagnose(self, code: Code, message: impl Into<String>) -> Diagnostic {
        self.node.diagnose(code, message)
    }

    /// Builds the diagnostic about a value of another type.
    pub fn diagnose_type(self, expected: impl fmt::Display) -> Diagnostic {
        self.diagnose(Code::WrongType, format!("{} is {expected}, found {}", self.display_name(), self.node.describe()))
    }

    /// Reads a text. Refuses an unquoted number or boolean.
    pub fn read_text(self, sink: &mut DiagnosticSink) -> Option<Spanned<&'a str>> {
        match self.node.scalar() {
            Some(YamlScalar::Text(text)) => Some(Spanned::new(text, self.span())),
            Some(YamlScalar::Bool(_) | YamlScalar::Int(_) | YamlScalar::Float(_)) => {
                let quoted = format!("\"{}\"", self.node.raw_text().unwrap_or_default());
                let diagnostic = self.diagnose_type("text").with_hint(format!("write {quoted}"));
                sink.push(diagnostic.with_fix(self.span(), quoted));
                None
            }
            Some(YamlScalar::Null) | None => {
                sink.push(self.diagnose_type("text"));
                None
            }
        }
    }

    /// Reads a text that is not blank.
    pub fn read_non_empty_text(self, sink: &mut DiagnosticSink) -> Option<Spanned<&'a str>> {
        let text = self.read_text(sink)?;
        if text.value.trim().is_empty() {
            self.report_empty(sink);
            return None;
        }
        Some(text)
    }

    /// Reports an empty value.
    pub fn report_empty(self, sink: &mut DiagnosticSink) {
        sink.push(self.diagnose(Code::NoValue, format!("{} is empty", self.display_name())));
    }

    pub fn read_bool(self, sink: &mut DiagnosticSink) -> Option<Spanned<bool>> {
        if let Some(YamlScalar::Bool(value)) = self.node.scalar() {
            return Some(Spanned::new(value, self.span()));
        }
        let diagnostic = self.diagnose_type("`true` or `false`");
        let meant = match self.node.raw_text() {
            Some("yes" | "Yes" | "YES" | "on" | "On" | "y") => Some("true"),
            Some("no" | "No" | "NO" | "off" | "Off" | "n") => Some("false"),
            _ => None,
        };
        sink.push(match meant {
            Some(meant) => diagnostic.with_hint(format!("write `{meant}`")).with_fix(self.span(), meant),
            None => diagnostic,
        });
        None
    }

    /// Reads a whole number within a range.
    pub fn read_whole_number(self, range: RangeInclusive<u32>, sink: &mut DiagnosticSink) -> Option<Spanned<u32>> {
        let number = self.read_integer(u64::from(*range.start())..=u64::from(*range.end()), None, sink)?;
        u32::try_from(number.value).ok().map(|value| Spanned::new(value, number.span))
    }

    /// Reads a duration as a whole number of milliseconds, at least `least`.
    pub fn read_millis(self, least: u64, sink: &mut DiagnosticSink) -> Option<Spanned<Millis>> {
        let meant = self.node.raw_text().and_then(|raw| DurationUnits::All.parse(raw).ok());
        self.read_integer(least..=limits::TIMEOUT, meant.map(|length| length.0), sink).map(|n| n.map(Millis))
    }

    /// Reads a whole number. `meant` is the suggestion for a value that is not one.
    fn read_integer(
        self,
        range: RangeInclusive<u64>,
        meant: Option<u64>,
        sink: &mut DiagnosticSink,
    ) -> Option<Spanned<u64>> {
        let raw = self.node.raw_text().unwrap_or_default();
        match self.node.scalar() {
            Some(YamlScalar::Int(_)) if has_leading_zero(raw) => {
                let message = format!("`{raw}` starts with a zero");
                let hint = "leave the zero out; an octal number is written `0o17`";
                sink.push(self.diagnose(Code::BadNumber, message).with_hint(hint));
                None
            }
            Some(YamlScalar::Int(value)) => match u64::try_from(value).ok().filter(|n| range.contains(n)) {
                Some(value) => Some(Spanned::new(value, self.span())),
                None => {
                    let (least, most) = (range.start(), range.end());
                    let bounds = match u64::from(u32::MAX) {
                        huge if *most < huge => format!("from {least} to {most}"),
                        huge if value > i128::from(huge) => format!("at most {most}"),
                        _ => format!("at least {least}"),
                    };
                    let message = format!("{} is {bounds}, not {value}", self.display_name());
                    sink.push(self.diagnose(Code::BadNumber, message));
                    None
                }
            },
            _ => {
                let plain = meant.or_else(|| raw.replace('_', "").parse().ok());
                let diagnostic = self.diagnose_type("a whole number");
                sink.push(match plain {
                    Some(plain) => {
                        diagnostic.with_hint(format!("write {plain}")).with_fix(self.span(), plain.to_string())
                    }
                    None => diagnostic,
                });
                None
            }
        }
    }

    /// Reads a finite number.
    pub fn read_number(self, sink: &mut DiagnosticSink) -> Option<Spanned<f64>> {
        match self.node.scalar() {
            #[allow(clippy::cast_precision_loss, reason = "a count of anything is far below that")]
            Some(YamlScalar::Int(value)) => Some(Spanned::new(value as f64, self.span())),
            Some(YamlScalar::Float(value)) => Some(Spanned::new(value, self.span())),
            _ => {
                sink.push(self.diagnose_type("a number"));
                None
            }
        }
    }

    /// Reads one of a closed set of words.
    pub fn read_one_of<T: Copy>(self, words: &[(&str, T)], sink: &mut DiagnosticSink) -> Option<Spanned<T>> {
        let names = || words.iter().map(|(word, _)| *word);
        let listed = || quote_names(&names().collect::<Vec<_>>());
        let Some(raw) = self.node.raw_text().filter(|_| !self.node.is_null()) else {
            sink.push(self.diagnose_type(format!("one of {}", listed())));
            return None;
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == raw) {
            return Some(Spanned::new(*value, self.span()));
        }
        let message = format!("`{}` cannot be `{}`", self.name, shorten_text(raw));
        let diagnostic = self.diagnose(Code::UnknownWord, message);
        sink.push(match find_closest_name(raw, names()) {
            Some(near) => diagnostic.with_suggestion(self.span(), near),
            None => diagnostic.with_hint(format!("it is one of {}", listed())),
        });
        None
    }

    /// Reads a duration above zero.
    pub fn read_duration(self, units: DurationUnits, sink: &mut DiagnosticSink) -> Option<Spanned<Millis>> {
        let Some(text) = self.node.raw_text().filter(|_| !self.node.is_null()) else {
            sink.push(self.diagnose_type(format!("a duration, such as `{}`", units.example())));
            return None;
        };
        if text.is_empty() {
            self.report_empty(sink);
            return None;
        }
        match units.parse(text) {
            Ok(length) => Some(Spanned::new(length, self.span())),
            Err(why) => {
                let message = format!("invalid duration `{}`: {why}", shorten_text(text));
                let diagnostic = self.diagnose(Code::BadDuration, message);
                sink.push(match units.suggest_spelling(text) {
                    Some(meant) => diagnostic.with_hint(format!("write `{meant}`")).with_word_fix(self.span(), &meant),
                    None => {
                        let (example, known) = (units.example(), units.quoted_names());
                        diagnostic.with_hint(format!("write a duration such as `{example}`; units are {known}"))
                    }
                });
                None
            }
        }
    }

    /// Reads the items of a list, each under the name of the list.
    pub fn read_list(self, sink: &mut DiagnosticSink) -> Option<Vec<FieldValue<'a>>> {
        Some(self.read_items(sink)?.collect())
    }

    /// Reads the items of a list as an iterator.
    pub fn read_items(
        self,
        sink: &mut DiagnosticSink,
    ) -> Option<impl ExactSizeIterator<Item = FieldValue<'a>> + use<'a>> {
        let Some(items) = self.node.items() else {
            let diagnostic = self.diagnose_type("a list");
            sink.push(match self.node.raw_text() {
                Some(raw) if !raw.trim().is_empty() && !raw.contains('\n') => diagnostic
                    .with_hint(format!("a list of one is `[{raw}]`"))
                    .with_fix(self.span(), format!("[{}]", self.node.source().slice(self.span()))),
                _ => diagnostic,
            });
            return None;
        };
        Some(items.map(move |node| FieldValue { item: true, ..FieldValue::new(self.name, node) }))
    }

    /// Reads the items of a list of words. A single word is refused, and read as a list of one.
    pub fn read_word_list(self, sink: &mut DiagnosticSink) -> impl Iterator<Item = FieldValue<'a>> + use<'a> {
        let is_word = matches!(self.node.scalar(), Some(YamlScalar::Text(text)) if !text.trim().is_empty());
        self.read_items(sink).into_iter().flatten().chain(is_word.then_some(self))
    }

    /// Reads a name that is safe in paths and messages.
    pub fn read_name<T>(
        self,
        make: impl FnOnce(&str) -> Result<T, IdError>,
        sink: &mut DiagnosticSink,
    ) -> Option<Spanned<T>> {
        let text = self.read_non_empty_text(sink)?;
        match make(text.value) {
            Ok(name) => Some(Spanned::new(name, text.span)),
            Err(IdError::Empty) => {
                self.report_empty(sink);
                None
            }
            Err(why) => {
                let message = format!("`{}` cannot be a name: {why}", shorten_text(text.value));
                sink.push(self.diagnose(Code::BadName, message));
                None
            }
        }
    }
}

/// True for a number such as `010`, which is ten here and eight in other languages.
fn has_leading_zero(raw: &str) -> bool {
    let digits = raw.trim_start_matches(['+', '-']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_to_its_beginning() {
        assert_eq!(shorten_text("READ"), "READ");
        assert_eq!(shorten_text("one\ntwo"), "one…");
        assert_eq!(shorten_text("one\n"), "one");
        assert_eq!(shorten_text(&"é".repeat(99)), format!("{}…", "é".repeat(60)));
    }
}
