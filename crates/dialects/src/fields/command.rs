//! Commands that are written as one line: splits them into arguments as a shell would, without a shell.
//!
//! The line is split before expressions are evaluated, so that a value is never split, never the program, and never
//! evaluated by a shell.

use skein_core::expr::ExprSpan;
use thiserror::Error;

const OPEN: &str = "${{";
const CLOSE: &str = "}}";
/// Programs that run one of their arguments as a script.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish"];

/// One argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandWord {
    pub text: String,
    /// The offset of its text in the line. None if quotes or escapes change the text.
    pub start: Option<usize>,
    /// The whole argument in the line, including quotes.
    pub span: ExprSpan,
}

impl CommandWord {
    pub(crate) fn has_expression(&self) -> bool {
        self.text.contains(OPEN)
    }
}

/// The reason why a line is not a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum CommandSplitError {
    #[error("there is no program")]
    Empty,
    #[error("a quote is never closed")]
    Unclosed,
    #[error("this is shell syntax, and no shell is used")]
    Shell,
    /// The program would be the value of an expression.
    #[error("expressions are not allowed here")]
    Program,
    /// A shell would run the value of an expression as a part of its script.
    #[error("expressions are not allowed here")]
    Script,
}

/// Splits a line into arguments, the program first. The error is the reason and its place.
pub(crate) fn split_command(line: &str) -> Result<Vec<CommandWord>, (CommandSplitError, ExprSpan)> {
    let mut splitter = CommandSplitter { line, at: 0, words: Vec::new(), word: None };
    splitter.run()?;
    let words = splitter.words;
    let Some(program) = words.first().filter(|word| !word.text.is_empty()) else {
        return Err((CommandSplitError::Empty, ExprSpan::new(0, line.len())));
    };
    if program.has_expression() {
        return Err((CommandSplitError::Program, program.span));
    }
    match find_script(program, &words).filter(|script| script.has_expression()) {
        Some(script) => Err((CommandSplitError::Script, script.span)),
        None => Ok(words),
    }
}

/// Splits a line without expressions into arguments.
pub(crate) fn split_plain_command(line: &str) -> Result<Vec<String>, CommandSplitError> {
    let words = split_command(line).map_err(|(error, _)| error)?;
    Ok(words.into_iter().map(|word| word.text).collect())
}

/// Returns the argument that a shell would run as a script.
fn find_script<'a>(program: &CommandWord, words: &'a [CommandWord]) -> Option<&'a CommandWord> {
    let name = program.text.rsplit('/').next().unwrap_or_default();
    if !SHELLS.contains(&name) {
        return None;
    }
    let is_command = |word: &CommandWord| word.text.starts_with('-') && word.text.ends_with('c');
    let option = words.iter().position(is_command)?;
    words.get(option + 1)
}

struct CommandSplitter<'a> {
    line: &'a str,
    at: usize,
    words: Vec<CommandWord>,
    /// The current argument, once it has begun.
    word: Option<CommandWord>,
}

impl CommandSplitter<'_> {
    fn run(&mut self) -> Result<(), (CommandSplitError, ExprSpan)> {
        while let Some(c) = self.peek() {
            match c {
                _ if self.line[self.at..].starts_with(OPEN) => self.take_expression(),
                ' ' | '\t' | '\n' | '\r' => {
                    self.end_word();
                    self.at += 1;
                }
                '\'' | '"' => self.take_quoted(c)?,
                '\\' => self.take_escaped()?,
                '|' | '&' | ';' | '<' | '>' | '`' => {
                    return Err((CommandSplitError::Shell, ExprSpan::new(self.at, self.at + 1)));
                }
                '$' if self.is_variable() => return Err((CommandSplitError::Shell, self.variable_span())),
                c => self.take_char(c),
            }
        }
        self.end_word();
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.line[self.at..].chars().next()
    }

    /// True if a shell would expand the text here.
    fn is_variable(&self) -> bool {
        let next = self.line[self.at + 1..].chars().next();
        next.is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '(' | '{'))
    }

    fn variable_span(&self) -> ExprSpan {
        let rest = &self.line[self.at + 1..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        ExprSpan::new(self.at, self.at + 1 + end.max(1))
    }

    fn current_word(&mut self) -> &mut CommandWord {
        let start = self.at;
        self.word.get_or_insert_with(|| CommandWord { span: ExprSpan::new(start, start), ..CommandWord::default() })
    }

    /// Appends text that stands here literally.
    fn take_text(&mut self, text: &str) {
        let at = self.at;
        let word = self.current_word();
        match word.start {
            _ if word.text.is_empty() => word.start = Some(at),
            Some(start) if start + word.text.len() == at => {}
            _ => word.start = None,
        }
        word.text.push_str(text);
        self.at += text.len();
    }

    fn take_char(&mut self, c: char) {
        self.take_text(c.encode_utf8(&mut [0; 4]));
    }

    /// Takes a whole `${{ }}`. The expression parser reports one that is not closed.
    fn take_expression(&mut self) {
        let rest = &self.line[self.at..];
        let (mut quote, mut i) = (None, OPEN.len());
        // Comparing bytes is enough: all delimiters are ASCII, and ASCII bytes are never part of a longer character.
        let end = loop {
            let Some(byte) = rest.as_bytes().get(i).copied() else { break rest.len() };
            match quote {
                Some(_) if byte == b'\\' => i += 1,
                Some(open) if byte == open => quote = None,
                None if matches!(byte, b'\'' | b'"') => quote = Some(byte),
                None if rest.as_bytes()[i..].starts_with(CLOSE.as_bytes()) => break i + CLOSE.len(),
                _ => {}
            }
            i += 1;
        };
        let hole = rest[..end].to_owned();
        self.take_text(&hole);
    }

    fn take_quoted(&mut self, quote: char) -> Result<(), (CommandSplitError, ExprSpan)> {
        let open = self.at;
        self.current_word();
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err((CommandSplitError::Unclosed, ExprSpan::new(open, open + 1))),
                Some(c) if c == quote => break,
                Some(_) if self.line[self.at..].starts_with(OPEN) => self.take_expression(),
                Some('\\') if quote == '"' => self.take_escaped_in_quotes(),
                Some('`') if quote == '"' => {
                    return Err((CommandSplitError::Shell, ExprSpan::new(self.at, self.at + 1)));
                }
                Some('$') if quote == '"' && self.is_variable() => {
                    return Err((CommandSplitError::Shell, self.variable_span()));
                }
                Some(c) => self.take_char(c),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the character after a backslash outside of quotes, which is literal.
    fn take_escaped(&mut self) -> Result<(), (CommandSplitError, ExprSpan)> {
        self.current_word();
        self.at += 1;
        match self.peek() {
            Some(c) => self.take_char(c),
            None => return Err((CommandSplitError::Unclosed, ExprSpan::new(self.at - 1, self.at))),
        }
        Ok(())
    }

    /// Takes a backslash in double quotes. It only escapes characters that are special there.
    fn take_escaped_in_quotes(&mut self) {
        let next = self.line[self.at + 1..].chars().next();
        if matches!(next, Some('"' | '\\' | '$' | '`')) {
            self.at += 1;
        }
        match self.peek() {
            Some(c) => self.take_char(c),
            None => self.at = self.line.len(),
        }
    }

    fn end_word(&mut self) {
        let at = self.at;
        self.words.extend(self.word.take().map(|mut word| {
            word.span = ExprSpan::new(word.span.start as usize, at);
            word
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split_command(line).unwrap_or_else(|error| panic!("{line}: {error:?}")).into_iter().map(|w| w.text).collect()
    }

    fn error(line: &str) -> (CommandSplitError, &str) {
        let (error, span) = split_command(line).expect_err(line);
        (error, &line[span.start as usize..span.end as usize])
    }

    #[test]
    fn a_line_is_split_as_a_shell_would() {
        assert_eq!(texts("a  b\tc"), ["a", "b", "c"]);
        assert_eq!(
            texts(r#"say 'it is' "a \"day\"" x\ y '' a'b'"c""#),
            ["say", "it is", "a \"day\"", "x y", "", "abc"]
        );
        assert_eq!(texts("echo '$HOME | x' \"a & b\""), ["echo", "$HOME | x", "a & b"]);
        assert_eq!(texts("echo 5$ $5"), ["echo", "5$", "$5"]);
    }

    #[test]
    fn an_expression_is_never_split() {
        assert_eq!(texts("a ${{ run.id }} b"), ["a", "${{ run.id }}", "b"]);
        assert_eq!(texts("a --x=${{ contains('a }} b', \"c\") }}!"), ["a", "--x=${{ contains('a }} b', \"c\") }}!"]);
        assert_eq!(texts("a '${{ run.id }} x'"), ["a", "${{ run.id }} x"]);
        assert_eq!(texts("a ${{ open"), ["a", "${{ open"]);
    }

    #[test]
    fn words_know_where_they_stand() {
        let words = split_command("ab 'c d' e\\ f g'h'").expect("it is a command");
        let starts: Vec<_> = words.iter().map(|word| word.start).collect();
        assert_eq!(starts, [Some(0), Some(4), None, None]);
    }

    #[test]
    fn what_needs_a_shell_is_refused() {
        assert_eq!(error("a | b"), (CommandSplitError::Shell, "|"));
        assert_eq!(error("a $HOME/x"), (CommandSplitError::Shell, "$HOME"));
        assert_eq!(error("a \"$(b)\""), (CommandSplitError::Shell, "$("));
        assert_eq!(error("a 'b"), (CommandSplitError::Unclosed, "'"));
        assert_eq!(error("a \\"), (CommandSplitError::Unclosed, "\\"));
        assert_eq!(error("  ").0, CommandSplitError::Empty);
        assert_eq!(error("'' a").0, CommandSplitError::Empty);
    }

    #[test]
    fn a_value_is_never_a_program() {
        assert_eq!(error("${{ env.TOOL }} x"), (CommandSplitError::Program, "${{ env.TOOL }}"));
        assert_eq!(error("bin/${{ env.TOOL }}").0, CommandSplitError::Program);
        assert_eq!(error("bash -ec 'echo ${{ run.id }}'"), (CommandSplitError::Script, "'echo ${{ run.id }}'"));
        assert_eq!(texts("sh -c 'echo \"$1\"' x ${{ run.id }}").len(), 5);
    }
}
