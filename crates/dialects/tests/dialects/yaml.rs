//! Tests hostile, broken and unusual YAML: its diagnostics, and limits on time and memory.

use std::{fmt::Write, time::Instant};

use serde_json::{Value, json};
use skein_core::{expr::ExprSpan, limits};
use skein_dialects::{Code, DiagnosticSink, Dialect, SourceFile, check_source, detect_dialect, yaml};

/// Parses a text. Returns its value and its diagnostics: code, line, column and message.
fn read(text: &str) -> (Option<Value>, Vec<String>) {
    let mut sink = DiagnosticSink::new(SourceFile::new("a.yaml", text));
    let tree = yaml::parse_yaml(ExprSpan::new(0, text.len()), &mut sink);
    (tree.map(|tree| tree.root().to_json()), said(sink))
}

fn said(sink: DiagnosticSink) -> Vec<String> {
    let source = sink.source.clone();
    let diagnostics = sink.into_diagnostics();
    let line = diagnostics.iter().map(|diagnostic| {
        let at = source.position(diagnostic.primary_label().span.start);
        format!("{} {}:{} {}", diagnostic.code, at.line, at.column, diagnostic.message)
    });
    line.collect()
}

/// Asserts that texts are accepted without diagnostics.
fn accepts(cases: &[(&str, Value)]) {
    for (text, value) in cases {
        assert_eq!(read(text), (Some(value.clone()), Vec::new()), "{text:?}");
    }
}

/// Asserts that texts are refused with one diagnostic.
fn refuses(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let (_, said) = read(text);
        assert_eq!(said, [*expected], "{text:?}");
    }
}

/// Asserts that texts are refused with this code within a few seconds.
fn refuses_soon(cases: &[(&str, String, Code)]) {
    for (name, text, code) in cases {
        let start = Instant::now();
        let (_, said) = read(text);
        assert!(said.iter().any(|said| said.starts_with(code.as_str())), "{name}: {said:?}");
        assert!(start.elapsed().as_secs() < 5, "{name} took {:?}", start.elapsed());
    }
}

#[test]
fn aliases_that_grow_are_counted_and_not_written_out() {
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (one, next) in ('a'..'j').zip('b'..='j') {
        writeln!(bomb, "{next}: &{next} [{}]", vec![format!("*{one}"); 9].join(", ")).unwrap();
    }
    assert_eq!(read(&bomb).1, ["SK0006 6:12 this has over 100000 values with its aliases expanded"]);
    let chain: String =
        (1..10_000).map(|i| format!("k{i}: &a{i} [*a{}]\n", i - 1)).fold("k0: &a0 x\n".to_owned(), |a, b| a + &b);
    let same: String = (0..10_000).map(|i| format!("k{i}: &a v\n")).collect();
    refuses_soon(&[("a chain of aliases", chain, Code::TooManyNodes)]);
    assert_eq!(read(&same).1, Vec::<String>::new());
}

#[test]
fn ten_thousand_anchors_are_only_values() {
    let anchors: String = (0..10_000).map(|i| format!("k{i}: &a{i} v\n")).collect();
    let (value, said) = read(&anchors);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(value.unwrap().as_object().unwrap().len(), 10_000);
}

#[test]
fn an_alias_is_what_its_anchor_is() {
    accepts(&[
        ("a: &x [1, {b: c}]\nd: *x", json!({"a": [1, {"b": "c"}], "d": [1, {"b": "c"}]})),
        ("a: &x 1\nb: &x 2\nc: *x", json!({"a": 1, "b": 2, "c": 2})),
    ]);
    refuses(&[
        ("a: *x", "SK0012 1:4 there is no anchor `&x` before this"),
        ("- *.rs", "SK0012 1:3 there is no anchor `&.rs` before this"),
        ("a: &x [*x]", "SK0012 1:8 `*x` is inside its own anchor"),
        ("&x a: *x", "SK0012 1:7 `*x` is inside its own anchor"),
        ("a: &x 1\n*x : 2", "SK0011 2:1 a key must be text, and this is an alias"),
        ("a: &", "SK0004 1:4 this is not YAML: a name is missing after `&` or `*`"),
    ]);
}

#[test]
fn what_is_nested_deeply_is_refused_and_not_followed() {
    let stairs = |line: &str| -> String { (0..1_000).map(|i| format!("{}{line}\n", " ".repeat(i))).collect() };
    let deep = |part: &str| part.repeat(100_000);
    refuses_soon(&[
        ("lists in brackets", deep("["), Code::TooDeepYaml),
        ("mappings in brackets", deep("{a: "), Code::TooDeepYaml),
        ("both in brackets", deep("[{a: "), Code::TooDeepYaml),
        ("lists in lines", deep("- "), Code::TooDeepYaml),
        ("mappings in lines", stairs("a:"), Code::TooDeepYaml),
        ("lists on stairs", stairs("-"), Code::TooDeepYaml),
        ("keys in keys", deep("? "), Code::KeyNotText),
        ("lists in keys", deep("- ? "), Code::KeyNotText),
        ("brackets that close nothing", deep("]"), Code::BadYaml),
    ]);
}

/// Builds nested mappings, with a list in brackets at every other level.
fn nested(levels: usize) -> String {
    let mut text = String::new();
    for level in 0..levels {
        text += if level % 2 == 0 { "{a: " } else { "[" };
    }
    text += "x";
    for level in (0..levels).rev() {
        text += if level % 2 == 0 { "}" } else { "]" };
    }
    text
}

#[test]
fn depth_is_limited_to_the_level() {
    let most = limits::YAML_DEPTH;
    let brackets = |n: usize| "[".repeat(n) + &"]".repeat(n);
    let dashes = |n: usize| "- ".repeat(n) + "x";
    let stairs = |n: usize| -> String { (0..n).map(|i| format!("{}a:\n", " ".repeat(i))).collect() };
    for make in [&nested as &dyn Fn(usize) -> String, &brackets, &dashes, &stairs] {
        for n in [most - 1, most] {
            assert_eq!(read(&make(n)).1, Vec::<String>::new(), "{n} levels of {}", make(2));
        }
        let (_, said) = read(&make(most + 1));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].ends_with("this is nested more than 64 levels deep"), "{said:?}");
    }
}

#[test]
fn values_are_limited_to_the_one() {
    // The list itself counts as one.
    let list = |values: usize| format!("[{}]", "a,".repeat(values - 1));
    for n in [limits::YAML_NODES - 1, limits::YAML_NODES] {
        assert_eq!(read(&list(n)).1, Vec::<String>::new());
    }
    let over = read(&list(limits::YAML_NODES + 1));
    assert_eq!(over, (None, vec!["SK0006 1:200000 this has over 100000 values".to_owned()]));
}

#[test]
fn bytes_are_limited_to_the_one() {
    let codes = |bytes: usize| -> Vec<Code> {
        let text = format!("name: {}", "x".repeat(bytes - 6));
        check_source(SourceFile::new("a.yaml", text), &()).diagnostics.iter().map(|said| said.code).collect()
    };
    let (warn, most) = (limits::SOURCE_BYTES_WARN, limits::SOURCE_BYTES);
    assert_eq!(codes(warn - 1), [Code::UnknownFormat]);
    assert_eq!(codes(warn), [Code::UnknownFormat]);
    assert_eq!(codes(warn + 1), [Code::LargeSource, Code::UnknownFormat]);
    assert_eq!(codes(most - 1), [Code::LargeSource, Code::UnknownFormat]);
    assert_eq!(codes(most), [Code::LargeSource, Code::UnknownFormat]);
    assert_eq!(codes(most + 1), [Code::TooLarge]);
}

#[test]
fn long_things_take_no_longer_than_they_are() {
    let start = Instant::now();
    let long = "x".repeat(900_000);
    accepts(&[
        (&format!("a: {long}"), json!({"a": long})),
        (&format!("a: \"{long}\""), json!({"a": long})),
        (&format!("a: '{}'", "''".repeat(400_000)), json!({"a": "'".repeat(400_000)})),
        (&format!("a: |\n{}", "  x\n".repeat(200_000)), json!({"a": "x\n".repeat(200_000)})),
        (&format!("a: {}", "x\n ".repeat(200_000)), json!({"a": vec!["x"; 200_000].join(" ")})),
        (&format!("? {long}\n: 1"), json!({long.clone(): 1})),
        (&format!("{}: 1", "x".repeat(1_024)), json!({"x".repeat(1_024): 1})),
    ]);
    refuses_soon(&[
        ("an open quote", format!("a: \"{long}"), Code::BadYaml),
        ("an open quote of many lines", format!("a: \"{}", "x\n ".repeat(300_000)), Code::BadYaml),
        ("comments", "# x\n".repeat(200_000), Code::EmptySource),
        ("empty lines", "\n".repeat(900_000), Code::EmptySource),
        ("documents", "---\n".repeat(200_000), Code::ManyDocuments),
        ("directives", "%YAML 1.2\n".repeat(90_000), Code::BadYaml),
        ("the same key", "k: v\n".repeat(45_000), Code::DuplicateKey),
        ("tags", "- !x a\n".repeat(90_000), Code::TagRefused),
        ("anchors without a value", "&a ".repeat(300_000), Code::BadYaml),
    ]);
    let said = read(&format!("{}: 1", "x".repeat(1_025))).1;
    assert_eq!(said, ["SK0004 1:1026 this is not YAML: a key is longer than 1024 characters"]);
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn a_key_is_there_once_however_it_is_written() {
    for text in [
        "a: 1\na: 2", "{a: 1, a: 2}", "yes: 1\n\"yes\": 2", "1: x\n'1': y", "\"a\\u0062\": 1\nab: 2",
        "? a\n: 1\n? a\n: 2",
    ] {
        let (_, said) = read(text);
        assert!(said.len() == 1 && said[0].ends_with("is defined twice"), "{text:?}: {said:?}");
    }
    // The first keys of a mapping and those after them are stored in two ways.
    let keys = |n: usize| -> String { (0..n).map(|i| format!("k{i}: v\n")).collect() };
    for (n, again) in [(15, "k0"), (16, "k0"), (16, "k15"), (17, "k16"), (40, "k3"), (40, "k39")] {
        let (_, said) = read(&format!("{}{again}: w\n", keys(n)));
        assert_eq!(said, [format!("SK0005 {}:1 `{again}` is defined twice", n + 1)]);
        assert_eq!(read(&format!("{}other: w\n", keys(n))).1, Vec::<String>::new());
    }
    let three = read("a: 1\na: 2\na: 3").1;
    assert_eq!(three, ["SK0005 2:1 `a` is defined twice", "SK0005 3:1 `a` is defined twice"]);
}

#[test]
fn tags_and_merges_are_refused() {
    refuses(&[
        ("a: !!str 5", "SK0008 1:4 the tag `!!str` is not supported"),
        ("a: !!python/object:os.system x", "SK0008 1:4 the tag `!!python/object:os.system` is not supported"),
        ("!!map\na: 1", "SK0008 1:1 the tag `!!map` is not supported"),
        ("a: !local [1]", "SK0008 1:4 the tag `!local` is not supported"),
        ("a: !<tag:yaml.org,2002:str> 5", "SK0008 1:4 the tag `!<tag:yaml.org,2002:str>` is not supported"),
        ("a: !unknown!x 1", "SK0004 1:4 this is not YAML: a tag that cannot be read"),
        ("a: &x {b: 1}\nc:\n  <<: *x", "SK0009 3:3 merge keys (`<<`) are not supported"),
    ]);
    accepts(&[("\"<<\": 1", json!({"<<": 1}))]);
}

#[test]
fn only_the_core_schema_has_a_meaning() {
    accepts(&[(
        "[no, on, 010, 1_000, 2026-01-02, 12:30, 0b1, .inf, .nan, 1e400, .]",
        json!(["no", "on", 10, "1_000", "2026-01-02", "12:30", "0b1", ".inf", ".nan", "1e400", "."]),
    )]);
    accepts(&[("[true, Null, ~, 0x1f, 0o17, +3, .5, 1e3]", json!([true, null, null, 31, 15, 3, 0.5, 1000.0]))]);
}

#[test]
fn marks_and_line_ends_of_other_systems() {
    accepts(&[
        ("\u{feff}a: 1\n", json!({"a": 1})),
        ("\u{feff}---\na: 1\n", json!({"a": 1})),
        ("a: 1\r\nb: |\r\n  x\r\n  y\r\n", json!({"a": 1, "b": "x\ny\n"})),
        ("a: \"x\r\n  y\"\r\n", json!({"a": "x y"})),
        ("a: 1\rb: 2\r", json!({"a": 1, "b": 2})),
        ("a:\t1\n", json!({"a": 1})),
        ("[\ta,\tb]", json!(["a", "b"])),
    ]);
    refuses(&[
        ("a: 1\n\u{feff}b: 2", "SK0004 2:1 this is not YAML: a byte order mark in the middle of the file"),
        ("a:\n\tb: 1", "SK0004 2:2 this is not YAML: a tab where spaces are needed"),
        ("a:\n  b: 1\n\tc: 2", "SK0004 2:6 this is not YAML: a line after this text begins with a tab"),
        ("a: |\n\tx", "SK0004 1:4 this is not YAML: the text begins with a tab"),
    ]);
}

#[test]
fn a_file_is_one_document() {
    let second = "a second document starts here, and one file holds one workflow";
    accepts(&[
        ("---\na: 1\n", json!({"a": 1})),
        ("a: 1\n...\n", json!({"a": 1})),
        ("%YAML 1.2\n---\na: 1\n", json!({"a": 1})),
    ]);
    refuses(&[
        ("a: 1\n---\nb: 2", &format!("SK0010 2:1 {second}")),
        ("a: 1\n---\n", &format!("SK0010 2:1 {second}")),
        ("a: 1\n...\nb: 2", &format!("SK0010 3:1 {second}")),
        ("{\"a\":1}{\"b\":2}", "SK0004 1:8 this is not YAML: a value has ended, and something follows it"),
        ("", "SK0013 1:1 this file is empty"),
        ("# nothing\n", "SK0013 1:1 this file is empty"),
        ("---\n", "SK0013 1:1 this file is empty"),
        ("null", "SK0013 1:1 this file is empty"),
    ]);
}

#[test]
fn what_is_not_closed() {
    refuses(&[
        ("a: 'x", "SK0004 1:4 this is not YAML: a quote is never closed"),
        ("a: \"x", "SK0004 1:4 this is not YAML: a quote is never closed"),
        ("a: 'x\nb: 1", "SK0004 2:1 this is not YAML: a quote is not closed before a line that is not indented"),
        ("a: [1, 2", "SK0004 1:4 this is not YAML: a `[` is never closed"),
        ("a: {b: 1", "SK0004 1:4 this is not YAML: a `{` is never closed"),
        ("a: {b: [1}", "SK0004 1:8 this is not YAML: a `[` is closed with `}`"),
        ("a: ]", "SK0004 1:4 this is not YAML: this closes nothing"),
        ("a: [1,,2]", "SK0004 1:7 this is not YAML: there is nothing before this `,`"),
        ("a: {b: 1 c: 2}", "SK0004 1:11 this is not YAML: a `,` or `}` is missing"),
        ("a: \"x\" y", "SK0004 1:8 this is not YAML: something follows the closing quote"),
        ("a: [1] x", "SK0004 1:8 this is not YAML: a value has ended, and something follows it"),
    ]);
}

#[test]
fn what_stands_in_the_wrong_place() {
    refuses(&[
        ("a: b: c", "SK0004 1:5 this is not YAML: there cannot be a key here"),
        ("a: - b", "SK0004 1:4 this is not YAML: a list cannot begin here"),
        ("a:\n  b: 1\n c: 2", "SK0004 3:2 this is not YAML: this line is not indented like the ones around it"),
        ("a: 1\nb", "SK0004 2:1 this is not YAML: a key and its `:` were expected here"),
        ("[-, a]", "SK0004 1:2 this is not YAML: a `-` alone is not a text here"),
        ("a: @x", "SK0004 1:4 this is not YAML: a text cannot begin with `@`"),
        ("a: `x`", "SK0004 1:4 this is not YAML: a text cannot begin with a backtick"),
        ("a: |x\n  y", "SK0004 1:4 this is not YAML: the text after `|` or `>` starts on the next line"),
        ("[a]: 1", "SK0011 1:1 a key must be text, and this is a list or a mapping"),
        ("? {a: 1}\n: 1", "SK0011 1:3 a key must be text, and this is a list or a mapping"),
    ]);
}

#[test]
fn control_characters_are_refused_where_they_stand() {
    refuses(&[
        ("a: b\0c", "SK0004 1:5 this is not YAML: the character U+0000 cannot be here"),
        ("\0", "SK0004 1:1 this is not YAML: the character U+0000 cannot be here"),
        ("a: \"b\0c\"", "SK0004 1:6 this is not YAML: the character U+0000 cannot be here"),
        ("# \0\na: 1", "SK0004 1:3 this is not YAML: the character U+0000 cannot be here"),
        ("a: |\n  x\0y", "SK0004 2:4 this is not YAML: the character U+0000 cannot be here"),
        ("a: b\u{1b}[31m", "SK0004 1:4 this is not YAML: the character U+001B cannot be here"),
        ("a: b\u{7f}c", "SK0004 1:4 this is not YAML: the character U+007F cannot be here"),
    ]);
}

#[test]
fn json_is_read_as_it_is() {
    accepts(&[
        (r#"{"a":"x\/y","b":"\b\f\n\r\t\"\\"}"#, json!({"a": "x/y", "b": "\u{8}\u{c}\n\r\t\"\\"})),
        (r#"{"a":"\ud83d\ude00","b":"\u00e9"}"#, json!({"a": "😀", "b": "é"})),
        (r#"{"a":[{"b":{}},[],null,true,-1.5e3]}"#, json!({"a": [{"b": {}}, [], null, true, -1500.0]})),
        ("{\n\t\"a\"\t:\t1\n}\n", json!({"a": 1})),
        (r#"{"":1}"#, json!({"": 1})),
    ]);
    let escape = "this is not YAML: an escape in double quotes that is not a character";
    refuses(&[
        (r#"{"a":"\ud800"}"#, &format!("SK0004 1:6 {escape}")),
        (r#"{"a":"\udc00"}"#, &format!("SK0004 1:6 {escape}")),
        (r#"{"a":"\ud83d\u0041"}"#, &format!("SK0004 1:6 {escape}")),
        (r#"{"a":"\uZZZZ"}"#, &format!("SK0004 1:6 {escape}")),
        (r#"{"a":"\q"}"#, "SK0004 1:6 this is not YAML: a `\\` in double quotes without a valid escape"),
        (r#"{"a":1,"a":2}"#, "SK0005 1:8 `a` is defined twice"),
    ]);
}

/// Returns the format of a text, or its diagnostics.
fn format_of(text: &str) -> Result<Dialect, Vec<String>> {
    format_of_file("WORKFLOW.md", text)
}

fn format_of_file(name: &str, text: &str) -> Result<Dialect, Vec<String>> {
    let mut sink = DiagnosticSink::new(SourceFile::new(name, text));
    detect_dialect(&mut sink).map(|detected| detected.dialect).ok_or_else(|| said(sink))
}

#[test]
fn front_matter_is_what_is_between_two_lines() {
    let front = "id: x\nsteps: []\n";
    for text in [
        format!("---\n{front}---\n"),
        format!("---\n{front}---"),
        format!("---\n{front}---\n\n# Title\n\n---\n\nMore, and <b>HTML</b> & `: [`.\n\n---\n"),
        format!("---\r\n{}---\r\n\r\nProse.\r\n", front.replace('\n', "\r\n")),
        format!("\u{feff}---\n{front}---\nProse.\n"),
        format!("\n\n---\n{front}---\nProse.\n"),
        format!("---  \n{front}---\t\nProse with a \u{0} in it.\n"),
        format!("---\n{front}---\n{}", "word ".repeat(100_000)),
    ] {
        assert_eq!(format_of(&text), Ok(Dialect::Aip15), "{:?}", &text[..40]);
    }
    let refused = |text: &str, said: &str| assert_eq!(format_of(text), Err(vec![said.to_owned()]), "{text:?}");
    refused(front, "SK0015 1:1 this Markdown file has no front matter");
    refused(&format!("---\n{front}"), "SK0015 1:1 this front matter is never closed");
    refused("---\n---\nProse.\n", "SK0015 1:1 this front matter is empty");
    refused("# Title\n", "SK0015 1:1 this Markdown file has no front matter");
    refused("---\nid: [\n---\n", "SK0004 2:5 this is not YAML: a `[` is never closed");
    refused(
        "---\nname: x\ntimeout: 1h\n---\nname: y\n",
        "SK0010 5:1 a second document starts here, and one file holds one workflow",
    );
}

#[test]
fn a_body_of_two_megabytes_is_too_large() {
    let text = format!("---\nid: x\nsteps: []\n---\n{}", "word ".repeat(400_000));
    let report = check_source(SourceFile::new("WORKFLOW.md", text), &());
    assert_eq!(report.diagnostics.iter().map(|said| said.code).collect::<Vec<_>>(), [Code::TooLarge]);
}

#[test]
fn what_is_no_workflow_is_said_to_be_none() {
    for text in ["[1, 2]", "hello", "5", "{}", "a: 1"] {
        let said = format_of_file("a.yaml", text).unwrap_err();
        assert_eq!(said, ["SK0016 1:1 this is not a workflow in any of the four formats"], "{text:?}");
    }
}
