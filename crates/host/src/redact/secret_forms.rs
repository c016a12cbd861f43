//! The forms in which a secret can occur in text.
//!
//! Owns which encodings are searched for: the text itself and its lines, base64 at each of the three alignments,
//! percent encoding, JSON text (also inside of JSON text) and hexadecimal. Does not know how they are found.

use std::collections::BTreeSet;

use skein_core::limits;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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
fn encode_sextets(bytes: &[u8], alphabet: &[u8; 64]) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
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
