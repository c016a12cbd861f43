//! Text that is safe to show and fits: without terminal control characters, cut by columns, and formed to lines with a
//! status word, a duration, the step, and a text.

use anstyle::{AnsiColor, Style};
use skein_core::{
    engine::Cost,
    ir::{RunStatus, StepStatus},
    plan::group_digits,
    time::{Millis, Timestamp},
};
use unicode_width::UnicodeWidthChar;

use crate::render::output::{Paint, sanitize_text};

/// Returns untrusted text on one line, without terminal control characters.
pub(crate) fn one_line(text: &str) -> String {
    let text = strip_escapes(text).replace("\r\n", " ").replace(['\r', '\n', '\t', '\u{2028}', '\u{2029}'], " ");
    sanitize_text(text.trim(), Paint(false))
}

/// Returns the part of a line that stays visible: a worker draws its progress by returning to the start of the line.
pub(super) fn last_visible_part(line: &str) -> String {
    line.rsplit(['\r', '\n']).map(one_line).find(|part| !part.is_empty()).unwrap_or_default()
}

/// Returns the text without colours, titles and cursor movements. The rest of a broken sequence is sanitised later.
fn strip_escapes(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        shown.push_str(&rest[..at]);
        rest = skip_escape(&rest[at + 1..]);
    }
    shown.push_str(rest);
    shown
}

/// Returns the text after an escape sequence, whose first character is already removed.
fn skip_escape(rest: &str) -> &str {
    let end = match rest.chars().next() {
        Some('[') => rest[1..].find(|c: char| ('@'..='~').contains(&c)).map(|end| end + 2),
        Some(']' | 'P' | '_' | '^' | 'X') => {
            let end = rest.find('\u{7}').map(|end| end + 1);
            let long = rest.find("\u{1b}\\").map(|end| end + 2);
            end.into_iter().chain(long).min()
        }
        Some(c) if c.is_ascii() && !c.is_control() => Some(1),
        _ => Some(0),
    };
    &rest[end.unwrap_or(rest.len())..]
}

/// Returns the number of columns of a character.
fn char_width(c: char) -> usize {
    // The variation selector makes the character before it a wide one.
    if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) }
}

/// Returns the number of columns of a text.
pub(super) fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Returns as much of the text as fits, with a mark if there is more.
pub(super) fn cut_to_width(text: &str, most: usize) -> String {
    // Marks of no width could be endless, so the number of characters is limited, too.
    let chars = most.saturating_mul(4);
    if text_width(text) <= most && text.chars().nth(chars).is_none() {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    let mut shown = String::new();
    for c in text.chars().take(chars) {
        let Some(rest) = left.checked_sub(char_width(c)) else { break };
        left = rest;
        shown.push(c);
    }
    if most > 0 {
        shown.push('…');
    }
    shown
}

/// Formats a duration, to the millisecond below one hour; nine columns, or more after a hundred hours.
pub(crate) fn format_duration(length: Millis) -> String {
    let shown = match length < Millis::from_hours(1) {
        true => format!("{}.{:03}s", length.0 / 1_000, length.0 % 1_000),
        false => format_elapsed(length),
    };
    format!("{shown:>9}")
}

/// Formats an elapsed time, to the second.
pub(super) fn format_elapsed(length: Millis) -> String {
    let seconds = length.0 / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes) => format!("{hours}h{minutes:02}m{seconds:02}s"),
    }
}

/// Formats the time until then, for use after "retry".
pub(super) fn format_until(now: Timestamp, then: Timestamp) -> String {
    match then.duration_since(now) {
        Millis(0) => "at once".to_owned(),
        length if length < Millis::from_mins(1) => format!("in {length}"),
        length => format!("in {}", format_elapsed(length)),
    }
}

/// Formats a cost; none if it is unknown.
pub(crate) fn format_cost(cost: Cost) -> Option<String> {
    let usd = cost.micro_usd.map(|micro| match micro {
        1..10_000 => format!("${:.4}", micro as f64 / 1e6),
        _ => format!("${:.2}", micro as f64 / 1e6),
    });
    let tokens = (cost.tokens > 0).then(|| format!("{} tokens", group_digits(cost.tokens)));
    let parts: Vec<String> = tokens.into_iter().chain(usd).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats a count, such as "1 step" or "2 steps".
pub(super) fn format_count(n: usize, one: &str) -> String {
    let many = if n == 1 { "" } else { "s" };
    format!("{} {one}{many}", group_digits(n as u64))
}

/// The number of columns before the text of a line.
pub(super) const INDENT: usize = WORD + 13;

/// The number of columns of the word.
pub(super) const WORD: usize = 12;

/// The importance of a line, shown as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTone {
    Good,
    Bad,
    Care,
    /// A person is asked.
    Asks,
    Faint,
    Plain,
}

impl LineTone {
    pub(super) fn paint_text(self, paint: Paint, text: &str) -> String {
        let style = match self {
            LineTone::Good => AnsiColor::Green.on_default().bold(),
            LineTone::Bad => AnsiColor::Red.on_default().bold(),
            LineTone::Care => AnsiColor::Yellow.on_default().bold(),
            LineTone::Asks => AnsiColor::Magenta.on_default().bold(),
            LineTone::Faint => Style::new().dimmed(),
            LineTone::Plain => Style::new().bold(),
        };
        paint.apply_style(style, text)
    }

    pub(super) fn from_step_status(status: StepStatus) -> LineTone {
        match status {
            StepStatus::Succeeded => LineTone::Good,
            StepStatus::Failed | StepStatus::TimedOut => LineTone::Bad,
            StepStatus::Incomplete | StepStatus::Cancelled | StepStatus::Undone => LineTone::Care,
            StepStatus::Waiting => LineTone::Asks,
            StepStatus::Skipped => LineTone::Faint,
            StepStatus::Pending | StepStatus::Ready | StepStatus::Running | StepStatus::Checking => LineTone::Plain,
        }
    }

    pub(super) fn from_run_status(status: RunStatus) -> LineTone {
        match status {
            RunStatus::Succeeded => LineTone::Good,
            RunStatus::Failed | RunStatus::TimedOut | RunStatus::UndoFailed => LineTone::Bad,
            RunStatus::Cancelled | RunStatus::Undone | RunStatus::Undoing => LineTone::Care,
            RunStatus::Waiting => LineTone::Asks,
            RunStatus::Queued | RunStatus::Running => LineTone::Plain,
        }
    }
}

/// The parts of a line.
#[derive(Debug)]
pub(super) struct StyledLine {
    pub(super) tone: LineTone,
    pub(super) word: String,
    pub(super) took: Option<Millis>,
    /// The step; empty for the run.
    pub(super) path: String,
    /// Details of the step, such as its attempt.
    pub(super) aside: String,
    pub(super) text: String,
}

impl StyledLine {
    pub(super) fn new(tone: LineTone, word: impl Into<String>) -> StyledLine {
        let (path, aside, text) = (String::new(), String::new(), String::new());
        StyledLine { tone, word: word.into(), took: None, path, aside, text }
    }

    /// Renders the line with a newline. Untrusted text is sanitised here, before our own colours are added.
    pub(super) fn render_line(&self, paint: Paint) -> String {
        let word = self.tone.paint_text(paint, &format!("{:>WORD$}", self.word));
        let length = match self.took {
            Some(length) => format!("[{}]", format_duration(length)),
            None => " ".repeat(11),
        };
        let mut parts = String::new();
        if !self.path.is_empty() {
            parts = paint.name(&one_line(&self.path));
        }
        if !self.aside.is_empty() {
            parts += &format!(" {}", paint.faint(&format!("({})", one_line(&self.aside))));
        }
        let text = one_line(&self.text);
        parts += match (parts.is_empty(), text.is_empty()) {
            (_, true) | (true, _) => "",
            (false, false) => ": ",
        };
        format!("{word} {length} {parts}{text}").trim_end().to_owned() + "\n"
    }
}

/// Returns a line that belongs to the one above it.
pub(super) fn indent_line(text: &str) -> String {
    format!("{:INDENT$}{text}\n", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_gone() {
        let cases = [
            ("\u{1b}[32mok\u{1b}[0m done", "ok done"),
            ("\u{1b}]0;title\u{7}x \u{1b}]8;;http://a\u{1b}\\link", "x link"),
            ("a\u{1b}[2", "a"),
            ("a\u{1b}", "a"),
            ("\u{1b}]never ends", ""),
            ("\u{1b}é\u{9b}1m \u{202e}x\u{0}", "é\u{fffd}1m \u{fffd}x\u{fffd}"),
            ("two\nlines\tand", "two lines and"),
        ];
        for (text, shown) in cases {
            assert_eq!(one_line(text), shown, "{text:?}");
        }
        assert_eq!(last_visible_part("10%\r50%\r\u{1b}[K99%\r\n"), "99%");
    }

    #[test]
    fn a_text_is_cut_by_columns() {
        assert_eq!(cut_to_width("abc", 3), "abc");
        assert_eq!(cut_to_width("abcd", 3), "ab…");
        assert_eq!(cut_to_width("日本語", 5), "日本…");
        assert_eq!(cut_to_width("日本語", 4), "日…");
        assert_eq!((cut_to_width("abc", 1), cut_to_width("abc", 0)), ("…".into(), String::new()));
        let marks = format!("a{}", "\u{301}".repeat(10_000));
        assert!(cut_to_width(&marks, 10).chars().count() <= 41);
        for most in 0..40 {
            assert!(text_width(&cut_to_width("x❤️❤️日本 text that is long", most)) <= most);
        }
    }

    #[test]
    fn lengths_line_up() {
        let cases = [
            (0, "   0.000s"),
            (3_214, "   3.214s"),
            (3_599_999, "3599.999s"),
            (3_600_000, " 1h00m00s"),
            (999_999_999, "277h46m39s"),
        ];
        for (ms, shown) in cases {
            assert_eq!(format_duration(Millis(ms)), shown);
        }
        assert_eq!(format_elapsed(Millis::from_secs(65)), "1m05s");
        assert_eq!(format_until(Timestamp(0), Timestamp(1_500)), "in 1s500ms");
    }

    #[test]
    fn money_that_is_not_known_is_not_said() {
        assert_eq!(format_cost(Cost::default()), None);
        assert_eq!(format_cost(Cost { tokens: 1_200, micro_usd: None }).unwrap(), "1,200 tokens");
        assert_eq!(format_cost(Cost { tokens: 0, micro_usd: Some(420_000) }).unwrap(), "$0.42");
        assert_eq!(format_cost(Cost { tokens: 0, micro_usd: Some(4_200) }).unwrap(), "$0.0042");
    }
}
