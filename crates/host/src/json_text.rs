//! JSON that is safe to show on a terminal: without characters that control it or change the reading direction.
//!
//! Serializers escape only what JSON requires. C1 control characters, bidirectional controls and line and paragraph
//! separators stay as they are, so the output of `cat` can differ from the content of the file.

use std::borrow::Cow;

use serde_json::Value;

/// True if a character is escaped in JSON that people look at.
fn is_escaped(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// Returns the same JSON with such characters as `\uXXXX`. They occur only in strings, so the value does not change.
pub fn escape_invisible(json: &str) -> Cow<'_, str> {
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_escaped(c) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// Parses JSON and rejects integers beyond 64 bits, which would be rounded silently.
pub fn parse_exact(text: &str) -> Result<Value, String> {
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match rounded_integer(text) {
        Some(number) => Err(format!("the integer {number} does not fit into 64 bits; write it as a string")),
        None => Ok(value),
    }
}

/// Returns the first integer of a JSON text that does not fit into 64 bits.
fn rounded_integer(json: &str) -> Option<&str> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
    // Every second part between quotes is a string, if escaped quotes are skipped.
    let (mut rest, mut in_string) = (json, false);
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || !in_string && c.is_ascii_digit()) {
        match rest.as_bytes()[at] {
            b'"' => (in_string, rest) = (!in_string, &rest[at + 1..]),
            b'\\' => rest = rest.get(at + 2..).unwrap_or_default(),
            _ => {
                let sign = usize::from(at > 0 && rest.as_bytes()[at - 1] == b'-');
                let number = &rest[at - sign..];
                let number = &number[..number.find(|c| !is_number(c)).unwrap_or(number.len())];
                let whole = !number.contains(['.', 'e', 'E']);
                if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
                rest = &rest[at - sign + number.len()..];
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_escaped_is_the_same_value() {
        let evil = "a\u{9b}31m\u{85}\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}é漢🦀";
        let value = json!({ evil: [evil] });
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let text = escape_invisible(&pretty);
        assert!(!text.contains(is_escaped), "{text}");
        assert!(text.contains("\\u009b31m\\u0085\\u007f\\u202e\\u2066\\u200f\\u061c\\u2028é漢🦀"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(matches!(escape_invisible("{\"a\": 1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn integers_that_would_be_rounded_are_refused() {
        for fine in [
            "18446744073709551615",
            "-9223372036854775808",
            "[1, 2.5, 1e400000000]",
            "1234567890123456789012.5",
            "1e30",
            r#"{"a99999999999999999999": "99999999999999999999 \" 99999999999999999999"}"#,
        ] {
            assert!(rounded_integer(fine).is_none(), "{fine}");
        }
        for wrong in ["18446744073709551616", "-9223372036854775809"] {
            let text = format!(r#"{{"a": ["x\\", {wrong}]}}"#);
            assert_eq!(rounded_integer(&text), Some(wrong));
            assert!(parse_exact(&text).unwrap_err().contains(wrong));
        }
        assert_eq!(parse_exact("[9007199254740993]"), Ok(json!([9_007_199_254_740_993_u64])));
    }
}
