//! The home of an agent: where it keeps what it is configured by and what it remembers.
//!
//! Owns that each step of a run has one of its own, empty at first, in which only the person's login is found. The login
//! is a link to where the person has it, so that a token that is refreshed is theirs, too; where an agent puts a file in
//! its place instead of writing through it, what it wrote is taken back. Refuses to know what is in any file.

use std::{
    env, fs, io,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
};

/// Where an agent's configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentHome {
    /// None: where the person has theirs, which is used as it is.
    pub path: Option<PathBuf>,
}

/// Where a person's login is, and where it belongs in a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginLink {
    pub from: Option<PathBuf>,
    pub to: &'static str,
}

impl AgentHome {
    /// The home of an agent at this place, ready to be used.
    pub fn open(path: &Path, login: &LoginLink) -> io::Result<AgentHome> {
        let place = path.join(login.to);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        let home = AgentHome { path: Some(path.to_owned()) };
        home.restore_login(login)?;
        if let Some(from) = login.from.as_deref().filter(|from| from.is_file()) {
            match fs::read_link(&place) {
                Ok(to) if to == from => {}
                _ => {
                    remove_if_exists(&place)?;
                    symlink(from, &place)?;
                }
            }
        }
        Ok(home)
    }

    /// Where the person has it is where it is used.
    pub fn user_home() -> AgentHome {
        AgentHome { path: None }
    }

    /// A login that took the place of the link goes to where the person has it.
    pub fn restore_login(&self, login: &LoginLink) -> io::Result<()> {
        let (Some(path), Some(from)) = (&self.path, &login.from) else { return Ok(()) };
        let place = path.join(login.to);
        if !fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_file()) || !from.is_file() {
            return Ok(());
        }
        let bytes = fs::read(&place)?;
        let mut beside = from.clone().into_os_string();
        beside.push(".skein-new");
        let beside = PathBuf::from(beside);
        remove_if_exists(&beside)?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        io::Write::write_all(&mut file, &bytes)?;
        file.sync_all()?;
        fs::rename(&beside, from)?;
        fs::remove_file(&place)?;
        symlink(from, &place)
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A folder of the person's: where a variable says, or below their home.
pub(super) fn user_folder(variable: &str, below: &str) -> Option<PathBuf> {
    let own = env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(below))).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_used_where_it_is_and_nothing_else_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let person = dir.path().join("person");
        fs::create_dir_all(&person).unwrap();
        fs::write(person.join("auth.json"), "old").unwrap();
        fs::write(person.join("config.toml"), "evil").unwrap();
        let login = LoginLink { from: Some(person.join("auth.json")), to: "in/auth.json" };
        let home = AgentHome::open(&dir.path().join("home"), &login).unwrap();
        let place = dir.path().join("home/in/auth.json");
        assert_eq!(fs::read_to_string(&place).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 1);
        // Written through.
        fs::write(&place, "new").unwrap();
        assert_eq!(fs::read_to_string(person.join("auth.json")).unwrap(), "new");
        // Put in its place, as with a rename.
        fs::remove_file(&place).unwrap();
        fs::write(&place, "newer").unwrap();
        home.restore_login(&login).unwrap();
        assert_eq!(fs::read_to_string(person.join("auth.json")).unwrap(), "newer");
        assert!(fs::symlink_metadata(&place).unwrap().is_symlink());
        // Again, as by another life of the host.
        AgentHome::open(&dir.path().join("home"), &login).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "newer");
    }

    #[test]
    fn without_a_login_a_home_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        for from in [None, Some(dir.path().join("nothing"))] {
            let login = LoginLink { from, to: "auth.json" };
            AgentHome::open(&dir.path().join("home"), &login).unwrap().restore_login(&login).unwrap();
            assert_eq!(fs::read_dir(dir.path().join("home")).unwrap().count(), 0);
        }
    }
}
