//! The cost of a regular expression, estimated from its text.

/// States of a character class, whose characters are several bytes each.
const CLASS_STATES: u64 = 10;
/// States of a class of the Unicode tables.
const UNICODE_STATES: u64 = 500;
/// The factor for patterns that backtrack.
const BACKTRACKING: u64 = 1_000;

/// The cost of one regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternCost {
    /// The approximate number of states that it compiles to.
    pub(super) states: u64,
    /// The work for each byte of the text, in states.
    pub(super) matching: u64,
}

/// A part of a pattern in parentheses: its total, and its last element, to which a repetition applies.
#[derive(Debug, Clone, Copy, Default)]
struct PatternGroup {
    total: u64,
    last: u64,
}

impl PatternGroup {
    fn add_states(&mut self, states: u64) {
        self.total = self.total.saturating_add(states);
        self.last = states;
    }

    fn repeat_last(&mut self, times: u64) {
        let repeated = self.last.saturating_mul(times.max(1));
        self.total = self.total.saturating_add(repeated - self.last);
        self.last = repeated;
    }
}

/// Estimates the cost of a regular expression. Accepts invalid ones, too.
pub(super) fn estimate_pattern(pattern: &str) -> PatternCost {
    let bytes = pattern.as_bytes();
    let (mut group, mut around, mut backtracks) = (PatternGroup::default(), Vec::new(), false);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at + 1..];
        at += 1;
        match byte {
            b'\\' => {
                at += 1;
                match rest.first() {
                    Some(b'p' | b'P') => {
                        group.add_states(UNICODE_STATES);
                        let name = rest.get(1).is_some_and(|byte| *byte == b'{');
                        at += rest.iter().position(|byte| *byte == b'}').filter(|_| name).unwrap_or(0);
                    }
                    Some(b'd' | b'D' | b'w' | b'W' | b's' | b'S') => group.add_states(CLASS_STATES),
                    Some(b'1'..=b'9' | b'k') => {
                        backtracks = true;
                        group.add_states(1);
                    }
                    _ => group.add_states(1),
                }
            }
            b'[' => {
                let length = class_length(rest);
                let class = &rest[..length];
                let unicode = class.windows(2).filter(|pair| matches!(pair, [b'\\', b'p' | b'P'])).count() as u64;
                group.add_states(CLASS_STATES + length as u64 + unicode.saturating_mul(UNICODE_STATES));
                at += length + 1;
            }
            b'.' => group.add_states(CLASS_STATES),
            b'(' => {
                backtracks |=
                    [&b"?="[..], b"?!", b"?<=", b"?<!", b"?>", b"?("].iter().any(|mark| rest.starts_with(mark));
                around.push(std::mem::take(&mut group));
            }
            b')' => {
                let inner = group.total;
                group = around.pop().unwrap_or_default();
                group.add_states(inner.saturating_add(1));
            }
            b'{' => match parse_repetition(rest) {
                Some((times, length)) => {
                    group.repeat_last(times);
                    at += length;
                }
                None => group.add_states(1),
            },
            _ => group.add_states(1),
        }
    }
    let unclosed = around.iter().map(|group| group.total).fold(group.total, u64::saturating_add);
    let states = unclosed.max(CLASS_STATES);
    PatternCost { states, matching: if backtracks { states.saturating_mul(BACKTRACKING) } else { states } }
}

/// Returns the length of a character class before its closing bracket, in bytes.
fn class_length(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b']' if at > 0 => return at,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the maximum count of a repetition such as `2,5}`, and its length in bytes.
fn parse_repetition(rest: &[u8]) -> Option<(u64, usize)> {
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    let number = |text: &str| match text {
        "" => Some(0),
        text => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().unwrap_or(u64::MAX)),
    };
    let (least, most) = text.split_once(',').unwrap_or((text, text));
    let times = number(least)?.saturating_add(1).max(number(most)?);
    (!text.is_empty()).then_some((times, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_pattern_grows_with_its_repetitions() {
        let states = |pattern| estimate_pattern(pattern).states;
        assert!(states("^[a-z]+$") < 50);
        assert!(states(r"^\d{4}-\d{2}-\d{2}$") < 200);
        assert!(states("[ab]*a[ab]{1000}") > 10_000);
        assert!(states("((a{100}){100}){100}") > 1_000_000);
        assert!(states("(((((a{9999999999}){9999999999}") > 1_000_000);
        assert!(states(r"\p{L}{100}") >= 50_000);
    }

    #[test]
    fn patterns_that_backtrack_cost_more() {
        let matching = |pattern| estimate_pattern(pattern).matching;
        assert!(matching("^(?=.*[A-Z]).+$") > 10_000);
        assert!(matching(r"(a+)\1") >= 10_000);
        assert!(matching("^(a+)+$") < 100);
        for odd in ["", "[", "[]", "(", ")", "{", "a{", "a{}", "a{,}", "\\", "[\\", "(?"] {
            estimate_pattern(odd);
        }
    }
}
