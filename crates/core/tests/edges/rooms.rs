//! Rules for modules: the top-level modules of a crate form no cycle, and the rooms of the dialects are layers.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::sources::{read_sources, workspace};

/// The top-level modules of a crate, each with the modules that it uses.
type ModuleGraph = BTreeMap<String, BTreeSet<String>>;

const CRATES: &[&str] = &["app", "core", "dialects", "host", "sim", "skein", "testkit"];

/// The rooms of the dialects crate. Each uses only those before it.
const DIALECT_ROOMS: &[&str] =
    &["diagnostics", "source", "fields", "catalog", "lowering", "extensions", "policy", "FORMAT", "check"];

/// The rooms of the formats. They are at one level, so they never use each other.
const FORMATS: &[&str] = &["agentcore", "aip15", "ioa", "swdl"];

/// Returns the first name of each path in `text`, which follows a `::`: an identifier, or each member of a group.
fn first_names(text: &str) -> Vec<String> {
    let Some(group) = text.strip_prefix('{') else {
        return vec![text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()];
    };
    let (mut names, mut name, mut depth, mut in_first) = (Vec::new(), String::new(), 0, true);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(std::mem::take(&mut name));
                in_first = true;
            }
            c if c.is_alphanumeric() || c == '_' => {
                if in_first && depth == 0 {
                    name.push(c);
                }
            }
            c if c.is_whitespace() && name.is_empty() => {}
            _ => in_first = false,
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the names in the root of the crate that a file uses. `depth` is the number of modules that contain its items.
fn root_names(text: &str, depth: usize) -> Vec<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let to_root = "super::".repeat(depth);
    let mut names = Vec::new();
    for start in ["crate::", &to_root] {
        for (at, _) in code.match_indices(start) {
            let part_of_longer = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if !part_of_longer {
                names.extend(first_names(&code[at + start.len()..]));
            }
        }
    }
    names
}

/// Returns the names that the root re-exports, each with the module that defines it.
fn reexports(root: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in root.split(';').filter_map(|statement| statement.split_once("use ")) {
        let Some((module, rest)) = statement.1.split_once("::") else { continue };
        let names = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
        found.extend(names.map(|name| (name.to_owned(), module.trim().to_owned())));
    }
    found
}

fn read_modules(src: &Path) -> ModuleGraph {
    let sources = read_sources(src);
    let root = sources.iter().find(|source| {
        source.path.parent() == Some(src) && (source.path.ends_with("lib.rs") || source.path.ends_with("main.rs"))
    });
    let root = root.expect("a crate has a root");
    let exported = reexports(&root.text);
    let mut graph = ModuleGraph::new();
    for source in sources.iter().filter(|source| source.path != root.path) {
        let path = source.path.strip_prefix(src).expect("it is below the folder").with_extension("");
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let depth = parts.len() - usize::from(parts.last() == Some(&"mod"));
        let uses = graph.entry(parts[0].to_owned()).or_default();
        for name in root_names(&source.text, depth) {
            uses.insert(exported.get(&name).cloned().unwrap_or(name));
        }
        uses.remove(parts[0]);
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    graph.values_mut().for_each(|uses| uses.retain(|name| modules.contains(name)));
    graph
}

/// Returns all modules that a module uses, directly or through others.
fn reachable(graph: &ModuleGraph, from: &str) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = open.pop() {
        let new = graph[&module].iter().filter(|used| found.insert((*used).clone()));
        open.extend(new.cloned());
    }
    found
}

/// Returns the groups of modules that use each other.
fn find_cycles(graph: &ModuleGraph) -> BTreeSet<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let on_cycle = graph.keys().filter(|module| reach[module].contains(*module));
    on_cycle
        .map(|module| reach[module].iter().filter(|other| reach[other].contains(module)).cloned().collect())
        .collect()
}

#[test]
fn top_level_modules_form_no_cycle() {
    for name in CRATES {
        let graph = read_modules(&workspace().join("crates").join(name).join("src"));
        let cycles = find_cycles(&graph);
        assert!(cycles.is_empty(), "modules of {name} that use each other: {cycles:#?}");
    }
}

#[test]
fn the_rooms_of_the_dialects_are_in_layers() {
    let level = |room: &str| {
        let room = if FORMATS.contains(&room) { "FORMAT" } else { room };
        let level = DIALECT_ROOMS.iter().position(|known| *known == room);
        level.unwrap_or_else(|| panic!("{room} is in no layer: add it to DIALECT_ROOMS"))
    };
    for (room, used) in read_modules(&workspace().join("crates/dialects/src")) {
        let above: Vec<&String> = used.iter().filter(|used| level(used) >= level(&room)).collect();
        assert!(above.is_empty(), "{room} uses {above:?}: move the code that they share to a room below both");
    }
}

#[test]
fn uses_of_modules_are_found() {
    let names = |text, depth| root_names(text, depth);
    assert_eq!(names("use crate::{\n  a::{B, C},\n  d,\n};", 1), ["a", "d"]);
    assert_eq!(names("fn f() -> crate::a::B {}\n// crate::c::D", 2), ["a"]);
    assert_eq!(names("use super::a::B;", 1), ["a"]);
    assert_eq!(names("use super::a::B;\nuse super::super::c::D;", 2), ["c"]);
    assert_eq!(reexports("pub use a::b::{C, D};")["D"], "a");
    let graph = |edges: &[(&str, &[&str])]| -> ModuleGraph {
        let uses = |used: &[&str]| used.iter().map(|name| (*name).to_owned()).collect();
        edges.iter().map(|(module, used)| ((*module).to_owned(), uses(used))).collect()
    };
    assert!(find_cycles(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    let cycles = find_cycles(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(cycles.into_iter().collect::<Vec<_>>(), [["b", "c"]]);
}
