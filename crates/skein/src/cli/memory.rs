//! `skein memory`: what a project remembers from run to run, and tells agents.

use std::path::Path;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Value, json};
use skein_core::{engine::format_utc, limits};
use skein_host::{
    clock::Clock,
    identity::current_user,
    memory::{MemoryEntry, MemoryError, MemoryKind, MemoryStatus, ProjectMemory},
    process,
};

use crate::{
    capture::{self, CaptureOutcome},
    exit::Exit,
    live::one_line,
    output::CliOutput,
    project::DiskProject,
    state::StateHandle,
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct MemoryArguments {
    #[command(subcommand)]
    what: MemoryCommand,
}

#[derive(Debug, Subcommand)]
enum MemoryCommand {
    /// Remembers something.
    Add(MemoryAddArguments),
    /// Lists what is remembered.
    List(MemoryListArguments),
    /// Shows one memory.
    Show(MemoryIdArgument),
    /// Lets an agent look back at a run, and keeps what it proposes as candidates.
    Capture(capture::CaptureArguments),
    /// Agrees with a candidate: from now on it is told.
    Approve(MemoryIdArgument),
    /// Forgets one: it is kept, and told to nobody any more.
    Retire(MemoryIdArgument),
}

#[derive(Debug, Args)]
#[group(skip)]
struct MemoryAddArguments {
    /// What is to be remembered, in a sentence or two.
    text: String,
    /// What it is.
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds())]
    kind: MemoryKind,
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
struct MemoryListArguments {
    /// Only those of a type.
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds())]
    kind: Option<MemoryKind>,
    /// Also those that are retired.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct MemoryIdArgument {
    /// The memory, or how its id begins.
    id: String,
}

fn kinds() -> impl TypedValueParser<Value = MemoryKind> {
    let word = |word: String| MemoryKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    PossibleValuesParser::new(MemoryKind::ALL.map(MemoryKind::as_str))
        .try_map(move |text| word(text).ok_or("no such type"))
}

pub fn run(arguments: &MemoryArguments, state: Option<&Path>, output: CliOutput) -> Exit {
    let done = match &arguments.what {
        MemoryCommand::Add(add) => add_memory(add, state, output),
        MemoryCommand::List(list) => list_memories(list, state, output),
        MemoryCommand::Show(named) => {
            find_memory(named, state, output).map(|(_, memory)| print_memory(&memory, output))
        }
        MemoryCommand::Capture(arguments) => {
            return run_capture(arguments, state, output).unwrap_or_else(|exit| exit);
        }
        MemoryCommand::Approve(named) => approve_memory(named, state, output),
        MemoryCommand::Retire(named) => retire_memory(named, state, output),
    };
    done.map_or_else(|exit| exit, |()| Exit::Done)
}

fn add_memory(add: &MemoryAddArguments, state: Option<&Path>, output: CliOutput) -> Result<(), Exit> {
    require_person(output)?;
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
    let state = StateHandle::open(state, &DiskProject::current_root(), output)?;
    let memory = MemoryEntry {
        id: ProjectMemory::new_id(),
        kind: add.kind,
        text: text.to_owned(),
        confidence: add.confidence,
        scope: add.scope.clone(),
        status: if add.stable { MemoryStatus::Stable } else { MemoryStatus::Active },
        files: add.files.clone(),
        stages: add.stages.clone(),
        created_at: Clock::new().now(),
        by: current_user(),
        approved_by: None,
    };
    let memories = ProjectMemory::open(&state.path).map_err(|error| refuse_memory_error(&error, output))?;
    memories.save_memory(&memory).map_err(|error| refuse_memory_error(&error, output))?;
    print_memory(&memory, output);
    Ok(())
}

fn list_memories(list: &MemoryListArguments, given: Option<&Path>, output: CliOutput) -> Result<(), Exit> {
    let mut all = Vec::new();
    if let Some(state) = StateHandle::open_existing(given, output)? {
        let memories =
            ProjectMemory::open(&state.path).map_err(|error| refuse_memory_error(&error, output))?;
        let (found, unread) = memories.load_all().map_err(|error| refuse_memory_error(&error, output))?;
        unread.iter().for_each(|error| output.warn(&error.to_string()));
        all = found;
    }
    all.retain(|memory| list.all || memory.status != MemoryStatus::Retired);
    all.retain(|memory| list.kind.is_none_or(|kind| kind == memory.kind));
    if output.is_json() {
        output.print_json(&json!({"memories": all.iter().map(memory_to_json).collect::<Vec<Value>>()}));
    } else if all.is_empty() {
        output.print_text("Nothing is remembered.\n");
    } else {
        output.print_text(&all.iter().map(|memory| render_line(memory, output)).collect::<String>());
    }
    Ok(())
}

fn retire_memory(named: &MemoryIdArgument, state: Option<&Path>, output: CliOutput) -> Result<(), Exit> {
    require_person(output)?;
    let (memories, mut memory) = find_memory(named, state, output)?;
    memory.status = MemoryStatus::Retired;
    memories.save_memory(&memory).map_err(|error| refuse_memory_error(&error, output))?;
    print_memory(&memory, output);
    Ok(())
}

fn approve_memory(named: &MemoryIdArgument, state: Option<&Path>, output: CliOutput) -> Result<(), Exit> {
    require_person(output)?;
    let (memories, mut memory) = find_memory(named, state, output)?;
    if matches!(memory.status, MemoryStatus::Candidate | MemoryStatus::Retired) {
        memory.status = MemoryStatus::Active;
        memory.approved_by = Some(current_user());
        memories.save_memory(&memory).map_err(|error| refuse_memory_error(&error, output))?;
    }
    print_memory(&memory, output);
    Ok(())
}

/// What an agent proposes is shown, and told to nobody.
fn run_capture(
    arguments: &capture::CaptureArguments,
    state: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, Exit> {
    require_person(output)?;
    let CaptureOutcome { of, by, exit, memories } = capture::capture_memories(arguments, state, output)?;
    if output.is_json() {
        let memories: Vec<Value> = memories.iter().map(memory_to_json).collect();
        output.print_json(&json!({"run_id": by, "of": of, "memories": memories}));
        return Ok(exit);
    }
    if exit == Exit::Done {
        let mut text: String = memories.iter().map(|memory| render_line(memory, output)).collect();
        text += match memories.iter().any(|memory| memory.status == MemoryStatus::Candidate) {
            true => {
                "Candidates are told to nobody; `skein memory approve ID` agrees with one, `skein memory retire ID` does not.\n"
            }
            false if memories.is_empty() => "Nothing new is proposed.\n",
            false => "",
        };
        output.print_text(&text);
    }
    Ok(exit)
}

fn find_memory(
    named: &MemoryIdArgument,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<(ProjectMemory, MemoryEntry), Exit> {
    let unknown = || refuse_memory_error(&MemoryError::Unknown(named.id.clone()), output);
    let state = StateHandle::open_existing(given, output)?.ok_or_else(unknown)?;
    let memories = ProjectMemory::open(&state.path).map_err(|error| refuse_memory_error(&error, output))?;
    let memory = memories.find_memory(&named.id).map_err(|error| refuse_memory_error(&error, output))?;
    Ok((memories, memory))
}

/// What workers remember would be told to the next as if a person had said it.
fn require_person(output: CliOutput) -> Result<(), Exit> {
    match process::find_any_worker_mark() {
        None => Ok(()),
        Some(mark) => {
            let message =
                format!("this is a worker of run {}, and only people outside of runs do this", mark.run);
            Err(output.refuse(Exit::Refused, &message, None))
        }
    }
}

fn refuse_memory_error(error: &MemoryError, output: CliOutput) -> Exit {
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

fn memory_to_json(memory: &MemoryEntry) -> Value {
    let mut value = json!(memory);
    value["created_at"] = Value::from(format_utc(memory.created_at));
    value
}

fn render_line(memory: &MemoryEntry, output: CliOutput) -> String {
    let id = output.paint.name(&memory.id);
    let about =
        format!("{:<10} {:<9} {:.2}", memory.kind.as_str(), memory.status.as_str(), memory.confidence);
    format!("{id}  {about}  {}\n", one_line(&memory.text))
}

fn print_memory(memory: &MemoryEntry, output: CliOutput) {
    if output.is_json() {
        return output.print_json(&memory_to_json(memory));
    }
    let mut text = render_line(memory, output);
    let mut row = |title: &str, shown: String| text += &format!("  {title:9} {shown}\n");
    row("by", format!("{}, {}", memory.by, format_utc(memory.created_at)));
    memory.approved_by.iter().for_each(|who| row("approved", who.clone()));
    row("scope", memory.scope.clone());
    for (title, list) in [("files", &memory.files), ("stages", &memory.stages)] {
        if !list.is_empty() {
            row(title, list.join(", "));
        }
    }
    output.print_text(&text);
}
