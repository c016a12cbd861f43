//! `skein dlq`: the dead letters, which are steps that failed for good and that nobody has seen to.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skein_core::engine::utc;
use skein_host::{
    store::{Dead, How, RunRow, Settled, Store, WhichDead},
    workspace::RunDir,
};

use super::{
    fork::{fork, settled},
    run::How as Stay,
};
use crate::{
    exit::Exit,
    invocation::words,
    live::{class, log_end, one_line, outermost, quoted},
    output::Output,
    say,
    state::{State, failed},
    watch,
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Also those that were dropped or done again.
    #[arg(long)]
    all: bool,
    /// So many at most.
    #[arg(long, value_name = "COUNT", default_value = "50")]
    limit: u32,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Shows one of them: what went wrong, the end of its log, and what can be done.
    Show(Named),
    /// Does the step again, in a fork of its run.
    Rerun(Rerun),
    /// Takes one off the list; that it was there stays recorded.
    Drop(Dropped),
}

#[derive(Debug, Args)]
#[group(skip)]
struct Named {
    /// The dead letter, as `dlq` lists it; or its run, where that has only one.
    id: String,
}

#[derive(Debug, Args)]
#[group(skip)]
struct Rerun {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    how: Stay,
}

#[derive(Debug, Args)]
#[group(skip)]
struct Dropped {
    #[command(flatten)]
    named: Named,
    /// Why, for those who look later.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Arguments {
    /// Whether it runs something, and can print a line for each event of that.
    pub fn reruns(&self) -> bool {
        matches!(self.what, Some(What::Rerun(_)))
    }
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    let done = match &arguments.what {
        None => list(arguments, state, output),
        Some(What::Show(named)) => show(named, state, output),
        Some(What::Rerun(rerun)) => again(rerun, state, output),
        Some(What::Drop(dropped)) => drop_it(dropped, state, output),
    };
    done.unwrap_or_else(|exit| exit)
}

fn list(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let state = State::find(given, output)?;
    let newest = |state: &State| {
        let which =
            if arguments.all { WhichDead::Newest(arguments.limit) } else { WhichDead::Open(arguments.limit) };
        state.store.dead(&which).map_err(|error| failed(&error, output))
    };
    let letters = state.as_ref().map_or(Ok(Vec::new()), newest)?;
    if output.is_json() {
        let state = state.as_ref().map(|state| state.path.as_path());
        let objects: Vec<Value> = letters.iter().map(|dead| object(dead, state)).collect();
        output.json(&json!({"dead_letters": objects}));
    } else if letters.is_empty() {
        output.text("No dead letters.\n");
    } else {
        output.text(&table(&letters, output));
    }
    Ok(Exit::Done)
}

fn table(letters: &[Dead], output: Output) -> String {
    let widest = |of: &dyn Fn(&Dead) -> usize| letters.iter().map(of).max().unwrap_or_default();
    let id = widest(&|dead| dead.id().to_string().chars().count());
    let step = widest(&|dead| one_line(&dead.row.step).chars().count()).min(40);
    let line = |dead: &Dead| {
        let name = output.paint.name(&format!("{:id$}", dead.id().to_string()));
        let (at, class) = (utc(dead.row.at), class(dead.row.class));
        let settled =
            dead.settled.as_ref().map_or(String::new(), |settled| one_line(&format!("({settled})")));
        let (path, message) = (one_line(&dead.row.step), one_line(&dead.row.message));
        let rest = output.paint.faint(&settled);
        let line = format!("{name}  {at:20}  {path:step$}  {class}, {}: {message}  {rest}", tries(dead));
        format!("{}\n", line.trim_end())
    };
    letters.iter().map(line).collect()
}

fn tries(dead: &Dead) -> String {
    match dead.row.attempts {
        1 => "1 attempt".to_owned(),
        n => format!("{n} attempts"),
    }
}

fn log(dead: &Dead, state: &Path) -> Option<PathBuf> {
    let attempt = dead.row.attempt?;
    Some(RunDir::log_below(&RunDir::place(state, &dead.run), attempt)).filter(|log| log.exists())
}

fn object(dead: &Dead, state: Option<&Path>) -> Value {
    json!({
        "id": dead.id().to_string(),
        "run_id": dead.run,
        "step": dead.row.step,
        "class": dead.row.class,
        "code": dead.row.code,
        "message": dead.row.message,
        "attempts": dead.row.attempts,
        "failed_at": utc(dead.row.at),
        "log": state.and_then(|state| log(dead, state)),
        "settled": dead.settled.as_ref().map(settled_object),
    })
}

fn settled_object(settled: &Settled) -> Value {
    let (how, reason, run) = match &settled.how {
        How::Dropped(reason) => ("dropped", reason.as_deref(), None),
        How::Rerun(run) => ("rerun", None, Some(run)),
        How::Retried => ("retried", None, None),
    };
    json!({
        "how": how,
        "by": settled.by,
        "at": settled.at.map(utc),
        "reason": reason,
        "run_id": run,
    })
}

/// The dead letter that someone means.
fn find(named: &Named, given: Option<&Path>, output: Output) -> Result<(State, RunRow, Dead), Exit> {
    let text = &named.id;
    let (run, number) = match text.rsplit_once('.').map(|(run, number)| (run, number.parse::<u64>())) {
        Some((run, Ok(number))) => (run, Some(number)),
        _ => (text.as_str(), None),
    };
    let (state, row) = State::with_run(given, run, output)?;
    let mut letters =
        state.store.dead(&WhichDead::Of(row.run.clone())).map_err(|error| failed(&error, output))?;
    let ids: Vec<String> = letters.iter().map(|dead| dead.id().to_string()).collect();
    letters.retain(|dead| number.is_none_or(|number| number == dead.row.number));
    // One that is open is rather meant than one that was seen to.
    if letters.len() > 1 && letters.iter().filter(|dead| dead.settled.is_none()).count() == 1 {
        letters.retain(|dead| dead.settled.is_none());
    }
    let hint = match &ids[..] {
        [] => "`skein dlq` lists those that there are".to_owned(),
        ids => format!("it has {}", ids.join(", ")),
    };
    match (letters.pop(), letters.is_empty()) {
        (Some(dead), true) => Ok((state, row, dead)),
        (Some(_), false) => {
            let message = format!("run `{}` has several dead letters; name one of them", row.run);
            Err(output.refuse(Exit::Refused, &message, Some(&hint)))
        }
        (None, _) => {
            let message = format!("run `{}` has no dead letter `{text}`", row.run);
            Err(output.refuse(Exit::Refused, &message, Some(&hint)))
        }
    }
}

fn show(named: &Named, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, row, dead) = find(named, given, output)?;
    let next = next(&row, &dead);
    if output.is_json() {
        let mut object = object(&dead, Some(&state.path));
        object["workflow"] = json!(row.head.workflow);
        object["next"] = json!(next);
        output.json(&object);
        return Ok(Exit::Done);
    }
    let run = format!("{} of {}, {}", dead.run, row.head.workflow, row.head.native_status);
    let code = dead.row.code.as_ref().map_or(String::new(), |code| format!(", code {code}"));
    let failure = format!("{}{code}, after {}", class(dead.row.class), tries(&dead));
    let mut text = format!("{}\n", output.paint.title(&format!("Dead letter {}", dead.id())));
    let mut line = |title: &str, words: &str| text += &format!("{title:9} {}\n", one_line(words));
    line("Run", &run);
    line("Step", &dead.row.step);
    line("Failed", &format!("{}: {failure}", utc(dead.row.at)));
    line("Error", &dead.row.message);
    if let Some(settled) = &dead.settled {
        line("Settled", &format!("it {settled}"));
    }
    if let Some(log) = log(&dead, &state.path) {
        line("Log", &log.display().to_string());
        let end = dead.row.attempt.and_then(|attempt| watch::tail(&state.kept(&dead.run), attempt));
        text += &log_end(output.paint, end.as_deref());
    }
    for (i, command) in next.iter().enumerate() {
        let title = if i == 0 { "Next" } else { "" };
        text += &format!("{title:9} {}\n", one_line(command));
    }
    output.text(&text);
    Ok(Exit::Done)
}

/// What makes sense now, as it can be pasted.
fn next(row: &RunRow, dead: &Dead) -> Vec<String> {
    let (run, id) = (quoted(dead.run.as_str()), quoted(&dead.id().to_string()));
    let mut next = vec![format!("{} logs {run} {}", words(), quoted(&dead.row.step))];
    match &dead.settled {
        Some(Settled { how: How::Rerun(by), .. }) => {
            next.push(format!("{} runs {}", words(), quoted(by.as_str())))
        }
        Some(_) => {}
        None if row.head.closed => {
            next.push(format!("{} dlq rerun {id}", words()));
            next.push(format!("{} dlq drop {id}", words()));
        }
        None => next.push(format!("{} runs {run} --follow", words())),
    }
    next
}

/// Someone has seen to it already.
fn check(dead: &Dead, output: Output) -> Result<(), Exit> {
    match &dead.settled {
        None => Ok(()),
        Some(settled) => {
            let message = format!("the dead letter `{}` {settled}", dead.id());
            Err(output.refuse(
                Exit::Refused,
                &message,
                Some("`skein dlq --all` lists those that were seen to"),
            ))
        }
    }
}

fn again(rerun: &Rerun, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, row, dead) = find(&rerun.named, given, output)?;
    check(&dead, output)?;
    let outer = outermost(&dead.row.step);
    if outer != dead.row.step && output.format == crate::output::Format::Human {
        output.text(&format!(
            "{} is inside of {outer}, which is done again as a whole.\n",
            one_line(&dead.row.step)
        ));
    }
    fork(&state, &row, outer, &rerun.how, output)
}

fn drop_it(dropped: &Dropped, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, row, dead) = find(&dropped.named, given, output)?;
    say::outside(&state, &row.run, "drop a dead letter", output)?;
    check(&dead, output)?;
    let now = settled(How::Dropped(dropped.reason.clone()));
    let before = state.store.settle(&dead.id(), &now).map_err(|error| failed(&error, output))?;
    check(&Dead { settled: before, ..dead.clone() }, output)?;
    let dead = Dead { settled: Some(now), ..dead };
    if output.is_json() {
        output.json(&object(&dead, Some(&state.path)));
    } else {
        output.text(&format!("{} is off the list\n", dead.id()));
    }
    Ok(Exit::Done)
}
