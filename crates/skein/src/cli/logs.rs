//! `skein logs`: what the workers of a run printed or changed, attempt by attempt, without what a terminal would obey.

use std::{
    io::{self, Write},
    path::Path,
};

use clap::Args;
use serde_json::json;
use skein_core::{closest::did_you_mean, engine::AttemptId, plan::Plan};
use skein_host::{
    store::{Owner, RunRow, Store},
    worker::shown,
    workspace::RunDir,
};

use crate::{
    changes::Changes,
    exit::Exit,
    live::one_line,
    output::{Output, is_unread},
    printed::{Log, LogFile, Logs, Meant},
    state::{State, failed},
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The run, by its id or how that begins; the newest unless told otherwise, as for `-`.
    run: Option<String>,
    /// The path of a step; all of them unless told otherwise.
    step: Option<String>,
    /// Only this attempt of the step and what checked it, from 1 in the order in which they were started.
    #[arg(long, value_name = "NUMBER", requires = "step")]
    attempt: Option<u32>,
    /// Show the changes of the run, or of each attempt of a step, instead of the output.
    #[arg(long, conflicts_with = "follow")]
    changes: bool,
    /// Show the prompt of each attempt instead of its output.
    #[arg(long, conflicts_with_all = ["follow", "changes"])]
    prompt: bool,
    /// Show what is printed until the run is over or left.
    #[arg(long)]
    follow: bool,
    /// To the byte, with all that a terminal would obey.
    #[arg(long)]
    raw: bool,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    logs(arguments, state, output).unwrap_or_else(|exit| exit)
}

fn logs(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (state, row) = State::with_run_or_newest(given, arguments.run.as_deref(), output)?;
    let plan = state.plan(&row, output)?;
    let meant = Meant { step: arguments.step.as_deref(), number: arguments.attempt };
    let which = match (arguments.changes, arguments.prompt) {
        (true, _) => LogFile::Changes,
        (false, true) => LogFile::Prompt,
        (false, false) => LogFile::Output,
    };
    let mut logs = Logs::new(&plan, state.kept(&row.run), meant, which);
    let follow = arguments.follow && !output.is_json();
    // Before the first look, so that nothing is missed in between.
    let changes = Changes::of_journal(&state.path)
        .map_err(|error| output.refuse(Exit::Broken, &format!("changes cannot be heard: {error}"), None))?;
    let mut over = look(&state, &row, &mut logs, output)?;
    check(&logs, &Looked { plan: &plan, row: &row, meant }, !follow || over, output)?;
    if arguments.prompt && !logs.all.is_empty() && !logs.all.iter().any(|log| log.file.is_file()) {
        let what = arguments.step.as_deref().map_or("this run".to_owned(), |step| format!("`{step}`"));
        let hint = "prompts are kept of agents and scripts; tools and commands have inputs alone";
        return Err(output.refuse(Exit::Refused, &format!("no prompt of {what} is kept"), Some(hint)));
    }
    if output.is_json() {
        let objects: Vec<_> = logs.all.iter().map(Log::object).collect();
        let changes = RunDir::run_changes_below(&state.kept(&row.run));
        output.json(&json!({"run_id": row.run, "logs": objects, "changes": changes}));
        return Ok(Exit::Done);
    }
    if arguments.changes && arguments.step.is_none() {
        return run_changes(&state.kept(&row.run), arguments.raw, output);
    }
    let of_agent = which == LogFile::Output && logs.all.iter().any(Log::is_of_agent);
    let titled = !arguments.raw && (follow || logs.all.len() > 1 || of_agent);
    let mut page = Page { output, raw: arguments.raw, titled, last: None, whole: true };
    page.show(&mut logs)?;
    while follow && !over && !is_unread() {
        let going = logs.all.iter().filter(|log| log.is_going());
        going.filter_map(Log::folder).for_each(|folder| changes.watch(folder));
        changes.wait();
        over = look(&state, &row, &mut logs, output)?;
        page.show(&mut logs)?;
    }
    Ok(Exit::Done)
}

/// One diff of all that a run changed.
fn run_changes(kept: &Path, raw: bool, output: Output) -> Result<Exit, Exit> {
    let files = RunDir::run_changes_below(kept);
    if files.is_empty() {
        output.text("Nothing that git would show was changed.\n");
    }
    for file in files {
        let text = std::fs::read(&file).map_err(|error| {
            let message = format!("the changes `{}` cannot be read: {error}", file.display());
            output.refuse(Exit::Store, &message, None)
        })?;
        match raw {
            true => drop(io::stdout().lock().write_all(&text)),
            false => output.exact(&shown(&text)),
        }
    }
    Ok(Exit::Done)
}

/// Prints what all attempts of a run printed so far, each under its name.
pub fn show_all(state: &State, row: &RunRow, plan: &Plan, output: Output) -> Result<(), Exit> {
    let mut logs = Logs::new(plan, state.kept(&row.run), Meant { step: None, number: None }, LogFile::Output);
    look(state, row, &mut logs, output)?;
    Page { output, raw: false, titled: true, last: None, whole: true }.show(&mut logs)
}

/// Reads on in the journal. Whether nothing more is to come.
fn look(state: &State, row: &RunRow, logs: &mut Logs<'_>, output: Output) -> Result<bool, Exit> {
    // The row first: what ends a run is in the journal before its row says so.
    let row = state.store.run(&row.run).map_err(|error| failed(&error, output))?;
    let lives = |row: &RunRow| {
        !row.head.closed && row.quarantined.is_none() && matches!(row.owner, Owner::Other(_) | Owner::Here)
    };
    if let Some(row) = &row {
        logs.read(&*state.store, &row.run).map_err(|error| failed(&error, output))?;
    }
    Ok(!row.as_ref().is_some_and(lives))
}

/// What is looked for, and in which run.
struct Looked<'a> {
    plan: &'a Plan,
    row: &'a RunRow,
    meant: Meant<'a>,
}

/// Says no to a step or an attempt that there is not, and, where none is to come, to what there was never.
fn check(logs: &Logs<'_>, looked: &Looked<'_>, last: bool, output: Output) -> Result<(), Exit> {
    let Looked { plan, row, meant } = *looked;
    let from = row.head.forked_from.as_ref().map(|from| &from.run);
    let Some(step) = meant.step.filter(|_| logs.all.is_empty()) else { return Ok(()) };
    let scopes = plan.definition.scopes.iter();
    let ids: Vec<&str> = scopes.flat_map(|entry| &entry.scope.steps).map(|step| step.id.as_str()).collect();
    let known = ids.iter().any(|id| step.rsplit('/').next() == Some(*id));
    let refuse =
        |message: String, hint: Option<String>| Err(output.refuse(Exit::Refused, &message, hint.as_deref()));
    match (known, logs.steps.get(step), meant.number) {
        (_, Some(count), Some(number)) if last => {
            refuse(format!("`{step}` has no attempt {number}"), Some(format!("it has {count}")))
        }
        (false, None, _) => {
            let names = logs.steps.keys().map(String::as_str).chain(ids.iter().copied());
            refuse(format!("there is no step `{step}`"), did_you_mean(step, names))
        }
        (true, None, _) if last && logs.reused.contains(step) => {
            let from = from.map(|from| format!("`skein logs {from} {step}` shows what it printed there"));
            refuse(format!("`{step}` was not done here: its result was reused"), from)
        }
        (true, None, _) if last => refuse(format!("nothing of `{step}` has been started"), None),
        _ => Ok(()),
    }
}

/// Where logs are shown.
struct Page {
    output: Output,
    raw: bool,
    /// Whether each attempt is named above what it printed.
    titled: bool,
    last: Option<AttemptId>,
    /// Whether the last line has its end.
    whole: bool,
}

impl Page {
    fn show(&mut self, logs: &mut Logs<'_>) -> Result<(), Exit> {
        for log in &mut logs.all {
            let (file, shown) = (log.file.clone(), self.one(log));
            shown.map_err(|error| {
                let message = format!("the log `{}` cannot be read: {error}", file.display());
                self.output.refuse(Exit::Store, &message, None)
            })?;
        }
        Ok(())
    }

    fn one(&mut self, log: &mut Log) -> io::Result<()> {
        if self.raw {
            let mut out = io::stdout().lock();
            let mut written = Ok(());
            log.raw(&mut |bytes| {
                if written.is_ok() {
                    written = out.write_all(bytes);
                }
            })?;
            // A reader that left wants no more.
            return written.and_then(|()| out.flush()).or_else(|error| {
                match crate::output::reader_left(&error) {
                    true => Ok(()),
                    false => Err(error),
                }
            });
        }
        let (attempt, title) = (log.attempt, one_line(&log.title()));
        log.safe(&mut |text| {
            if text.is_empty() {
                return;
            }
            if self.titled && self.last != Some(attempt) {
                let before = if self.whole { "" } else { "\n" };
                self.output.exact(&format!("{before}{}\n", self.output.paint.title(&format!("── {title}"))));
                self.last = Some(attempt);
            }
            self.output.exact(text);
            self.whole = text.ends_with('\n');
        })
    }
}
