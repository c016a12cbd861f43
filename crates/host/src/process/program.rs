//! Lookup of programs by name.
//!
//! Owns the rule that a program is never taken from the folder it is going to work in: a file called `git` in a
//! repository must not become the `git` that is run there. A program that the engine runs for itself must also be a
//! file that no step and no other user can write. Does not know the purpose of the program.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// The reason why a program was not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramLookupError {
    /// It is in none of the directories of the search path.
    #[error("the program `{}` was not found{}", crate::terminal_escape::escape_for_terminal(.name.as_bytes()), describe_places(.looked, .skipped))]
    Nowhere {
        name: OsString,
        looked: Vec<PathBuf>,
        /// Directories and files that were skipped, because steps work there.
        skipped: Vec<PathBuf>,
    },
    /// A path that is neither a plain name nor absolute.
    #[error("`{}` is a relative path; write the absolute path", .0.display())]
    Relative(PathBuf),
    /// It is inside the folder it would work in.
    #[error("`{}` is not trusted: it is inside `{}`, and steps work there", program.display(), root.display())]
    Inside { program: PathBuf, root: PathBuf },
    #[error("program not found: `{}`", .0.display())]
    Missing(PathBuf),
    #[error("`{}` is not a file that can be executed", .0.display())]
    NotExecutable(PathBuf),
    /// Someone could replace it with another program.
    #[error("`{}` is not trusted: {why}", program.display())]
    Untrusted { program: PathBuf, why: String },
}

fn describe_places(looked: &[PathBuf], skipped: &[PathBuf]) -> String {
    let mut text = String::new();
    match looked {
        [] => text.push_str(": the search path has no directory to look in"),
        _ => {
            let places: Vec<_> = looked.iter().map(|place| place.display().to_string()).collect();
            let _ = write!(text, " in {}", places.join(", "));
        }
    }
    if let [first, ..] = skipped {
        let _ = write!(text, " (skipped, because steps work there: {}", first.display());
        text.push_str(if skipped.len() > 1 { " and others)" } else { ")" });
    }
    text
}

/// Finds a program in a search path (directories separated by `:`), or checks an absolute path. Neither the path nor
/// the target of a link may be below a forbidden root. Relative entries of the search path are skipped.
pub fn find_program(name: &OsStr, path: &OsStr, forbidden: &[PathBuf]) -> Result<PathBuf, ProgramLookupError> {
    search_path(name, path, forbidden, &check_program)
}

/// Finds a program that the engine runs for itself and returns its file with all links resolved. It must not be below a
/// forbidden root nor in a folder that typically belongs to a project, and neither it nor a folder above it may be
/// world-writable.
pub fn find_trusted_program(name: &OsStr, path: &OsStr, forbidden: &[PathBuf]) -> Result<PathBuf, ProgramLookupError> {
    search_path(name, path, forbidden, &|program, roots| {
        let found = check_program(program, roots)?;
        let real = found.canonicalize().map_err(|_| ProgramLookupError::Missing(found.clone()))?;
        // The folders on the way to a link count as well as those that it leads to.
        match distrust_reason(&found).or_else(|| distrust_reason(&real)) {
            Some(why) => Err(ProgramLookupError::Untrusted { program: found, why }),
            None => Ok(real),
        }
    })
}

/// Returns the reason why someone could replace this program, if there is one.
fn distrust_reason(program: &Path) -> Option<String> {
    let open = |path: &&Path| path.metadata().is_ok_and(|meta| meta.mode() & 0o002 != 0);
    if let Some(open) = program.ancestors().find(open) {
        return Some(format!("every user can write to `{}`", open.display()));
    }
    let folder = program.parent()?;
    if folder.ends_with("node_modules/.bin") {
        return Some(format!("`{}` belongs to a project", folder.display()));
    }
    let environment = folder.parent().filter(|above| above.join("pyvenv.cfg").exists())?;
    Some(format!("`{}` is a Python virtual environment", environment.display()))
}

type ProgramCheck<'a> = &'a dyn Fn(&Path, &[PathBuf]) -> Result<PathBuf, ProgramLookupError>;

fn search_path(
    name: &OsStr,
    path: &OsStr,
    forbidden: &[PathBuf],
    check: ProgramCheck<'_>,
) -> Result<PathBuf, ProgramLookupError> {
    // A folder that does not exist cannot contain anything.
    let roots: Vec<PathBuf> = forbidden.iter().filter_map(|root| root.canonicalize().ok()).collect();
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name), &roots);
    }
    let (mut looked, mut skipped, mut fault) = (Vec::new(), Vec::new(), None);
    let usable = !name.is_empty() && !matches!(name.as_bytes(), b"." | b"..") && !name.as_bytes().contains(&0);
    for place in std::env::split_paths(path).filter(|place| usable && place.is_absolute()) {
        // Most folders have no such program, and then their links need not be resolved.
        let program = place.join(name);
        if program.symlink_metadata().is_err() {
            looked.push(place);
            continue;
        }
        if find_enclosing_root(&place, &roots).is_some() {
            skipped.push(place);
            continue;
        }
        match check(&program, &roots) {
            Ok(program) => return Ok(program),
            Err(ProgramLookupError::Inside { program, .. }) => skipped.push(program),
            Err(ProgramLookupError::Missing(_)) => {}
            Err(other) => fault = fault.or(Some(other)),
        }
        looked.push(place);
    }
    Err(fault.unwrap_or_else(|| ProgramLookupError::Nowhere { name: name.to_owned(), looked, skipped }))
}

fn check_program(program: &Path, roots: &[PathBuf]) -> Result<PathBuf, ProgramLookupError> {
    if !program.is_absolute() {
        return Err(ProgramLookupError::Relative(program.to_owned()));
    }
    let about = program.metadata();
    if program.symlink_metadata().is_ok()
        && let Some(root) = find_enclosing_root(program, roots)
    {
        return Err(ProgramLookupError::Inside { program: program.to_owned(), root: root.to_owned() });
    }
    match about {
        Err(_) => Err(ProgramLookupError::Missing(program.to_owned())),
        Ok(about) if about.is_file() && access(program, Access::EXEC_OK).is_ok() => Ok(program.to_owned()),
        Ok(_) => Err(ProgramLookupError::NotExecutable(program.to_owned())),
    }
}

/// Returns the root that a path, or the target of a link, is below.
fn find_enclosing_root<'a>(path: &Path, roots: &'a [PathBuf]) -> Option<&'a Path> {
    let real = path.canonicalize().ok();
    // The directory of a link counts too: a process that can write there can change the link.
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
        let found = find_program(OsStr::new("tool"), &path, std::slice::from_ref(&at.work));
        assert_eq!(found, Ok(at.good.join("tool")));
        assert_eq!(find_program(OsStr::new("tool"), &path, &[]), Ok(at.work.join("bin/tool")));
    }

    #[test]
    fn a_link_from_or_into_the_workspace_is_passed_over() {
        let at = places();
        let links = at.good.with_file_name("links");
        fs::create_dir(&links).expect("a directory");
        std::os::unix::fs::symlink(at.work.join("bin/tool"), links.join("tool")).expect("a link");
        std::os::unix::fs::symlink(at.good.join("tool"), at.work.join("bin/other")).expect("a link");
        let forbidden = std::slice::from_ref(&at.work);
        let error = find_program(OsStr::new("tool"), &joined(&[&links]), forbidden).expect_err("it is not trusted");
        assert!(
            matches!(&error, ProgramLookupError::Nowhere { skipped, .. } if *skipped == [links.join("tool")]),
            "{error}"
        );
        let whole = at.work.join("bin/other");
        assert!(matches!(
            find_program(whole.as_os_str(), OsStr::new(""), forbidden),
            Err(ProgramLookupError::Inside { .. })
        ));
        // By another name of the same place.
        let alias = at.good.with_file_name("alias");
        std::os::unix::fs::symlink(&at.work, &alias).expect("a link");
        assert!(find_program(OsStr::new("tool"), &joined(&[&alias.join("bin")]), forbidden).is_err());
        assert!(find_program(OsStr::new("tool"), &joined(&[&at.work.join("bin")]), &[alias]).is_err());
    }

    #[test]
    fn the_engine_runs_no_program_that_others_can_replace() {
        // Temporary folders are world-writable and so cannot be used here; the checkout may be in one.
        let is_private = |folder: &PathBuf| {
            folder
                .ancestors()
                .all(|folder| fs::metadata(folder).is_ok_and(|meta| meta.permissions().mode() & 0o002 == 0))
        };
        let folders = [std::env::current_dir().ok(), std::env::home_dir()];
        let home = folders.into_iter().flatten().find(is_private);
        let home = home.expect("the checkout or the home folder is where not everyone may write");
        let dir = tempfile::tempdir_in(home).expect("a directory");
        let tool = |name: &str| dir.path().join(name).join("tool");
        for name in ["good", "open", "node_modules/.bin", "venv/bin", "late"] {
            program(&tool(name), 0o755);
        }
        fs::write(dir.path().join("venv/pyvenv.cfg"), "").expect("a file");
        fs::set_permissions(dir.path().join("open"), fs::Permissions::from_mode(0o777)).expect("its mode");
        fs::set_permissions(tool("late"), fs::Permissions::from_mode(0o757)).expect("its mode");
        std::os::unix::fs::symlink(tool("open"), dir.path().join("good/link")).expect("a link");
        let places = |names: &[&str]| {
            let places: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
            joined(&places.iter().map(PathBuf::as_path).collect::<Vec<_>>())
        };
        let find = |name: &str, path: &OsStr| find_trusted_program(OsStr::new(name), path, &[]);
        let path = places(&["open", "node_modules/.bin", "venv/bin", "late", "good"]);
        assert_eq!(find("tool", &path), Ok(tool("good").canonicalize().expect("it is there")));
        for (bad, why) in [
            ("open", "every user can write to"),
            ("late", "every user can write to"),
            ("node_modules/.bin", "belongs to a project"),
            ("venv/bin", "virtual environment"),
        ] {
            let error = find("tool", &places(&[bad])).expect_err("it is not trusted").to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert!(find("link", &places(&["good"])).is_err(), "what a link leads to counts");
        assert!(find_trusted_program(OsStr::new("tool"), &places(&["good"]), &[dir.path().to_owned()]).is_err());
    }

    #[test]
    fn every_way_not_to_find_it_is_told_apart() {
        let at = places();
        let path = joined(&[&at.good]);
        let find = |name: &str| find_program(OsStr::new(name), &path, &[]);
        assert!(matches!(find("nothing"), Err(ProgramLookupError::Nowhere { .. })));
        assert!(matches!(find("./tool"), Err(ProgramLookupError::Relative(_))));
        assert!(matches!(find("bin/tool"), Err(ProgramLookupError::Relative(_))));
        assert!(matches!(find("/no/such/tool"), Err(ProgramLookupError::Missing(_))));
        assert!(matches!(find("text"), Err(ProgramLookupError::NotExecutable(_))));
        assert!(matches!(find("/"), Err(ProgramLookupError::NotExecutable(_))));
        for bad in ["", ".", "..", "a\0b"] {
            assert!(matches!(find(bad), Err(ProgramLookupError::Nowhere { .. })), "{bad:?}");
        }
        let message = find("nothing").expect_err("it is not there").to_string();
        assert!(message.contains("nothing") && message.contains(&at.good.display().to_string()), "{message}");
    }
}
