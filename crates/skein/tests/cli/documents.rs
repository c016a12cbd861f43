//! The README and the page of the command line: what they show is what the program prints.
//!
//! A block that begins with `$ skein` is a session at the root of the repository, and a block of Mermaid is the drawing
//! of the example that the README is about. `UPDATE_SNAPSHOTS=1` writes the blocks anew.

use std::fs;

use crate::session::{Folder, repository, run, skein};

const DRAWN: &str = "graph examples/agentcore/word-count.yaml --as mermaid";

/// What a command prints, and its exit status where it is not 0.
fn printed(line: &str) -> String {
    // Whoever has tried an example here has runs of their own.
    let nothing = Folder::new();
    let state = nothing.0.join(".skein");
    let mut command = skein(repository());
    command.args(line.split_whitespace()).env("SKEIN_STATE", &state);
    let done = run(&mut command);
    let exit = if done.code == 0 { String::new() } else { format!("[exit {}]", done.code) };
    let shown = format!("{}{}{exit}", done.err, done.out);
    shown.replace(state.to_str().expect("it is text"), "/home/ada/notes/.skein").trim_end().to_owned()
}

/// A block as it should be: its first line is the word after the fence.
fn block(text: &str) -> String {
    let (word, inside) = text.split_once('\n').unwrap_or((text, ""));
    if word == "mermaid" {
        return format!("mermaid\n{}\n", printed(DRAWN));
    }
    let lines = inside.lines().filter_map(|line| line.strip_prefix("$ skein "));
    let sessions: Vec<String> = lines.map(|line| format!("$ skein {line}\n{}\n", printed(line))).collect();
    if inside.starts_with("$ skein ") { format!("{word}\n{}", sessions.join("\n")) } else { text.to_owned() }
}

fn check(page: &str, least: usize) {
    let path = repository().join(page);
    let text = fs::read_to_string(&path).expect("the page is there");
    let parts: Vec<&str> = text.split("```").collect();
    let shown = parts.iter().skip(1).step_by(2).filter(|part| part.contains("\n$ skein ")).count();
    assert!(shown >= least, "{page} shows {shown} sessions");
    let now =
        parts.iter().enumerate().map(|(i, part)| if i % 2 == 1 { block(part) } else { (*part).to_owned() });
    let now = now.collect::<Vec<_>>().join("```");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &now).expect("the page can be written");
    } else {
        assert_eq!(text, now, "{page} shows something else than is printed");
    }
}

#[test]
fn the_readme_shows_what_is_printed() {
    check("README.md", 2);
}

#[test]
fn the_page_of_the_command_line_shows_what_is_printed() {
    check("docs/cli.md", 8);
}

/// Every command has a section of its own on the page.
#[test]
fn every_command_is_on_the_page() {
    let page = fs::read_to_string(repository().join("docs/cli.md")).expect("the page is there");
    let help = run(skein(repository()).arg("--help")).out;
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        assert!(page.contains(&format!("\n## `skein {command}")), "no section of `{command}`");
    }
}
