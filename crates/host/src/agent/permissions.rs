//! What an agent may do, in words that each turns into flags of its own.
//!
//! The flags are what the agent itself keeps to; what the system lets it do is not decided here. What was measured of how
//! far they hold:
//!
//! | | Claude Code | Codex | OpenCode |
//! |---|---|---|---|
//! | READ | no tool that writes elsewhere than where it was told to | sandbox: nothing is written, no network, any command | as Claude Code |
//! | EDIT | writes below its folder only | sandbox: writes below its folder; commands cannot be told apart | writes below its folder only |
//! | RUN_TESTS | the named commands, exactly | any command, in the sandbox | the named commands, exactly |
//! | RUN_COMMANDS | any command, and only the sandbox holds it | any command, in the sandbox | any command, and only the sandbox holds it |

use std::path::PathBuf;

use skein_core::ir::WorkerCapability;

/// What an agent may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPermissions {
    pub edit: bool,
    pub run: CommandPermission,
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
pub enum CommandPermission {
    #[default]
    Nothing,
    /// These, word for word.
    These(Vec<Vec<String>>),
    Anything,
}

impl AgentPermissions {
    /// Whether it can change nothing by itself or by what it runs.
    pub fn is_read_only(&self) -> bool {
        !self.edit && self.run == CommandPermission::Nothing
    }

    /// An agent for which nothing is named reads and edits. Where no tests are named, any command may be one.
    pub fn from_capabilities(capabilities: &[WorkerCapability], tests: &[Vec<String>]) -> AgentPermissions {
        let has = |capability| capabilities.contains(&capability);
        let run = match (has(WorkerCapability::RunCommands), has(WorkerCapability::RunTests), tests) {
            (true, _, _) | (_, true, []) => CommandPermission::Anything,
            (_, true, tests) => CommandPermission::These(tests.to_vec()),
            _ => CommandPermission::Nothing,
        };
        AgentPermissions {
            edit: capabilities.is_empty() || has(WorkerCapability::Edit),
            run,
            network: true,
            sandbox: true,
            ..AgentPermissions::default()
        }
    }
}

/// What an agent's own flags keep it to, in words. None: it is no agent that has such flags.
pub fn describe_limits(word: &str, may: &AgentPermissions) -> Option<String> {
    let sandboxed = super::find_adapter(word)?.is_sandboxed();
    let writes = match (may.edit, sandboxed) {
        (false, true) if may.is_read_only() => "its sandbox writes nothing",
        (_, true) => "its sandbox writes below its folder",
        (true, false) => "it writes below its folder",
        (false, false) => "it writes only what it gives",
    };
    let runs = match (&may.run, sandboxed) {
        (CommandPermission::Nothing, false) => "runs nothing".to_owned(),
        (CommandPermission::These(commands), false) => {
            let commands: Vec<String> =
                commands.iter().map(|words| format!("`{}`", quote_command(words))).collect();
            format!("runs {}", commands.join(", "))
        }
        (CommandPermission::Anything, false) => "runs any command".to_owned(),
        (_, true) => "runs any command in it".to_owned(),
    };
    Some(format!("{writes} and {runs}"))
}

/// A command as one line of a shell.
pub(super) fn quote_command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// For the tests of each.
#[cfg(test)]
pub(super) fn test_permissions(capabilities: &[WorkerCapability], tests: &[&[&str]]) -> AgentPermissions {
    let tests: Vec<Vec<String>> =
        tests.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
    AgentPermissions {
        back: "/s/runs/r/attempts/a/back".into(),
        ..AgentPermissions::from_capabilities(capabilities, &tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_named_or_any() {
        let both = [WorkerCapability::Read, WorkerCapability::RunTests];
        assert!(!test_permissions(&both, &[&["cargo", "test"]]).edit && test_permissions(&[], &[]).edit);
        assert_eq!(test_permissions(&both, &[]).run, CommandPermission::Anything);
        assert_eq!(
            test_permissions(&[WorkerCapability::RunCommands], &[&["x"]]).run,
            CommandPermission::Anything
        );
        assert_eq!(quote_command(&["sh".to_owned(), "-c".to_owned(), "a b".to_owned()]), "sh -c 'a b'");
    }
}
