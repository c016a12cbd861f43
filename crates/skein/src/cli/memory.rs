//! `skein memory`: the facts that a project remembers between runs, and that agents see.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skein_app::{
    app::App,
    app_error::AppError,
    memory::{self, CaptureRequest, NewMemory, memory_to_json},
};
use skein_core::engine::format_utc;
use skein_host::memory::{MemoryEntry, MemoryKind, MemoryStatus};

use super::parse_word;
use crate::{
    exit::Exit,
    render::{
        follow::TerminalFrontEnd,
        live::one_line,
        output::{CliOutput, OutputFormat},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct MemoryArguments {
    #[command(subcommand)]
    command: MemoryCommand,
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
    Capture(CaptureArguments),
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
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_word(&MemoryKind::ALL, MemoryKind::as_str))]
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
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_word(&MemoryKind::ALL, MemoryKind::as_str))]
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

#[derive(Debug, Args)]
#[group(skip)]
struct CaptureArguments {
    /// Id of an ended run, or a unique prefix of it.
    run: String,
    /// Agent that reviews the run; default: `reviewer` of `[memory]` in `skein.toml`.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Review the run again if it was reviewed before.
    #[arg(long)]
    again: bool,
}

pub(super) fn run(arguments: MemoryArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let changed = match arguments.command {
        MemoryCommand::List(list) => {
            print_list(&memory::list_memories(app, list.kind, list.all)?, output);
            return Ok(Exit::Done);
        }
        MemoryCommand::Capture(arguments) => return capture(arguments, app, output),
        MemoryCommand::Add(new) => {
            let MemoryAddArguments { text, kind, confidence, scope, files, stages, stable } = new;
            memory::add_memory(app, NewMemory { text, kind, confidence, scope, files, stages, stable })
        }
        MemoryCommand::Show(named) => memory::find_memory(app, &named.id),
        MemoryCommand::Approve(named) => memory::approve_memory(app, &named.id),
        MemoryCommand::Retire(named) => memory::retire_memory(app, &named.id),
    };
    print_memory(&changed?, output);
    Ok(Exit::Done)
}

/// Shows the proposals of an agent; other agents do not see them yet.
fn capture(arguments: CaptureArguments, app: &App, output: CliOutput) -> Result<Exit, AppError> {
    let CaptureArguments { run, agent, again } = arguments;
    // Programs read one value: the proposals.
    let front_end = match output.format {
        OutputFormat::Human => TerminalFrontEnd::new(output),
        OutputFormat::Json | OutputFormat::Jsonl => TerminalFrontEnd::quiet(output),
    };
    let captured = memory::capture_memories(app, &CaptureRequest { run, agent, again }, &front_end)?;
    let (memories, exit) = (&captured.memories, captured.outcome.as_ref().map_or(Exit::Done, Exit::from));
    if output.is_json() {
        let memories: Vec<Value> = memories.iter().map(memory_to_json).collect();
        output.print_json(&json!({"run_id": captured.review, "of": captured.reviewed, "memories": memories}));
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

fn print_list(memories: &[MemoryEntry], output: CliOutput) {
    let to_text = || match memories {
        [] => "No memories.\n".to_owned(),
        some => some.iter().map(|memory| render_line(memory, output)).collect(),
    };
    output.print_result(|| json!({"memories": memories.iter().map(memory_to_json).collect::<Vec<_>>()}), to_text);
}

fn render_line(memory: &MemoryEntry, output: CliOutput) -> String {
    let id = output.paint.name(&memory.id);
    let attributes = format!("{:<10} {:<9} {:.2}", memory.kind.as_str(), memory.status.as_str(), memory.confidence);
    format!("{id}  {attributes}  {}\n", one_line(&memory.text))
}

fn print_memory(memory: &MemoryEntry, output: CliOutput) {
    if output.is_json() {
        return output.print_json(&memory_to_json(memory));
    }
    let mut text = render_line(memory, output);
    let mut row = |title: &str, shown: String| text += &format!("  {title:9} {shown}\n");
    row("by", format!("{}, {}", memory.by, format_utc(memory.created_at)));
    memory.approved_by.iter().for_each(|by| row("approved", by.clone()));
    row("scope", memory.scope.clone());
    for (title, list) in [("files", &memory.files), ("stages", &memory.stages)] {
        if !list.is_empty() {
            row(title, list.join(", "));
        }
    }
    output.print_text(&text);
}
