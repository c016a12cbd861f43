//! `skein logs`: the output or the changes of a run's workers, attempt by attempt, without terminal control sequences.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use skein_app::{
    app::App,
    app_error::AppError,
    runs::logs::{self, AttemptLogReader, AttemptLogs, AttemptSelector, LogFile, LogsRequest},
};
use skein_core::engine::AttemptId;
use skein_host::terminal_escape::escape_for_terminal;

use crate::{
    exit::Exit,
    render::{
        live::one_line,
        output::{CliOutput, is_broken_pipe, is_unread},
        tables::attempt_title,
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct LogsArguments {
    /// Run id, or a unique prefix of it; default, and for `-`: the newest run.
    run: Option<String>,
    /// Path of a step; default: all steps.
    step: Option<String>,
    /// Show only this attempt of the step and its checks, counted from 1 in starting order.
    #[arg(long, value_name = "NUMBER", requires = "step")]
    attempt: Option<u32>,
    /// Show the changes of the run, or of each attempt of a step, instead of the output.
    #[arg(long, conflicts_with = "follow")]
    changes: bool,
    /// Show the prompt of each attempt instead of its output.
    #[arg(long, conflicts_with_all = ["follow", "changes"])]
    prompt: bool,
    /// Show new output until the run ends or is interrupted.
    #[arg(long)]
    follow: bool,
    /// Print the output byte for byte, with terminal control sequences.
    #[arg(long)]
    raw: bool,
}

pub(super) fn run(arguments: LogsArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let LogsArguments { run, step, attempt, changes, prompt, follow, raw } = arguments;
    let file = match (changes, prompt) {
        (true, _) => LogFile::Changes,
        (false, true) => LogFile::Prompt,
        (false, false) => LogFile::Output,
    };
    let (all_steps, follow) = (step.is_none(), follow && !output.is_json());
    let request = LogsRequest { run, selector: AttemptSelector { step, number: attempt }, file, follow };
    let mut opened = logs::open_logs(app, &request)?;
    if output.is_json() {
        output.print_json(&opened.to_json());
        return Ok(Exit::Done);
    }
    if changes && all_steps {
        return print_run_changes(opened.list_run_changes(), raw, output);
    }
    let attempts = &opened.logs.all;
    let has_agent = file == LogFile::Output && attempts.iter().any(AttemptLogReader::has_agent);
    let titled = !raw && (follow || attempts.len() > 1 || has_agent);
    let mut printer = LogPrinter::new(output, raw, titled);
    printer.print_logs(&mut opened.logs)?;
    while follow && !opened.is_over() && !is_unread() {
        opened.wait_for_output()?;
        printer.print_logs(&mut opened.logs)?;
    }
    Ok(Exit::Done)
}

/// Prints one diff of all changes of a run.
fn print_run_changes(files: Vec<PathBuf>, raw: bool, output: CliOutput) -> Result<Exit, AppError> {
    if files.is_empty() {
        output.print_text("No changes that git would show.\n");
    }
    for file in files {
        let text = std::fs::read(&file)
            .map_err(|error| AppError::store(format!("the changes `{}` cannot be read: {error}", file.display())))?;
        match raw {
            true => drop(io::stdout().lock().write_all(&text)),
            false => output.print_exact(&escape_for_terminal(&text)),
        }
    }
    Ok(Exit::Done)
}

/// Prints logs.
pub(super) struct LogPrinter {
    output: CliOutput,
    raw: bool,
    /// True if each attempt is named above its output.
    titled: bool,
    last: Option<AttemptId>,
    /// True if the last line was terminated.
    whole: bool,
}

impl LogPrinter {
    pub(super) fn new(output: CliOutput, raw: bool, titled: bool) -> LogPrinter {
        LogPrinter { output, raw, titled, last: None, whole: true }
    }

    pub(super) fn print_logs(&mut self, logs: &mut AttemptLogs) -> Result<(), AppError> {
        for log in &mut logs.all {
            let (file, shown) = (log.file.clone(), self.print_log(log));
            shown.map_err(|error| {
                let message = format!("the log `{}` cannot be read: {error}", file.display());
                AppError::store(message)
            })?;
        }
        Ok(())
    }

    fn print_log(&mut self, log: &mut AttemptLogReader) -> io::Result<()> {
        if self.raw {
            let mut out = io::stdout().lock();
            let mut written = Ok(());
            log.read_raw(&mut |bytes| {
                if written.is_ok() {
                    written = out.write_all(bytes);
                }
            })?;
            // A closed pipe is not an error.
            return written.and_then(|()| out.flush()).or_else(|error| match is_broken_pipe(&error) {
                true => Ok(()),
                false => Err(error),
            });
        }
        let (attempt, title) = (log.attempt, one_line(&attempt_title(log)));
        log.read_safe(&mut |text| {
            if text.is_empty() {
                return;
            }
            if self.titled && self.last != Some(attempt) {
                let before = if self.whole { "" } else { "\n" };
                self.output.print_exact(&format!("{before}{}\n", self.output.paint.title(&format!("── {title}"))));
                self.last = Some(attempt);
            }
            self.output.print_exact(text);
            self.whole = text.ends_with('\n');
        })
    }
}
