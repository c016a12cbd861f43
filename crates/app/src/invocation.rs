//! The flags of this process that select the project and the state folder.
//!
//! Owns them for the whole process: the folder where the search for the project starts, and the prefix of commands that
//! are shown to the user.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

static FLAGS: OnceLock<InvocationFlags> = OnceLock::new();

#[derive(Debug)]
struct InvocationFlags {
    project: Option<PathBuf>,
    /// The words before the name of a command.
    words: String,
}

/// Remembers the flags of this process.
pub fn remember_flags(state: Option<&Path>, project: Option<&Path>) {
    let from_environment = std::env::var_os("SKEIN_STATE");
    let state = state.filter(|state| from_environment.as_deref() != Some(state.as_os_str()));
    let flag = |name: &str, path: Option<&Path>| {
        path.map_or(String::new(), |path| {
            format!(" --{name} {}", quote_shell_word(&path.display().to_string()))
        })
    };
    let words = format!("skein{}{}", flag("state", state), flag("project", project));
    let _ = FLAGS.set(InvocationFlags { project: project.map(Path::to_owned), words });
}

/// Returns the folder where the search for the project starts: that of `--project`, or the current one.
pub fn project_start() -> &'static Path {
    FLAGS.get().and_then(|flags| flags.project.as_deref()).unwrap_or(Path::new("."))
}

/// Returns the words before the name of a command that is shown to be typed here.
pub fn command_prefix() -> &'static str {
    FLAGS.get().map_or("skein", |flags| &flags.words)
}

/// Quotes a word for a shell, if necessary.
pub fn quote_shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(quote_shell_word("build"), "build");
        assert_eq!(quote_shell_word("each[3]/child"), "'each[3]/child'");
        assert_eq!(quote_shell_word("it's"), "'it'\\''s'");
    }
}
