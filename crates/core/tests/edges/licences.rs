//! The licences, sources and versions of all packages that the workspace is built from. `cargo deny` checks the same
//! and more, but takes longer to install than the rest of the tests to run.

use std::collections::BTreeMap;

use super::{metadata, text};

/// Licences that allow the distribution of Skein under its own.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    // The certificates of webpki-roots are data.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Packages of which two versions are built, because dependencies disagree.
const TWICE: &[&str] = &["getrandom", "syn"];

/// Packages that must not come in: the system's OpenSSL would have to be installed wherever Skein is built.
const BANNED: &[&str] = &["native-tls", "openssl", "openssl-sys"];

/// The words of a licence expression. Old ones write `/` for `OR`.
fn words(licence: &str) -> Vec<String> {
    let spaced = licence.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Evaluates an expression, and returns the words behind it. `AND` binds tighter than `OR`.
fn any_of(words: &[String]) -> (bool, &[String]) {
    let (mut allowed, mut rest) = all_of(words);
    while rest.first().is_some_and(|word| word == "OR") {
        let (other, behind) = all_of(&rest[1..]);
        (allowed, rest) = (allowed || other, behind);
    }
    (allowed, rest)
}

fn all_of(words: &[String]) -> (bool, &[String]) {
    let (mut allowed, mut rest) = one_licence(words);
    while rest.first().is_some_and(|word| word == "AND") {
        let (other, behind) = one_licence(&rest[1..]);
        (allowed, rest) = (allowed && other, behind);
    }
    (allowed, rest)
}

/// A licence with an exception is another licence, and none of those is allowed.
fn one_licence(words: &[String]) -> (bool, &[String]) {
    match words {
        [open, inner @ ..] if open == "(" => {
            let (allowed, rest) = any_of(inner);
            assert_eq!(rest.first().map(String::as_str), Some(")"), "{words:?}");
            (allowed, &rest[1..])
        }
        [_, with, _, rest @ ..] if with == "WITH" => (false, rest),
        [name, rest @ ..] => (ALLOWED.contains(&name.as_str()), rest),
        [] => panic!("a licence is missing"),
    }
}

fn is_allowed(licence: &str) -> bool {
    let words = words(licence);
    let (allowed, rest) = any_of(&words);
    assert!(rest.is_empty(), "`{licence}` cannot be parsed");
    allowed
}

#[test]
fn every_package_has_an_allowed_licence_and_source() {
    // Only the packages of this platform are there without a network.
    let metadata = metadata(&["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
    let packages = metadata["packages"].as_array().expect("there are packages");
    assert!(packages.len() > 100, "only {} packages were found", packages.len());
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refused = Vec::new();
    for package in packages {
        let name = text(package, "name").expect("a package has a name");
        *versions.entry(name).or_default() += 1;
        let licence = text(package, "license").unwrap_or("none");
        if !is_allowed(licence) {
            refused.push(format!("{name} has the licence `{licence}`"));
        }
        if text(package, "source").is_some_and(|source| source != REGISTRY) {
            refused.push(format!("{name} is not from crates.io"));
        }
        if BANNED.contains(&name) {
            refused.push(format!("{name} must not be a dependency"));
        }
    }
    versions.retain(|_, count| *count > 1);
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(versions.into_keys().collect::<Vec<_>>(), TWICE, "packages with several versions");
}

#[test]
fn licence_expressions_are_evaluated() {
    for licence in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(MIT OR GPL-3.0) AND ISC", "GPL-3.0 AND MIT OR ISC"] {
        assert!(is_allowed(licence), "{licence}");
    }
    for licence in ["GPL-3.0", "MIT AND GPL-3.0", "none", "(MIT AND GPL-3.0) OR LGPL-3.0", "MIT WITH x"] {
        assert!(!is_allowed(licence), "{licence}");
    }
}
