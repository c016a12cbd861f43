//! Words of commands that are shown to people, quoted for a shell.

/// Quotes a word for a shell, if necessary.
pub fn quote_shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Quotes a path so that a shell takes it as one word.
pub fn quote_path(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%:,=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    // A path with a leading dash would be taken for a flag.
    let dot = if word.starts_with('-') { "./" } else { "" };
    format!("'{dot}{}'", word.replace('\'', r"'\''"))
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

    #[test]
    fn a_shell_takes_a_folder_for_one_word() {
        assert_eq!(quote_path("a/b-c.d"), "a/b-c.d");
        assert_eq!(quote_path("two words"), "'two words'");
        assert_eq!(quote_path("it's"), r"'it'\''s'");
        assert_eq!(quote_path("-x"), "'./-x'");
        assert_eq!(quote_path(""), "''");
    }
}
