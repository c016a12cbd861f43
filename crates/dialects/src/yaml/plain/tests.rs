//! Compares the fast path with the parser: whenever it accepts a text, the trees are equal.

use std::path::Path;

use super::*;

/// Parses a text with the parser. None if there are diagnostics.
fn parsed(source: &Arc<SourceFile>) -> Option<YamlTree> {
    let mut sink = DiagnosticSink::new(source.clone());
    let mut builder = YamlTreeBuilder::new(source, whole(source), &mut sink);
    builder.parse_events();
    let tree = if builder.broken { None } else { builder.into_tree() };
    tree.filter(|_| sink.is_empty())
}

fn whole(source: &SourceFile) -> ExprSpan {
    ExprSpan::new(0, source.text.len())
}

/// True if a text is plain. Asserts that the parser then yields the same tree.
fn agrees(text: &str) -> bool {
    let source = SourceFile::new("a.yaml", text);
    let Some(plain) = parse_plain(whole(&source), &source) else { return false };
    let parsed = parsed(&source).unwrap_or_else(|| panic!("the parser refuses {text:?}"));
    let shown =
        |tree: YamlTree| format!("{:?}", (tree.root, tree.nodes, tree.items, tree.entries, tree.texts));
    assert_eq!(shown(plain), shown(parsed), "{text}");
    true
}

#[test]
fn plain_lines_are_read_as_the_parser_reads_them() {
    for text in [
        "a: 1",
        "a: 1\n",
        "a: 1\n\n\n",
        "# first\na: b c  # after\n  # between\nb: 'x # y'\n# last",
        "a:\n  b:\n    c: 1\n  d: 2\ne: 3\n",
        "a:\n  - b\n  - c: 1\n    d: 2\n  -   e: 1\n      f: 2\ng: h",
        "- a\n- b: c\n- http://x/y:z\n",
        "a: [b, c d, \"e f\", 'g', [h], {i: j}]  # k\nl: {m: [n], o: {p: q}}\nr: []\ns: { }\n",
        "a: x:y z#w\nb: (c) $d/e\n",
        "a:   # a comment\n    b: 1\nc: \"\"\nd: ''\n",
    ] {
        assert!(agrees(text), "{text:?} is plain");
    }
}

#[test]
fn all_else_is_left_to_the_parser() {
    for text in [
        "",
        "\n",
        "a",
        "a:\n",
        "a:\nb: 1\n",
        "a: b: c\n",
        "a: b\n  c\n",
        "a: &x 1\n",
        "a: *x\n",
        "a: !t 1\n",
        "a: |\n  b\n",
        "a: >\n  b\n",
        "a: \"b\\n\"\n",
        "a: 'b''c'\n",
        "a: \"b\n  c\"\n",
        "a: [b,\n  c]\n",
        "a: [b, ]\n",
        "a: [b: c]\n",
        "a: {b}\n",
        "a:\n- b\n",
        "- - a\n",
        "-\n  a: 1\n",
        "---\na: 1\n",
        "a: 1\n...\n",
        "%YAML 1.2\n---\na: 1\n",
        "a: 1\na: 2\n",
        "<<: 1\n",
        "a: b\n c: d\n",
        "  a: 1\n",
        "a:\tb\n",
        "a: b\r\n",
        "\u{e9}: 1\n",
        "'a': 1\n",
        "? a\n",
        "a: [b\n",
        "a: 'b' c\n",
        "a: [b]c\n",
        "a: - b\n",
        "a: @b\n",
        "a: \"b\"# c\n",
        "a: [\"b\": c]\n",
    ] {
        assert!(!agrees(text), "{text:?} is not plain");
    }
    assert!(!agrees(&format!("{}: 1\n", "a".repeat(LONGEST_KEY + 1))));
}

#[test]
fn every_source_of_ours_is_read_alike_and_so_is_each_with_some_damage() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("examples"), root.join("crates/dialects/tests/inputs")];
    let (mut read, mut plain) = (0, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path)
                && path.extension().is_some_and(|ending| ending == "yaml" || ending == "md")
            {
                (read, plain) = (read + 1, plain + damaged(&text));
            }
        }
    }
    assert!(read > 100 && plain > 500, "{read} sources, {plain} of them plain");
}

/// Checks a text, its beginning, and variants with characters removed, inserted or replaced. Returns the number of
/// plain variants.
fn damaged(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().filter(|line| !line.ends_with(['|', '>', ':'])).collect();
    let short = lines.iter().take(30).map(|line| format!("{line}\n")).collect::<String>();
    let mut plain = usize::from(agrees(text)) + usize::from(agrees(&short));
    let places = short.char_indices().map(|(at, _)| at).step_by(1 + short.len() / 40);
    for (number, at) in places.enumerate() {
        let (before, after) = short.split_at(at);
        let rest: String = after.chars().skip(1).collect();
        let other = [
            " ", ":", "- ", "#", "\n", ",", "'", "\"", "  ", "[", "]", "{", "}", ": ", " #", "a", "&a ", "?",
        ][number % 18];
        for text in [
            before.to_owned(),
            format!("{before}{rest}"),
            format!("{before}{other}{after}"),
            format!("{before}{other}{rest}"),
        ] {
            plain += usize::from(agrees(&text));
        }
    }
    plain
}
