//! Finding a program by its name.
//!
//! Owns the rule that a program is never taken from the place it is going to work in: a file called `git` in a
//! repository must not become the `git` that is run there. Refuses to know what the program is for.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// Why there is no program of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// It is in none of the directories of the search path.
    #[error("the program `{}` was not found{}", super::shown(.name.as_bytes()), places(.looked, .skipped))]
    Nowhere {
        name: OsString,
        looked: Vec<PathBuf>,
        /// Directories and files that were passed over, because the work is done there.
        skipped: Vec<PathBuf>,
    },
    /// A path that is neither a name nor begins at the root.
    #[error("`{}` is a path relative to nothing in particular; write it in full", .0.display())]
    Relative(PathBuf),
    /// It is inside the place it would work in.
    #[error("`{}` is inside `{}`, where the work is done, so it is not trusted to do it", program.display(), root.display())]
    Inside { program: PathBuf, root: PathBuf },
    #[error("`{}` does not exist", .0.display())]
    Missing(PathBuf),
    #[error("`{}` is not a file that can be executed", .0.display())]
    NotExecutable(PathBuf),
}

fn places(looked: &[PathBuf], skipped: &[PathBuf]) -> String {
    let mut text = String::new();
    match looked {
        [] => text.push_str(": the search path has no directory to look in"),
        _ => {
            let places: Vec<_> = looked.iter().map(|place| place.display().to_string()).collect();
            let _ = write!(text, " in {}", places.join(", "));
        }
    }
    if let [first, ..] = skipped {
        let _ = write!(text, " (not looked at, because the work is done there: {}", first.display());
        text.push_str(if skipped.len() > 1 { " and others)" } else { ")" });
    }
    text
}

/// Finds a program in a search path (directories with `:` between them), or checks one that is given in full. Neither it
/// nor what it is a link to may be beneath a forbidden root. Parts of the search path that do not begin at the root are not
/// looked at.
pub fn find(name: &OsStr, path: &OsStr, forbidden: &[PathBuf]) -> Result<PathBuf, NotFound> {
    // What does not exist cannot contain anything.
    let roots: Vec<PathBuf> = forbidden.iter().filter_map(|root| root.canonicalize().ok()).collect();
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name), &roots);
    }
    let (mut looked, mut skipped, mut fault) = (Vec::new(), Vec::new(), None);
    let usable =
        !name.is_empty() && !matches!(name.as_bytes(), b"." | b"..") && !name.as_bytes().contains(&0);
    for place in std::env::split_paths(path).filter(|place| usable && place.is_absolute()) {
        // Most folders have no such program, and where they lead to need not be known.
        let program = place.join(name);
        if program.symlink_metadata().is_err() {
            looked.push(place);
            continue;
        }
        if inside(&place, &roots).is_some() {
            skipped.push(place);
            continue;
        }
        match check(&program, &roots) {
            Ok(program) => return Ok(program),
            Err(NotFound::Inside { program, .. }) => skipped.push(program),
            Err(NotFound::Missing(_)) => {}
            Err(other) => fault = fault.or(Some(other)),
        }
        looked.push(place);
    }
    Err(fault.unwrap_or_else(|| NotFound::Nowhere { name: name.to_owned(), looked, skipped }))
}

fn check(program: &Path, roots: &[PathBuf]) -> Result<PathBuf, NotFound> {
    if !program.is_absolute() {
        return Err(NotFound::Relative(program.to_owned()));
    }
    let about = program.metadata();
    if program.symlink_metadata().is_ok()
        && let Some(root) = inside(program, roots)
    {
        return Err(NotFound::Inside { program: program.to_owned(), root: root.to_owned() });
    }
    match about {
        Err(_) => Err(NotFound::Missing(program.to_owned())),
        Ok(about) if about.is_file() && access(program, Access::EXEC_OK).is_ok() => Ok(program.to_owned()),
        Ok(_) => Err(NotFound::NotExecutable(program.to_owned())),
    }
}

/// The root that a path, or what it leads to, is beneath.
fn inside<'a>(path: &Path, roots: &'a [PathBuf]) -> Option<&'a Path> {
    let real = path.canonicalize().ok();
    // The directory a link is in counts too: who can write there can change the link.
    let place = path.parent().and_then(|parent| parent.canonicalize().ok());
    let beneath = |root: &Path| [&real, &place].into_iter().flatten().any(|at| at.starts_with(root));
    roots.iter().map(PathBuf::as_path).find(|root| beneath(root))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    struct Places {
        _dir: tempfile::TempDir,
        good: PathBuf,
        work: PathBuf,
    }

    fn program(at: &Path, mode: u32) {
        fs::create_dir_all(at.parent().expect("a parent")).expect("a directory");
        fs::write(at, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("its mode");
    }

    fn places() -> Places {
        let dir = tempfile::tempdir().expect("a directory");
        let (good, work) = (dir.path().join("good"), dir.path().join("work"));
        program(&good.join("tool"), 0o755);
        program(&good.join("text"), 0o644);
        program(&work.join("bin/tool"), 0o755);
        Places { _dir: dir, good, work }
    }

    fn joined(places: &[&Path]) -> OsString {
        std::env::join_paths(places).expect("a search path")
    }

    #[test]
    fn the_workspace_is_passed_over_even_when_it_comes_first() {
        let at = places();
        let path = joined(&[Path::new("."), Path::new(""), &at.work.join("bin"), &at.work, &at.good]);
        let found = find(OsStr::new("tool"), &path, std::slice::from_ref(&at.work));
        assert_eq!(found, Ok(at.good.join("tool")));
        assert_eq!(find(OsStr::new("tool"), &path, &[]), Ok(at.work.join("bin/tool")));
    }

    #[test]
    fn a_link_from_or_into_the_workspace_is_passed_over() {
        let at = places();
        let links = at.good.with_file_name("links");
        fs::create_dir(&links).expect("a directory");
        std::os::unix::fs::symlink(at.work.join("bin/tool"), links.join("tool")).expect("a link");
        std::os::unix::fs::symlink(at.good.join("tool"), at.work.join("bin/other")).expect("a link");
        let forbidden = std::slice::from_ref(&at.work);
        let error = find(OsStr::new("tool"), &joined(&[&links]), forbidden).expect_err("it is not trusted");
        assert!(
            matches!(&error, NotFound::Nowhere { skipped, .. } if *skipped == [links.join("tool")]),
            "{error}"
        );
        let whole = at.work.join("bin/other");
        assert!(matches!(find(whole.as_os_str(), OsStr::new(""), forbidden), Err(NotFound::Inside { .. })));
        // By another name of the same place.
        let alias = at.good.with_file_name("alias");
        std::os::unix::fs::symlink(&at.work, &alias).expect("a link");
        assert!(find(OsStr::new("tool"), &joined(&[&alias.join("bin")]), forbidden).is_err());
        assert!(find(OsStr::new("tool"), &joined(&[&at.work.join("bin")]), &[alias]).is_err());
    }

    #[test]
    fn every_way_not_to_find_it_is_told_apart() {
        let at = places();
        let path = joined(&[&at.good]);
        let find = |name: &str| find(OsStr::new(name), &path, &[]);
        assert!(matches!(find("nothing"), Err(NotFound::Nowhere { .. })));
        assert!(matches!(find("./tool"), Err(NotFound::Relative(_))));
        assert!(matches!(find("bin/tool"), Err(NotFound::Relative(_))));
        assert!(matches!(find("/no/such/tool"), Err(NotFound::Missing(_))));
        assert!(matches!(find("text"), Err(NotFound::NotExecutable(_))));
        assert!(matches!(find("/"), Err(NotFound::NotExecutable(_))));
        for bad in ["", ".", "..", "a\0b"] {
            assert!(matches!(find(bad), Err(NotFound::Nowhere { .. })), "{bad:?}");
        }
        let message = find("nothing").expect_err("it is not there").to_string();
        assert!(message.contains("nothing") && message.contains(&at.good.display().to_string()), "{message}");
    }
}
