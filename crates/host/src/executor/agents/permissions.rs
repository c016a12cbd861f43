//! The permissions of an agent. Each adapter turns them into its own flags.
//!
//! The agent itself enforces the flags; the sandbox of the system is not decided here. The measured effect of the
//! flags:
//!
//! | | Claude Code | Codex | OpenCode |
//! |---|---|---|---|
//! | READ | no tool that writes outside of the permitted places | sandbox: nothing is written, no network, any command | as Claude Code |
//! | EDIT | writes below its folder only | sandbox: writes below its folder; commands are not distinguished | writes below its folder only |
//! | RUN_TESTS | the named commands, exactly | any command, in the sandbox | the named commands, exactly |
//! | RUN_COMMANDS | any command, limited only by the sandbox | any command, in the sandbox | any command, limited only by the sandbox |

use std::path::PathBuf;

use skein_core::ir::WorkerCapability;

/// The permissions of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPermissions {
    pub edit: bool,
    pub run: CommandPermission,
    pub network: bool,
    /// The working directory.
    pub folder: PathBuf,
    /// The paths that are always writable: Skein's folder for the attempt's results, and files by their names.
    pub back: PathBuf,
    pub files: Vec<String>,
    /// True if the agent can build a sandbox of its own around its commands.
    pub sandbox: bool,
}

/// The commands that an agent may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CommandPermission {
    #[default]
    Nothing,
    /// Exactly these.
    These(Vec<Vec<String>>),
    Anything,
}

impl AgentPermissions {
    /// True if neither the agent nor its commands can change anything.
    pub fn is_read_only(&self) -> bool {
        !self.edit && self.run == CommandPermission::Nothing
    }

    /// Returns the permissions for these capabilities. An agent without capabilities reads and edits. If no test
    /// commands are named, any command may be one.
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

/// Describes the limits that an agent's own flags set. Returns `None` if the name is not that of an agent.
pub fn describe_limits(word: &str, may: &AgentPermissions) -> Option<String> {
    let sandboxed = crate::executor::agents::find_adapter(word)?.is_sandboxed();
    let writes = match (may.edit, sandboxed) {
        (false, true) if may.is_read_only() => "its sandbox writes nothing",
        (_, true) => "its sandbox writes below its folder",
        (true, false) => "it writes below its folder",
        (false, false) => "it writes only its results",
    };
    let runs = match (&may.run, sandboxed) {
        (CommandPermission::Nothing, false) => "runs nothing".to_owned(),
        (CommandPermission::These(commands), false) => {
            let commands: Vec<String> = commands.iter().map(|words| format!("`{}`", quote_command(words))).collect();
            format!("runs {}", commands.join(", "))
        }
        (CommandPermission::Anything, false) => "runs any command".to_owned(),
        (_, true) => "runs any command in it".to_owned(),
    };
    Some(format!("{writes} and {runs}"))
}

/// Formats a command as one line of a shell.
pub(crate) fn quote_command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Builds permissions for the tests of the adapters.
#[cfg(test)]
pub(crate) fn test_permissions(capabilities: &[WorkerCapability], tests: &[&[&str]]) -> AgentPermissions {
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
        assert_eq!(test_permissions(&[WorkerCapability::RunCommands], &[&["x"]]).run, CommandPermission::Anything);
        assert_eq!(quote_command(&["sh".to_owned(), "-c".to_owned(), "a b".to_owned()]), "sh -c 'a b'");
    }
}
