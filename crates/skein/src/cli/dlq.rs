//! `skein dlq`: the dead letters, which are steps that failed permanently and were not handled yet.

use clap::{Args, Subcommand};
use serde_json::json;
use skein_app::{
    app::App,
    app_error::AppError,
    dead_letters::{self, DeadLetter, DeadLetterDetails, DeadLetterSettlement, SettlementKind},
};
use skein_core::engine::format_utc;

use super::run::{AttachOptions, report_outcome};
use crate::{
    exit::Exit,
    render::{
        commands::command_line,
        follow::TerminalFrontEnd,
        live::{error_class_word, one_line, render_log_end},
        output::{CliOutput, OutputFormat},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DlqArguments {
    #[command(subcommand)]
    command: Option<DlqCommand>,
    /// Include dead letters that were dropped or rerun.
    #[arg(long)]
    all: bool,
    /// Maximum number of dead letters.
    #[arg(long, value_name = "COUNT", default_value = "50")]
    limit: u32,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// Show a dead letter: its error, the end of its log, and the next commands.
    Show(DeadLetterIdArgument),
    /// Run the step again, in a fork of its run.
    Rerun(DlqRerunArguments),
    /// Remove a dead letter from the list; it stays recorded.
    Drop(DlqDropArguments),
}

#[derive(Debug, Args)]
#[group(skip)]
struct DeadLetterIdArgument {
    /// Id of the dead letter as listed by `dlq`, or its run if that has only one.
    id: String,
}

#[derive(Debug, Args)]
#[group(skip)]
struct DlqRerunArguments {
    #[command(flatten)]
    named: DeadLetterIdArgument,
    #[command(flatten)]
    attachment: AttachOptions,
}

#[derive(Debug, Args)]
#[group(skip)]
struct DlqDropArguments {
    #[command(flatten)]
    named: DeadLetterIdArgument,
    /// Reason, recorded with the dead letter.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl DlqArguments {
    /// Returns true if the command runs steps, and so can print a line for each event.
    pub(super) fn is_rerun(&self) -> bool {
        matches!(self.command, Some(DlqCommand::Rerun(_)))
    }
}

pub(super) fn run(arguments: DlqArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    match arguments.command {
        None => list_dead_letters(&arguments, app, output),
        Some(DlqCommand::Show(named)) => {
            print_details(&dead_letters::describe_dead_letter(app, &named.id)?, output);
            Ok(Exit::Done)
        }
        Some(DlqCommand::Rerun(rerun)) => rerun_dead_letter(&rerun, app, output),
        Some(DlqCommand::Drop(DlqDropArguments { named, reason })) => {
            let dropped = dead_letters::drop_dead_letter(app, &named.id, reason)?;
            output.print_result(|| dropped.to_json(), || format!("dropped {}\n", dropped.letter.id()));
            Ok(Exit::Done)
        }
    }
}

fn list_dead_letters(arguments: &DlqArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let list = dead_letters::list_dead_letters(app, arguments.limit, arguments.all)?;
    output.print_result(|| list.to_json(), || render_table(&list.letters, output));
    Ok(Exit::Done)
}

fn rerun_dead_letter(rerun: &DlqRerunArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let found = dead_letters::find_rerun(app, &rerun.named.id)?;
    let (step, outer) = (&found.step, found.outermost_step());
    if outer != step && output.format == OutputFormat::Human {
        output.print_text(&format!("{} is inside of {outer}, which is run again as a whole.\n", one_line(step)));
    }
    let outcome = found.start(app, rerun.attachment.to_attachment(), &TerminalFrontEnd::new(output))?;
    Ok(report_outcome(&outcome, output))
}

fn render_table(letters: &[DeadLetter], output: CliOutput) -> String {
    if letters.is_empty() {
        return "No dead letters.\n".to_owned();
    }
    let widest = |of: &dyn Fn(&DeadLetter) -> usize| letters.iter().map(of).max().unwrap_or_default();
    let id = widest(&|letter| letter.id().to_string().chars().count());
    let step = widest(&|letter| one_line(&letter.row.step).chars().count()).min(40);
    let line = |letter: &DeadLetter| {
        let name = output.paint.name(&format!("{:id$}", letter.id().to_string()));
        let (at, class) = (format_utc(letter.row.at), error_class_word(letter.row.class));
        let settled = letter.settled.as_ref().map_or(String::new(), |settled| one_line(&format!("({settled})")));
        let (path, message) = (one_line(&letter.row.step), one_line(&letter.row.message));
        let rest = output.paint.faint(&settled);
        let line = format!("{name}  {at:20}  {path:step$}  {class}, {}: {message}  {rest}", describe_attempts(letter));
        format!("{}\n", line.trim_end())
    };
    letters.iter().map(line).collect()
}

fn describe_attempts(letter: &DeadLetter) -> String {
    match letter.row.attempts {
        1 => "1 attempt".to_owned(),
        n => format!("{n} attempts"),
    }
}

fn print_details(details: &DeadLetterDetails, output: CliOutput) {
    let (letter, next) = (&details.letter, next_commands(details));
    if output.is_json() {
        let mut object = details.to_json();
        object["next"] = json!(next);
        return output.print_json(&object);
    }
    let run = format!("{} of {}, {}", letter.run, details.workflow, details.run_status);
    let code = letter.row.code.as_ref().map_or(String::new(), |code| format!(", code {code}"));
    let failure = format!("{}{code}, after {}", error_class_word(letter.row.class), describe_attempts(letter));
    let mut text = format!("{}\n", output.paint.title(&format!("Dead letter {}", letter.id())));
    let mut line = |title: &str, words: &str| text += &format!("{title:9} {}\n", one_line(words));
    line("Run", &run);
    line("Step", &letter.row.step);
    line("Failed", &format!("{}: {failure}", format_utc(letter.row.at)));
    line("Error", &letter.row.message);
    if let Some(settled) = &letter.settled {
        line("Settled", &format!("it {settled}"));
    }
    if let Some(log) = &details.log {
        line("Log", &log.display().to_string());
        text += &render_log_end(output.paint, details.log_tail.as_deref());
    }
    for (i, command) in next.iter().enumerate() {
        let title = if i == 0 { "Next" } else { "" };
        text += &format!("{title:9} {}\n", one_line(command));
    }
    output.print_text(&text);
}

/// Returns the commands that make sense now, ready to be pasted.
fn next_commands(details: &DeadLetterDetails) -> Vec<String> {
    let letter = &details.letter;
    let (run, id) = (letter.run.as_str(), letter.id().to_string());
    let mut next = vec![command_line(&["logs", run, &letter.row.step])];
    match &letter.settled {
        Some(DeadLetterSettlement { how: SettlementKind::Rerun(by), .. }) => {
            next.push(command_line(&["runs", by.as_str()]));
        }
        Some(_) => {}
        None if details.run_closed => {
            next.extend(["rerun", "drop"].map(|verb| command_line(&["dlq", verb, &id])));
        }
        None => next.push(command_line(&["runs", run, "--follow"])),
    }
    next
}
