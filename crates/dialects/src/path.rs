//! Paths that a source names: relative, downwards, and never the control files of others.

use skein_core::agents;

/// Why a path cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
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

impl PathError {
    pub fn why(self) -> String {
        match self {
            PathError::Empty => "it is empty".to_owned(),
            PathError::Absolute => "it does not start in the workspace".to_owned(),
            PathError::Home => "`~` means nothing here".to_owned(),
            PathError::Windows => "it has a `\\` or a drive in it".to_owned(),
            PathError::Upwards => "it leads out of the workspace".to_owned(),
            PathError::Control => "it has a control character in it".to_owned(),
            PathError::ControlFile(of) => format!("it is one of {of}'s own files"),
        }
    }
}

/// Whether a path stays below the folder that it starts in, and out of the files that decide what programs do.
pub fn below(path: &str) -> Result<(), PathError> {
    relative(path)?;
    inside(path)?;
    match path.split('/').find_map(control) {
        Some(of) => Err(PathError::ControlFile(of)),
        None => Ok(()),
    }
}

/// Whether a relative path stays below the folder that it starts in, on all of its way.
pub fn inside(path: &str) -> Result<(), PathError> {
    let mut depth = 0i32;
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return Err(PathError::Upwards);
        }
    }
    Ok(())
}

/// Whose own file a name is, wherever it stands: there is a `.git` in every submodule.
pub fn control(name: &str) -> Option<&'static str> {
    agents::owner(name)
}

/// A path without what changes nothing, to compare it with others. Empty for the folder that it starts in.
pub fn normal(path: &str) -> String {
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
pub fn relative(path: &str) -> Result<(), PathError> {
    let drive = path.as_bytes().get(1) == Some(&b':') && path.starts_with(|c: char| c.is_ascii_alphabetic());
    match path {
        "" => Err(PathError::Empty),
        path if path.starts_with('/') => Err(PathError::Absolute),
        path if path.starts_with('~') => Err(PathError::Home),
        path if path.contains('\\') || drive => Err(PathError::Windows),
        path if path.chars().any(char::is_control) => Err(PathError::Control),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_below_is_accepted() {
        for path in ["a", "src/", "./a/b", "a/../b", ".", "a..b/c", "%2e%2e/x", ".github/x"] {
            assert_eq!(below(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn what_leaves_is_not() {
        for (path, why) in [
            ("", PathError::Empty),
            ("/etc/passwd", PathError::Absolute),
            ("~/.ssh", PathError::Home),
            ("C:\\x", PathError::Windows),
            ("C:x", PathError::Windows),
            ("..", PathError::Upwards),
            ("a/../../b", PathError::Upwards),
            ("a\0b", PathError::Control),
            (".git/hooks/x", PathError::ControlFile("Git")),
            ("./.Claude/settings.json", PathError::ControlFile("Claude Code")),
            ("a/../.git/hooks/x", PathError::ControlFile("Git")),
            ("vendor/lib/.git/config", PathError::ControlFile("Git")),
        ] {
            assert_eq!(below(path), Err(why), "{path}");
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
            assert_eq!(super::normal(path), normal, "{path}");
        }
    }
}
