//! `skein init`: writes the first files of a project, which run without changes. Existing files are kept.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use skein_app::{
    app_error::AppError,
    init::{self, TemplateFormat},
    state::quote_path,
};

use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct InitArguments {
    /// Folder for the files; created if it does not exist.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Format of the workflow.
    #[arg(long, value_enum, default_value = "agentcore")]
    kind: InitFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum InitFormat {
    Agentcore,
    Aip15,
    Ioa,
    Swdl,
}

pub(super) fn run(arguments: &InitArguments, output: CliOutput) -> Result<Exit, AppError> {
    let format = match arguments.kind {
        InitFormat::Agentcore => TemplateFormat::Agentcore,
        InitFormat::Aip15 => TemplateFormat::Aip15,
        InitFormat::Ioa => TemplateFormat::Ioa,
        InitFormat::Swdl => TemplateFormat::Swdl,
    };
    let folder = &arguments.folder;
    let written = init::init_project(folder, format)?;
    let next = next_commands(folder);
    if output.is_json() {
        output.print_json(&json!({"folder": folder, "written": written, "next": next}));
        return Ok(Exit::Done);
    }
    let mut text: String = written.iter().map(|file| format!("wrote {file}\n")).collect();
    text += "\nNext\n";
    text.extend(next.iter().map(|command| format!("  {}\n", output.paint.title(command))));
    output.print_text(&text);
    Ok(Exit::Done)
}

/// Returns the commands that make sense now, ready to be typed.
fn next_commands(folder: &Path) -> Vec<String> {
    let there = (folder != Path::new(".")).then(|| format!("cd {}", quote_path(folder)));
    let commands = ["skein plan hello", "skein run hello", "skein doctor"].map(str::to_owned);
    there.into_iter().chain(commands).collect()
}
