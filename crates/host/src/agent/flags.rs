//! What an agent may do, as the flags of each.
//!
//! Owns the one table from capabilities to flags. The flags are what the agent itself keeps to; what the system lets it
//! do is not decided here. What was measured of how far they hold:
//!
//! | | Claude Code | Codex | OpenCode |
//! |---|---|---|---|
//! | READ | no tool that writes elsewhere than where it was told to | sandbox: nothing is written, no network, any command | as Claude Code |
//! | EDIT | writes below its folder only | sandbox: writes below its folder; commands cannot be told apart | writes below its folder only |
//! | RUN_TESTS | the named commands, exactly | any command, in the sandbox | the named commands, exactly |
//! | RUN_COMMANDS | any command, and only the wall holds it | any command, in the sandbox | any command, and only the wall holds it |

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use skein_core::ir::Capability;

/// What an agent may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct May {
    pub edit: bool,
    pub run: Run,
    pub network: bool,
    /// Where it works.
    pub folder: PathBuf,
    /// What it may write whatever else it may: what is in a folder of ours, and files of its own by their names.
    pub back: PathBuf,
    pub files: Vec<String>,
    /// Whether a sandbox of its own can be built around its commands.
    pub sandbox: bool,
}

/// Which commands an agent may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Run {
    #[default]
    Nothing,
    /// These, word for word.
    These(Vec<Vec<String>>),
    Anything,
}

impl May {
    /// An agent for which nothing is named reads and edits. Where no tests are named, any command may be one.
    pub fn of(capabilities: &[Capability], tests: &[Vec<String>]) -> May {
        let has = |capability| capabilities.contains(&capability);
        let run = match (has(Capability::RunCommands), has(Capability::RunTests), tests) {
            (true, _, _) | (_, true, []) => Run::Anything,
            (_, true, tests) => Run::These(tests.to_vec()),
            _ => Run::Nothing,
        };
        May {
            edit: capabilities.is_empty() || has(Capability::Edit),
            run,
            network: true,
            sandbox: true,
            ..May::default()
        }
    }
}

/// What an agent's own flags keep it to, in words. None: it is no agent that has such flags.
pub fn kept_to(word: &str, may: &May) -> Option<String> {
    let sandboxed = match word {
        "CODEX_CLI" => true,
        "CLAUDE_CODE" | "OPENCODE" => false,
        _ => return None,
    };
    let writes = match (may.edit, sandboxed) {
        (false, true) if is_read_only(may) => "its sandbox writes nothing",
        (_, true) => "its sandbox writes below its folder",
        (true, false) => "it writes below its folder",
        (false, false) => "it writes only what it gives",
    };
    let runs = match (&may.run, sandboxed) {
        (Run::Nothing, false) => "runs nothing".to_owned(),
        (Run::These(commands), false) => {
            let commands: Vec<String> = commands.iter().map(|words| format!("`{}`", line(words))).collect();
            format!("runs {}", commands.join(", "))
        }
        (Run::Anything, false) => "runs any command".to_owned(),
        (_, true) => "runs any command in it".to_owned(),
    };
    Some(format!("{writes} and {runs}"))
}

/// `--tools` and `--allowedTools`. A tool that is not among the first does not exist for it; of those that do, nothing
/// is done that no rule allows.
pub fn claude(may: &May) -> (String, String) {
    let mut tools = vec!["Read", "Glob", "Grep", "Edit", "Write"];
    let mut rules: Vec<String> = ["Read", "Glob", "Grep"].map(str::to_owned).into();
    // A rule for Edit holds for Write, too; one for Write would hold for every file there is.
    rules.push(format!("Edit(/{}/**)", may.back.display()));
    rules.extend(may.files.iter().map(|name| format!("Edit(/{}/{name})", may.folder.display())));
    if may.edit {
        rules.push("Edit(./**)".to_owned());
    }
    match &may.run {
        Run::Nothing => {}
        Run::These(commands) => {
            tools.push("Bash");
            rules.extend(commands.iter().map(|words| format!("Bash({})", line(words))));
        }
        Run::Anything => {
            tools.push("Bash");
            rules.push("Bash".to_owned());
        }
    }
    (tools.join(","), rules.join(","))
}

/// Whether Codex can write nothing at all, not even what it was told to.
pub fn is_read_only(may: &May) -> bool {
    !may.edit && may.run == Run::Nothing
}

/// `-s`, and what goes with it.
pub fn codex(may: &May) -> Vec<String> {
    let mut words = vec!["-s".to_owned()];
    if !may.sandbox {
        // Mounts are not allowed where rules keep what is written. The rules hold all the same.
        words.push("danger-full-access".to_owned());
        return words;
    }
    if is_read_only(may) {
        words.push("read-only".to_owned());
        return words;
    }
    words.push("workspace-write".to_owned());
    words.extend(["--add-dir".to_owned(), may.back.display().to_string()]);
    let network = may.network && may.run != Run::Nothing;
    words.extend(["-c".to_owned(), format!("sandbox_workspace_write.network_access={network}")]);
    // It would make a folder there, where nothing can be written.
    words.extend(["-c".to_owned(), "sandbox_workspace_write.exclude_slash_tmp=true".to_owned()]);
    words
}

/// `permission`. Rules of one kind are tried in order, and the last that fits decides.
pub fn opencode(may: &May) -> Value {
    let mut all = Map::new();
    const DENIED: [&str; 10] =
        ["*", "task", "skill", "webfetch", "websearch", "todowrite", "question", "doom_loop", "lsp", "bash"];
    DENIED.iter().for_each(|name| drop(all.insert((*name).to_owned(), json!("deny"))));
    ["read", "glob", "grep", "list"]
        .iter()
        .for_each(|name| drop(all.insert((*name).to_owned(), json!("allow"))));
    let back = format!("{}/*", may.back.display());
    all.insert("external_directory".to_owned(), json!({"*": "deny", (back): "allow"}));
    let mut edit = Map::new();
    edit.insert("*".to_owned(), json!(if may.edit { "allow" } else { "deny" }));
    if !may.edit {
        edit.insert(format!("*{}/*", end(&may.back)), json!("allow"));
        for name in may.files.iter().flat_map(|name| [name.clone(), format!("*/{name}")]) {
            edit.insert(name, json!("allow"));
        }
    }
    all.insert("edit".to_owned(), Value::Object(edit));
    match &may.run {
        Run::Nothing => {}
        Run::These(commands) => {
            let mut bash = Map::new();
            bash.insert("*".to_owned(), json!("deny"));
            commands.iter().for_each(|words| drop(bash.insert(line(words), json!("allow"))));
            all.insert("bash".to_owned(), Value::Object(bash));
        }
        Run::Anything => drop(all.insert("bash".to_owned(), json!("allow"))),
    }
    Value::Object(all)
}

/// The end of a path. It is matched against a path from the repository, which begins nobody knows how.
fn end(path: &Path) -> String {
    let parts: Vec<_> =
        path.components().rev().take(5).map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// A command as one line of a shell.
fn line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(capabilities: &[Capability], tests: &[&[&str]]) -> May {
        let tests: Vec<Vec<String>> =
            tests.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
        May { back: "/s/runs/r/attempts/a/back".into(), ..May::of(capabilities, &tests) }
    }

    #[test]
    fn reading_writes_only_what_it_was_told_to() {
        let may = May {
            folder: "/w".into(),
            files: vec![".decision.json".into()],
            ..may(&[Capability::Read], &[])
        };
        let (tools, rules) = claude(&may);
        assert_eq!(tools, "Read,Glob,Grep,Edit,Write");
        assert_eq!(rules, "Read,Glob,Grep,Edit(//s/runs/r/attempts/a/back/**),Edit(//w/.decision.json)");
        assert_eq!(codex(&may), ["-s", "read-only"]);
        let permission = opencode(&may);
        assert_eq!(permission["bash"], "deny");
        assert_eq!(
            permission["edit"],
            json!({"*": "deny", "*runs/r/attempts/a/back/*": "allow", ".decision.json": "allow", "*/.decision.json": "allow"})
        );
    }

    #[test]
    fn editing_stays_in_the_folder() {
        let may = may(&[], &[]);
        assert!(claude(&may).1.ends_with("Edit(./**)"));
        assert_eq!(codex(&may)[..4], ["-s", "workspace-write", "--add-dir", "/s/runs/r/attempts/a/back"]);
        assert!(codex(&may).contains(&"sandbox_workspace_write.network_access=false".to_owned()));
        assert_eq!(opencode(&may)["edit"], json!({"*": "allow"}));
        assert_eq!(opencode(&may)["external_directory"]["*"], "deny");
    }

    #[test]
    fn tests_are_named_word_for_word() {
        let both = [Capability::Read, Capability::RunTests];
        let named = may(&both, &[&["cargo", "test"], &["sh", "-c", "a b"]]);
        assert!(claude(&named).1.ends_with("Bash(cargo test),Bash(sh -c 'a b')"));
        assert_eq!(
            opencode(&named)["bash"],
            json!({"*": "deny", "cargo test": "allow", "sh -c 'a b'": "allow"})
        );
        assert!(!named.edit);
        assert_eq!(may(&both, &[]).run, Run::Anything);
        assert_eq!(may(&[Capability::RunCommands], &[&["x"]]).run, Run::Anything);
    }
}
