//! The registry of state folders that this user created on this machine, kept outside of all projects.
//!
//! Skein obeys the journal in a state folder: it resumes runs and reruns commands. A folder that came with a
//! repository, in an archive or by copying was written by someone else. Each state folder therefore holds a random id,
//! and a mark of that name in the user's own state directory records which folder it is.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use super::state_folder::{self, private_options, remove_if_exists, sync_directory};
use crate::{identity, system};

/// The file with the id, in the state folder.
const ID: &str = "id";
/// The length of an id in bytes, as text.
const ID_BYTES: usize = 32;
/// The number of waits after which the creator of a state folder must have written its id.
const WAITS: u32 = 50;
const WAIT: Duration = Duration::from_millis(20);
/// The number of marks from which those of missing folders are removed.
const MARKS: usize = 1_000;

/// The marks of a user's state folders.
#[derive(Debug, Clone)]
pub struct StateRegistry {
    /// None: the user has no home directory, and only owners and modes are checked.
    folder: Option<PathBuf>,
}

/// A state folder that this user did not create on this machine.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedState {
    #[error(
        "the state folder `{}` was not created by this user on this machine: it is not listed in `{}`, so it may have \
         come with the repository or in an archive, and its journal could make Skein run someone else's commands",
        .state.display(), .registry.display()
    )]
    Unlisted { state: PathBuf, registry: PathBuf },
    #[error(
        "the state folder `{}` is a copy: the one with its id was created as `{}`, and a copy may have been changed by \
         someone else", .state.display(), .made.display()
    )]
    Copied { state: PathBuf, made: PathBuf },
    #[error(
        "the state folder `{}` may not belong to this user (owner {owner}, mode {mode:04o}), and without HOME or \
         XDG_STATE_HOME there is no registry to check it against", .state.display()
    )]
    OthersMayLook { state: PathBuf, owner: u32, mode: u32 },
    #[error("the state folder `{}` cannot be accepted: {error}", .state.display())]
    Unwritable { state: PathBuf, error: io::Error },
}

/// The entry of a state folder in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StateListing {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// The user namespace in which it was created or accepted, identified by its map of user ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_map: Option<String>,
}

impl StateRegistry {
    /// The registry of the user who runs this process.
    pub fn from_environment() -> StateRegistry {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        StateRegistry { folder: home.map(|home| home.join("skein/states")) }
    }

    /// The folder that holds the marks. None: there is no place for one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Admits a state folder that is about to be opened. A new one is created and marked. Other reasons that make a
    /// folder unusable are left to the code that opens it.
    pub fn admit(&self, state: &Path) -> Result<(), UntrustedState> {
        let Some(state) = state_folder::make_checked_folder(state) else { return Ok(()) };
        if !is_unused(&state) {
            return self.verify(&state);
        }
        match self.write_mark(&state, false) {
            Ok(()) => Ok(()),
            // Another process creates it at the same time, or was killed while it did.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match self.verify(&state) {
                Err(_) if is_unused(&state) => {
                    self.write_mark(&state, true).map_err(|error| UntrustedState::Unwritable { state, error })
                }
                verified => verified,
            },
            // Opening it will fail for the same reason, or there is no place for a mark.
            Err(_) => Ok(()),
        }
    }

    /// The map of user ids of the namespace in which this user created or accepted a state folder.
    pub fn user_map(&self, state: &Path) -> Option<String> {
        let text = fs::read(self.folder.as_ref()?.join(read_id(state)?)).ok()?;
        serde_json::from_slice::<StateListing>(&text).ok()?.user_map
    }

    /// Checks an existing state folder, without creating anything.
    pub fn check(&self, state: &Path) -> Result<(), UntrustedState> {
        match fs::canonicalize(state) {
            Ok(state) if state.is_dir() && !is_unused(&state) => self.verify(&state),
            _ => Ok(()),
        }
    }

    /// Registers a state folder that a person vouches for as this user's own.
    pub fn accept(&self, state: &Path) -> Result<(), UntrustedState> {
        let failed = |error| UntrustedState::Unwritable { state: state.to_owned(), error };
        let whole = fs::canonicalize(state).map_err(failed)?;
        let meta = fs::metadata(&whole).map_err(failed)?;
        let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
        if owner != rustix::process::geteuid().as_raw() {
            return Err(UntrustedState::OthersMayLook { state: whole, owner, mode });
        }
        fs::set_permissions(&whole, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        self.write_mark(&whole, true).map_err(failed)
    }

    fn verify(&self, state: &Path) -> Result<(), UntrustedState> {
        let Some(registry) = &self.folder else { return check_private(state) };
        let listed = read_id(state).and_then(|id| {
            let text = fs::read(registry.join(&id)).ok()?;
            Some((id, serde_json::from_slice::<StateListing>(&text).ok()?))
        });
        let Some((id, listed)) = listed else {
            // If no mark could have been written, there is none.
            if !is_writable(registry) {
                return check_private(state);
            }
            return Err(UntrustedState::Unlisted { state: state.to_owned(), registry: registry.clone() });
        };
        let unreadable = |error| UntrustedState::Unwritable { state: state.to_owned(), error };
        let user_map = listed.user_map.clone();
        let now = StateListing { user_map, ..StateListing::from_folder(state).map_err(unreadable)? };
        // Device numbers may change with each boot, and paths change when a project is moved.
        let same = now.inode == listed.inode && (now.device == listed.device || now.path == listed.path);
        if !same {
            return Err(UntrustedState::Copied { state: state.to_owned(), made: listed.path });
        }
        if now != listed {
            // A failure is harmless: the folder is still recognised by its inode number.
            let _ = write_listing(registry, &id, &now);
        }
        Ok(())
    }

    /// Writes the mark first and then the id, so that a process that sees the id finds the mark.
    fn write_mark(&self, state: &Path, again: bool) -> io::Result<()> {
        let Some(registry) = &self.folder else { return Ok(()) };
        let id = system::random_hex::<{ ID_BYTES / 2 }>();
        remove_stale_marks(registry);
        write_listing(registry, &id, &StateListing::from_folder(state)?)?;
        let path = state.join(ID);
        if again {
            remove_if_exists(&path)?;
        }
        let written =
            private_options(OpenOptions::new().write(true).create_new(true)).open(&path).and_then(|mut file| {
                file.write_all(id.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
                    let _ = fs::remove_file(&path);
                })
            });
        if written.is_err() {
            let _ = fs::remove_file(registry.join(&id));
        }
        written.and_then(|()| sync_directory(state))
    }
}

impl StateListing {
    fn from_folder(state: &Path) -> io::Result<StateListing> {
        let meta = fs::metadata(state)?;
        let user_map = identity::read_user_map().ok().flatten();
        Ok(StateListing { path: state.to_owned(), device: meta.dev(), inode: meta.ino(), user_map })
    }
}

/// True if nothing was ever stored in a folder. A disk that is mounted there has a `lost+found` folder.
fn is_unused(state: &Path) -> bool {
    let ours = |name: &str| name == ".gitignore" || name == "lost+found" || name.starts_with(".skein-doctor-");
    let Ok(entries) = fs::read_dir(state) else { return false };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.all(|name| name.to_str().is_some_and(ours))
}

/// Checks that only this user may use a folder.
fn check_private(state: &Path) -> Result<(), UntrustedState> {
    let failed = |error| UntrustedState::Unwritable { state: state.to_owned(), error };
    let meta = fs::metadata(state).map_err(failed)?;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    if owner == rustix::process::geteuid().as_raw() && mode & 0o077 == 0 {
        return Ok(());
    }
    Err(UntrustedState::OthersMayLook { state: state.to_owned(), owner, mode })
}

/// Reads the id in a state folder. An empty file is still being written.
fn read_id(state: &Path) -> Option<String> {
    for _ in 0..WAITS {
        let file = private_options(OpenOptions::new().read(true)).open(state.join(ID)).ok()?;
        let mut text = String::new();
        file.take(ID_BYTES as u64 + 1).read_to_string(&mut text).ok()?;
        if !text.is_empty() {
            let whole = text.len() == ID_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            return whole.then_some(text);
        }
        thread::sleep(WAIT);
    }
    None
}

fn is_writable(registry: &Path) -> bool {
    make_registry(registry).is_ok() && access(registry, Access::WRITE_OK).is_ok()
}

fn make_registry(registry: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(registry)
}

fn write_listing(registry: &Path, id: &str, listing: &StateListing) -> io::Result<()> {
    make_registry(registry)?;
    let (path, new) = (registry.join(id), registry.join(format!("{id}.new-{}", system::random_hex::<4>())));
    let mut file = private_options(OpenOptions::new().write(true).create_new(true)).open(&new)?;
    let text = serde_json::to_vec(listing).map_err(io::Error::other)?;
    let written = file.write_all(&text).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    sync_directory(registry)
}

/// Removes the marks of missing folders if there are many marks.
fn remove_stale_marks(registry: &Path) {
    let Ok(entries) = fs::read_dir(registry) else { return };
    let marks: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    if marks.len() < MARKS {
        return;
    }
    for mark in marks {
        let listing = fs::read(&mark).ok().and_then(|text| serde_json::from_slice::<StateListing>(&text).ok());
        if listing.is_some_and(|listing| !listing.path.exists()) {
            let _ = fs::remove_file(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        registry: StateRegistry,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            let registry = StateRegistry { folder: Some(dir.path().join("registry")) };
            Place { dir, registry }
        }

        fn state(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }
    }

    #[test]
    fn a_state_folder_is_known_again_also_where_it_was_moved_to() {
        let place = Place::new();
        let state = place.state("a/state");
        place.registry.admit(&state).unwrap();
        fs::write(state.join("skein.db"), "").unwrap();
        place.registry.admit(&state).unwrap();
        fs::rename(place.state("a"), place.state("b")).unwrap();
        place.registry.admit(&place.state("b/state")).unwrap();
        // As if the device numbers had changed since.
        let registry = place.dir.path().join("registry");
        let mark = fs::read_dir(&registry).unwrap().next().unwrap().unwrap().path();
        let mut listing: StateListing = serde_json::from_slice(&fs::read(&mark).unwrap()).unwrap();
        assert!(listing.path.ends_with("b/state"));
        listing.device += 1;
        fs::write(&mark, serde_json::to_vec(&listing).unwrap()).unwrap();
        place.registry.check(&place.state("b/state")).unwrap();
    }

    #[test]
    fn a_state_folder_of_someone_else_is_refused_until_it_is_accepted() {
        let place = Place::new();
        let state = place.state("planted");
        fs::create_dir(&state).unwrap();
        for (name, text) in [("skein.db", "x"), ("id", &"a".repeat(ID_BYTES))] {
            fs::write(state.join(name), text).unwrap();
            assert!(matches!(place.registry.admit(&state), Err(UntrustedState::Unlisted { .. })), "{name}");
        }
        // An id that leads to another file is invalid.
        fs::write(state.join("id"), format!("../../{}", "a".repeat(ID_BYTES - 6))).unwrap();
        assert!(place.registry.check(&state).is_err());
        place.registry.accept(&state).unwrap();
        place.registry.admit(&state).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        let copy = place.state("copy");
        fs::create_dir(&copy).unwrap();
        for name in ["skein.db", "id"] {
            fs::copy(state.join(name), copy.join(name)).unwrap();
        }
        let error = place.registry.admit(&copy).unwrap_err();
        assert!(error.to_string().contains("planted"), "{error}");
    }

    #[test]
    fn without_a_home_owner_and_mode_decide() {
        let place = Place::new();
        let registry = StateRegistry { folder: None };
        let state = place.state("state");
        registry.admit(&state).unwrap();
        fs::write(state.join("skein.db"), "").unwrap();
        registry.admit(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(registry.admit(&state), Err(UntrustedState::OthersMayLook { .. })));
    }
}
