//! The record of `strace`: the start and end of every call that changes a file.
//!
//! Owns the form of those lines. A call that changes a file in an unknown way fails the test, so that no simulated disk
//! is based on an incomplete record.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::store::Child;

/// The calls that change a file or make it durable.
const CALLS: &str = "trace=openat,openat2,open,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,unlink,\
    unlinkat,rmdir,link,linkat,symlink,symlinkat,truncate,write,writev,pwrite64,pwritev,pwritev2,copy_file_range,\
    sendfile,ftruncate,fallocate,fsync,fdatasync,syncfs,sync";

#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// Opened, and created if it did not exist.
    Open {
        path: PathBuf,
        creates: bool,
        empties: bool,
    },
    Folder(PathBuf),
    /// An entry that is neither file nor folder.
    Special(PathBuf),
    /// Appended, if no position is given.
    Write {
        path: PathBuf,
        at: Option<u64>,
        bytes: Arc<[u8]>,
    },
    Resize {
        path: PathBuf,
        len: u64,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove(PathBuf),
    Sync(PathBuf),
    SyncAll,
    /// An acknowledgement.
    Say(String),
}

/// A call, by its number, starts or has succeeded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment {
    Begins(usize),
    Ended(usize),
}

impl Moment {
    pub(crate) fn number(self) -> usize {
        let (Moment::Begins(number) | Moment::Ended(number)) = self;
        number
    }
}

pub(crate) struct Trace {
    pub calls: BTreeMap<usize, Call>,
    pub moments: Vec<Moment>,
}

impl Trace {
    /// Runs a role in another process, and returns its changes to the files below a folder.
    pub(crate) fn of(role: &str, dir: &Path, root: &Path) -> Trace {
        let file = tempfile::NamedTempFile::new().unwrap();
        let to = file.path().to_str().unwrap();
        let strace = ["strace", "-f", "-qq", "-y", "-xx", "-s", "16777216", "-o", to, "-e", CALLS];
        let child = Child::under(&strace, role, dir);
        let said: Vec<String> = std::iter::from_fn(|| child.hear()).collect();
        assert_eq!(said.last().map(String::as_str), Some("played"), "{said:?}");
        Trace::read(&fs::read_to_string(file.path()).unwrap(), root)
    }

    fn read(text: &str, root: &Path) -> Trace {
        let (mut lines, mut moments, mut begun) = (Vec::<String>::new(), Vec::new(), BTreeMap::new());
        for line in text.lines() {
            let (process, line) = line.split_once(' ').unwrap();
            let line = line.trim_start();
            if let Some(rest) = line.strip_prefix("<... ") {
                let number: usize = begun.remove(process).unwrap();
                lines[number].push_str(rest.split_once(" resumed>").unwrap().1);
                moments.push(Moment::Ended(number));
            } else if let Some(head) = line.strip_suffix(" <unfinished ...>") {
                begun.insert(process, lines.len());
                moments.push(Moment::Begins(lines.len()));
                lines.push(head.to_owned());
            } else if !line.starts_with("---") && !line.starts_with("+++") {
                moments.extend([Moment::Begins(lines.len()), Moment::Ended(lines.len())]);
                lines.push(line.to_owned());
            }
        }
        let calls = lines.iter().enumerate().filter_map(|(number, line)| Some((number, call(line, root)?)));
        let calls: BTreeMap<usize, Call> = calls.collect();
        moments.retain(|moment: &Moment| calls.contains_key(&moment.number()));
        Trace { calls, moments }
    }
}

/// Parses a line, if it succeeded and is an acknowledgement or about a path below the folder.
fn call(line: &str, root: &Path) -> Option<Call> {
    let (name, rest) = line.split_once('(')?;
    let (rest, result) = rest.rsplit_once(" = ")?;
    if result.starts_with(['-', '?']) {
        return None;
    }
    let args: Vec<&str> = rest.trim_end().strip_suffix(')')?.split(", ").collect();
    if args[0].ends_with("(deleted)") {
        return None;
    }
    let number = |place: usize| args[place].parse::<u64>().unwrap();
    let call = match name {
        "open" | "openat" | "openat2" => {
            Call::Open { path: handle(result), creates: rest.contains("O_CREAT"), empties: rest.contains("O_TRUNC") }
        }
        "mkdir" => Call::Folder(text(args[0])),
        "mkdirat" => Call::Folder(at(args[0], args[1])),
        "mknodat" => Call::Special(at(args[0], args[1])),
        "mknod" => Call::Special(text(args[0])),
        "write" | "pwrite64" => {
            let mut bytes = bytes(args[1].trim_matches('"'));
            bytes.truncate(result.parse().unwrap());
            let at = (name == "pwrite64").then(|| number(3));
            write(handle(args[0]), at, bytes, root)
        }
        "ftruncate" => Call::Resize { path: handle(args[0]), len: number(1) },
        // Preallocated space has no content.
        "fallocate" => return None,
        "rename" => Call::Rename { from: text(args[0]), to: text(args[1]) },
        "renameat" | "renameat2" => Call::Rename { from: at(args[0], args[1]), to: at(args[2], args[3]) },
        "unlink" | "rmdir" => Call::Remove(text(args[0])),
        "unlinkat" => Call::Remove(at(args[0], args[1])),
        "fsync" | "fdatasync" => Call::Sync(handle(args[0])),
        "syncfs" | "sync" => Call::SyncAll,
        _ if rest.contains(&hex(root)) => panic!("a call that is not understood: {name} {}", args[0]),
        _ => return None,
    };
    let below = match &call {
        Call::Open { path, .. } | Call::Folder(path) | Call::Special(path) | Call::Remove(path) => path,
        Call::Write { path, .. } | Call::Resize { path, .. } => path,
        Call::Sync(path) => return path.starts_with(root).then_some(call),
        Call::Rename { from, .. } => from,
        Call::SyncAll | Call::Say(_) => return Some(call),
    };
    (below.starts_with(root) && below != root).then_some(call)
}

/// A write elsewhere is an acknowledgement, if it has that form.
fn write(path: PathBuf, at: Option<u64>, bytes: Vec<u8>, root: &Path) -> Call {
    if !path.starts_with(root)
        && let Some(said) = bytes.strip_prefix(b"@")
    {
        return Call::Say(String::from_utf8_lossy(said).trim_end().to_owned());
    }
    Call::Write { path, at, bytes: bytes.into() }
}

/// Returns the path of a handle: `7</a/path>`.
fn handle(arg: &str) -> PathBuf {
    let path = arg.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>')).map_or("", |(path, _)| path);
    text(path)
}

fn at(folder: &str, name: &str) -> PathBuf {
    handle(folder).join(text(name))
}

fn text(arg: &str) -> PathBuf {
    OsString::from_vec(bytes(arg.trim_matches('"'))).into()
}

/// Decodes `\x61\x62`; other characters are taken as they are.
fn bytes(arg: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (mut left, mut bytes) = (arg.as_bytes(), Vec::with_capacity(arg.len() / 4));
    while let [first, rest @ ..] = left {
        match left {
            [b'\\', b'x', high, low, rest @ ..] => {
                bytes.push(digit(*high).unwrap() * 16 + digit(*low).unwrap());
                left = rest;
            }
            _ => {
                bytes.push(*first);
                left = rest;
            }
        }
    }
    bytes
}

fn hex(path: &Path) -> String {
    path.as_os_str().as_encoded_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect()
}
