//! The allowed dependencies of each crate, and the functions that the core must not call. A new dependency is a
//! decision, so it is listed here.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "this test reads the workspace")]

mod names;
mod rooms;
mod sources;

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use sources::{SourceText, read_sources, workspace};

/// A crate, its allowed dependencies, and those that only its tests and benches may use.
const EDGES: &[(&str, &[&str], &[&str])] = &[
    (
        "skein-core",
        // Schedules need civil time: jiff has the time zones built in and, without its default features, reads neither
        // clock nor files; croner searches cron expressions over its civil times. Recurrence rules are expanded here,
        // because the crate rrule misplaces rules within the day, searches from their first day, and brings a second
        // library of time with a second database of zones.
        &["blake3", "croner", "jiff", "jsonschema", "serde", "serde_json", "strsim", "thiserror"],
        &["skein-testkit"],
    ),
    (
        "skein-dialects",
        &[
            "skein-core",
            "annotate-snippets",
            "granit-parser",
            "memchr",
            "serde",
            "serde_json",
            "thiserror",
            "unicode-normalization",
        ],
        // The schemas for editors are checked against the test inputs.
        &["skein-testkit", "jsonschema"],
    ),
    (
        "skein-host",
        // aho-corasick finds all forms of secrets in a stream in one pass. landlock limits the paths that a worker can
        // write where it cannot have a mount namespace of its own. The sandbox filters system calls (seccompiler, with
        // the numbers of libc), leaves three descriptors open (close_fds) and forwards signals in an init process.
        // ureq, the smallest HTTP client without an async runtime, sends webhooks; ring, which it uses anyway, signs
        // them. rmcp, the library of the MCP project, needs tokio and streams; all of these stay in the one module that
        // speaks MCP. Snapshots of a workspace are written without git: flate2 compresses their objects, ignore applies
        // the rules of .gitignore.
        &[
            "skein-core",
            "aho-corasick",
            "blake3",
            "close_fds",
            "flate2",
            "futures-core",
            "ignore",
            "landlock",
            "libc",
            "ring",
            "rmcp",
            "rusqlite",
            "rustix",
            "seccompiler",
            "serde",
            "serde_json",
            "signal-hook",
            "sse-stream",
            "thiserror",
            "tokio",
            "ureq",
        ],
        &["skein-testkit", "tempfile"],
    ),
    (
        "skein-app",
        &["skein-core", "skein-dialects", "skein-host", "rustix", "serde", "serde_json", "thiserror", "toml"],
        &[],
    ),
    (
        "skein",
        // unicode-width: output lines are cut at the width of the terminal, and wide characters take two columns.
        &[
            "skein-app",
            "skein-core",
            "skein-dialects",
            "skein-host",
            "anstyle",
            "clap",
            "clap_complete",
            "rustix",
            "serde",
            "serde_json",
            "signal-hook",
            "unicode-width",
        ],
        // The attack tests make system calls by the numbers of libc.
        &["skein-testkit", "libc"],
    ),
    // Only tests may depend on it.
    ("skein-testkit", &["skein-core", "skein-host", "insta", "serde_json"], &[]),
    ("skein-sim", &["skein-core", "serde", "serde_json", "thiserror"], &[]),
];

/// Clocks, randomness, hash order, files, environment, threads, processes, network.
const FORBIDDEN: &[&str] = &[
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
    "std::time::Instant",
    "std::time::Instant::now",
    "std::time::SystemTime",
    "std::time::SystemTime::now",
    "std::fs::File",
    "std::fs::OpenOptions",
    "std::fs::copy",
    "std::fs::create_dir_all",
    "std::fs::read",
    "std::fs::read_dir",
    "std::fs::read_to_string",
    "std::fs::remove_dir_all",
    "std::fs::remove_file",
    "std::fs::rename",
    "std::fs::write",
    "std::env::args",
    "std::env::current_dir",
    "std::env::var",
    "std::env::var_os",
    "std::env::vars",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::thread::scope",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::process::Command",
    "std::process::exit",
    "std::process::id",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
];

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value[field].as_str()
}

/// Lists the dependencies of a package that are not allowed, each with a hint.
fn unlisted(package: &Value) -> Vec<String> {
    let name = text(package, "name").expect("a package has a name");
    let Some((_, always, tests)) = EDGES.iter().find(|(listed, ..)| *listed == name) else {
        return vec![format!("the crate {name} is on no list: write down in EDGES what it may depend on")];
    };
    let dependencies = package["dependencies"].as_array().expect("a package has dependencies");
    let refused = dependencies.iter().filter_map(|dependency| {
        let on = text(dependency, "name").expect("a dependency has a name");
        let dev = text(dependency, "kind") == Some("dev");
        let allowed = always.contains(&on) || (dev && tests.contains(&on));
        let kind = if dev { "in its tests" } else { "in what ships" };
        (!allowed)
            .then(|| format!("{name} depends on {on} {kind}: do without, or add it to EDGES and say why in the commit"))
    });
    refused.collect()
}

#[test]
fn a_crate_depends_only_on_what_is_written_down() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("there are packages");
    let refused: Vec<String> = packages.iter().flat_map(unlisted).collect();
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
    let there: BTreeSet<_> = packages.iter().filter_map(|package| text(package, "name")).collect();
    let listed: BTreeSet<_> = EDGES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(there, listed, "EDGES lists a crate that is gone");
}

#[test]
fn a_listed_dependency_is_used() {
    let metadata = metadata();
    for (name, always, tests) in EDGES {
        let packages = metadata["packages"].as_array().expect("there are packages");
        let package = packages.iter().find(|package| text(package, "name") == Some(name)).expect("it is there");
        let dependencies = package["dependencies"].as_array().expect("a package has dependencies");
        for listed in always.iter().chain(*tests) {
            let used = dependencies.iter().any(|dependency| text(dependency, "name") == Some(listed));
            assert!(used, "{name} does not depend on {listed} any more: take it off EDGES");
        }
    }
}

#[test]
fn the_core_stays_deterministic() {
    let lints = include_str!("../../clippy.toml");
    let missing: Vec<_> = FORBIDDEN.iter().filter(|path| !lints.contains(&format!("path = \"{path}\""))).collect();
    assert!(missing.is_empty(), "clippy.toml of the core must forbid {missing:?}");
}

/// Macros and functions that write to the terminal or end the process.
const TERMINAL: &[&str] =
    &["print!(", "println!(", "eprint!(", "eprintln!(", "io::stdout", "io::stderr", "process::exit"];

/// Fails if a line of the shipped sources of a crate contains one of these words.
fn refuse_words(krate: &str, words: &[&str]) {
    let sources = read_sources(&workspace().join("crates").join(krate).join("src"));
    assert!(sources.len() > 20, "only {} files were found", sources.len());
    for SourceText { path, text } in &sources {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (i, line) in lines {
            let found = words.iter().find(|word| line.contains(**word));
            assert!(found.is_none(), "{}:{}: {line}", path.display(), i + 1);
        }
    }
}

#[test]
fn nothing_is_decided_by_labels_or_by_the_name_of_a_format() {
    // Labels are only shown, and front ends fill tables of the IR instead.
    let decides = |line: &str| {
        let compares = line.contains("==") || line.contains("!=") || line.contains("match ");
        line.contains(".labels.get(")
            || line.contains("dialect") && line.contains("Dialect::") && compares
            || line.contains("origin.dialect") && compares
    };
    for krate in ["core", "host", "app"] {
        for SourceText { path, text } in read_sources(&workspace().join("crates").join(krate).join("src")) {
            let found = text.lines().enumerate().find(|(_, line)| decides(line));
            assert!(found.is_none(), "{}: {found:?}", path.display());
        }
    }
}

#[test]
fn the_application_layer_neither_prints_nor_exits() {
    refuse_words("app", TERMINAL);
}

/// Names by which code opens the store. The command line asks the application layer instead.
const STORE: &[&str] = &["store::", "SqliteStore", "StateHandle"];

#[test]
fn the_command_line_never_opens_the_store() {
    refuse_words("skein", STORE);
}
