//! `skein init`: writes the first files of a project, which run without changes. Existing files are kept.

use skein_app::{
    app_error::{AppError, AppErrorKind},
    config,
};

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::{exit::Exit, output::CliOutput};

#[derive(Debug, Args)]
pub struct InitArguments {
    /// Folder for the files; created if it does not exist.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Format of the workflow.
    #[arg(long, value_enum, default_value = "agentcore")]
    kind: TemplateFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TemplateFormat {
    Agentcore,
    Aip15,
    Ioa,
    Swdl,
}

/// A file: its path in the project, and its contents.
type TemplateFile = (&'static str, &'static str);

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../templates/", $name))
    };
}

/// The configuration, which is the same for every format.
const CONFIG: TemplateFile = (config::NAME, template!("skein.toml"));

impl TemplateFormat {
    /// Returns the workflow first, and then the files that it needs.
    fn template_files(self) -> &'static [TemplateFile] {
        match self {
            TemplateFormat::Agentcore => {
                &[("workflows/hello.yaml", template!("agentcore/hello.yaml")), CONFIG]
            }
            TemplateFormat::Aip15 => &[
                ("workflows/hello/WORKFLOW.md", template!("aip15/WORKFLOW.md")),
                (".tools/say/TOOL.md", template!("aip15/TOOL.md")),
                (".drivers/bash/DRIVER.md", template!("aip15/DRIVER.md")),
                CONFIG,
            ],
            TemplateFormat::Ioa => &[
                ("workflows/hello.yaml", template!("ioa/hello.yaml")),
                ("domains/greetings.yaml", template!("ioa/greetings.yaml")),
                CONFIG,
            ],
            TemplateFormat::Swdl => &[("workflows/hello.yaml", template!("swdl/hello.yaml")), CONFIG],
        }
    }
}

pub fn run(arguments: &InitArguments, output: CliOutput) -> Result<Exit, AppError> {
    let (folder, files) = (&arguments.folder, arguments.kind.template_files());
    write_project(folder, files)?;
    let written: Vec<String> = files.iter().map(|(name, _)| display_path(folder, name)).collect();
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

/// Formats the path of a file relative to the current folder.
fn display_path(folder: &Path, name: &str) -> String {
    folder
        .join(name)
        .strip_prefix(".")
        .map_or_else(|_| folder.join(name), Path::to_owned)
        .display()
        .to_string()
}

/// Returns the commands that make sense now, ready to be typed.
fn next_commands(folder: &Path) -> Vec<String> {
    let there =
        (folder != Path::new(".")).then(|| format!("cd {}", quote_path(&folder.display().to_string())));
    let commands = ["skein plan hello", "skein run hello", "skein doctor"].map(str::to_owned);
    there.into_iter().chain(commands).collect()
}

/// Quotes a path so that a shell takes it as one word.
pub fn quote_path(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%:,=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    // A path with a leading dash would be taken for a flag.
    let dot = if word.starts_with('-') { "./" } else { "" };
    format!("'{dot}{}'", word.replace('\'', r"'\''"))
}

/// Writes all of the files, or none.
fn write_project(folder: &Path, files: &[TemplateFile]) -> Result<(), AppError> {
    let there: Vec<String> = files
        .iter()
        .filter(|(name, _)| folder.join(name).symlink_metadata().is_ok())
        .map(|(name, _)| format!("`{}`", display_path(folder, name)))
        .collect();
    if !there.is_empty() {
        let message = match &there[..] {
            [one] => format!("{one} already exists; nothing was written"),
            several => format!("{} already exist; nothing was written", several.join(" and ")),
        };
        let hint = "name another folder, such as `skein init hello`, or move the existing files away";
        return Err(AppError::new(AppErrorKind::Refused, &message, Some(hint)));
    }
    let mut written = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        if let Err(error) = create_file(&path, text) {
            // An incomplete project would prevent the next attempt.
            written.iter().for_each(|path: &PathBuf| drop(fs::remove_file(path)));
            let message = format!("`{}` cannot be written: {error}", display_path(folder, name));
            return Err(AppError::new(
                AppErrorKind::Refused,
                &message,
                Some("choose a folder that you can write to"),
            ));
        }
        written.push(path);
    }
    Ok(())
}

/// Creates a file, and never overwrites an existing one.
pub fn create_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_to_begin_with_is_short() {
        for kind in TemplateFormat::value_variants() {
            let (name, text) = kind.template_files()[0];
            assert!(text.lines().count() <= 15, "{kind:?}: {name}");
            assert!(name.contains("hello"), "{kind:?}: {name}");
        }
    }

    #[test]
    fn a_shell_takes_a_folder_for_one_word() {
        assert_eq!(quote_path("a/b-c.d"), "a/b-c.d");
        assert_eq!(quote_path("two words"), "'two words'");
        assert_eq!(quote_path("it's"), r"'it'\''s'");
        assert_eq!(quote_path("-x"), "'./-x'");
        assert_eq!(quote_path(""), "''");
    }
}
