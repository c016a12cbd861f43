//! Redaction: keeps secrets out of everything that is written, such as logs, journal and answers.
//!
//! Owns the guarantee that no form of a secret (see `secret_forms`) passes, wherever a stream is split. It works in one
//! pass and holds back only bytes that could still become a secret. Does not know where the text goes. Secrets have a
//! minimum length, so that unrelated text passes unchanged. Other forms are not found (reversed, folded into lines,
//! compressed, encrypted).

mod secret_forms;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
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
            for form in secret_forms::secret_forms(secret.expose()) {
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
    pub fn has_secrets(&self) -> bool {
        self.forms.is_some()
    }

    /// Creates a redactor for another stream, with the same secrets.
    pub fn new_stream(&self) -> Redactor {
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
            self.emit_plain(secret.start, out);
            // The beginning may have been replaced already.
            if self.hidden.is_none_or(|hidden| hidden < secret.start) {
                out.extend_from_slice(STARS);
            }
            self.skip_until(secret.end);
            self.hidden = Some(secret.end);
        }
        self.emit_plain(until, out);
    }

    fn emit_plain(&mut self, until: u64, out: &mut Vec<u8>) {
        let count = usize::try_from(until.saturating_sub(self.from)).unwrap_or(0).min(self.held.len());
        out.extend(self.held.drain(..count));
        self.from += count as u64;
    }

    fn skip_until(&mut self, until: u64) {
        let count = usize::try_from(until.saturating_sub(self.from)).unwrap_or(0).min(self.held.len());
        self.held.drain(..count);
        self.from += count as u64;
    }

    /// Returns a text without its secrets.
    pub fn redact_str(&self, text: &str) -> String {
        let mut out = Vec::with_capacity(text.len());
        let mut stream = self.new_stream();
        stream.push(text.as_bytes(), &mut out);
        stream.finish(&mut out);
        // Forms are text, so the rest is text, too.
        String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests;

impl Redactor {
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

/// Returns a name that is not taken yet, so that different names stay different.
fn unique_name(taken: &Map<String, Value>, name: String) -> String {
    if !taken.contains_key(&name) {
        return name;
    }
    let mut numbered = (2u64..).map(|n| format!("{name} ({n})"));
    numbered.find(|name| !taken.contains_key(name)).unwrap_or(name)
}
