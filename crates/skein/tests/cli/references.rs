//! Reference pages: every variable and every entry of a state folder is named on its page.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::session::{Folder, repository, run, skein};

fn page(name: &str) -> String {
    fs::read_to_string(repository().join("docs/reference").join(name)).expect("the page is there")
}

/// The names in a text that begin with `SKEIN_`.
fn variables(text: &str) -> BTreeSet<String> {
    let end = |rest: &str| rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(rest.len());
    text.match_indices("SKEIN_").map(|(at, _)| text[at..at + end(&text[at..])].to_owned()).collect()
}

/// Appends the Rust sources below a folder, without those of tests.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("it is text");
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            into.push_str(&fs::read_to_string(&path).expect("it is text"));
        }
    }
}

#[test]
fn every_variable_is_on_the_page_of_the_environment() {
    let mut code = String::new();
    for crate_folder in fs::read_dir(repository().join("crates")).expect("there are crates") {
        sources(&crate_folder.expect("it can be listed").path().join("src"), &mut code);
    }
    let mut used = variables(&code);
    used.retain(|name| name != "SKEIN_" && !name.starts_with("SKEIN_TEST"));
    assert!(used.contains("SKEIN_OUTPUT") && used.contains("SKEIN_STATE"), "{used:?}");
    assert_eq!(variables(&page("environment.md")), used, "the page and the sources name the same variables");
}

/// Creates a state folder with runs of all formats, with a gate, hooks, evidence, artifacts, files and a run in the
/// background.
fn used_state(examples: &Path, state: &Path) {
    let guide = examples.join("guide");
    let of = |folder: &Path, line: &str, code: i32| {
        let done = run(skein(folder).args(line.split(' ')).arg("--state").arg(state));
        assert_eq!(done.code, code, "`skein {line}`: {}{}", done.out, done.err);
    };
    of(&guide.join("agentcore"), "run publish.yaml --no-wait", 6);
    of(&guide.join("environment"), "run weigh.yaml", 0);
    of(&guide.join("ioa"), "run first.yaml", 0);
    of(&guide.join("swdl"), "run release.yaml --no-wait", 6);
    of(&examples.join("swdl/run"), "run chart.yaml", 0);
    of(&guide.join("swdl"), "memory add Buttons.have.one.word --type style_rule", 0);
    of(&examples.join("aip15/files"), "run count-words", 0);
    of(&guide.join("swdl"), "run first.yaml --detach", 0);
    of(&guide.join("swdl"), "runs - --follow", 0);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("it can be listed").file_name().into_string().expect("it is text")).collect()
}

#[test]
fn every_entry_of_a_state_folder_is_on_its_page() {
    let folder = Folder::new();
    let copied = run(std::process::Command::new("cp").arg("-R").arg(repository().join("examples")).arg(&folder.0));
    assert_eq!(copied.code, 0, "{}", copied.err);
    let state = folder.0.join("state");
    used_state(&folder.0.join("examples"), &state);
    let runs: Vec<_> = names(&state.join("runs")).iter().map(|run| state.join("runs").join(run)).collect();
    let attempts = runs.iter().flat_map(|run| {
        let attempts = run.join("attempts");
        names(&attempts).into_iter().map(move |attempt| attempts.join(attempt))
    });
    let page = page("state.md");
    let mut seen = BTreeSet::new();
    for place in [state.clone()].into_iter().chain(runs.iter().cloned()).chain(attempts) {
        for name in names(&place) {
            assert!(page.contains(&format!("`{name}`")), "`{name}` in {} is not on the page", place.display());
            seen.insert(name);
        }
    }
    let made_by_these_runs =
        ["reserve", "memory", "hooks", "artifacts", "before", "telemetry.jsonl", "output.log", "proof-1.log"];
    for name in made_by_these_runs {
        assert!(seen.contains(name), "no run left a `{name}`: {seen:?}");
    }
}

/// The Markdown files of the repository's documentation.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let found = paths.flat_map(|path| match path.is_dir() {
        true => pages_below(&path),
        false => vec![path],
    });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_link_of_the_documentation_leads_to_a_file() {
    let mut pages = pages_below(&repository().join("docs"));
    pages.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| repository().join(name)));
    let mut links = 0;
    for page in pages {
        let text = fs::read_to_string(&page).expect("it is text");
        let prose = text.split("```").step_by(2);
        let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.starts_with("http")) {
            let file = target.split('#').next().expect("there is a first part");
            let place = page.parent().expect("it is in a folder").join(file);
            assert!(place.exists(), "{} links to `{target}`, which is not there", page.display());
            links += 1;
        }
    }
    assert!(links > 100, "{links} links");
}
