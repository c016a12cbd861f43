//! The home of an agent: the folder of its configuration and its sessions.
//!
//! Owns one home per step of a run, empty at first except for the user's login. The login is a link to the user's own
//! file, so that a refreshed token reaches the user, too. If an agent replaces the link by a file instead of writing
//! through it, the file is copied back. Does not know the contents of any file.

use std::{
    env, fs, io,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
};

/// The folder of an agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentHome {
    /// `None` means the user's own home, which is used as it is.
    pub path: Option<PathBuf>,
}

/// The location of a user's login, and its place in an agent's home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginLink {
    pub from: Option<PathBuf>,
    pub to: &'static str,
}

impl AgentHome {
    /// Creates or opens the home of an agent at this path, ready to be used.
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

    /// Returns the user's own home.
    pub fn user_home() -> AgentHome {
        AgentHome { path: None }
    }

    /// Copies a login that replaced the link back to the user's file.
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

/// Returns a folder of the user: the value of a variable, or a folder below their home.
pub(crate) fn user_folder(variable: &str, below: &str) -> Option<PathBuf> {
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
        // Written through the link.
        fs::write(&place, "new").unwrap();
        assert_eq!(fs::read_to_string(person.join("auth.json")).unwrap(), "new");
        // Replaced, as with a rename.
        fs::remove_file(&place).unwrap();
        fs::write(&place, "newer").unwrap();
        home.restore_login(&login).unwrap();
        assert_eq!(fs::read_to_string(person.join("auth.json")).unwrap(), "newer");
        assert!(fs::symlink_metadata(&place).unwrap().is_symlink());
        // Opened again, as after a restart of the host.
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
