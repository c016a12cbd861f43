//! Paths in a source: relative, inside their folder, and never control files of other programs.

use skein_core::agents;

use super::FieldValue;
use crate::diagnostics::{Code, DiagnosticSink, shorten_text};

/// The reason why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkspacePathError {
    Empty,
    Absolute,
    Home,
    Windows,
    /// It leaves the folder that it starts in.
    Upwards,
    Control,
    /// It is a file or folder that controls the behaviour of Git or an agent.
    ControlFile(&'static str),
}

impl WorkspacePathError {
    pub(crate) fn explain(self) -> String {
        match self {
            WorkspacePathError::Empty => "it is empty".to_owned(),
            WorkspacePathError::Absolute => "it is not relative to the workspace".to_owned(),
            WorkspacePathError::Home => "`~` is not expanded here".to_owned(),
            WorkspacePathError::Windows => "it contains a `\\` or a drive letter".to_owned(),
            WorkspacePathError::Upwards => "it leads out of the workspace".to_owned(),
            WorkspacePathError::Control => "it contains a control character".to_owned(),
            WorkspacePathError::ControlFile(of) => format!("it is one of {of}'s own files"),
        }
    }
}

/// Checks that a path stays below its folder, and avoids the files that control other programs.
pub(crate) fn check_workspace_path(path: &str) -> Result<(), WorkspacePathError> {
    check_relative(path)?;
    check_stays_inside(path)?;
    match path.split('/').find_map(control_file_owner) {
        Some(of) => Err(WorkspacePathError::ControlFile(of)),
        None => Ok(()),
    }
}

/// Checks that a relative path stays below its folder at every segment.
pub(crate) fn check_stays_inside(path: &str) -> Result<(), WorkspacePathError> {
    let mut depth = 0i32;
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return Err(WorkspacePathError::Upwards);
        }
    }
    Ok(())
}

/// Returns the program that owns a file of this name, in any folder: every submodule has a `.git`.
pub(crate) fn control_file_owner(name: &str) -> Option<&'static str> {
    agents::find_folder_owner(name)
}

/// Normalizes a path for comparison. Empty for the folder itself.
pub(crate) fn normalize_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|last| *last != "..") => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

/// Checks that a path is relative. It may lead anywhere.
pub(crate) fn check_relative(path: &str) -> Result<(), WorkspacePathError> {
    let drive = path.as_bytes().get(1) == Some(&b':') && path.starts_with(|c: char| c.is_ascii_alphabetic());
    match path {
        "" => Err(WorkspacePathError::Empty),
        path if path.starts_with('/') => Err(WorkspacePathError::Absolute),
        path if path.starts_with('~') => Err(WorkspacePathError::Home),
        path if path.contains('\\') || drive => Err(WorkspacePathError::Windows),
        path if path.chars().any(char::is_control) => Err(WorkspacePathError::Control),
        _ => Ok(()),
    }
}

/// Refuses a path that leaves the workspace. Returns true if the path is valid.
pub(crate) fn check_path(given: FieldValue<'_>, path: &str, sink: &mut DiagnosticSink) -> bool {
    let Err(error) = check_workspace_path(path) else { return true };
    let hint = match error {
        WorkspacePathError::Empty => {
            given.report_empty(sink);
            return false;
        }
        WorkspacePathError::ControlFile(_) => "no step may change files that control the programs around it",
        _ => "write a path that starts in the workspace and stays there",
    };
    let message = format!("`{}` cannot be `{}`: {}", given.name, shorten_text(path), error.explain());
    sink.push(given.diagnose(Code::BadPath, message).with_hint(hint));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_below_is_accepted() {
        for path in ["a", "src/", "./a/b", "a/../b", ".", "a..b/c", "%2e%2e/x", ".github/x"] {
            assert_eq!(check_workspace_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn what_leaves_is_not() {
        for (path, why) in [
            ("", WorkspacePathError::Empty),
            ("/etc/passwd", WorkspacePathError::Absolute),
            ("~/.ssh", WorkspacePathError::Home),
            ("C:\\x", WorkspacePathError::Windows),
            ("C:x", WorkspacePathError::Windows),
            ("..", WorkspacePathError::Upwards),
            ("a/../../b", WorkspacePathError::Upwards),
            ("a\0b", WorkspacePathError::Control),
            (".git/hooks/x", WorkspacePathError::ControlFile("Git")),
            ("./.Claude/settings.json", WorkspacePathError::ControlFile("Claude Code")),
            ("a/../.git/hooks/x", WorkspacePathError::ControlFile("Git")),
            ("vendor/lib/.git/config", WorkspacePathError::ControlFile("Git")),
        ] {
            assert_eq!(check_workspace_path(path), Err(why), "{path}");
        }
    }

    #[test]
    fn paths_compare_by_where_they_lead() {
        for (path, normal) in
            [(".", ""), ("./a/", "a"), ("a/../b", "b"), ("../a", "../a"), ("../../a/..", "../.."), ("a//b", "a/b")]
        {
            assert_eq!(super::normalize_path(path), normal, "{path}");
        }
    }
}
