//! The README and the page on the command line: their sessions show the real output of the program.
//!
//! A block that begins with `$ skein` is a session at the root of the repository, and a Mermaid block is the graph of
//! the README's example. `INSTA_UPDATE=always` rewrites the blocks.

use std::fs;

use skein_testkit::files::assert_file;

use crate::session::{Folder, repository, run, skein};

const DRAWN: &str = "graph examples/agentcore/word-count.yaml --as mermaid";

/// The output of a command, and its exit status if it is not 0.
fn printed(line: &str) -> String {
    // A user who tried an example here has their own runs.
    let nothing = Folder::new();
    let state = nothing.0.join(".skein");
    let mut command = skein(repository());
    command.args(line.split_whitespace()).env("SKEIN_STATE", &state);
    let done = run(&mut command);
    let exit = if done.code == 0 { String::new() } else { format!("[exit {}]", done.code) };
    let shown = format!("{}{}{exit}", done.err, done.out);
    shown.replace(state.to_str().expect("it is text"), "/home/ada/notes/.skein").trim_end().to_owned()
}

/// The expected content of a block: its first line is the word after the fence.
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
    let now = parts.iter().enumerate().map(|(i, part)| if i % 2 == 1 { block(part) } else { (*part).to_owned() });
    let now = now.collect::<Vec<_>>().join("```");
    assert_file(&path, &now);
}

#[test]
fn the_readme_shows_what_is_printed() {
    check("README.md", 2);
}

#[test]
fn the_page_of_the_command_line_shows_what_is_printed() {
    check("docs/cli.md", 8);
}

/// Every command has its own section on the page.
#[test]
fn every_command_is_on_the_page() {
    let page = fs::read_to_string(repository().join("docs/cli.md")).expect("the page is there");
    let help = run(skein(repository()).arg("--help")).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        assert!(page.contains(&format!("\n## `skein {command}")), "no section of `{command}`");
    }
}
