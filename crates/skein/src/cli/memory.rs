//! `skein memory`: the facts that a project remembers between runs, and that agents see.

use std::path::Path;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Value, json};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    project::DiskProject,
    state::StateHandle,
};
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
};

#[derive(Debug, Args)]
#[group(skip)]
pub struct MemoryArguments {
    #[command(subcommand)]
    what: MemoryCommand,
}

#[derive(Debug, Subcommand)]
enum MemoryCommand {
    /// Add a memory.
    Add(MemoryAddArguments),
    /// List memories.
    List(MemoryListArguments),
    /// Show a memory.
    Show(MemoryIdArgument),
    /// Have an agent review a run, and store its proposals as candidates.
    Capture(capture::CaptureArguments),
    /// Approve a candidate, so that agents see it.
    Approve(MemoryIdArgument),
    /// Retire a memory: it is kept, but agents no longer see it.
    Retire(MemoryIdArgument),
}

#[derive(Debug, Args)]
#[group(skip)]
struct MemoryAddArguments {
    /// Text to remember, in a sentence or two.
    text: String,
    /// Type of the memory.
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds())]
    kind: MemoryKind,
    /// Confidence, from 0 to 1.
    #[arg(long, default_value_t = 0.9)]
    confidence: f64,
    /// Project that it is about.
    #[arg(long, default_value = "current")]
    scope: String,
    /// File that it is about.
    #[arg(long = "file", value_name = "PATH")]
    files: Vec<String>,
    /// Stage that it is for; default: all stages.
    #[arg(long = "stage", value_name = "ID")]
    stages: Vec<String>,
    /// Mark it as long established.
    #[arg(long)]
    stable: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct MemoryListArguments {
    /// List only memories of this type.
    #[arg(long = "type", value_name = "TYPE", value_parser = kinds())]
    kind: Option<MemoryKind>,
    /// Include retired memories.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct MemoryIdArgument {
    /// Id of the memory, or a prefix of it.
    id: String,
}

fn kinds() -> impl TypedValueParser<Value = MemoryKind> {
    let word = |word: String| MemoryKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    PossibleValuesParser::new(MemoryKind::ALL.map(MemoryKind::as_str))
        .try_map(move |text| word(text).ok_or("no such type"))
}

pub fn run(arguments: &MemoryArguments, state: Option<&Path>, output: CliOutput) -> Result<Exit, AppError> {
    let done = match &arguments.what {
        MemoryCommand::Add(add) => add_memory(add, state, output),
        MemoryCommand::List(list) => list_memories(list, state, output),
        MemoryCommand::Show(named) => {
            find_memory(named, state).map(|(_, memory)| print_memory(&memory, output))
        }
        MemoryCommand::Capture(arguments) => {
            return run_capture(arguments, state, output);
        }
        MemoryCommand::Approve(named) => approve_memory(named, state, output),
        MemoryCommand::Retire(named) => retire_memory(named, state, output),
    };
    done.map(|()| Exit::Done)
}

fn add_memory(add: &MemoryAddArguments, state: Option<&Path>, output: CliOutput) -> Result<(), AppError> {
    require_person()?;
    let usage = |message: &str| Err(AppError::new(AppErrorKind::Usage, message, None));
    let text = add.text.trim();
    if text.is_empty() {
        return usage("the text of a memory must not be empty");
    }
    if text.len() > limits::MEMORY_BYTES {
        return usage(&format!(
            "a memory has at most {} bytes, and this has {}",
            limits::MEMORY_BYTES,
            text.len()
        ));
    }
    if !(0.0..=1.0).contains(&add.confidence) {
        return usage(&format!("the confidence must be from 0 to 1, not {}", add.confidence));
    }
    let state = StateHandle::open(state, &DiskProject::current_root())?;
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
    let memories = ProjectMemory::open(&state.path).map_err(|error| refuse_memory_error(&error))?;
    memories.save_memory(&memory).map_err(|error| refuse_memory_error(&error))?;
    print_memory(&memory, output);
    Ok(())
}

fn list_memories(
    list: &MemoryListArguments,
    given: Option<&Path>,
    output: CliOutput,
) -> Result<(), AppError> {
    let mut all = Vec::new();
    if let Some(state) = StateHandle::open_existing(given)? {
        let memories = ProjectMemory::open(&state.path).map_err(|error| refuse_memory_error(&error))?;
        let (found, unread) = memories.load_all().map_err(|error| refuse_memory_error(&error))?;
        unread.iter().for_each(|error| output.warn(&error.to_string()));
        all = found;
    }
    all.retain(|memory| list.all || memory.status != MemoryStatus::Retired);
    all.retain(|memory| list.kind.is_none_or(|kind| kind == memory.kind));
    if output.is_json() {
        output.print_json(&json!({"memories": all.iter().map(memory_to_json).collect::<Vec<Value>>()}));
    } else if all.is_empty() {
        output.print_text("No memories.\n");
    } else {
        output.print_text(&all.iter().map(|memory| render_line(memory, output)).collect::<String>());
    }
    Ok(())
}

fn retire_memory(named: &MemoryIdArgument, state: Option<&Path>, output: CliOutput) -> Result<(), AppError> {
    require_person()?;
    let (memories, mut memory) = find_memory(named, state)?;
    memory.status = MemoryStatus::Retired;
    memories.save_memory(&memory).map_err(|error| refuse_memory_error(&error))?;
    print_memory(&memory, output);
    Ok(())
}

fn approve_memory(named: &MemoryIdArgument, state: Option<&Path>, output: CliOutput) -> Result<(), AppError> {
    require_person()?;
    let (memories, mut memory) = find_memory(named, state)?;
    if matches!(memory.status, MemoryStatus::Candidate | MemoryStatus::Retired) {
        memory.status = MemoryStatus::Active;
        memory.approved_by = Some(current_user());
        memories.save_memory(&memory).map_err(|error| refuse_memory_error(&error))?;
    }
    print_memory(&memory, output);
    Ok(())
}

/// Shows the proposals of an agent; other agents do not see them yet.
fn run_capture(
    arguments: &capture::CaptureArguments,
    state: Option<&Path>,
    output: CliOutput,
) -> Result<Exit, AppError> {
    require_person()?;
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
                "Agents do not see candidates; `skein memory approve ID` accepts one, `skein memory retire ID` rejects it.\n"
            }
            false if memories.is_empty() => "No new proposals.\n",
            false => "",
        };
        output.print_text(&text);
    }
    Ok(exit)
}

fn find_memory(
    named: &MemoryIdArgument,
    given: Option<&Path>,
) -> Result<(ProjectMemory, MemoryEntry), AppError> {
    let unknown = || refuse_memory_error(&MemoryError::Unknown(named.id.clone()));
    let state = StateHandle::open_existing(given)?.ok_or_else(unknown)?;
    let memories = ProjectMemory::open(&state.path).map_err(|error| refuse_memory_error(&error))?;
    let memory = memories.find_memory(&named.id).map_err(|error| refuse_memory_error(&error))?;
    Ok((memories, memory))
}

/// Refuses workers: later agents would take their memories for those of a person.
fn require_person() -> Result<(), AppError> {
    match process::find_any_worker_mark() {
        None => Ok(()),
        Some(mark) => {
            let message =
                format!("this is a worker of run {}, and only people outside of runs can do this", mark.run);
            Err(AppError::new(AppErrorKind::Refused, &message, None))
        }
    }
}

fn refuse_memory_error(error: &MemoryError) -> AppError {
    match error {
        MemoryError::Unknown(_) => {
            let hint = "`skein memory list` lists them";
            AppError::new(AppErrorKind::Refused, &error.to_string(), Some(hint))
        }
        MemoryError::Full { .. } => AppError::new(AppErrorKind::Refused, &error.to_string(), None),
        MemoryError::Path(_) | MemoryError::Unreadable { .. } => {
            AppError::new(AppErrorKind::Store, &error.to_string(), None)
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
