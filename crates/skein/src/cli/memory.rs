//! `skein memory`: what a project remembers from run to run, and tells agents.

use std::path::Path;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Value, json};
use skein_core::{engine::utc, limits};
use skein_host::{
    clock::Clock,
    identity::current_user,
    memory::{Kind, Memories, Memory, MemoryError, Status},
    worker,
};

use crate::{
    capture::{self, Captured},
    exit::Exit,
    live::one_line,
    output::Output,
    project::OnDisk,
    state::State,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Remembers something.
    Add(Add),
    /// Lists what is remembered.
    List(List),
    /// Shows one memory.
    Show(Named),
    /// Lets an agent look back at a run, and keeps what it proposes as candidates.
    Capture(capture::Arguments),
    /// Agrees with a candidate: from now on it is told.
    Approve(Named),
    /// Forgets one: it is kept, and told to nobody any more.
    Retire(Named),
}

#[derive(Debug, Args)]
#[group(skip)]
struct Add {
    /// What is to be remembered, in a sentence or two.
    text: String,
    /// What it is.
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds())]
    kind: Kind,
    /// How sure it is, from 0 to 1.
    #[arg(long, default_value_t = 0.9)]
    confidence: f64,
    /// The project that it is about.
    #[arg(long, default_value = "current")]
    scope: String,
    /// A file that it is about.
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<String>,
    /// A stage that it is for; all unless told otherwise.
    #[arg(long = "stage", value_name = "ID")]
    stages: Vec<String>,
    /// It has stood for long.
    #[arg(long)]
    stable: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct List {
    /// Only those of a type.
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds())]
    kind: Option<Kind>,
    /// Also those that are retired.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct Named {
    /// The memory, or how its id begins.
    id: String,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let word = |word: String| Kind::ALL.into_iter().find(|kind| kind.as_str() == word);
    PossibleValuesParser::new(Kind::ALL.map(Kind::as_str))
        .try_map(move |text| word(text).ok_or("no such type"))
}

pub fn run(arguments: &Arguments, state: Option<&Path>, output: Output) -> Exit {
    let done = match &arguments.what {
        What::Add(add) => remember(add, state, output),
        What::List(list) => show_all(list, state, output),
        What::Show(named) => find(named, state, output).map(|(_, memory)| print(&memory, output)),
        What::Capture(arguments) => return captured(arguments, state, output).unwrap_or_else(|exit| exit),
        What::Approve(named) => approve(named, state, output),
        What::Retire(named) => retire(named, state, output),
    };
    done.map_or_else(|exit| exit, |()| Exit::Done)
}

fn remember(add: &Add, state: Option<&Path>, output: Output) -> Result<(), Exit> {
    outside(output)?;
    let usage = |message: &str| Err(output.refuse(Exit::Usage, message, None));
    let text = add.text.trim();
    if text.is_empty() {
        return usage("a memory that says nothing cannot be kept");
    }
    if text.len() > limits::MEMORY_BYTES {
        return usage(&format!(
            "a memory has at most {} bytes, and this has {}",
            limits::MEMORY_BYTES,
            text.len()
        ));
    }
    if !(0.0..=1.0).contains(&add.confidence) {
        return usage(&format!("a confidence is from 0 to 1, not {}", add.confidence));
    }
    let state = State::open(state, &OnDisk::root(), output)?;
    let memory = Memory {
        id: Memories::new_id(),
        kind: add.kind,
        text: text.to_owned(),
        confidence: add.confidence,
        scope: add.scope.clone(),
        status: if add.stable { Status::Stable } else { Status::Active },
        files: add.files.clone(),
        stages: add.stages.clone(),
        created_at: Clock::new().now(),
        by: current_user(),
        approved_by: None,
    };
    let memories = Memories::open(&state.path).map_err(|error| wrong(&error, output))?;
    memories.keep(&memory).map_err(|error| wrong(&error, output))?;
    print(&memory, output);
    Ok(())
}

fn show_all(list: &List, given: Option<&Path>, output: Output) -> Result<(), Exit> {
    let mut all = Vec::new();
    if let Some(state) = State::find(given, output)? {
        let memories = Memories::open(&state.path).map_err(|error| wrong(&error, output))?;
        let (found, unread) = memories.all().map_err(|error| wrong(&error, output))?;
        unread.iter().for_each(|error| output.warn(&error.to_string()));
        all = found;
    }
    all.retain(|memory| list.all || memory.status != Status::Retired);
    all.retain(|memory| list.kind.is_none_or(|kind| kind == memory.kind));
    if output.is_json() {
        output.json(&json!({"memories": all.iter().map(object).collect::<Vec<Value>>()}));
    } else if all.is_empty() {
        output.text("Nothing is remembered.\n");
    } else {
        output.text(&all.iter().map(|memory| line(memory, output)).collect::<String>());
    }
    Ok(())
}

fn retire(named: &Named, state: Option<&Path>, output: Output) -> Result<(), Exit> {
    outside(output)?;
    let (memories, mut memory) = find(named, state, output)?;
    memory.status = Status::Retired;
    memories.keep(&memory).map_err(|error| wrong(&error, output))?;
    print(&memory, output);
    Ok(())
}

fn approve(named: &Named, state: Option<&Path>, output: Output) -> Result<(), Exit> {
    outside(output)?;
    let (memories, mut memory) = find(named, state, output)?;
    if matches!(memory.status, Status::Candidate | Status::Retired) {
        memory.status = Status::Active;
        memory.approved_by = Some(current_user());
        memories.keep(&memory).map_err(|error| wrong(&error, output))?;
    }
    print(&memory, output);
    Ok(())
}

/// What an agent proposes is shown, and told to nobody.
fn captured(arguments: &capture::Arguments, state: Option<&Path>, output: Output) -> Result<Exit, Exit> {
    outside(output)?;
    let Captured { of, by, exit, memories } = capture::capture(arguments, state, output)?;
    if output.is_json() {
        let memories: Vec<Value> = memories.iter().map(object).collect();
        output.json(&json!({"run_id": by, "of": of, "memories": memories}));
        return Ok(exit);
    }
    if exit == Exit::Done {
        let mut text: String = memories.iter().map(|memory| line(memory, output)).collect();
        text += match memories.iter().any(|memory| memory.status == Status::Candidate) {
            true => {
                "Candidates are told to nobody; `skein memory approve ID` agrees with one, `skein memory retire ID` does not.\n"
            }
            false if memories.is_empty() => "Nothing new is proposed.\n",
            false => "",
        };
        output.text(&text);
    }
    Ok(exit)
}

fn find(named: &Named, given: Option<&Path>, output: Output) -> Result<(Memories, Memory), Exit> {
    let unknown = || wrong(&MemoryError::Unknown(named.id.clone()), output);
    let state = State::find(given, output)?.ok_or_else(unknown)?;
    let memories = Memories::open(&state.path).map_err(|error| wrong(&error, output))?;
    let memory = memories.find(&named.id).map_err(|error| wrong(&error, output))?;
    Ok((memories, memory))
}

/// What workers remember would be told to the next as if a person had said it.
fn outside(output: Output) -> Result<(), Exit> {
    match worker::anyones_worker() {
        None => Ok(()),
        Some(mark) => {
            let message =
                format!("this is a worker of run {}, and only people outside of runs do this", mark.run);
            Err(output.refuse(Exit::Refused, &message, None))
        }
    }
}

fn wrong(error: &MemoryError, output: Output) -> Exit {
    match error {
        MemoryError::Unknown(_) => {
            let hint = "`skein memory list` lists them";
            output.refuse(Exit::Refused, &error.to_string(), Some(hint))
        }
        MemoryError::Full { .. } => output.refuse(Exit::Refused, &error.to_string(), None),
        MemoryError::Path(_) | MemoryError::Unreadable { .. } => {
            output.refuse(Exit::Store, &error.to_string(), None)
        }
    }
}

fn object(memory: &Memory) -> Value {
    let mut value = json!(memory);
    value["created_at"] = Value::from(utc(memory.created_at));
    value
}

fn line(memory: &Memory, output: Output) -> String {
    let id = output.paint.name(&memory.id);
    let about =
        format!("{:<10} {:<9} {:.2}", memory.kind.as_str(), memory.status.as_str(), memory.confidence);
    format!("{id}  {about}  {}\n", one_line(&memory.text))
}

fn print(memory: &Memory, output: Output) {
    if output.is_json() {
        return output.json(&object(memory));
    }
    let mut text = line(memory, output);
    let mut row = |title: &str, shown: String| text += &format!("  {title:9} {shown}\n");
    row("by", format!("{}, {}", memory.by, utc(memory.created_at)));
    memory.approved_by.iter().for_each(|who| row("approved", who.clone()));
    row("scope", memory.scope.clone());
    for (title, list) in [("files", &memory.files), ("stages", &memory.stages)] {
        if !list.is_empty() {
            row(title, list.join(", "));
        }
    }
    output.text(&text);
}
