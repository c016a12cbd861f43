//! `skein dlq`: the dead letters, which are steps that failed for good and that nobody has seen to.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skein_core::{closest::did_you_mean, engine::utc, time::Time};
use skein_host::{
    host::Begin,
    store::{Dead, DeadId, How, RunRow, Settled, Store},
    workspace::RunDir,
};

use super::{fork::fork, run::How as Stay};
use crate::{
    exit::Exit,
    live::{class, log_end, one_line, outermost, quoted},
    output::Output,
    person, say,
    state::{State, failed},
    watch,
};

/// So many are looked through for one that is named by its run alone.
const LOOKED_AT: u32 = 10_000;

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
        state.store.dead(arguments.all, arguments.limit).map_err(|error| failed(&error, output))
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
        let settled = dead.settled.as_ref().map_or(String::new(), |settled| format!("  ({settled})"));
        let (path, message) = (one_line(&dead.row.step), one_line(&dead.row.message));
        let rest = output.paint.faint(&one_line(&settled));
        format!("{name}  {at:20}  {path:step$}  {class}, {}: {message}{rest}\n", tries(dead))
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
    let unknown = |known: &[Dead]| {
        let ids: Vec<String> = known.iter().map(|dead| dead.id().to_string()).collect();
        let hint = did_you_mean(text, ids.iter().map(String::as_str));
        let hint = hint.unwrap_or_else(|| "`skein dlq` lists them".to_owned());
        output.refuse(Exit::Refused, &format!("there is no dead letter `{text}`"), Some(&hint))
    };
    let Some(state) = State::find(given, output)? else { return Err(unknown(&[])) };
    let known = state.store.dead(true, LOOKED_AT).map_err(|error| failed(&error, output))?;
    let exact = text.parse::<DeadId>().ok().map(|id| state.store.find_dead(&id)).transpose();
    let exact = exact.map_err(|error| failed(&error, output))?.flatten();
    let of_run: Vec<&Dead> = known.iter().filter(|dead| dead.run.as_str() == text).collect();
    let dead = match (exact, &of_run[..]) {
        (Some(dead), _) => dead,
        (None, [one]) => (*one).clone(),
        (None, [_, _, ..]) => {
            let named: Vec<String> = of_run.iter().take(5).map(|dead| dead.id().to_string()).collect();
            let message = format!("run `{text}` has {} dead letters", of_run.len());
            return Err(output.refuse(
                Exit::Refused,
                &message,
                Some(&format!("name one of them: {}", named.join(", "))),
            ));
        }
        (None, []) => return Err(unknown(&known)),
    };
    let row = state.store.run(&dead.run).map_err(|error| failed(&error, output))?;
    let row = row.ok_or_else(|| unknown(&known))?;
    Ok((state, row, dead))
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
    let mut next = vec![format!("skein logs {run} {}", quoted(&dead.row.step))];
    match &dead.settled {
        Some(Settled { how: How::Rerun(by), .. }) => next.push(format!("skein runs {}", quoted(by.as_str()))),
        Some(_) => {}
        None if row.head.closed => {
            next.push(format!("skein dlq rerun {id}"));
            next.push(format!("skein dlq drop {id}"));
        }
        None => next.push(format!("skein runs {run} --follow")),
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
    let settles = |begin: &Begin| Some((dead.id(), settled(How::Rerun(begin.start.run.clone()))));
    let outer = outermost(&dead.row.step);
    if outer != dead.row.step && output.format == crate::output::Format::Human {
        output.text(&format!(
            "{} is inside of {outer}, which is done again as a whole.\n",
            one_line(&dead.row.step)
        ));
    }
    fork(&state, &row, outer, settles, &rerun.how, output)
}

fn settled(how: How) -> Settled {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Settled { how, by: Some(person::name()), at: Some(at) }
}

fn drop_it(dropped: &Dropped, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, _, dead) = find(&dropped.named, given, output)?;
    say::outside(&state, output)?;
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
