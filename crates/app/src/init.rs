//! The first files of a project, which run without changes. Existing files are kept.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use skein_dialects::Dialect;

use crate::{app_error::AppError, project::config};

/// A file: its path in the project, and its contents.
type TemplateFile = (&'static str, &'static str);

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../templates/", $name))
    };
}

/// The configuration, which is the same for every format.
const CONFIG: TemplateFile = (config::NAME, template!("skein.toml"));

/// Returns the workflow first, and then the files that it needs.
fn template_files(format: Dialect) -> &'static [TemplateFile] {
    match format {
        Dialect::AgentCore => &[("workflows/hello.yaml", template!("agentcore/hello.yaml")), CONFIG],
        Dialect::Aip15 => &[
            ("workflows/hello/WORKFLOW.md", template!("aip15/WORKFLOW.md")),
            (".tools/say/TOOL.md", template!("aip15/TOOL.md")),
            (".drivers/bash/DRIVER.md", template!("aip15/DRIVER.md")),
            CONFIG,
        ],
        Dialect::Ioa => &[
            ("workflows/hello.yaml", template!("ioa/hello.yaml")),
            ("domains/greetings.yaml", template!("ioa/greetings.yaml")),
            CONFIG,
        ],
        Dialect::Swdl => &[("workflows/hello.yaml", template!("swdl/hello.yaml")), CONFIG],
    }
}

/// Writes the first files of a project into a folder, and returns their paths.
pub fn init_project(folder: &Path, format: Dialect) -> Result<Vec<String>, AppError> {
    let files = template_files(format);
    write_project(folder, files)?;
    Ok(files.iter().map(|(name, _)| display_path(folder, name)).collect())
}

/// Formats the path of a file relative to the current folder.
fn display_path(folder: &Path, name: &str) -> String {
    folder.join(name).strip_prefix(".").map_or_else(|_| folder.join(name), Path::to_owned).display().to_string()
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
        return Err(AppError::refused(message).with_hint(hint));
    }
    let mut written = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        if let Err(error) = create_file(&path, text) {
            // An incomplete project would prevent the next attempt.
            written.iter().for_each(|path: &PathBuf| drop(fs::remove_file(path)));
            let message = format!("`{}` cannot be written: {error}", display_path(folder, name));
            return Err(AppError::refused(message).with_hint("choose a folder that you can write to"));
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
        for format in Dialect::ALL {
            let (name, text) = template_files(format)[0];
            assert!(text.lines().count() <= 15, "{format:?}: {name}");
            assert!(name.contains("hello"), "{format:?}: {name}");
        }
    }
}
