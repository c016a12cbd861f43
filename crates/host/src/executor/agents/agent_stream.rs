//! The output stream of a working agent: its events become lines for people, and important facts are recorded at once.
//!
//! Owns the path from the bytes of standard output to the lines that are shown, the files that are kept and the
//! decisions made while the agent works, and the maximum length of a line. Also converts the totals that agents report
//! to the cost of one attempt and compares it with its budgets; a cost that no agent reports and no configured price
//! determines stays unknown. Does not know which agent it is. Output that is no event is passed through unchanged.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::Value;
use skein_core::{
    engine::{Cost, format_utc},
    limits,
    time::{Millis, Timestamp},
};

use crate::{
    clock::Clock,
    executor::agents::{
        AgentAnswer, AgentEvent, AgentEventReader, AgentFailure, AgentNote, TokenUsage, UsageTotal,
        fallback::AgentFailureKind,
    },
    process::{CommandDeadline, OutputFilter, to_duration},
    redact::Redactor,
    run_settings::ModelPrice,
    workspace::RootFolder,
};

/// The maximum number of characters of an event that is shown.
const SHOWN: usize = 2_000;
const TOOL: usize = 200;

/// The reason why Skein stopped an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentHalt {
    Failed(AgentFailure),
    /// A budget is spent.
    Budget(RemainingBudget),
}

/// Requests the end of the agent. May be called more than once.
pub(crate) type StopCallback = Box<dyn Fn() + Send>;
pub(crate) struct AgentStreamConfig {
    pub reader: Box<dyn AgentEventReader>,
    pub meter: CostMeter,
    pub note: AgentNote,
    /// The folder in which the note is kept.
    pub folder: RootFolder,
    /// The file in which every event is kept as it arrived.
    pub events: Option<File>,
    pub max_turns: Option<u32>,
    /// The timeout of one command that the agent runs. The deadline is set in `due`.
    pub command_time: Option<Millis>,
    pub due: CommandDeadline,
    pub stop: StopCallback,
}

/// The state of an agent's stream, shared by the output filters and the caller that asks for the result.
#[derive(Clone)]
pub(crate) struct AgentStream(Arc<Mutex<AgentStreamState>>);

struct AgentStreamState {
    on: AgentStreamConfig,
    turns: u32,
    until: Option<Timestamp>,
    halt: Option<AgentHalt>,
    kept: usize,
    /// The running commands, with their start times.
    commands: BTreeMap<String, Instant>,
}

impl AgentStream {
    pub(crate) fn new(on: AgentStreamConfig) -> AgentStream {
        let state = AgentStreamState { on, turns: 0, until: None, halt: None, kept: 0, commands: BTreeMap::new() };
        AgentStream(Arc::new(Mutex::new(state)))
    }

    fn lock_state(&self) -> MutexGuard<'_, AgentStreamState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the filter for standard output.
    pub(crate) fn output_filter(&self, redactor: Redactor) -> Box<dyn OutputFilter> {
        self.new_filter(redactor, AgentStreamState::handle_line)
    }

    /// Returns the filter for standard error.
    pub(crate) fn error_filter(&self, redactor: Redactor) -> Box<dyn OutputFilter> {
        self.new_filter(redactor, AgentStreamState::handle_error_line)
    }

    fn new_filter(&self, redactor: Redactor, handler: LineHandler) -> Box<dyn OutputFilter> {
        let (stream, lines, clean) = (self.clone(), LineSplitter::default(), Vec::new());
        Box::new(AgentStreamFilter { redactor, lines, clean, stream, handler })
    }

    /// Returns the reason why Skein stopped the agent, if it did.
    pub(crate) fn halt_reason(&self) -> Option<AgentHalt> {
        self.lock_state().halt.clone()
    }

    pub(crate) fn cost(&self) -> Cost {
        self.lock_state().on.meter.cost()
    }

    /// Returns the result of the agent, now that the program has exited.
    pub(crate) fn final_result(&self, status: i32, errors: &str) -> Result<AgentAnswer, AgentFailure> {
        let state = self.lock_state();
        state.on.reader.final_result(status, errors).map_err(|failure| {
            let until = failure.until.or(state.until);
            failure.with_until(until)
        })
    }

    /// Closes the attempt. `goes_on`: another attempt continues the session. `lost`: the session does not exist.
    pub(crate) fn close(&self, goes_on: bool, lost: bool) {
        let mut state = self.lock_state();
        state.record_cost();
        state.on.note.goes_on = goes_on;
        if lost {
            // The cost that was taken over is reported now, not by the attempt that starts a new session.
            (state.on.note.session, state.on.note.cost) = (None, Cost::default());
        }
        // If the write fails, the next attempt starts a new session.
        let _ = state.on.note.write(&state.on.folder);
    }
}

impl AgentStreamState {
    fn handle_error_line(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.on.reader.read_error_line(&String::from_utf8_lossy(bytes)) {
            Some(events) => events.into_iter().for_each(|event| self.handle_event(event, out)),
            None => push_line(out, bytes),
        }
    }

    fn handle_line(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Ok(event @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else {
            return push_line(out, bytes);
        };
        if !self.on.reader.is_noise(&event) {
            self.store_event(bytes);
        }
        for event in self.on.reader.read_event(&event) {
            self.handle_event(event, out);
        }
    }

    fn store_event(&mut self, bytes: &[u8]) {
        if self.kept + bytes.len() > limits::LOG_BYTES {
            return;
        }
        self.kept += bytes.len() + 1;
        if let Some(file) = &mut self.on.events {
            // A failed write to the log does not fail the attempt.
            let _ = file.write_all(bytes).and_then(|()| file.write_all(b"\n"));
        }
    }

    fn handle_event(&mut self, event: AgentEvent, out: &mut Vec<u8>) {
        match event {
            AgentEvent::Session(id) => self.record_session(id),
            AgentEvent::Message(text) => text.lines().for_each(|line| push_line(out, truncate_text(line, SHOWN))),
            AgentEvent::Tool { name, on } => {
                let so_far = self.on.meter.describe_spending().map(|spent| format!("  ({spent} so far)"));
                let on = truncate_text(on.trim(), TOOL).replace(['\n', '\r'], " ");
                let on = if on.is_empty() { on } else { format!(" {on}") };
                push_line(out, format!("> {name}{on}{}  [{}]", so_far.unwrap_or_default(), time_of_day()));
            }
            AgentEvent::Result(text) => push_line(out, format!("< {}  [{}]", summarize_result(&text), time_of_day())),
            AgentEvent::Model(model) => self.record_model(model),
            AgentEvent::Note(text) => push_line(out, format!("! {}", truncate_text(&text, SHOWN).replace('\n', " "))),
            AgentEvent::Begun(id) => self.track_command(id, true),
            AgentEvent::Over(id) => self.track_command(id, false),
            AgentEvent::Used(used) => {
                self.on.meter.record_usage(used);
                self.record_cost();
                let _ = self.on.note.write_unsynced(&self.on.folder);
                if let Some(left) = self.on.meter.find_spent_budget().cloned() {
                    self.halt_agent(AgentHalt::Budget(left), out);
                }
            }
            AgentEvent::Turn => {
                self.turns += 1;
                if let Some(most) = self.on.max_turns.filter(|most| self.turns > *most) {
                    let message = format!("the agent was not done after {most} steps");
                    self.halt_agent(AgentHalt::Failed(AgentFailure::new(AgentFailureKind::Turns, message)), out);
                }
            }
            AgentEvent::LimitedUntil(until) => self.until = Some(until),
            AgentEvent::Hopeless(failure) => {
                let until = failure.until.or(self.until);
                self.halt_agent(AgentHalt::Failed(failure.with_until(until)), out);
            }
        }
    }

    /// Records the start or end of a command. The command that started first has the next deadline.
    fn track_command(&mut self, id: String, begins: bool) {
        let Some(most) = self.on.command_time else { return };
        match begins {
            true => drop(self.commands.entry(id).or_insert_with(Instant::now)),
            false => drop(self.commands.remove(&id)),
        }
        let due = |since: &Instant| Some((since.checked_add(to_duration(most))?, most));
        self.on.due.set(self.commands.values().min().and_then(due));
    }

    fn record_session(&mut self, id: String) {
        if self.on.note.session.as_ref() != Some(&id) {
            self.on.note.session = Some(id);
            // If the write fails, the next attempt starts a new session.
            let _ = self.on.note.write(&self.on.folder);
        }
    }

    fn record_model(&mut self, model: String) {
        if self.on.note.model.as_ref() != Some(&model) {
            self.on.note.model = Some(model);
            let _ = self.on.note.write_unsynced(&self.on.folder);
        }
    }

    fn record_cost(&mut self) {
        (self.on.note.cost, self.on.note.total) = (self.on.meter.cost(), self.on.meter.session_total());
    }

    fn halt_agent(&mut self, why: AgentHalt, out: &mut Vec<u8>) {
        if self.halt.is_none() {
            let message = match &why {
                AgentHalt::Failed(failure) => failure.message.clone(),
                AgentHalt::Budget(left) => format!("{} budget is spent", left.whose),
            };
            push_line(out, format!("[skein: agent stopped: {message}]"));
            self.halt = Some(why);
            (self.on.stop)();
        }
    }
}

fn push_line(out: &mut Vec<u8>, line: impl AsRef<[u8]>) {
    out.extend_from_slice(line.as_ref());
    out.push(b'\n');
}

/// Summarizes a result in one line: its first line and the number of further lines.
fn summarize_result(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else { return "nothing".to_owned() };
    let first = truncate_text(first.trim(), TOOL).replace('\r', " ");
    match lines.count() {
        0 => first,
        1 => format!("{first}  (and 1 more line)"),
        more => format!("{first}  (and {more} more lines)"),
    }
}

/// Returns the time of day in UTC, to the second.
fn time_of_day() -> String {
    let now = format_utc(Clock::new().now());
    now.get(11..19).map(str::to_owned).unwrap_or(now)
}

fn truncate_text(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The function that handles one line of a stream.
type LineHandler = fn(&mut AgentStreamState, &[u8], &mut Vec<u8>);

/// The filter of one stream. Secrets are redacted first, so that no event contains one.
struct AgentStreamFilter {
    redactor: Redactor,
    lines: LineSplitter,
    clean: Vec<u8>,
    stream: AgentStream,
    handler: LineHandler,
}

impl AgentStreamFilter {
    fn handle_lines(&mut self, last: bool, out: &mut Vec<u8>) {
        let (mut state, handler) = (self.stream.lock_state(), self.handler);
        let mut each = |line: StreamLine<'_>| match line {
            StreamLine::Whole(bytes) => handler(&mut state, bytes, out),
            StreamLine::TooLong => push_line(out, "[skein: a line was too long to be read]"),
        };
        self.lines.push(&self.clean, &mut each);
        if last {
            self.lines.finish(&mut each);
        }
        self.clean.clear();
    }
}

impl OutputFilter for AgentStreamFilter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.redactor.push(bytes, &mut self.clean);
        self.handle_lines(false, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.redactor.finish(&mut self.clean);
        self.handle_lines(true, out);
    }
}

impl ModelPrice {
    /// Returns the price in millionths of a dollar: one token at one dollar per million costs one.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "costs are rounded, and no cost exceeds the range of a float"
    )]
    fn price_usage(&self, spent: TokenUsage) -> u64 {
        let cached = self.cached.unwrap_or(self.input);
        let parts = [(spent.input, self.input), (spent.cached, cached), (spent.output, self.output)];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>().round() as u64
    }
}

/// The remaining part of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemainingBudget {
    /// The owner of the budget, as words for a message.
    pub whose: Cow<'static, str>,
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
    /// True if a person is asked when the budget is spent. Otherwise the step fails.
    pub pause: bool,
}

#[derive(Debug, Default)]
pub(crate) struct CostMeter {
    /// The cost of an earlier attempt that was never reported.
    carried: Cost,
    /// The session's usage when this attempt started.
    base: TokenUsage,
    price: Option<ModelPrice>,
    left: Vec<RemainingBudget>,
    run: TokenUsage,
    /// The session's total usage, if the agent reports it.
    total: Option<TokenUsage>,
}

impl CostMeter {
    pub(crate) fn new(
        carried: Cost,
        base: TokenUsage,
        price: Option<ModelPrice>,
        left: Vec<RemainingBudget>,
    ) -> CostMeter {
        CostMeter { carried, base, price, left, run: TokenUsage::default(), total: None }
    }

    pub(crate) fn record_usage(&mut self, used: UsageTotal) {
        match used {
            UsageTotal::Run(spent) => self.run = spent,
            UsageTotal::Session(spent) => {
                self.total = Some(spent);
                self.run = spent.usage_since(self.base);
            }
        }
    }

    /// Returns the cost of this attempt.
    pub(crate) fn cost(&self) -> Cost {
        let micro_usd = self.run.micro_usd.or_else(|| self.price.map(|price| price.price_usage(self.run)));
        let mut cost = Cost { tokens: self.run.total_tokens(), micro_usd };
        cost.add(self.carried);
        cost
    }

    /// Returns the session's total usage, for the attempt that continues it.
    pub(crate) fn session_total(&self) -> TokenUsage {
        self.total.unwrap_or(self.base)
    }

    /// Returns the first budget that is spent, if any.
    pub(crate) fn find_spent_budget(&self) -> Option<&RemainingBudget> {
        let cost = self.cost();
        let spent = |left: &&RemainingBudget| {
            left.tokens.is_some_and(|most| cost.tokens >= most)
                || left.micro_usd.zip(cost.micro_usd).is_some_and(|(most, now)| now >= most)
        };
        self.left.iter().find(spent)
    }

    /// Describes the cost so far in a few words. Returns `None` if nothing is known.
    pub(crate) fn describe_spending(&self) -> Option<String> {
        let cost = self.cost();
        let usd = cost.micro_usd.map(|micro| format!(", ${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100));
        (!cost.is_zero()).then(|| format!("{} tokens{}", cost.tokens, usd.unwrap_or_default()))
    }
}

/// The maximum length of a line. A longer line is no event of any agent.
const LINE: usize = limits::AGENT_EVENT_BYTES;

#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    line: Vec<u8>,
    /// True while the rest of a line that was too long is skipped.
    over: bool,
}
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamLine<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl LineSplitter {
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(StreamLine<'_>)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            self.append_part(&rest[..at]);
            self.emit_line(&mut each);
            rest = &rest[at + 1..];
        }
        self.append_part(rest);
    }

    /// Ends the stream. The last line may have no line feed.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(StreamLine<'_>)) {
        if self.over || !self.line.is_empty() {
            self.emit_line(&mut each);
        }
    }

    fn append_part(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > LINE {
            self.over = true;
            self.line = Vec::new();
        }
        if !self.over {
            self.line.extend_from_slice(part);
        }
    }

    fn emit_line(&mut self, each: &mut impl FnMut(StreamLine<'_>)) {
        each(if self.over { StreamLine::TooLong } else { StreamLine::Whole(&self.line) });
        self.over = false;
        self.line.clear();
    }
}

#[cfg(test)]
mod cost_meter_tests {
    use super::*;

    fn spent(input: u64, cached: u64, output: u64, micro_usd: Option<u64>) -> TokenUsage {
        TokenUsage { input, cached, output, micro_usd }
    }

    #[test]
    fn totals_of_a_session_are_subtracted_and_what_was_never_told_is_added() {
        let base = spent(1_000, 400, 50, None);
        let mut meter = CostMeter::new(Cost { tokens: 7, micro_usd: None }, base, None, Vec::new());
        meter.record_usage(UsageTotal::Session(spent(2_000, 800, 100, None)));
        assert_eq!(meter.cost(), Cost { tokens: 1_457, micro_usd: None });
        assert_eq!(meter.session_total(), spent(2_000, 800, 100, None));
        let mut meter = CostMeter::new(Cost::default(), TokenUsage::default(), None, Vec::new());
        meter.record_usage(UsageTotal::Run(spent(1, 2, 3, Some(9))));
        meter.record_usage(UsageTotal::Run(spent(2, 2, 4, Some(12))));
        assert_eq!(meter.cost(), Cost { tokens: 8, micro_usd: Some(12) });
    }

    #[test]
    fn money_is_told_or_worked_out_or_unknown() {
        let price = Some(ModelPrice { input: 3.0, cached: Some(0.3), output: 15.0 });
        let mut meter = CostMeter::new(Cost::default(), TokenUsage::default(), price, Vec::new());
        meter.record_usage(UsageTotal::Run(spent(1_000, 400, 50, None)));
        assert_eq!(meter.cost().micro_usd, Some(3_870));
        meter.record_usage(UsageTotal::Run(spent(1_000, 400, 50, Some(5))));
        assert_eq!(meter.cost().micro_usd, Some(5));
        assert_eq!(meter.describe_spending().unwrap(), "1450 tokens, $0.0000");
    }

    #[test]
    fn the_first_budget_that_is_spent_is_named() {
        let left = |whose: &'static str, tokens, micro_usd| RemainingBudget {
            whose: whose.into(),
            tokens,
            micro_usd,
            pause: false,
        };
        let all = vec![left("the step's", Some(100), None), left("the run's", None, Some(10))];
        let mut meter = CostMeter::new(Cost::default(), TokenUsage::default(), None, all);
        meter.record_usage(UsageTotal::Run(spent(50, 0, 49, None)));
        assert_eq!(meter.find_spent_budget(), None);
        meter.record_usage(UsageTotal::Run(spent(50, 0, 49, Some(10))));
        assert_eq!(meter.find_spent_budget().unwrap().whose, "the run's");
        meter.record_usage(UsageTotal::Run(spent(50, 0, 50, Some(10))));
        assert_eq!(meter.find_spent_budget().unwrap().whose, "the step's");
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod line_splitter_tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<Option<String>> {
        let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
        let told = |line: StreamLine<'_>| match line {
            StreamLine::Whole(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            StreamLine::TooLong => None,
        };
        for piece in pieces {
            lines.push(piece, |line| found.push(told(line)));
        }
        lines.finish(|line| found.push(told(line)));
        found
    }

    #[test]
    fn pieces_change_nothing() {
        let wanted = vec![Some("one".to_owned()), Some(String::new()), Some("two".to_owned())];
        assert_eq!(all(&[b"one\n\ntwo"]), wanted);
        assert_eq!(all(&[b"o", b"ne\n", b"\nt", b"wo", b"\n"]), wanted);
        assert_eq!(all(&[]), Vec::new());
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_not_kept() {
        let long = vec![b'x'; LINE / 2 + 1];
        let found = all(&[b"a\n", &long, &long, &long, b"\nb\n"]);
        assert_eq!(found, [Some("a".to_owned()), None, Some("b".to_owned())]);
    }
}
