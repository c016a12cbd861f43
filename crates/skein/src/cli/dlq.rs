//! `skein dlq`: the dead letters, which are steps that failed permanently and were not handled yet.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    invocation::{command_prefix, quote_shell_word},
    state::{StateHandle, refuse_store_error},
};
use skein_core::engine::format_utc;
use skein_host::{
    store::{DeadLetter, DeadLetterSelection, DeadLetterSettlement, RunRow, SettlementKind, Store},
    workspace::RunDir,
};

use super::{
    fork::{fork_run, settle_now},
    run::AttachOptions as Stay,
};
use crate::{
    exit::Exit,
    live::{error_class_word, one_line, outermost_step, render_log_end},
    output::CliOutput,
    send_input, watch,
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DlqArguments {
    #[command(subcommand)]
    what: Option<DlqCommand>,
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
    how: Stay,
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
    pub fn is_rerun(&self) -> bool {
        matches!(self.what, Some(DlqCommand::Rerun(_)))
    }
}

pub fn run(arguments: &DlqArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    match &arguments.what {
        None => list_dead_letters(arguments, state, output),
        Some(DlqCommand::Show(named)) => show_dead_letter(named, state, output),
        Some(DlqCommand::Rerun(rerun)) => rerun_dead_letter(rerun, state, output),
        Some(DlqCommand::Drop(dropped)) => drop_dead_letter(dropped, state, output),
    }
}

fn list_dead_letters(
    arguments: &DlqArguments,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let state = StateHandle::open_existing(given)?;
    let newest = |state: &StateHandle| {
        let which = if arguments.all {
            DeadLetterSelection::Newest(arguments.limit)
        } else {
            DeadLetterSelection::Open(arguments.limit)
        };
        state.store.list_dead_letters(&which).map_err(|error| refuse_store_error(&error))
    };
    let letters = state.as_ref().map_or(Ok(Vec::new()), newest)?;
    if output.is_json() {
        let state = state.as_ref().map(|state| state.path.as_path());
        let objects: Vec<Value> = letters.iter().map(|dead| dead_letter_to_json(dead, state)).collect();
        output.print_json(&json!({"dead_letters": objects}));
    } else if letters.is_empty() {
        output.print_text("No dead letters.\n");
    } else {
        output.print_text(&render_table(&letters, output));
    }
    Ok(Exit::Done)
}

fn render_table(letters: &[DeadLetter], output: CliOutput) -> String {
    let widest = |of: &dyn Fn(&DeadLetter) -> usize| letters.iter().map(of).max().unwrap_or_default();
    let id = widest(&|dead| dead.id().to_string().chars().count());
    let step = widest(&|dead| one_line(&dead.row.step).chars().count()).min(40);
    let line = |dead: &DeadLetter| {
        let name = output.paint.name(&format!("{:id$}", dead.id().to_string()));
        let (at, class) = (format_utc(dead.row.at), error_class_word(dead.row.class));
        let settled =
            dead.settled.as_ref().map_or(String::new(), |settled| one_line(&format!("({settled})")));
        let (path, message) = (one_line(&dead.row.step), one_line(&dead.row.message));
        let rest = output.paint.faint(&settled);
        let line =
            format!("{name}  {at:20}  {path:step$}  {class}, {}: {message}  {rest}", describe_attempts(dead));
        format!("{}\n", line.trim_end())
    };
    letters.iter().map(line).collect()
}

fn describe_attempts(dead: &DeadLetter) -> String {
    match dead.row.attempts {
        1 => "1 attempt".to_owned(),
        n => format!("{n} attempts"),
    }
}

fn find_log(dead: &DeadLetter, state: &Path) -> Option<PathBuf> {
    let attempt = dead.row.attempt?;
    Some(RunDir::log_path(&RunDir::run_path(state, &dead.run), attempt)).filter(|log| log.exists())
}

fn dead_letter_to_json(dead: &DeadLetter, state: Option<&Path>) -> Value {
    json!({
        "id": dead.id().to_string(),
        "run_id": dead.run,
        "step": dead.row.step,
        "class": dead.row.class,
        "code": dead.row.code,
        "message": dead.row.message,
        "attempts": dead.row.attempts,
        "failed_at": format_utc(dead.row.at),
        "log": state.and_then(|state| find_log(dead, state)),
        "settled": dead.settled.as_ref().map(settlement_to_json),
    })
}

fn settlement_to_json(settled: &DeadLetterSettlement) -> Value {
    let (how, reason, run) = match &settled.how {
        SettlementKind::Dropped(reason) => ("dropped", reason.as_deref(), None),
        SettlementKind::Rerun(run) => ("rerun", None, Some(run)),
        SettlementKind::Retried => ("retried", None, None),
    };
    json!({
        "how": how,
        "by": settled.by,
        "at": settled.at.map(format_utc),
        "reason": reason,
        "run_id": run,
    })
}

/// Finds the selected dead letter.
fn find_dead_letter(
    named: &DeadLetterIdArgument,
    given: Option<&Path>,
) -> Result<(StateHandle, RunRow, DeadLetter), AppError> {
    let text = &named.id;
    let (run, number) = match text.rsplit_once('.').map(|(run, number)| (run, number.parse::<u64>())) {
        Some((run, Ok(number))) => (run, Some(number)),
        _ => (text.as_str(), None),
    };
    let (state, row) = StateHandle::open_run(given, run)?;
    let mut letters = state
        .store
        .list_dead_letters(&DeadLetterSelection::InRun(row.run.clone()))
        .map_err(|error| refuse_store_error(&error))?;
    let ids: Vec<String> = letters.iter().map(|dead| dead.id().to_string()).collect();
    letters.retain(|dead| number.is_none_or(|number| number == dead.row.number));
    // An open dead letter is preferred to settled ones.
    if letters.len() > 1 && letters.iter().filter(|dead| dead.settled.is_none()).count() == 1 {
        letters.retain(|dead| dead.settled.is_none());
    }
    let hint = match &ids[..] {
        [] => "`skein dlq` lists all of them".to_owned(),
        ids => format!("it has {}", ids.join(", ")),
    };
    match (letters.pop(), letters.is_empty()) {
        (Some(dead), true) => Ok((state, row, dead)),
        (Some(_), false) => {
            let message = format!("run `{}` has several dead letters; name one of them", row.run);
            Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)))
        }
        (None, _) => {
            let message = format!("run `{}` has no dead letter `{text}`", row.run);
            Err(AppError::new(AppErrorKind::Refused, &message, Some(&hint)))
        }
    }
}

fn show_dead_letter(
    named: &DeadLetterIdArgument,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let (state, row, dead) = find_dead_letter(named, given)?;
    let next = next_commands(&row, &dead);
    if output.is_json() {
        let mut object = dead_letter_to_json(&dead, Some(&state.path));
        object["workflow"] = json!(row.head.workflow);
        object["next"] = json!(next);
        output.print_json(&object);
        return Ok(Exit::Done);
    }
    let run = format!("{} of {}, {}", dead.run, row.head.workflow, row.head.native_status);
    let code = dead.row.code.as_ref().map_or(String::new(), |code| format!(", code {code}"));
    let failure = format!("{}{code}, after {}", error_class_word(dead.row.class), describe_attempts(&dead));
    let mut text = format!("{}\n", output.paint.title(&format!("Dead letter {}", dead.id())));
    let mut line = |title: &str, words: &str| text += &format!("{title:9} {}\n", one_line(words));
    line("Run", &run);
    line("Step", &dead.row.step);
    line("Failed", &format!("{}: {failure}", format_utc(dead.row.at)));
    line("Error", &dead.row.message);
    if let Some(settled) = &dead.settled {
        line("Settled", &format!("it {settled}"));
    }
    if let Some(log) = find_log(&dead, &state.path) {
        line("Log", &log.display().to_string());
        let end =
            dead.row.attempt.and_then(|attempt| watch::read_log_tail(&state.run_folder(&dead.run), attempt));
        text += &render_log_end(output.paint, end.as_deref());
    }
    for (i, command) in next.iter().enumerate() {
        let title = if i == 0 { "Next" } else { "" };
        text += &format!("{title:9} {}\n", one_line(command));
    }
    output.print_text(&text);
    Ok(Exit::Done)
}

/// Returns the commands that make sense now, ready to be pasted.
fn next_commands(row: &RunRow, dead: &DeadLetter) -> Vec<String> {
    let (run, id) = (quote_shell_word(dead.run.as_str()), quote_shell_word(&dead.id().to_string()));
    let mut next = vec![format!("{} logs {run} {}", command_prefix(), quote_shell_word(&dead.row.step))];
    match &dead.settled {
        Some(DeadLetterSettlement { how: SettlementKind::Rerun(by), .. }) => {
            next.push(format!("{} runs {}", command_prefix(), quote_shell_word(by.as_str())))
        }
        Some(_) => {}
        None if row.head.closed => {
            next.push(format!("{} dlq rerun {id}", command_prefix()));
            next.push(format!("{} dlq drop {id}", command_prefix()));
        }
        None => next.push(format!("{} runs {run} --follow", command_prefix())),
    }
    next
}

/// Refuses a dead letter that is already settled.
fn refuse_settled(dead: &DeadLetter) -> Result<(), AppError> {
    match &dead.settled {
        None => Ok(()),
        Some(settled) => {
            let message = format!("the dead letter `{}` {settled}", dead.id());
            Err(AppError::new(
                AppErrorKind::Refused,
                &message,
                Some("`skein dlq --all` lists settled ones, too"),
            ))
        }
    }
}

fn rerun_dead_letter(
    rerun: &DlqRerunArguments,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let (state, row, dead) = find_dead_letter(&rerun.named, given)?;
    refuse_settled(&dead)?;
    let outer = outermost_step(&dead.row.step);
    if outer != dead.row.step && output.format == crate::output::OutputFormat::Human {
        output.print_text(&format!(
            "{} is inside of {outer}, which is run again as a whole.\n",
            one_line(&dead.row.step)
        ));
    }
    fork_run(&state, &row, outer, &rerun.how, output)
}

fn drop_dead_letter(
    dropped: &DlqDropArguments,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    let (state, row, dead) = find_dead_letter(&dropped.named, given)?;
    send_input::require_person(&state, &row.run, "drop a dead letter")?;
    refuse_settled(&dead)?;
    let now = settle_now(SettlementKind::Dropped(dropped.reason.clone()));
    let before =
        state.store.settle_dead_letter(&dead.id(), &now).map_err(|error| refuse_store_error(&error))?;
    refuse_settled(&DeadLetter { settled: before, ..dead.clone() })?;
    let dead = DeadLetter { settled: Some(now), ..dead };
    if output.is_json() {
        output.print_json(&dead_letter_to_json(&dead, Some(&state.path)));
    } else {
        output.print_text(&format!("dropped {}\n", dead.id()));
    }
    Ok(Exit::Done)
}
