//! Rules for names and documentation that hold in every crate: a type is named once, words that were replaced do not
//! return, and a doc comment says what an item is or does.

use std::{collections::BTreeMap, fs, path::Path};

use super::sources::{SourceText, read_sources, workspace};

/// Words of earlier names, each with the word in use. No type, module or file has one of them as a whole word of its
/// name.
const REPLACED_WORDS: &[(&str, &str)] = &[
    ("about", "settings"),
    ("asked", "request"),
    ("bell", "stop signal"),
    ("company", "occupancy"),
    ("crew", "executor"),
    ("ear", "agent stream"),
    ("hands", "executor"),
    ("hire", "agent launch"),
    ("hired", "agent launch"),
    ("laid", "prepared"),
    ("mailbox", "inbox"),
    ("opening", "waitpoint"),
    ("purse", "budget"),
    ("recall", "load"),
    ("said", "message"),
    ("settler", "conflict resolver"),
    ("shadow", "snapshot"),
    ("stimulus", "input"),
    ("surroundings", "resources"),
    ("tape", "recording"),
    ("told", "event"),
    ("troupe", "processes"),
    ("wall", "sandbox"),
    ("wishes", "request"),
];

/// The first words of a question, with which no doc comment opens.
const QUESTION_WORDS: &[&str] =
    &["What", "Who", "Whoever", "Whatever", "Whether", "Where", "Whose", "Which", "How", "Why"];

/// The sources of all crates that ship.
fn sources() -> Vec<SourceText> {
    let crates = fs::read_dir(workspace().join("crates")).expect("there are crates").flatten();
    let found: Vec<SourceText> = crates.flat_map(|krate| read_sources(&krate.path().join("src"))).collect();
    assert!(found.len() > 300, "only {} files were found", found.len());
    found
}

/// The name of the type that a line defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let rest = ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

/// The words of a name in `CamelCase` or `snake_case`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if (c.is_uppercase() || c == '_') && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (Some(last), true) = (words.last_mut(), c != '_') {
            last.extend(c.to_lowercase());
        }
    }
    words
}

#[test]
fn a_type_name_is_defined_once() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for (i, name) in source.text.lines().enumerate().filter_map(|(i, line)| Some((i, defined_type(line)?))) {
            places.entry(name.to_owned()).or_default().push(format!("{}:{}", source.path.display(), i + 1));
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "type names that are defined more than once: {places:#?}");
}

#[test]
fn replaced_words_do_not_return() {
    let mut found = Vec::new();
    let mut check = |name: &str, place: &Path| {
        for word in words(name) {
            if let Some((_, instead)) = REPLACED_WORDS.iter().find(|(replaced, _)| *replaced == word) {
                found.push(format!("{}: `{name}` has the word `{word}`; use {instead}", place.display()));
            }
        }
    };
    for source in sources() {
        let stem = source.path.file_stem().and_then(|stem| stem.to_str()).expect("a file has a name");
        check(stem, &source.path);
        source.text.lines().filter_map(defined_type).for_each(|name| check(name, &source.path));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn doc_comments_do_not_open_with_a_question_word() {
    let mut found = Vec::new();
    for source in sources() {
        let mut before = false;
        for (i, line) in source.text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            let first = comment.and_then(|text| text.split_whitespace().next());
            if !before && first.is_some_and(|word| QUESTION_WORDS.contains(&word.trim_end_matches([',', ':']))) {
                found.push(format!("{}:{}:{line}", source.path.display(), i + 1));
            }
            before = comment.is_some();
        }
    }
    assert!(found.is_empty(), "{} doc comments: {found:#?}", found.len());
}

#[test]
fn words_of_names_are_split() {
    assert_eq!(words("RunSettings"), ["run", "settings"]);
    assert_eq!(words("load_run"), ["load", "run"]);
    assert_eq!(defined_type("pub(crate) struct Plan<'a> {"), Some("Plan"));
    assert_eq!(defined_type("    enum Phase {"), Some("Phase"));
    assert_eq!(defined_type("let structure = 1;"), None);
}

/// The first two names in backticks of each row of a table: a file and a function in it.
fn walk_rows(section: &str) -> Vec<(&str, &str)> {
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let names = rows.map(|row| row.split('`').skip(1).step_by(2).take(2).collect::<Vec<_>>());
    names.filter_map(|names| Some((*names.first()?, *names.get(1)?))).collect()
}

#[test]
fn the_walks_through_the_code_are_short_and_name_functions_that_exist() {
    let page = fs::read_to_string(workspace().join("docs/design/walks.md")).expect("the page is there");
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    for (section, most) in [("A file from `skein validate`", 20), ("A step from `skein run`", 50)] {
        let found = sections.iter().find(|text| text.starts_with(section)).expect("the walk is there");
        let rows = walk_rows(found);
        assert!((10..=most).contains(&rows.len()), "{section} has {} functions", rows.len());
        for (file, function) in rows {
            let text = fs::read_to_string(workspace().join(file)).unwrap_or_else(|_| panic!("no file {file}"));
            let defines = ["(", "<"].iter().any(|end| text.contains(&format!("fn {function}{end}")));
            assert!(defines, "{file} has no function {function}");
        }
    }
}
