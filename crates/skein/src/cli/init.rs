//! `skein init`: writes the first files of a project, which run without changes. Existing files are kept.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use skein_app::{app_error::AppError, init, state::quote_path};

use skein_dialects::Dialect;

use super::parse_word;
use crate::{exit::Exit, render::output::CliOutput};

#[derive(Debug, Args)]
pub(super) struct InitArguments {
    /// Folder for the files; created if it does not exist.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Format of the workflow.
    #[arg(long, value_parser = parse_word(&Dialect::ALL, Dialect::as_str), default_value = "agentcore")]
    kind: Dialect,
}

pub(super) fn run(arguments: &InitArguments, output: CliOutput) -> Result<Exit, AppError> {
    let folder = &arguments.folder;
    let written = init::init_project(folder, arguments.kind)?;
    let next = next_commands(folder);
    let to_text = || {
        let files: String = written.iter().map(|file| format!("wrote {file}\n")).collect();
        let commands: String = next.iter().map(|command| format!("  {}\n", output.paint.title(command))).collect();
        format!("{files}\nNext\n{commands}")
    };
    output.print_result(|| json!({"folder": folder, "written": written, "next": next}), to_text);
    Ok(Exit::Done)
}

/// Returns the commands that make sense now, ready to be typed.
fn next_commands(folder: &Path) -> Vec<String> {
    let there = (folder != Path::new(".")).then(|| format!("cd {}", quote_path(folder)));
    let commands = ["skein plan hello", "skein run hello", "skein doctor"].map(str::to_owned);
    there.into_iter().chain(commands).collect()
}
