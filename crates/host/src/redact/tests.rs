//! Whatever the secret and wherever the stream is cut, nothing of it passes and nothing else is touched.

use serde_json::json;

use super::*;

fn redactor(secrets: &[&str]) -> Redactor {
    let secrets: Vec<Secret> = secrets.iter().map(|text| Secret::new(text).unwrap()).collect();
    Redactor::new(&secrets).unwrap()
}

fn in_chunks(redactor: &Redactor, text: &[u8], mut next: impl FnMut() -> usize) -> Vec<u8> {
    let (mut stream, mut out, mut rest) = (redactor.fresh(), Vec::new(), text);
    while !rest.is_empty() {
        let (chunk, more) = rest.split_at(next().clamp(1, rest.len()));
        stream.push(chunk, &mut out);
        rest = more;
    }
    stream.finish(&mut out);
    out
}

#[test]
fn one_secret_at_every_cut() {
    let redactor = redactor(&["abcabcabd!"]);
    let text = b"x abcabcabcabd! abcabcab abcabcabd!abcabcabd!";
    for cut in 1..text.len() {
        let shown = in_chunks(&redactor, text, || cut);
        assert_eq!(String::from_utf8(shown).unwrap(), "x abc*** abcabcab ***", "{cut}");
    }
}

#[test]
fn secrets_inside_and_across_one_another() {
    let one = redactor(&["12345678", "5678abcd", "0123456789"]);
    assert_eq!(one.redact_str("a 12345678abcd b"), "a *** b");
    assert_eq!(one.redact_str("a 0123456789 b 12345678 c"), "a *** b *** c");
    assert_eq!(one.redact_str("a 012345678 b"), "a 0*** b");
}

#[test]
fn nothing_is_held_that_could_not_become_a_secret() {
    let mut stream = redactor(&["abcdefghij"]);
    let mut out = Vec::new();
    stream.push(b"plain text\nab", &mut out);
    assert_eq!(out, b"plain text\n");
    assert!(!format!("{stream:?}").contains("97"), "what is held is not printed");
    stream.push(b"x", &mut out);
    assert_eq!(out, b"plain text\nabx");
    stream.push(b"abcdefghij", &mut out);
    stream.finish(&mut out);
    assert_eq!(out, b"plain text\nabx***");
}

#[test]
fn a_secret_without_end_needs_no_memory() {
    let mut stream = redactor(&["aaaaaaaaaa"]);
    let mut out = Vec::new();
    for _ in 0..1_000 {
        stream.push(&[b'a'; 1_000], &mut out);
        assert!(stream.held.len() <= 100 && stream.secret.len() <= 2);
    }
    stream.push(b".", &mut out);
    stream.finish(&mut out);
    assert_eq!(out, b"***.");
}

#[test]
fn values_keep_their_shape() {
    let redactor = redactor(&["12345678", "hunter2-hunter2"]);
    let value = json!({"a": ["x hunter2-hunter2", 12345678, 1.5, null], "hunter2-hunter2": 1, "12345678": {"b": true}});
    let shown = json!({"a": ["x ***", "***", 1.5, null], "***": 1, "*** (2)": {"b": true}});
    assert_eq!(redactor.redact_value(&value), shown);
    assert_eq!(Redactor::new([]).unwrap().redact_value(&value), value);
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn text(&mut self, alphabet: &[char], length: usize) -> String {
        (0..length).map(|_| alphabet[self.roll(alphabet.len())]).collect()
    }
}

const ALPHABETS: [&str; 4] = [
    "ab",
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-",
    "a\"\\/ \n%&<é漢🦀",
    "0123456789",
];

/// Encoders that are written anew here, so that they cannot share a mistake with the forms.
fn encodings(before: &[u8], secret: &str, after: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let url: String = secret
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect();
    let lower: String =
        url.split('%')
            .enumerate()
            .map(|(i, part)| {
                if i == 0 { part.to_owned() } else { format!("%{}{}", part[..2].to_lowercase(), &part[2..]) }
            })
            .collect();
    let json = serde_json::to_string(secret).unwrap();
    let json = &json[1..json.len() - 1];
    let wrapped = [before, secret.as_bytes(), after].concat();
    let base64 = |bytes: &[u8], table: &[u8]| {
        let bits: Vec<u8> = bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)).collect();
        bits.chunks(6)
            .map(|six| {
                let n = (0..6).fold(0, |n, i| n << 1 | six.get(i).copied().unwrap_or(0));
                table[usize::from(n)]
            })
            .collect::<Vec<u8>>()
    };
    let standard = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let for_urls = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    vec![
        ("raw", secret.as_bytes().to_vec()),
        ("url", url.into_bytes()),
        ("url, lower case", lower.into_bytes()),
        ("json", json.as_bytes().to_vec()),
        ("base64", base64(&wrapped, standard)),
        ("base64 for urls", base64(&wrapped, for_urls)),
    ]
}

/// What of an encoded text only the secret decides.
fn core<'a>(name: &str, encoded: &'a [u8], before: usize, secret: usize) -> &'a [u8] {
    if !name.starts_with("base64") {
        return encoded;
    }
    let (from, to) = ((before * 8).div_ceil(6), (before + secret) * 8 / 6);
    &encoded[from..to]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn no_form_survives_any_chunking() {
    for seed in 1..=150u64 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let alphabet: Vec<char> = ALPHABETS[dice.roll(4)].chars().collect();
        let secrets: Vec<String> = (0..1 + dice.roll(3))
            .map(|_| {
                let length = 8 + dice.roll(40);
                dice.text(&alphabet, length)
            })
            .collect();
        let redactor = redactor(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
        let mut text = Vec::new();
        let mut hidden = Vec::new();
        for _ in 0..10 {
            let secret = &secrets[dice.roll(secrets.len())];
            let (n, m) = (dice.roll(5), dice.roll(5));
            let (before, after) = (dice.text(&['.', '#'], n), dice.text(&['.', '#'], m));
            let forms = encodings(before.as_bytes(), secret, after.as_bytes());
            let (name, encoded) = &forms[dice.roll(forms.len())];
            hidden.push((*name, core(name, encoded, before.len(), secret.len()).to_vec()));
            let around = dice.roll(30);
            text.extend(dice.text(&alphabet, around).into_bytes());
            text.extend(encoded);
        }
        let whole = in_chunks(&redactor, &text, || usize::MAX);
        let most = 1 + dice.roll(60);
        let shown = in_chunks(&redactor, &text, || 1 + dice.roll(most));
        assert_eq!(whole, shown, "seed {seed}: how a stream is cut must not matter");
        for (name, part) in &hidden {
            assert!(!contains(&shown, part), "seed {seed}: {name} of a secret passed");
        }
        // What went through once goes through again unchanged.
        for secret in &secrets {
            assert!(!contains(&shown, secret.as_bytes()), "seed {seed}");
        }
    }
}

#[test]
fn text_without_secrets_is_not_touched() {
    for seed in 1..=60u64 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let letters: Vec<char> = ALPHABETS[1].chars().collect();
        let secrets: Vec<String> = (0..3).map(|_| dice.text(&letters, 20)).collect();
        let redactor = redactor(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
        let mut bytes: Vec<u8> = (0..dice.roll(5_000)).map(|_| dice.roll(256) as u8).collect();
        // Almost a secret, again and again.
        for secret in &secrets {
            bytes.extend(&secret.as_bytes()[..19]);
            bytes.push(b' ');
            bytes.extend(&secret.as_bytes()[1..]);
            bytes.push(b' ');
        }
        assert_eq!(in_chunks(&redactor, &bytes, || 1 + dice.roll(100)), bytes, "seed {seed}");
    }
}

#[test]
fn time_is_linear_whatever_the_chunks() {
    let long = "a".repeat(limits::SECRET_BYTES - 1) + "b";
    let redactor = redactor(&[&long]);
    let text = vec![b'a'; 200_000];
    let shown = in_chunks(&redactor, &text, || 1);
    assert_eq!(shown, text);
}

#[test]
fn more_than_can_be_looked_for_is_refused() {
    let secrets: Vec<Secret> = (0..40)
        .map(|i| Secret::new(&format!("{i}{}", "é\"\n".repeat(limits::SECRET_BYTES / 5))).unwrap())
        .collect();
    assert_eq!(Redactor::new(&secrets).unwrap_err(), TooManySecrets);
}
