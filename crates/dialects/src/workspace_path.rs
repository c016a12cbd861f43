//! Paths that a source names: relative, downwards, and never the control files of others.

use skein_core::agents;

/// Why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspacePathError {
    Empty,
    Absolute,
    Home,
    Windows,
    /// It leaves the folder that it starts in.
    Upwards,
    Control,
    /// It is where Git or an agent keeps what decides over its behaviour.
    ControlFile(&'static str),
}

impl WorkspacePathError {
    pub fn explain(self) -> String {
        match self {
            WorkspacePathError::Empty => "it is empty".to_owned(),
            WorkspacePathError::Absolute => "it does not start in the workspace".to_owned(),
            WorkspacePathError::Home => "`~` means nothing here".to_owned(),
            WorkspacePathError::Windows => "it has a `\\` or a drive in it".to_owned(),
            WorkspacePathError::Upwards => "it leads out of the workspace".to_owned(),
            WorkspacePathError::Control => "it has a control character in it".to_owned(),
            WorkspacePathError::ControlFile(of) => format!("it is one of {of}'s own files"),
        }
    }
}

/// Whether a path stays below the folder that it starts in, and out of the files that decide what programs do.
pub fn check_workspace_path(path: &str) -> Result<(), WorkspacePathError> {
    check_relative(path)?;
    check_stays_inside(path)?;
    match path.split('/').find_map(control_file_owner) {
        Some(of) => Err(WorkspacePathError::ControlFile(of)),
        None => Ok(()),
    }
}

/// Whether a relative path stays below the folder that it starts in, on all of its way.
pub fn check_stays_inside(path: &str) -> Result<(), WorkspacePathError> {
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

/// Whose own file a name is, wherever it stands: there is a `.git` in every submodule.
pub fn control_file_owner(name: &str) -> Option<&'static str> {
    agents::find_folder_owner(name)
}

/// A path without what changes nothing, to compare it with others. Empty for the folder that it starts in.
pub fn normalize_path(path: &str) -> String {
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

/// Whether a path is relative, wherever it leads.
pub fn check_relative(path: &str) -> Result<(), WorkspacePathError> {
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
        for (path, normal) in [
            (".", ""),
            ("./a/", "a"),
            ("a/../b", "b"),
            ("../a", "../a"),
            ("../../a/..", "../.."),
            ("a//b", "a/b"),
        ] {
            assert_eq!(super::normalize_path(path), normal, "{path}");
        }
    }
}
