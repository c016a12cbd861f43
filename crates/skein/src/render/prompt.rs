//! Prompts at the terminal: a gate or hold of the run that is shown there can be decided there. If it is decided
//! elsewhere in the meantime, the prompt is withdrawn.

use std::{
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    termios::tcgetpgrp,
};
use skein_app::runs::session::DecisionDesk;
use skein_core::engine::{Verdict, Waitpoint};
use skein_host::process;

use crate::render::output::{CliOutput, OutputFormat};

/// Interval at which a process in the background checks whether it is in the foreground again, if a line was typed.
const AWAY: Duration = Duration::from_secs(1);

/// Returns true if a person can see and answer a prompt.
pub(crate) fn is_interactive(output: CliOutput) -> bool {
    output.format == OutputFormat::Human && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Submits an answer. Returns a message if it cannot be parsed or is refused.
pub(crate) fn submit_answer(desk: &DecisionDesk, waitpoint: Waitpoint, typed: &str) -> Option<String> {
    let Some((verdict, reason)) = parse_answer(typed) else {
        return Some("`y` approves and `n` rejects; a reason may follow".to_owned());
    };
    desk.submit_decision(waitpoint, verdict, reason)
}

/// Starts to read typed lines, each of which becomes an event of the run.
pub(crate) fn read_lines(desk: &DecisionDesk) -> io::Result<()> {
    let send_line = desk.typed_line_sender();
    std::thread::Builder::new().name("typed".into()).spawn(move || read_typed_lines(send_line)).map(drop)
}

/// Parses an answer: a word, and optionally a reason.
fn parse_answer(typed: &str) -> Option<(Verdict, Option<String>)> {
    let typed = typed.trim();
    let (word, reason) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let decision = match word.trim_end_matches([',', ':', ';', '.']).to_lowercase().as_str() {
        "y" | "yes" | "approve" => Verdict::Approve,
        "n" | "no" | "reject" => Verdict::Reject,
        _ => return None,
    };
    let reason = reason.trim();
    Some((decision, (!reason.is_empty()).then(|| reason.to_owned())))
}

/// Passes on each line. A background process that reads from the terminal would be stopped, so it does not read then.
fn read_typed_lines(send_line: impl Fn(String) -> bool) {
    let input = io::stdin();
    loop {
        if poll(&mut [PollFd::new(&input, PollFlags::IN)], None).is_err() {
            return;
        }
        let foreground = tcgetpgrp(&input).ok().map(|group| group.as_raw_nonzero().get());
        if foreground != process::own_group() {
            std::thread::sleep(AWAY);
            continue;
        }
        let mut line = String::new();
        match input.lock().read_line(&mut line) {
            Ok(length) if length > 0 && send_line(line) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_word_and_perhaps_a_reason() {
        let yes = |reason: Option<&str>| Some((Verdict::Approve, reason.map(str::to_owned)));
        let no = |reason: Option<&str>| Some((Verdict::Reject, reason.map(str::to_owned)));
        assert_eq!(parse_answer("y\n"), yes(None));
        assert_eq!(parse_answer("  YES  looks good \n"), yes(Some("looks good")));
        assert_eq!(parse_answer("n, not yet"), no(Some("not yet")));
        assert_eq!(parse_answer("reject"), no(None));
        for none in ["", "\n", "maybe", "yesterday", "yn"] {
            assert_eq!(parse_answer(none), None, "{none:?}");
        }
    }
}
