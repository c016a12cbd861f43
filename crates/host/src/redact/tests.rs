//! For every secret and every split of the stream, no secret passes and nothing else changes.

use serde_json::json;

use super::*;

fn redactor(secrets: &[&str]) -> Redactor {
    let secrets: Vec<SecretValue> = secrets.iter().map(|text| SecretValue::new(text).unwrap()).collect();
    Redactor::new(&secrets).unwrap()
}

fn in_chunks(redactor: &Redactor, text: &[u8], mut next: impl FnMut() -> usize) -> Vec<u8> {
    let (mut stream, mut out, mut rest) = (redactor.new_stream(), Vec::new(), text);
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

const ALPHABETS: [&str; 4] =
    ["ab", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-", "a\"\\/ \n%&<é漢🦀", "0123456789"];

/// Independent encoders, so that they cannot share a mistake with the forms.
fn encodings(before: &[u8], secret: &str, after: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let url: String = secret
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect();
    let lower: String = url
        .split('%')
        .enumerate()
        .map(|(i, part)| if i == 0 { part.to_owned() } else { format!("%{}{}", part[..2].to_lowercase(), &part[2..]) })
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

/// Returns the part of an encoded text that only the secret determines.
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
        // Redacted text contains no secret.
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
        // Almost a secret, repeatedly.
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
    let secrets: Vec<SecretValue> = (0..40)
        .map(|i| SecretValue::new(&format!("{i}{}", "é\"\n".repeat(limits::SECRET_BYTES / 5))).unwrap())
        .collect();
    assert_eq!(Redactor::new(&secrets).unwrap_err(), TooManySecrets);
}

/// The forms that the documentation lists, each with texts of that form.
fn documented_forms(secret: &str) -> Vec<(&'static str, bool, Vec<String>)> {
    let bytes = secret.as_bytes();
    let hex =
        |bytes: &[u8], between: &str| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between);
    let standard = |bytes: &[u8]| encoded_base64(bytes, b'+', b'/');
    let url = |bytes: &[u8]| encoded_base64(bytes, b'-', b'_');
    let all: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
    let form = secret.replace('/', "%2F").replace('?', "%3F").replace(' ', "+").replace('"', "%22");
    let component = secret.replace('/', "%2f").replace('?', "%3f").replace(' ', "%20").replace('"', "%22");
    let json = serde_json::to_string(secret).unwrap();
    let twice = serde_json::to_string(&json).unwrap();
    let folded: Vec<String> =
        standard(bytes).as_bytes().chunks(10).map(|chunk| String::from_utf8(chunk.to_vec()).unwrap()).collect();
    let reversed: String = secret.chars().rev().collect();
    let spaced: Vec<String> = secret.chars().map(String::from).collect();
    let entities: String = secret.chars().map(|c| format!("&#{};", c as u32)).collect();
    let printable: String = bytes.iter().map(|byte| format!("={byte:02X}")).collect();
    let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let wide: String = secret.chars().flat_map(|c| [c, '\0']).collect();
    vec![
        ("as it is", true, vec![secret.to_owned()]),
        ("one line of a secret of several lines, of 8 bytes or more", true, vec!["second line".to_owned()]),
        (
            "Base64, with or without padding",
            true,
            vec![standard(bytes), standard(bytes).trim_end_matches('=').to_owned()],
        ),
        (
            "Base64 for URLs, with or without padding",
            true,
            vec![url(bytes), url(bytes).trim_end_matches('=').to_owned()],
        ),
        (
            "Base64 of a longer text that holds it",
            true,
            (0..3).map(|before| standard(&[&vec![b'x'; before], bytes, b"yy"].concat())).collect(),
        ),
        (
            "percent encoding of all bytes, or as URLs, forms and `encodeURIComponent` have it",
            true,
            vec![all.clone(), all.to_lowercase(), form, component],
        ),
        ("hexadecimal, in small or capital letters", true, vec![hex(bytes, ""), hex(bytes, "").to_uppercase()]),
        (
            "JSON text, with any of the escapes that JSON allows writers to choose",
            true,
            vec![json.clone(), json.replace('/', "\\/")],
        ),
        ("JSON text inside of JSON text", true, vec![twice]),
        ("a part of it", false, vec![secret[..secret.len() - 1].to_owned()]),
        ("reversed", false, vec![reversed]),
        ("in other case, or with letters replaced", false, vec![secret.to_uppercase(), secret.replace('e', "3")]),
        ("with something between its characters", false, vec![spaced.join(" ")]),
        ("Base64 that is folded into lines", false, vec![folded.join("\n")]),
        (
            "Base64 or percent encoding, twice",
            false,
            vec![standard(standard(bytes).as_bytes()), all.replace('%', "%25")],
        ),
        ("hexadecimal with separators", false, vec![hex(bytes, ":"), hex(bytes, " ")]),
        // Encoded elsewhere: they represent encodings that this test does not implement.
        ("Base32, Base85", false, vec!["ORUGKIDTMVRXEZLU".to_owned()]),
        ("HTML entities, quoted-printable, escapes of C or the shell", false, vec![entities, printable, octal]),
        ("UTF-16", false, vec![wide]),
        ("compressed, encrypted or hashed", false, vec![blake3::hash(bytes).to_hex().to_string()]),
    ]
}

fn encoded_base64(bytes: &[u8], plus: u8, slash: u8) -> String {
    let mut table: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').collect();
    table.extend([plus, slash]);
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = (0..3).fold(0u32, |n, i| n << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let sextet = (number >> (18 - 6 * i)) as usize & 63;
            text.push(if i <= chunk.len() { char::from(table[sextet]) } else { '=' });
        }
    }
    text
}

#[test]
fn the_documentation_lists_which_forms_are_taken_out() {
    let secret = "the secret/key? w\"rd";
    let one = redactor(&[secret, "first line of it\nsecond line\nshort"]);
    let page = include_str!("../../../../docs/secrets.md");
    let table = page.split("| form | taken out |").nth(1).expect("the page has the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let listed: Vec<(String, bool)> = rows
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(str::trim);
            (cells.next().unwrap().to_owned(), cells.next().unwrap() == "yes")
        })
        .collect();
    let forms = documented_forms(secret);
    let known: Vec<(String, bool)> = forms.iter().map(|(name, found, _)| ((*name).to_owned(), *found)).collect();
    assert_eq!(listed, known);
    for (name, found, texts) in forms {
        for text in texts {
            let shown = one.redact_str(&format!("a {text} b"));
            assert_eq!(shown != format!("a {text} b"), found, "{name}: {text}");
        }
    }
}
