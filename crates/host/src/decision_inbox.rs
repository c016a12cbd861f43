//! The decision inbox: a folder beside the state folder in which other users of the machine submit decisions to its
//! owner.
//!
//! Owns the modes of the folder and the trust in its files. Members of one group may create files there, nobody else;
//! they cannot list the folder or touch one another's files. The author of a decision is the file's owner, never a name
//! in its text: a user namespace, a program that claims to be somebody and a copy do not change the owner of a file.
//! Files of the state folder's own user are rejected, since every worker of a run has that user.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Gid, Mode, OFlags, fchmod, fchown, open},
    process::geteuid,
};
use serde::{Deserialize, Serialize};
use skein_core::{
    engine::Verdict,
    time::{Millis, Timestamp},
};

use crate::{identity, system};

/// The maximum size of a request. A decision is a few lines; a reason may be longer.
const REQUEST_BYTES: u64 = 64 * 1024;
/// The maximum number of requests that are taken at once.
const AT_ONCE: usize = 256;
/// The time after which answers that nobody fetched are removed.
const ANSWERS_LAST: Millis = Millis::from_hours(1);
const ID_BYTES: usize = 16;

/// A decision that a user submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// The run, by its id or a prefix of it.
    pub run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub decision: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The outcome of the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionReply {
    pub done: bool,
    pub message: String,
}

/// A request with the file's owner and time.
#[derive(Debug)]
pub struct ReceivedRequest {
    pub id: String,
    /// The user who wrote it.
    pub uid: u32,
    /// The time at which it was written; the writer cannot choose it.
    pub at: Timestamp,
    /// The request, or the reason why it is invalid.
    pub request: Result<DecisionRequest, String>,
}

/// The inbox of a state folder.
#[derive(Debug, Clone)]
pub struct DecisionInbox {
    folder: PathBuf,
}

impl DecisionInbox {
    /// Returns the inbox beside a state folder, whether or not it exists.
    pub fn new(state: &Path) -> DecisionInbox {
        let mut name = state.file_name().unwrap_or_default().to_owned();
        name.push("-inbox");
        DecisionInbox { folder: state.with_file_name(name) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn answers_folder(&self) -> PathBuf {
        self.folder.join("answers")
    }

    /// Creates the inbox for a group, or changes its group. The folder must belong to this user.
    pub fn open_to_group(&self, group: u32) -> io::Result<()> {
        // The folder is sticky and cannot be listed: a user who may submit something cannot see or remove files of
        // others.
        make_folder(&self.folder, group, 0o1730)?;
        make_folder(&self.answers_folder(), group, 0o750)?;
        let ignored = self.folder.join(".gitignore");
        match OpenOptions::new().write(true).create_new(true).open(ignored) {
            Ok(mut file) => file.write_all(b"*\n"),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Prevents further submissions by others, if the inbox exists.
    pub fn close(&self) -> io::Result<()> {
        match open_folder(&self.folder) {
            Ok(folder) => Ok(fchmod(&folder, Mode::from_raw_mode(0o700))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Submits a request. Returns the id by which its answer is found.
    pub fn submit_request(&self, request: &DecisionRequest) -> io::Result<String> {
        let id = system::random_hex::<ID_BYTES>();
        write_message(&self.folder, &id, request)?;
        Ok(id)
    }

    /// Returns the answer to a request, if there is one by now.
    pub fn find_reply(&self, id: &str) -> Option<DecisionReply> {
        serde_json::from_slice(&fs::read(self.answers_folder().join(format!("{id}.json"))).ok()?).ok()
    }

    /// Takes the submitted requests. Each request is taken by one process only.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_request(name)).take(AT_ONCE).filter_map(|name| self.take_one(&name)).collect()
    }

    fn take_one(&self, name: &str) -> Option<ReceivedRequest> {
        let path = self.folder.join(name);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&path);
        let left = opened.as_ref().ok().and_then(|file| file.metadata().ok());
        // Only the process that removes the file has the request.
        let is_taken = fs::remove_file(&path).is_ok();
        let (file, left) = opened.ok().zip(left).filter(|_| is_taken)?;
        let id = name.trim_end_matches(".json").to_owned();
        let at = Timestamp(left.ctime() * 1_000 + left.ctime_nsec() / 1_000_000);
        Some(ReceivedRequest { id, uid: left.uid(), at, request: read_request(file) })
    }

    pub fn send_reply(&self, id: &str, reply: &DecisionReply) -> io::Result<()> {
        self.remove_old_answers();
        write_message(&self.answers_folder(), id, reply)
    }

    fn remove_old_answers(&self) {
        for entry in fs::read_dir(self.answers_folder()).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age.as_millis() > u128::from(ANSWERS_LAST.0)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Writes a request or an answer, complete or not at all. Others may read it: they find an answer by a name that nobody
/// can guess, in a folder that only the group may enter.
fn write_message(folder: &Path, id: &str, message: &impl Serialize) -> io::Result<()> {
    let new = folder.join(format!(".{id}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(&serde_json::to_vec(message).map_err(io::Error::other)?)?;
    fs::rename(&new, folder.join(format!("{id}.json")))
}

/// Reads a request that was taken.
fn read_request(file: File) -> Result<DecisionRequest, String> {
    let meta = file.metadata().map_err(|error| error.to_string())?;
    // The file was removed. One that still has a name was created elsewhere, perhaps by somebody else.
    if !meta.is_file() || meta.nlink() > 0 {
        return Err("it is not a regular file with a single link".to_owned());
    }
    if meta.uid() == geteuid().as_raw() {
        return Err("it is from the owner of the state folder, who decides without the inbox".to_owned());
    }
    if is_unmapped(meta.uid()) {
        return Err("its user is not mapped in this user namespace".to_owned());
    }
    let mut text = Vec::new();
    file.take(REQUEST_BYTES + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > REQUEST_BYTES {
        return Err(format!("it is larger than {REQUEST_BYTES} bytes"));
    }
    serde_json::from_slice(&text).map_err(|error| format!("it cannot be read: {error}"))
}

/// Returns true if a name has the form that `submit_request` uses.
fn is_request(name: &str) -> bool {
    let id = name.strip_suffix(".json");
    id.is_some_and(|id| id.len() == 2 * ID_BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns true if a user has no number in the user namespace of this process. All such users have the overflow number.
fn is_unmapped(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let overflow = overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
    uid == overflow && identity::check_identity(None).is_err()
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = File::from(open(path, flags, Mode::empty())?);
    match folder.metadata()?.uid() == geteuid().as_raw() {
        true => Ok(folder),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user")),
    }
}

fn make_folder(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let folder = open_folder(path)?;
    fchown(&folder, None, Some(Gid::from_raw(group)))?;
    // The group changes first: with the new mode, the old group could submit something.
    Ok(fchmod(&folder, Mode::from_raw_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> DecisionRequest {
        DecisionRequest { run: "r1".into(), step: None, decision: Verdict::Approve, reason: None }
    }

    #[test]
    fn what_the_owner_left_is_refused_and_everything_is_taken_once() {
        let place = tempfile::tempdir().unwrap();
        let inbox = DecisionInbox::new(&place.path().join("state"));
        inbox.open_to_group(rustix::process::getegid().as_raw()).unwrap();
        let mode = fs::metadata(inbox.folder()).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o1730);
        let id = inbox.submit_request(&request()).unwrap();
        fs::write(inbox.folder().join("other.txt"), "x").unwrap();
        let taken = inbox.take_requests();
        assert_eq!((taken.len(), &taken[0].id), (1, &id));
        assert!(taken[0].request.as_ref().is_err_and(|why| why.contains("owner of the state folder")));
        assert!(inbox.take_requests().is_empty());
        let reply = DecisionReply { done: false, message: "no".into() };
        inbox.send_reply(&id, &reply).unwrap();
        assert_eq!(inbox.find_reply(&id), Some(reply));
        inbox.close().unwrap();
        assert_eq!(fs::metadata(inbox.folder()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn links_and_files_with_two_names_are_no_requests() {
        let place = tempfile::tempdir().unwrap();
        let inbox = DecisionInbox::new(&place.path().join("state"));
        inbox.open_to_group(rustix::process::getegid().as_raw()).unwrap();
        let whole = place.path().join("whole");
        fs::write(&whole, serde_json::to_vec(&request()).unwrap()).unwrap();
        let name = |letter: &str| inbox.folder().join(format!("{}.json", letter.repeat(32)));
        std::os::unix::fs::symlink(&whole, name("a")).unwrap();
        fs::hard_link(&whole, name("b")).unwrap();
        let taken = inbox.take_requests();
        assert_eq!(taken.len(), 1, "{taken:?}");
        assert_eq!(taken[0].request, Err("it is not a regular file with a single link".to_owned()));
        assert!(whole.exists());
    }
}
