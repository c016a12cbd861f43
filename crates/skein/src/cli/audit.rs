//! `skein audit`: who allowed, refused, revealed or changed what; whether those records are as they were written; and all of
//! them for someone else to keep.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use rustix::fs::{Mode, OFlags, open};
use serde_json::{Map, Value, json};
use skein_host::{
    audit::{Broken, Chain, LINE_BYTES},
    store::{Noted, Store},
};

use crate::{
    exit::Exit,
    live::one_line,
    output::{Output, is_unread},
    since,
    state::{State, failed},
};

#[derive(Debug, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Only those of this run, by its id or how that begins.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only what this one did.
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// Only these actions, such as `gate.approve`, or `gate` for all of them.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only from then on: a date such as 2026-11-16, a time such as 2026-11-16T08:00:00Z, or how long ago, such as 24h.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Checks that all records are there, as they were written and in their order.
    Verify(Verify),
    /// Prints all records, a line of JSON each.
    Export,
}

#[derive(Debug, Args)]
#[group(skip)]
struct Verify {
    /// What was exported; the records that are kept here unless told otherwise.
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    let done = match &arguments.what {
        None => list(arguments, state, output),
        Some(What::Verify(Verify { file: Some(file) })) => verify_file(file, output),
        Some(What::Verify(Verify { file: None })) => verify(state, output),
        Some(What::Export) => export(state, output),
    };
    done.unwrap_or_else(|exit| exit)
}

/// Which records are asked for.
struct Filter<'a> {
    run: Option<&'a str>,
    actor: Option<&'a str>,
    action: Option<&'a str>,
    /// Times in UTC, all written in one way, come one after the other as their letters do.
    since: Option<String>,
}

impl<'a> Filter<'a> {
    fn of(arguments: &'a Arguments, output: Output) -> Result<Filter<'a>, Exit> {
        let since = arguments.since.as_deref().map(|text| since::parse(text, output)).transpose()?;
        let (run, actor) = (arguments.run.as_deref(), arguments.actor.as_deref());
        Ok(Filter { run, actor, action: arguments.action.as_deref(), since })
    }

    fn takes(&self, record: &Value) -> bool {
        let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
        let (path, action) = (text(&record["subject"]["path"]), text(&record["action"]));
        let of_action = |wanted: &str| {
            action.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.run.is_none_or(|run| path.starts_with(run))
            && self.actor.is_none_or(|actor| record["actor"]["id"] == actor)
            && self.action.is_none_or(of_action)
            && self.since.as_ref().is_none_or(|since| text(&record["ts"]) >= *since)
    }
}

/// Reads what is kept, one record after the other, until `each` has enough.
fn each(state: &State, output: Output, each: &mut dyn FnMut(Noted) -> bool) -> Result<(), Exit> {
    state.store.audit(0, each).map_err(|error| failed(&error, output))
}

fn list(arguments: &Arguments, given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let filter = Filter::of(arguments, output)?;
    let mut count = 0_u64;
    if output.is_json() {
        output.json_text("{\n  \"records\": [");
    }
    if let Some(state) = State::find(given, output)? {
        each(&state, output, &mut |noted| {
            // One that cannot be read is for `verify` to name.
            let record: Value = serde_json::from_slice(&noted.line).unwrap_or_default();
            if filter.takes(&record) {
                let comma = if count > 0 { "," } else { "" };
                match output.is_json() {
                    true => output.json_text(&format!("{comma}\n    {record}")),
                    false => output.text(&line(&record, output)),
                }
                count += 1;
            }
            !is_unread()
        })?;
    }
    match (output.is_json(), count) {
        (true, 0) => output.json_text("]\n}\n"),
        (true, _) => output.json_text("\n  ]\n}\n"),
        (false, 0) => output.text("No records.\n"),
        (false, _) => {}
    }
    Ok(Exit::Done)
}

/// A record for people: when, who, what, to what, and why.
fn line(record: &Value, output: Output) -> String {
    let text = |value: &Value| one_line(value.as_str().unwrap_or("?"));
    let (actor, subject) = (&record["actor"], &record["subject"]);
    let path = subject["path"].as_str().map(|path| format!(" in {}", one_line(path))).unwrap_or_default();
    let why = &record["input"]["reason"];
    let why = why.as_str().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
    let end = record["output"]["end"].as_str().map(|end| format!(" {}", one_line(end))).unwrap_or_default();
    format!(
        "{} {:>5}  {} {} {} {}{path}{end}{why}\n",
        output.paint.faint(&text(&record["ts"])),
        record["seq"].to_string(),
        output.paint.name(&text(&actor["id"])),
        text(&record["action"]),
        text(&subject["kind"]),
        text(&subject["ref"]),
    )
}

fn export(given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    if let Some(state) = State::find(given, output)? {
        each(&state, output, &mut |noted| {
            output.json_text(&format!("{}\n", String::from_utf8_lossy(&noted.line)));
            !is_unread()
        })?;
    }
    Ok(Exit::Done)
}

fn verify(given: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    let (mut chain, mut broken) = (Chain::default(), None);
    if let Some(state) = State::find(given, output)? {
        each(&state, output, &mut |noted| {
            broken = follow(&mut chain, noted).err();
            broken.is_none()
        })?;
    }
    Ok(verdict(&chain, broken, output))
}

/// A record that is kept under another number than its own is not where it was put.
fn follow(chain: &mut Chain, noted: Noted) -> Result<Map<String, Value>, Broken> {
    let seq = chain.count;
    if noted.seq != seq {
        return Err(Broken::Missing { seq, found: noted.seq });
    }
    chain.follow(&noted.line)
}

fn verify_file(file: &Path, output: Output) -> Result<Exit, Exit> {
    let told = |error: std::io::Error| {
        output.refuse(Exit::Refused, &format!("`{}` cannot be read: {error}", file.display()), None)
    };
    // Nobody waits for a pipe that nothing comes through.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = File::from(open(file, flags, Mode::empty()).map_err(|error| told(error.into()))?);
    if !opened.metadata().map_err(told)?.is_file() {
        return Err(told(std::io::Error::other("it is not a regular file")));
    }
    let mut lines = BufReader::new(opened);
    let mut chain = Chain::default();
    loop {
        let mut line = Vec::new();
        lines.by_ref().take(LINE_BYTES + 1).read_until(b'\n', &mut line).map_err(told)?;
        if line.is_empty() {
            return Ok(verdict(&chain, None, output));
        }
        let followed = match line.strip_suffix(b"\n") {
            _ if line.len() as u64 > LINE_BYTES => {
                let why = format!("its line has more than {LINE_BYTES} bytes");
                Err(Broken::Unreadable { seq: chain.count, why })
            }
            // What the last line ends with was exported with it.
            None => Err(Broken::Unreadable { seq: chain.count, why: "its line has no end".to_owned() }),
            Some(line) => chain.follow(line),
        };
        if let Err(broken) = followed {
            return Ok(verdict(&chain, Some(broken), output));
        }
    }
}

fn verdict(chain: &Chain, broken: Option<Broken>, output: Output) -> Exit {
    let Chain { count, head } = chain;
    if output.is_json() {
        let broken_at = broken.as_ref().map(|broken| json!({"seq": broken.seq(), "why": broken.to_string()}));
        output.json(&json!({"whole": broken.is_none(), "records": count, "head": head, "broken": broken_at}));
    }
    match broken {
        None if output.is_json() => Exit::Done,
        None => {
            output.text(&format!("{count} records, whole\nhead {head}\n"));
            Exit::Done
        }
        Some(_) if output.is_json() => Exit::Failed,
        Some(broken) => {
            let before = format!("the {count} before it are whole");
            output.refuse(Exit::Failed, &format!("{broken}; {before}"), None)
        }
    }
}
