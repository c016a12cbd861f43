//! Commands that are shown to people, with the flags of this process that select the project and the state folder.

use std::{path::Path, sync::OnceLock};

/// The words before the name of a command.
static PREFIX: OnceLock<String> = OnceLock::new();

/// Remembers the flags of this process.
pub(crate) fn remember_flags(state: Option<&Path>, project: Option<&Path>) {
    let from_environment = std::env::var_os("SKEIN_STATE");
    let state = state.filter(|state| from_environment.as_deref() != Some(state.as_os_str()));
    let flag = |name: &str, path: Option<&Path>| {
        path.map_or(String::new(), |path| format!(" --{name} {}", quote_shell_word(&path.display().to_string())))
    };
    let _ = PREFIX.set(format!("skein{}{}", flag("state", state), flag("project", project)));
}

/// Returns the words before the name of a command that is shown to be typed here.
pub(crate) fn command_prefix() -> &'static str {
    PREFIX.get().map_or("skein", String::as_str)
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quote_shell_word(word: &str) -> String {
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
