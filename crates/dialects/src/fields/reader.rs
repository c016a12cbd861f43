//! Reads fields, with the same diagnostics for every format.
//!
//! Owns the diagnostics about fields that are missing, unknown, mistyped or out of range. Each reader passes the table of
//! its fields, a constant beside it whose name ends with `FIELDS`.

use std::{fmt, ops::RangeInclusive};

use skein_core::{expr::ExprSpan, ids::IdError, limits, suggest::find_closest_name, time::Millis};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, shorten_text},
    fields::DurationUnits,
    source::yaml::{YamlField, YamlNode, YamlScalar},
};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spanned<T> {
    pub value: T,
    pub span: ExprSpan,
}

impl<T> Spanned<T> {
    pub(crate) fn new(value: T, span: ExprSpan) -> Spanned<T> {
        Spanned { value, span }
    }

    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: f(self.value), span: self.span }
    }
}

/// Steps that are read but not lowered yet. Each is boxed, so that lowering one frees its memory for the result.
pub(crate) type UnloweredSteps<T> = Vec<Box<T>>;

/// Names of fields.
pub(crate) type FieldNames = &'static [&'static str];

/// The fields that a mapping may have, and the treatment of other keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldTable {
    fields: FieldNames,
    /// Further fields, such as those of a kind of step.
    more: &'static [FieldNames],
    /// Fields that are accepted but not taken from the reader.
    unread: FieldNames,
    /// True if the format is open to additional fields.
    is_open: bool,
    explain: fn(&str) -> Option<ForeignKey>,
}

/// The meaning of a key that is not a field of its mapping and not a misspelling.
#[derive(Debug)]
pub(crate) enum ForeignKey {
    /// A field of another mapping, with a hint.
    Elsewhere(String),
    /// A field with a diagnostic of its own, such as one of older versions.
    Refused { code: Code, message: String, hint: String },
}

impl FieldTable {
    /// The fields of a mapping that has no others.
    pub(crate) const fn closed(fields: FieldNames) -> FieldTable {
        FieldTable { fields, more: &[], unread: &[], is_open: false, explain: |_| None }
    }

    /// The fields of a mapping that may have others, which are ignored with a warning. A key that is probably a
    /// misspelling of a missing required field is refused.
    pub(crate) const fn open(fields: FieldNames) -> FieldTable {
        FieldTable { is_open: true, ..FieldTable::closed(fields) }
    }

    #[must_use]
    pub(crate) const fn with_more(self, more: &'static [FieldNames]) -> FieldTable {
        FieldTable { more, ..self }
    }

    #[must_use]
    pub(crate) const fn with_unread(self, unread: FieldNames) -> FieldTable {
        FieldTable { unread, ..self }
    }

    /// Limits the further fields to those of a kind.
    #[must_use]
    pub(crate) const fn for_kind(self, more: &'static [FieldNames]) -> FieldTable {
        FieldTable { more, unread: &[], ..self }
    }

    #[must_use]
    pub(crate) const fn with_explanations(self, explain: fn(&str) -> Option<ForeignKey>) -> FieldTable {
        FieldTable { explain, ..self }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        let is_in = |names: &FieldNames| names.contains(&name);
        is_in(&self.fields) || self.more.iter().any(is_in) || is_in(&self.unread)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let lists = std::iter::once(&self.fields).chain(self.more).flat_map(|names| names.iter());
        lists.chain(self.unread).copied()
    }
}

impl From<FieldNames> for FieldTable {
    fn from(fields: FieldNames) -> FieldTable {
        FieldTable::closed(fields)
    }
}

/// The fields of one mapping. Its misspelt keys are known from the start, and read as the fields that were meant.
#[derive(Debug)]
pub(crate) struct FieldReader<'a> {
    /// The name of the mapping with its article, such as `a step`.
    subject: &'static str,
    node: YamlNode<'a>,
    /// The place of diagnostics about missing fields. None: the start of the mapping.
    head: Option<ExprSpan>,
    table: FieldTable,
    /// Fields that are not in the table and not read as others.
    unknown: Vec<UnknownField<'a>>,
    /// Required fields that are absent. They are reported together at the end, because they share one place.
    missing: Vec<&'static str>,
    #[cfg(debug_assertions)]
    requested: std::cell::RefCell<Vec<&'static str>>,
}

/// A field that is not in the table of its mapping.
#[derive(Debug)]
struct UnknownField<'a> {
    /// The index in the mapping.
    place: usize,
    field: YamlField<'a>,
    /// The field that was probably meant.
    meant: Option<&'static str>,
}

/// The value of one field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldValue<'a> {
    pub name: &'a str,
    pub node: YamlNode<'a>,
    /// True if it is an item of a list of that name.
    item: bool,
}

impl<'a> FieldReader<'a> {
    /// Opens a mapping. Reports a node of another type and returns None.
    pub(crate) fn from_node(
        node: YamlNode<'a>,
        subject: &'static str,
        table: impl Into<FieldTable>,
        sink: &mut DiagnosticSink,
    ) -> Option<FieldReader<'a>> {
        FieldReader::open(node, subject, None, table.into(), sink)
    }

    /// Opens the mapping of a field. Missing fields are reported at its key.
    pub(crate) fn from_field(
        field: YamlField<'a>,
        subject: &'static str,
        table: impl Into<FieldTable>,
        sink: &mut DiagnosticSink,
    ) -> Option<FieldReader<'a>> {
        FieldReader::open(field.value, subject, Some(field.key_span), table.into(), sink)
    }

    fn open(
        node: YamlNode<'a>,
        subject: &'static str,
        head: Option<ExprSpan>,
        table: FieldTable,
        sink: &mut DiagnosticSink,
    ) -> Option<FieldReader<'a>> {
        let Some(fields) = node.fields() else {
            let message = format!("{subject} is a mapping of fields, found {}", node.describe());
            sink.push(Diagnostic::new(Code::WrongType, node.source(), node.first_line_span(), message));
            return None;
        };
        let unknown = fields.enumerate().filter(|(_, field)| !table.contains(field.key));
        let unknown = unknown.map(|(place, field)| UnknownField { place, field, meant: None });
        let mut reader = FieldReader {
            subject,
            node,
            head,
            table,
            unknown: unknown.collect(),
            missing: Vec::new(),
            #[cfg(debug_assertions)]
            requested: Default::default(),
        };
        if !reader.unknown.is_empty() {
            reader.correct_unknown(sink);
        }
        Some(reader)
    }

    /// Limits the table to the fields of a kind, once the kind is known.
    pub(crate) fn narrow(&mut self, subject: &'static str, table: FieldTable, sink: &mut DiagnosticSink) {
        (self.subject, self.table) = (subject, table);
        let unknown = &mut self.unknown;
        for (place, field) in self.node.fields().into_iter().flatten().enumerate() {
            if !table.contains(field.key) && unknown.iter().all(|known| known.place != place) {
                unknown.push(UnknownField { place, field, meant: None });
            }
        }
        self.correct_unknown(sink);
    }

    /// Finds the fields that unknown keys were meant as. In a closed mapping, they are reported and read as those fields.
    fn correct_unknown(&mut self, sink: &mut DiagnosticSink) {
        let (node, table) = (self.node, self.table);
        let absent = || table.names().filter(|name| node.field(name).is_none());
        let mut unknown = std::mem::take(&mut self.unknown);
        for UnknownField { field, meant, .. } in unknown.iter_mut().take(SUGGESTIONS) {
            let known = !sink.is_full(Code::UnknownField) && (table.explain)(field.key).is_none();
            *meant = if known { find_closest_name(field.key, absent()) } else { None };
        }
        unknown.retain(|unknown| match unknown.meant {
            Some(meant) if !table.is_open => {
                self.correct_key(unknown, meant, sink);
                false
            }
            _ => true,
        });
        self.unknown = unknown;
    }

    /// Reports a misspelt key, and reads it as the field that was probably meant.
    fn correct_key(&self, unknown: &UnknownField<'a>, meant: &'static str, sink: &mut DiagnosticSink) {
        sink.push(self.diagnose_unknown(unknown, Code::UnknownField));
        self.node.correct_key(unknown.place, meant);
    }

    pub(crate) fn node(&self) -> YamlNode<'a> {
        self.node
    }

    /// Returns the start of the mapping, or its key.
    pub(crate) fn head_span(&self) -> ExprSpan {
        self.head.unwrap_or_else(|| self.node.first_line_span())
    }

    /// True if the table has this field.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.table.contains(name)
    }

    /// Returns the fields that are not in the table and not misspelt.
    pub(crate) fn unknown_fields(&self) -> impl Iterator<Item = YamlField<'a>> {
        self.unknown.iter().map(|unknown| unknown.field)
    }

    /// Reads an optional field. One without a value counts as absent.
    pub(crate) fn optional(&self, name: &'static str) -> Option<FieldValue<'a>> {
        let field = self.field(name)?;
        (!field.value.is_null()).then_some(FieldValue::new(name, field.value))
    }

    pub(crate) fn required(&mut self, name: &'static str, sink: &mut DiagnosticSink) -> Option<FieldValue<'a>> {
        let Some(field) = self.field(name).or_else(|| self.correct_required(name, sink)) else {
            self.missing.push(name);
            return None;
        };
        if field.value.is_null() {
            let message = format!("`{name}` has no value");
            sink.push(Diagnostic::new(Code::NoValue, field.value.source(), field.key_span, message));
            return None;
        }
        Some(FieldValue::new(name, field.value))
    }

    /// Reads a misspelt key of an open mapping as the required field that was probably meant.
    fn correct_required(&mut self, name: &'static str, sink: &mut DiagnosticSink) -> Option<YamlField<'a>> {
        let place = self.unknown.iter().position(|unknown| unknown.meant == Some(name))?;
        let unknown = self.unknown.remove(place);
        self.correct_key(&unknown, name, sink);
        self.node.field(name)
    }

    /// Returns a field with the place of its key.
    pub(crate) fn field(&self, name: &'static str) -> Option<YamlField<'a>> {
        #[cfg(debug_assertions)]
        {
            assert!(self.allows(name), "`{name}` is not in the table of {}", self.subject);
            self.requested.borrow_mut().push(name);
        }
        self.node.field(name)
    }

    /// Reports unknown fields that have not been reported yet, and required fields that are missing.
    pub(crate) fn finish(mut self, sink: &mut DiagnosticSink) {
        for unknown in std::mem::take(&mut self.unknown) {
            // A merge key has been refused; fields that it would have provided are not missing.
            if unknown.field.value.source().slice(unknown.field.key_span) == "<<" {
                self.missing.clear();
                continue;
            }
            let code = if self.table.is_open { Code::IgnoredField } else { Code::UnknownField };
            sink.push(self.diagnose_unknown(&unknown, code));
        }
        if !self.missing.is_empty() {
            let message = format!("{} needs {}", self.subject, join_names(&self.missing));
            sink.push(Diagnostic::new(Code::MissingField, self.node.source(), self.head_span(), message));
        }
        #[cfg(debug_assertions)]
        self.check_all_requested(sink);
    }

    /// Checks that every field of the table was requested, unless an error has ended the reading of a part.
    #[cfg(debug_assertions)]
    fn check_all_requested(&self, sink: &DiagnosticSink) {
        let requested = self.requested.borrow();
        let mut names = std::iter::once(&self.table.fields).chain(self.table.more).flat_map(|names| names.iter());
        let never = names.find(|name| !requested.contains(name)).filter(|_| !sink.has_errors());
        assert!(never.is_none(), "`{}` is in the table of {} but never requested", never.unwrap_or(&""), self.subject);
    }

    fn diagnose_unknown(&self, unknown: &UnknownField<'a>, code: Code) -> Diagnostic {
        let YamlField { key, key_span, value } = unknown.field;
        let message = format!("{} has no field `{}`", self.subject, shorten_text(key));
        let diagnostic = Diagnostic::new(code, value.source(), key_span, message);
        match ((self.table.explain)(key), unknown.meant) {
            (Some(ForeignKey::Refused { code, message, hint }), _) => {
                Diagnostic::new(code, value.source(), key_span, message).with_hint(hint)
            }
            (Some(ForeignKey::Elsewhere(hint)), _) => diagnostic.with_hint(hint),
            (None, Some(near)) => diagnostic.with_suggestion(key_span, near),
            (None, None) => {
                let names: Vec<&str> = self.table.names().collect();
                diagnostic.with_hint(format!("its fields are {}", quote_names(&names)))
            }
        }
    }
}

/// The maximum number of keys of one mapping for which the intended field is guessed.
const SUGGESTIONS: usize = 50;

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
    pub(crate) fn new(name: &'a str, node: YamlNode<'a>) -> FieldValue<'a> {
        FieldValue { name, node, item: false }
    }

    /// Returns the name that messages use.
    fn display_name(self) -> String {
        let article = if self.item { "an item of " } else { "" };
        format!("{article}`{}`", self.name)
    }

    pub(crate) fn span(self) -> ExprSpan {
        self.node.span()
    }

    /// Builds a diagnostic about the value.
    pub(crate) fn diagnose(self, code: Code, message: impl Into<String>) -> Diagnostic {
        self.node.diagnose(code, message)
    }

    /// Builds the diagnostic about a value of another type.
    pub(crate) fn diagnose_type(self, expected: impl fmt::Display) -> Diagnostic {
        self.diagnose(Code::WrongType, format!("{} is {expected}, found {}", self.display_name(), self.node.describe()))
    }

    /// Reads a text. Refuses an unquoted number or boolean.
    pub(crate) fn read_text(self, sink: &mut DiagnosticSink) -> Option<Spanned<&'a str>> {
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
    pub(crate) fn read_non_empty_text(self, sink: &mut DiagnosticSink) -> Option<Spanned<&'a str>> {
        let text = self.read_text(sink)?;
        if text.value.trim().is_empty() {
            self.report_empty(sink);
            return None;
        }
        Some(text)
    }

    /// Reports an empty value.
    pub(crate) fn report_empty(self, sink: &mut DiagnosticSink) {
        sink.push(self.diagnose(Code::NoValue, format!("{} is empty", self.display_name())));
    }

    pub(crate) fn read_bool(self, sink: &mut DiagnosticSink) -> Option<Spanned<bool>> {
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
    pub(crate) fn read_whole_number(
        self,
        range: RangeInclusive<u32>,
        sink: &mut DiagnosticSink,
    ) -> Option<Spanned<u32>> {
        let number = self.read_integer(u64::from(*range.start())..=u64::from(*range.end()), None, sink)?;
        u32::try_from(number.value).ok().map(|value| Spanned::new(value, number.span))
    }

    /// Reads a duration as a whole number of milliseconds, at least `least`.
    pub(crate) fn read_millis(self, least: u64, sink: &mut DiagnosticSink) -> Option<Spanned<Millis>> {
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
    pub(crate) fn read_number(self, sink: &mut DiagnosticSink) -> Option<Spanned<f64>> {
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
    pub(crate) fn read_one_of<T: Copy>(self, words: &[(&str, T)], sink: &mut DiagnosticSink) -> Option<Spanned<T>> {
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
    pub(crate) fn read_duration(self, units: DurationUnits, sink: &mut DiagnosticSink) -> Option<Spanned<Millis>> {
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
    pub(crate) fn read_list(self, sink: &mut DiagnosticSink) -> Option<Vec<FieldValue<'a>>> {
        Some(self.read_items(sink)?.collect())
    }

    /// Reads the items of a list as an iterator.
    pub(crate) fn read_items(
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
    pub(crate) fn read_word_list(self, sink: &mut DiagnosticSink) -> impl Iterator<Item = FieldValue<'a>> + use<'a> {
        let is_word = matches!(self.node.scalar(), Some(YamlScalar::Text(text)) if !text.trim().is_empty());
        self.read_items(sink).into_iter().flatten().chain(is_word.then_some(self))
    }

    /// Reads a name that is safe in paths and messages.
    pub(crate) fn read_name<T>(
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
    use crate::{diagnostics::SourceFile, source::yaml::parse_yaml};

    const FIELDS: &[&str] = &["name", "timeout"];

    /// Reads the required `name` and the optional `timeout` of a text. Returns both, and the messages.
    fn read(text: &str, table: FieldTable) -> (Option<String>, Option<String>, Vec<String>) {
        let mut sink = DiagnosticSink::new(SourceFile::new("a.yaml", text));
        let tree = parse_yaml(ExprSpan::new(0, text.len()), &mut sink).expect("it is YAML");
        let mut fields = FieldReader::from_node(tree.root(), "a thing", table, &mut sink).expect("it is a mapping");
        let value = |given: Option<FieldValue<'_>>| given.and_then(|given| given.node.raw_text()).map(str::to_owned);
        let (name, timeout) = (value(fields.required("name", &mut sink)), value(fields.optional("timeout")));
        fields.finish(&mut sink);
        let diagnostics = sink.into_diagnostics().into_iter();
        (name, timeout, diagnostics.map(|diagnostic| diagnostic.message).collect())
    }

    #[test]
    fn a_misspelt_key_is_read_as_the_field_that_was_meant() {
        let (name, timeout, messages) = read("{nme: a, timout: b}", FIELDS.into());
        assert_eq!((name.as_deref(), timeout.as_deref()), (Some("a"), Some("b")));
        assert_eq!(messages, ["a thing has no field `nme`", "a thing has no field `timout`"]);
        let (name, timeout, messages) = read("{name: a, nmae: b, tiemout: c, timeuot: d}", FIELDS.into());
        assert_eq!((name.as_deref(), timeout.as_deref(), messages.len()), (Some("a"), Some("c"), 3));
    }

    #[test]
    fn an_open_mapping_only_corrects_required_fields() {
        let (name, timeout, messages) = read("{nme: a, timout: b}", FieldTable::open(FIELDS));
        assert_eq!((name.as_deref(), timeout), (Some("a"), None));
        assert_eq!(messages.len(), 2);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "`name` is not in the table of a thing")]
    fn a_field_that_is_not_in_the_table_cannot_be_requested() {
        read("{timeout: b}", FieldTable::closed(&["timeout"]));
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "`other` is in the table of a thing but never requested")]
    fn every_field_of_a_table_must_be_requested() {
        read("{name: a}", FieldTable::closed(&["name", "timeout", "other"]));
    }

    #[test]
    fn a_long_text_is_cut_to_its_beginning() {
        assert_eq!(shorten_text("READ"), "READ");
        assert_eq!(shorten_text("one\ntwo"), "one…");
        assert_eq!(shorten_text("one\n"), "one");
        assert_eq!(shorten_text(&"é".repeat(99)), format!("{}…", "é".repeat(60)));
    }
}
