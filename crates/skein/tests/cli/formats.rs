//! The pages of the four formats: every row names an existing proof, and every field of a format is on its page.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::{
    kept::Project,
    proofs::{named, tests},
    session::repository,
};

/// A format and the minimum number of rows on its page.
const PAGES: [(&str, usize); 4] = [("agentcore", 60), ("aip15", 80), ("ioa", 50), ("swdl", 70)];

fn page(format: &str) -> String {
    let path = repository().join("docs/formats").join(format).with_extension("md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of all table rows whose last column names a proof.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut proving = false;
    for line in page.lines() {
        let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            proving = false;
            continue;
        };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        match cells.last() {
            Some(&"proven by") => proving = true,
            Some(last) if proving && !last.starts_with("---") => rows.push(cells),
            _ => {}
        }
    }
    rows
}

/// True if the name is an input file of the dialect tests or a file of the repository.
fn is_there(name: &str) -> bool {
    let inputs = repository().join("crates/dialects/tests/inputs");
    [inputs.as_path(), repository()].into_iter().any(|folder: &Path| folder.join(name).is_file())
}

#[test]
fn every_row_is_proven_by_something_that_exists() {
    let tests = tests();
    for (format, least) in PAGES {
        let page = page(format);
        let rows = rows(&page);
        assert!(rows.len() >= least, "{format} has {} rows", rows.len());
        for row in rows {
            let [what, says, proof] = row[..] else { panic!("{format}: three columns: {row:?}") };
            let proofs = named(proof);
            assert!(!what.is_empty(), "{format}: {row:?}");
            let supported = !says.starts_with("no:");
            assert!(supported != proofs.is_empty(), "{format}: what is supported is proven, and nothing else: {row:?}");
            for name in proofs {
                let exists = if name.contains('/') { is_there(name) } else { tests.contains(name) };
                assert!(exists, "{format}: there is no `{name}`: {row:?}");
            }
        }
    }
}

/// Collects the names of all fields in a schema, without those of Skein's extension blocks.
fn fields(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(parts) => {
            let properties = parts.get("properties").and_then(Value::as_object);
            found.extend(properties.into_iter().flat_map(|properties| properties.keys().cloned()));
            let own = parts.iter().filter(|(name, _)| !name.starts_with("skein"));
            own.for_each(|(_, part)| fields(part, found));
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_format_is_on_its_page() {
    let project = Project::new();
    for (format, _) in PAGES {
        let done = project.skein(&format!("schema {format}"));
        let schema: Value = serde_json::from_str(&done.out).expect("a schema is JSON");
        let mut known = BTreeSet::new();
        fields(&schema, &mut known);
        let page = page(format);
        let words: BTreeSet<&str> = named(&page)
            .into_iter()
            .flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-.$".contains(c))))
            .flat_map(|word| std::iter::once(word).chain(word.split('.')))
            .collect();
        let missing: Vec<&String> = known.iter().filter(|name| !words.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "the page of {format} says nothing of {missing:?}");
    }
}
