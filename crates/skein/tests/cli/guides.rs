//! Pages that guide through an example: what they type is typed, in a copy of the examples, and what they show is what comes.
//!
//! A block of `console` is a session: lines that begin with `$ ` are given to a shell, one after the other, and what they print
//! stands below each. `cd` and `export` hold for what follows on the page. RUN is the run that was begun last. Names, times and
//! hashes are those of the page. `UPDATE_SNAPSHOTS=1` writes the blocks anew.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::session::{Folder, repository, run, skein};

struct Reader {
    folder: PathBuf,
    environment: BTreeMap<String, String>,
}

impl Reader {
    fn new(copy: &Folder) -> Reader {
        let from = repository().join("examples");
        let done = run(Command::new("cp").arg("-R").arg(from).arg(&copy.0));
        assert_eq!(done.code, 0, "{}", done.err);
        Reader { folder: copy.0.clone(), environment: BTreeMap::new() }
    }

    fn last_run(&self) -> Option<String> {
        let done = run(skein(&self.folder).args(["runs", "--format", "json"]));
        let runs: Value = serde_json::from_str(&done.out).expect("it is JSON");
        runs["runs"][0]["run_id"].as_str().map(str::to_owned)
    }

    /// What a line prints, as the page shows it.
    fn types(&mut self, line: &str, copy: &Path) -> String {
        if let Some(folder) = line.strip_prefix("cd ") {
            self.folder = copy.join(folder);
            return String::new();
        }
        if let Some((name, value)) = line.strip_prefix("export ").and_then(|set| set.split_once('=')) {
            self.environment.insert(name.to_owned(), value.to_owned());
            return String::new();
        }
        let run_id = self.last_run().unwrap_or_default();
        let typed = line.replace("RUN", &run_id);
        let mut shell = Command::new("sh");
        let program = Path::new(env!("CARGO_BIN_EXE_skein")).parent().expect("it is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-c", &typed])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", program.display()));
        shell.env_remove("SKEIN_STATE").env_remove("NO_COLOR").envs(&self.environment);
        let done = run(&mut shell);
        assert_eq!(done.code, 0, "`{line}`: {}{}", done.out, done.err);
        let me = String::from_utf8(Command::new("id").arg("-un").output().expect("there is `id`").stdout);
        let shown = if run_id.is_empty() { done.out } else { done.out.replace(&run_id, "RUN") };
        lasting(&shown.replace(&format!(" {} ", me.expect("it is text").trim()), " ada "))
    }
}

/// Without times and hashes, which are others each time.
fn lasting(text: &str) -> String {
    let words = |line: &str| {
        let word = |word: &str| match word {
            word if word.len() == 20 && word.ends_with('Z') && word.contains("T") => {
                "2026-11-16T08:00:00Z".to_owned()
            }
            word => hidden(word),
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|line| format!("{}\n", words(line).trim_end())).collect()
}

/// A word with `…` in the place of a hash.
fn hidden(word: &str) -> String {
    let bytes = word.as_bytes();
    let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match bytes.windows(64).position(|window| window.iter().all(hex)) {
        Some(at) => format!("{}…{}", &word[..at], &word[at + 64..]),
        None => word.to_owned(),
    }
}

fn follow(page: &str) {
    let path = repository().join(page);
    let text = fs::read_to_string(&path).expect("the page is there");
    let copy = Folder::new();
    let mut reader = Reader::new(&copy);
    let mut sessions = 0;
    let parts = text.split("```").enumerate().map(|(i, part)| match part.strip_prefix("console\n") {
        Some(block) if i % 2 == 1 => {
            sessions += 1;
            let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
            let shown: String =
                lines.map(|line| format!("$ {line}\n{}", reader.types(line, &copy.0))).collect();
            format!("console\n{shown}")
        }
        _ => part.to_owned(),
    });
    let now = parts.collect::<Vec<_>>().join("```");
    assert!(sessions > 0, "{page} shows nothing");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &now).expect("the page can be written");
    } else {
        assert_eq!(text, now, "{page} shows something else than is printed");
    }
}

#[test]
fn the_page_of_the_audit_shows_what_is_printed() {
    follow("docs/audit.md");
}

#[test]
fn the_page_of_files_shows_what_is_printed() {
    follow("docs/files.md");
}

#[test]
fn the_page_of_secrets_shows_what_is_printed() {
    follow("docs/secrets.md");
}
