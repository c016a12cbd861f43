//! Redaction: keeps secrets out of everything that is written, such as logs, journal and answers.
//!
//! Owns the guarantee that no form of a secret passes, wherever a stream is split: the text itself and its lines,
//! base64 at each of the three alignments, percent encoding, JSON text (also inside of JSON text) and hexadecimal. It
//! works in one pass and holds back only bytes that could still become a secret. Does not know where the text goes.
//! Secrets have a minimum length, so that unrelated text passes unchanged. Other forms are not found (reversed, folded
//! into lines, compressed, encrypted).

use std::{
    collections::{BTreeSet, HashMap, VecDeque, vec_deque::Drain},
    fmt,
    ops::Range,
    sync::Arc,
};

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    nfa::contiguous::NFA,
};
use serde_json::{Map, Value};
use skein_core::limits;

use crate::secret::SecretValue;

/// The replacement of a secret.
const STARS: &[u8] = b"***";

/// Removes secrets from a stream.
#[derive(Clone)]
pub struct Redactor {
    /// `None` if there are no secrets.
    forms: Option<Arc<SecretForms>>,
    /// The automaton's state, which is the position in a form.
    state: StateID,
    /// Bytes that were received and not yet emitted: they could be the beginning of a form.
    held: VecDeque<u8>,
    /// The positions of the start and end of `held` in the stream.
    from: u64,
    to: u64,
    /// Secret ranges of the stream, in order and not adjacent.
    secret: VecDeque<Range<u64>>,
    /// The end of the last secret that was replaced.
    hidden: Option<u64>,
}

/// Finds any form at any position, byte by byte.
struct SecretForms {
    automaton: NFA,
    start: StateID,
    /// The length of the prefix that each state represents; other states represent none.
    depth: HashMap<StateID, usize>,
}

/// Prints only the number of held bytes, which may be the beginning of a secret.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.forms.as_ref().map_or(0, |forms| forms.automaton.patterns_len());
        f.debug_struct("Redactor").field("forms", &forms).field("held", &self.held.len()).finish()
    }
}

impl SecretForms {
    fn new(forms: &BTreeSet<Vec<u8>>) -> Option<SecretForms> {
        let automaton = NFA::new(forms).ok()?;
        let start = automaton.start_state(Anchored::No).ok()?;
        let mut depth = HashMap::new();
        for form in forms {
            let mut state = start;
            for (i, byte) in form.iter().enumerate() {
                state = automaton.next_state(Anchored::No, state, *byte);
                depth.insert(state, i + 1);
            }
        }
        Some(SecretForms { automaton, start, depth })
    }

    /// Returns the length of the longest form that ends here.
    fn longest_match(&self, state: StateID) -> usize {
        if !self.automaton.is_match(state) {
            return 0;
        }
        let lengths = (0..self.automaton.match_len(state))
            .map(|i| self.automaton.pattern_len(self.automaton.match_pattern(state, i)));
        lengths.max().unwrap_or(0)
    }
}

/// The secrets are too many, or too long together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are too many secrets, or they are too long, to redact them in logs and outputs")]
pub struct TooManySecrets;

impl Redactor {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a SecretValue>) -> Result<Redactor, TooManySecrets> {
        let mut forms: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut bytes = 0;
        for secret in secrets {
            for form in secret_forms(secret.expose()) {
                bytes += form.len();
                forms.insert(form);
            }
            if bytes > limits::SECRET_FORMS_BYTES {
                return Err(TooManySecrets);
            }
        }
        let forms = match forms.is_empty() {
            true => None,
            false => Some(Arc::new(SecretForms::new(&forms).ok_or(TooManySecrets)?)),
        };
        Ok(Redactor::from_forms(forms))
    }

    /// True if there are secrets to remove.
    pub(crate) fn has_secrets(&self) -> bool {
        self.forms.is_some()
    }

    /// Creates a redactor for another stream, with the same secrets.
    pub(crate) fn new_stream(&self) -> Redactor {
        Redactor::from_forms(self.forms.clone())
    }

    fn from_forms(forms: Option<Arc<SecretForms>>) -> Redactor {
        Redactor {
            state: forms.as_ref().map_or(StateID::default(), |forms| forms.start),
            forms,
            held: VecDeque::new(),
            from: 0,
            to: 0,
            secret: VecDeque::new(),
            hidden: None,
        }
    }

    /// Takes the next bytes, and emits all bytes that cannot be a part of a secret.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(forms) = self.forms.clone() else {
            out.extend_from_slice(bytes);
            return;
        };
        // Even if many bytes arrive at once, few are held.
        for bytes in bytes.chunks(64 * 1024) {
            for byte in bytes {
                self.state = forms.automaton.next_state(Anchored::No, self.state, *byte);
                self.to += 1;
                let length = forms.longest_match(self.state);
                if length > 0 {
                    self.mark_secret(self.to - length as u64..self.to);
                }
            }
            self.held.extend(bytes);
            let open = forms.depth.get(&self.state).copied().unwrap_or(0);
            self.emit_until(self.to - open as u64, out);
        }
    }

    /// Ends the stream. The redactor can be used for another one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.emit_until(self.to, out);
        *self = self.new_stream();
    }

    /// Marks a range as secret. Ranges come in the order of their ends; a longer one absorbs earlier ones.
    fn mark_secret(&mut self, mut found: Range<u64>) {
        while let Some(last) = self.secret.pop_back() {
            if last.end < found.start {
                self.secret.push_back(last);
                break;
            }
            found.start = found.start.min(last.start);
        }
        self.secret.push_back(found);
    }

    /// Emits everything before this position. All secrets that start before it are known by now.
    fn emit_until(&mut self, until: u64, out: &mut Vec<u8>) {
        while let Some(secret) = self.secret.front().cloned().filter(|secret| secret.start < until) {
            self.secret.pop_front();
            out.extend(self.take_until(secret.start));
            // The beginning may have been replaced already.
            if self.hidden.is_none_or(|hidden| hidden < secret.start) {
                out.extend_from_slice(STARS);
            }
            drop(self.take_until(secret.end));
            self.hidden = Some(secret.end);
        }
        out.extend(self.take_until(until));
    }

    /// Takes the held bytes before this position.
    fn take_until(&mut self, until: u64) -> Drain<'_, u8> {
        let count = usize::try_from(until.saturating_sub(self.from)).unwrap_or(0).min(self.held.len());
        self.from += count as u64;
        self.held.drain(..count)
    }

    /// Returns bytes without their secrets.
    pub(crate) fn redact_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut stream, mut out) = (self.new_stream(), Vec::with_capacity(bytes.len()));
        stream.push(bytes, &mut out);
        stream.finish(&mut out);
        out
    }

    /// Returns a text without its secrets.
    pub(crate) fn redact_str(&self, text: &str) -> String {
        // Forms are text, so the rest is text, too.
        String::from_utf8(self.redact_bytes(text.as_bytes()))
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Redacts a shared value. Without secrets the same value is returned.
    pub fn redact_shared(&self, value: Arc<Value>) -> Arc<Value> {
        if self.forms.is_none() {
            return value;
        }
        Arc::new(self.redact_value(&value))
    }

    /// Returns a value without secrets. Its shape is kept, but a number that is a secret becomes text.
    pub fn redact_value(&self, value: &Value) -> Value {
        if self.forms.is_none() {
            return value.clone();
        }
        match value {
            Value::Null | Value::Bool(_) => value.clone(),
            Value::Number(number) => {
                let text = number.to_string();
                let shown = self.redact_str(&text);
                if shown == text { value.clone() } else { Value::String(shown) }
            }
            Value::String(text) => Value::String(self.redact_str(text)),
            Value::Array(items) => items.iter().map(|item| self.redact_value(item)).collect(),
            Value::Object(fields) => {
                let mut shown = Map::new();
                for (name, value) in fields {
                    let name = unique_name(&shown, self.redact_str(name));
                    shown.insert(name, self.redact_value(value));
                }
                Value::Object(shown)
            }
        }
    }
}

pub(crate) const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns every form of a secret, each at least as long as the shortest permitted secret.
pub(crate) fn secret_forms(secret: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    add_forms(secret, &mut forms);
    // A key is often printed line by line, with a prefix on each line.
    if secret.contains('\n') {
        for line in secret.lines().map(str::trim) {
            add_forms(line, &mut forms);
        }
    }
    forms.retain(|form| form.len() >= limits::SECRET_BYTES_LEAST);
    forms
}

fn add_forms(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    if secret.len() < limits::SECRET_BYTES_LEAST {
        return;
    }
    forms.insert(secret.as_bytes().to_vec());
    for alphabet in [STANDARD, URL] {
        add_base64(secret.as_bytes(), alphabet, forms);
    }
    add_percent(secret.as_bytes(), forms);
    add_json(secret, forms);
    let hex = |upper: bool| secret.bytes().flat_map(|byte| hex_digits(byte, upper)).collect();
    forms.extend([hex(false), hex(true)]);
}

/// The text around a secret is not known, so only the characters that the secret alone determines are used for each
/// alignment. A secret that is encoded alone is found completely, with its padding.
fn add_base64(secret: &[u8], alphabet: &[u8; 64], forms: &mut BTreeSet<Vec<u8>>) {
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret);
        let sure = bytes.len() * 8 / 6;
        let text = encode_sextets(&bytes, alphabet);
        let first = [0, 2, 3][before];
        forms.insert(text[first..sure].to_vec());
        if before == 0 {
            let mut padded = text.clone();
            padded.resize(text.len().next_multiple_of(4), b'=');
            forms.extend([text, padded]);
        }
    }
}

/// Encodes base64 without padding.
pub(crate) fn encode_sextets(bytes: &[u8], alphabet: &[u8; 64]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 4 / 3 + 2);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..=chunk.len() {
            text.push(alphabet[(bits >> (18 - 6 * i) & 63) as usize]);
        }
    }
    text
}

/// Encoders differ in the characters that they leave as they are, and in the case of their digits.
fn add_percent(secret: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    const KEPT: [&[u8]; 6] = [b"", b"-._~", b"-_.!~*'()", b"*-._", b"-._~!$&'()*+,;=:@", b"-._~!$&'()*+,;=:@/?"];
    let every = |upper| secret.iter().flat_map(|byte| percent_encode(*byte, upper)).collect::<Vec<u8>>();
    forms.extend([every(true), every(false)]);
    for kept in KEPT {
        for upper in [true, false] {
            for plus in [true, false] {
                let mut text = Vec::with_capacity(secret.len());
                for &byte in secret {
                    match byte {
                        b' ' if plus => text.push(b'+'),
                        byte if byte.is_ascii_alphanumeric() || kept.contains(&byte) => text.push(byte),
                        byte => text.extend(percent_encode(byte, upper)),
                    }
                }
                forms.insert(text);
            }
        }
    }
}

/// The characters that a JSON writer escapes besides the required ones.
#[derive(Clone, Copy)]
struct JsonEscapes {
    slash: bool,
    /// Characters that could end a script in an HTML page.
    html: bool,
    ascii_only: bool,
    upper: bool,
}

fn add_json(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    for bits in 0..16u8 {
        let [slash, html, ascii_only, upper] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let escapes = JsonEscapes { slash, html, ascii_only, upper };
        let once = escape_json(secret, escapes);
        let twice = escape_json(&once, escapes);
        forms.extend([once.into_bytes(), twice.into_bytes()]);
    }
}

fn escape_json(text: &str, escapes: JsonEscapes) -> String {
    let mut out = String::with_capacity(text.len());
    let unicode = |out: &mut String, c: char| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let digits = if escapes.upper { format!("{unit:04X}") } else { format!("{unit:04x}") };
            out.push_str("\\u");
            out.push_str(&digits);
        }
    };
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '/' if escapes.slash => out.push_str("\\/"),
            '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}' if escapes.html => unicode(&mut out, c),
            c if c < ' ' || (!c.is_ascii() || c == '\u{7f}') && escapes.ascii_only => unicode(&mut out, c),
            c => out.push(c),
        }
    }
    out
}

fn percent_encode(byte: u8, upper: bool) -> [u8; 3] {
    let [high, low] = hex_digits(byte, upper);
    [b'%', high, low]
}

fn hex_digits(byte: u8, upper: bool) -> [u8; 2] {
    let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// Returns a name that is not taken yet, so that different names stay different.
fn unique_name(taken: &Map<String, Value>, name: String) -> String {
    if !taken.contains_key(&name) {
        return name;
    }
    let mut numbered = (2u64..).map(|n| format!("{name} ({n})"));
    numbered.find(|name| !taken.contains_key(name)).unwrap_or(name)
}

#[cfg(test)]
mod secret_forms_tests {
    use super::*;

    fn has(secret: &str, form: &str) -> bool {
        secret_forms(secret).contains(form.as_bytes())
    }

    #[test]
    fn the_forms_that_people_meet() {
        let secret = "p/ss w\"rd?é";
        for form in [
            "p/ss w\"rd?é",
            "cC9zcyB3InJkP8Op",
            "p%2Fss%20w%22rd%3F%C3%A9",
            "p%2fss+w%22rd%3f%c3%a9",
            "p/ss%20w%22rd?%C3%A9",
            r#"p/ss w\"rd?é"#,
            r#"p\/ss w\"rd?\u00e9"#,
            r#"p/ss w\\\"rd?é"#,
            "702f73732077227264 3fc3a9".replace(' ', "").as_str(),
        ] {
            assert!(has(secret, form), "{form}");
        }
    }

    #[test]
    fn base64_as_others_write_it() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encode_sextets(bytes.as_bytes(), STANDARD), text.as_bytes());
        }
        assert!(has("12345678", "MTIzNDU2Nzg=") && has("12345678", "MTIzNDU2Nzg"));
        assert!(
            has("<<???>>><<", "PDw/Pz8-Pj48PA==".replace('-', "+").as_str()) && has("<<???>>><<", "PDw_Pz8-Pj48PA")
        );
    }

    #[test]
    fn short_lines_of_a_long_secret_are_not_looked_for() {
        let forms = secret_forms("-----BEGIN KEY-----\nabcdefghij\nxyz\n");
        assert!(forms.contains(&b"abcdefghij"[..]) && !forms.contains(&b"xyz"[..]));
        assert!(forms.iter().all(|form| form.len() >= limits::SECRET_BYTES_LEAST));
    }
}

#[cfg(test)]
mod tests;
