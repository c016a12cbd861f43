//! Guide pages: their commands are typed in a copy of the examples, and the page must show the real output.
//!
//! A `console` block is a session: lines that begin with `$ ` are run by a shell, one after the other, and their output
//! is below each. `cd` and `export` apply to the rest of the page. RUN is the run that was started last. Names,
//! folders, times, durations and hashes are replaced by those of the page. `INSTA_UPDATE=always` rewrites the blocks.
//!
//! A block with `file=PATH` after its language is the file at that path of the repository, or a part of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use skein_testkit::files::assert_file;

use crate::session::{Folder, repository, run, skein, state_home};

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
        let done = run(skein(&self.folder).args(["runs", "--format", "json"]).envs(&self.environment));
        let runs: Value = serde_json::from_str(&done.out).expect("it is JSON");
        runs["runs"][0]["run_id"].as_str().map(str::to_owned)
    }

    /// The output of a line, in the form of the page.
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
        shell.args(["-c", &typed]).current_dir(&self.folder).env("PATH", format!("{}:{path}", program.display()));
        shell.env("XDG_STATE_HOME", state_home());
        shell.env_remove("SKEIN_STATE").env_remove("NO_COLOR").envs(&self.environment);
        let done = run(&mut shell);
        assert_eq!(done.code, 0, "`{line}`: {}{}", done.out, done.err);
        let me = String::from_utf8(Command::new("id").arg("-un").output().expect("there is `id`").stdout);
        let begun = self.last_run().unwrap_or_default();
        let runs = [run_id, begun].into_iter().filter(|id| !id.is_empty());
        let shown = runs.fold(done.out, |shown, id| shown.replace(&id, "RUN"));
        let shown = shown.replace(copy.to_str().expect("it is text"), "/home/ada");
        lasting(&shown.replace(&format!(" {} ", me.expect("it is text").trim()), " ada "))
    }
}

/// Replaces times, durations and hashes, which differ each time.
fn lasting(text: &str) -> String {
    let words = |line: &str| {
        let word = |word: &str| {
            let fixed = [fixed_time, fixed_duration, fixed_delay, fixed_plan];
            fixed.iter().find_map(|fixed| fixed(word)).unwrap_or_else(|| hidden(word))
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|line| format!("{}\n", words(line).trim_end())).collect()
}

/// Replaces a time, such as `2026-11-18T00:13:13Z`, with or without a comma.
fn fixed_time(word: &str) -> Option<String> {
    let time = word.trim_end_matches(',');
    let is_time = time.len() == 20 && time.ends_with('Z') && time.contains('T');
    is_time.then(|| format!("2026-11-16T08:00:00Z{}", &word[20..]))
}

/// Replaces a measured duration, such as `0.107s` or `0.107s]`, by one of the same width.
fn fixed_duration(word: &str) -> Option<String> {
    let at = word.find('s')?;
    let (seconds, thousandths) = word[..at].split_once('.')?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let measured = digits(seconds) && digits(thousandths) && thousandths.len() == 3;
    // In a sentence, such as `Succeeded in 10.107s: …`, nothing is aligned.
    let width = if word.ends_with(':') { 0 } else { at };
    measured.then(|| format!("{:>width$}{}", "0.050", &word[at..]))
}

/// Replaces the random delay before a retry, such as `706ms:`.
fn fixed_delay(word: &str) -> Option<String> {
    let delay = word.strip_suffix("ms:")?;
    delay.bytes().all(|byte| byte.is_ascii_digit()).then(|| "500ms:".to_owned())
}

/// Replaces the shortened hash of a plan, such as `b5ae50abc59b`, which changes with the engine's form of a plan.
fn fixed_plan(word: &str) -> Option<String> {
    let hash = word.trim_end_matches(',');
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (hash.len() == 12 && hash.bytes().all(hex)).then(|| format!("…{}", &word[12..]))
}

/// Replaces a hash in a word by `…`.
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
            let shown: String = lines.map(|line| format!("$ {line}\n{}", reader.types(line, &copy.0))).collect();
            format!("console\n{shown}")
        }
        _ => part.to_owned(),
    });
    let now = parts.collect::<Vec<_>>().join("```");
    assert!(sessions > 0, "{page} shows nothing");
    assert_file(&path, &now);
}

/// Checks that each block with `file=PATH` is that file, or whole lines of it, and returns the paths.
fn shown_files(page: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(repository().join(page)).expect("the page is there");
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut paths = BTreeSet::new();
    for (info, shown) in blocks {
        let Some((_, path)) = info.split_once("file=") else { continue };
        let file = fs::read_to_string(repository().join(path));
        let file = file.unwrap_or_else(|error| panic!("{page} shows `{path}`: {error}"));
        let whole_lines = format!("\n{file}").contains(&format!("\n{shown}"));
        assert!(!shown.is_empty() && whole_lines, "{page} shows something else than `{path}` holds:\n{shown}");
        paths.insert(path.to_owned());
    }
    paths
}

/// The workflows below a folder, by their paths in the repository.
fn workflows_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("it is text");
        if path.is_dir() && !name.starts_with('.') {
            found.extend(workflows_below(&path));
        } else if name == "WORKFLOW.md" || name.ends_with(".yaml") {
            found.push(path.strip_prefix(repository()).expect("it is below").display().to_string());
        }
    }
    found
}

/// Follows the guide to a format: runs its sessions, compares its files, and checks that it shows every workflow made
/// for it.
fn follow_guide(format: &str) {
    let page = format!("docs/guide/{format}.md");
    follow(&page);
    let shown = shown_files(&page);
    for workflow in workflows_below(&repository().join("examples/guide").join(format)) {
        assert!(shown.contains(&workflow), "{page} does not show `{workflow}`");
    }
}

#[test]
fn the_guide_to_agentcore_shows_its_files_and_what_is_printed() {
    follow_guide("agentcore");
}

#[test]
fn the_guide_to_aip15_shows_its_files_and_what_is_printed() {
    follow_guide("aip15");
}

#[test]
fn the_guide_to_ioa_shows_its_files_and_what_is_printed() {
    follow_guide("ioa");
}

#[test]
fn the_guide_to_swdl_shows_its_files_and_what_is_printed() {
    follow_guide("swdl");
}

#[test]
fn the_page_of_the_environment_shows_its_script_and_what_is_printed() {
    follow("docs/reference/environment.md");
    let shown = shown_files("docs/reference/environment.md");
    assert!(shown.contains("examples/guide/environment/weigh.sh"), "{shown:?}");
}

/// A state folder with a waiting run is backed up, restored to another place, accepted, and its run resumes to the end.
#[test]
fn the_page_on_operating_backs_up_restores_and_resumes() {
    follow("docs/operate.md");
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
