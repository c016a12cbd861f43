//! A simulated disk that may lose power at any moment: the data that is surely on it, and the data that may be.
//!
//! The synced content of a file is present, and of later writes any part, in units as small as a sector. A name is
//! durable when its folder was synced; of later changes, a prefix is present. That is less than most file systems
//! guarantee, and all that may be relied on.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::trace::{Call, Moment, Trace};
use crate::dice::Dice;

const SECTOR: usize = 512;

/// The part of the unsynced data that is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    All,
    /// A random part.
    Some,
}

type Node = usize;
type Names = BTreeMap<String, Node>;
/// Names and their new targets.
type Changes = Vec<(String, Option<Node>)>;

enum Thing {
    File(File),
    Folder(Folder),
    Special,
}

#[derive(Default)]
struct File {
    synced: Vec<u8>,
    since: Vec<Write>,
    len: u64,
}

struct Write {
    call: usize,
    ended: bool,
    at: u64,
    /// Without bytes, the file is truncated there.
    bytes: Option<Arc<[u8]>>,
}

#[derive(Default)]
struct Folder {
    synced: Names,
    now: Names,
    /// The changes of one call, by its number.
    since: Vec<(usize, Changes)>,
}

pub(crate) struct Disk {
    root: PathBuf,
    things: Vec<Thing>,
    /// The calls that an active sync will make durable, for each node.
    syncing: BTreeMap<usize, Vec<(Node, Vec<usize>)>>,
}

impl Disk {
    /// Creates an empty, durable folder.
    pub(crate) fn new(root: &Path) -> Disk {
        let things = vec![Thing::Folder(Folder::default())];
        Disk { root: root.to_owned(), things, syncing: BTreeMap::new() }
    }

    /// Advances by one moment, and returns what was said in it.
    pub(crate) fn follow<'a>(&mut self, moment: Moment, trace: &'a Trace) -> Option<&'a str> {
        match moment {
            Moment::Begins(number) => match &trace.calls[&number] {
                Call::Say(said) => return Some(said),
                Call::Write { path, at, bytes } => {
                    self.write(number, path, *at, Some(Arc::clone(bytes)));
                }
                Call::Sync(path) => drop(self.syncing.insert(number, self.lasting(path))),
                Call::SyncAll => drop(self.syncing.insert(number, self.all_lasting())),
                _ => {}
            },
            Moment::Ended(number) => self.end(number, &trace.calls[&number]),
        }
        None
    }

    fn end(&mut self, number: usize, call: &Call) {
        match call {
            Call::Open { path, creates, empties } => {
                if *creates && self.find(path).is_none() {
                    self.put(number, path, Thing::File(File::default()));
                } else if *empties {
                    self.resize(number, path, 0);
                }
            }
            Call::Folder(path) => self.put(number, path, Thing::Folder(Folder::default())),
            Call::Special(path) => self.put(number, path, Thing::Special),
            Call::Write { path, .. } => {
                if let Some(Thing::File(file)) = self.find(path).map(|node| &mut self.things[node]) {
                    file.since.iter_mut().filter(|write| write.call == number).for_each(|it| it.ended = true);
                }
            }
            Call::Resize { path, len } => self.resize(number, path, *len),
            Call::Rename { from, to } => self.rename(number, from, to),
            Call::Remove(path) => self.change(number, path, None),
            Call::Sync(_) | Call::SyncAll => self.synced(number),
            Call::Say(_) => {}
        }
    }

    fn find(&self, path: &Path) -> Option<Node> {
        let mut node = 0;
        for part in path.strip_prefix(&self.root).ok()? {
            let Thing::Folder(folder) = &self.things[node] else { return None };
            node = *folder.now.get(part.to_str()?)?;
        }
        Some(node)
    }

    fn file(&mut self, path: &Path) -> Option<&mut File> {
        match self.find(path).map(|node| &mut self.things[node]) {
            Some(Thing::File(file)) => Some(file),
            Some(Thing::Special) => None,
            _ => panic!("nobody made the file `{}`", path.display()),
        }
    }

    fn write(&mut self, call: usize, path: &Path, at: Option<u64>, bytes: Option<Arc<[u8]>>) {
        let Some(file) = self.file(path) else { return };
        let at = at.unwrap_or(file.len);
        file.len = match &bytes {
            Some(bytes) => file.len.max(at + bytes.len() as u64),
            None => at,
        };
        file.since.push(Write { call, ended: bytes.is_none(), at, bytes });
    }

    fn resize(&mut self, call: usize, path: &Path, len: u64) {
        self.write(call, path, Some(len), None);
    }

    fn put(&mut self, call: usize, path: &Path, thing: Thing) {
        self.things.push(thing);
        self.change(call, path, Some(self.things.len() - 1));
    }

    fn rename(&mut self, call: usize, from: &Path, to: &Path) {
        let node = self.find(from).expect("what is renamed is there");
        self.change(call, to, Some(node));
        self.change(call, from, None);
    }

    fn change(&mut self, call: usize, path: &Path, to: Option<Node>) {
        let (parent, name) = (path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap().to_owned());
        let parent = self.find(parent).unwrap_or_else(|| panic!("`{}` is in no folder", path.display()));
        let Thing::Folder(folder) = &mut self.things[parent] else { panic!("`{}`", path.display()) };
        set(&mut folder.now, &name, to);
        // Both names of a rename in one folder change at once.
        match folder.since.last_mut() {
            Some((last, changes)) if *last == call => changes.push((name, to)),
            _ => folder.since.push((call, vec![(name, to)])),
        }
    }

    fn lasting(&self, path: &Path) -> Vec<(Node, Vec<usize>)> {
        let node = self.find(path).unwrap_or_else(|| panic!("`{}` is synced and not there", path.display()));
        vec![(node, self.ended(node))]
    }

    fn all_lasting(&self) -> Vec<(Node, Vec<usize>)> {
        (0..self.things.len()).map(|node| (node, self.ended(node))).collect()
    }

    /// Returns the ended calls of a node, which a sync that starts now makes durable.
    fn ended(&self, node: Node) -> Vec<usize> {
        match &self.things[node] {
            Thing::File(file) => file.since.iter().filter(|it| it.ended).map(|it| it.call).collect(),
            Thing::Folder(folder) => folder.since.iter().map(|(call, _)| *call).collect(),
            Thing::Special => Vec::new(),
        }
    }

    fn synced(&mut self, number: usize) {
        for (node, calls) in self.syncing.remove(&number).unwrap() {
            match &mut self.things[node] {
                Thing::File(file) => {
                    let (done, left) = std::mem::take(&mut file.since)
                        .into_iter()
                        .partition(|write: &Write| calls.contains(&write.call));
                    file.since = left;
                    done.iter().for_each(|write: &Write| write.whole(&mut file.synced));
                }
                Thing::Folder(folder) => {
                    let last = calls.last().copied();
                    while folder.since.first().is_some_and(|(call, _)| Some(*call) <= last) {
                        let (_, changes) = folder.since.remove(0);
                        changes.iter().for_each(|(name, to)| set(&mut folder.synced, name, *to));
                    }
                }
                Thing::Special => {}
            }
        }
    }

    /// Writes a possible content of the disk after a power loss at this moment.
    pub(crate) fn save(&self, to: &Path, rest: Rest, dice: &mut Dice) {
        let _ = fs::remove_dir_all(to);
        self.save_at(0, to, rest, dice);
    }

    fn save_at(&self, node: Node, to: &Path, rest: Rest, dice: &mut Dice) {
        match &self.things[node] {
            Thing::Special => {}
            Thing::File(file) => fs::write(to, file.may_hold(to, rest, dice)).unwrap(),
            Thing::Folder(folder) => {
                DirBuilder::new().mode(0o700).create(to).unwrap();
                for (name, node) in folder.may_hold(rest, dice) {
                    self.save_at(node, &to.join(name), rest, dice);
                }
            }
        }
    }

    /// Checks that the simulated disk equals the real folder: no call was missed.
    pub(crate) fn is_like(&self, real: &Path) {
        let seen = tempfile::tempdir().unwrap();
        let copy = seen.path().join("copy");
        self.save(&copy, Rest::All, &mut Dice(1));
        same(&copy, real);
    }
}

impl Write {
    fn whole(&self, file: &mut Vec<u8>) {
        match &self.bytes {
            Some(bytes) => self.part(file, 0, bytes.len()),
            None => file.resize(self.at as usize, 0),
        }
    }

    fn part(&self, file: &mut Vec<u8>, from: usize, to: usize) {
        let (Some(bytes), at) = (&self.bytes, self.at as usize) else { return };
        file.resize(file.len().max(at + to), 0);
        file[at + from..at + to].copy_from_slice(&bytes[from..to]);
    }

    /// Each sector that it touches is present or not.
    fn torn(&self, file: &mut Vec<u8>, dice: &mut Dice) {
        let (len, mut from) = (self.bytes.as_ref().map_or(0, |bytes| bytes.len()), 0);
        while from < len {
            let to = len.min(from + SECTOR - (self.at as usize + from) % SECTOR);
            if dice.roll(2) == 0 {
                self.part(file, from, to);
            }
            from = to;
        }
    }
}

impl File {
    fn may_hold(&self, name: &Path, rest: Rest, dice: &mut Dice) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        // Shared memory of processes that have the database open is irrelevant to those that open it later.
        if name.as_os_str().as_encoded_bytes().ends_with(b"-shm") {
            return [dice.roll(256) as u8].repeat(32 * 1024);
        }
        let often = [1, 5, 9][dice.roll(3) as usize];
        for write in &self.since {
            match rest {
                Rest::Nothing => {}
                Rest::All => write.whole(&mut bytes),
                Rest::Some if dice.roll(10) < often => write.whole(&mut bytes),
                Rest::Some => write.torn(&mut bytes, dice),
            }
        }
        bytes
    }
}

impl Folder {
    fn may_hold(&self, rest: Rest, dice: &mut Dice) -> Names {
        let most = self.since.len();
        let count = match rest {
            Rest::Nothing => 0,
            Rest::All => most,
            Rest::Some => dice.roll(most as u64 + 1) as usize,
        };
        let mut names = self.synced.clone();
        for (_, changes) in &self.since[..count] {
            changes.iter().for_each(|(name, to)| set(&mut names, name, *to));
        }
        names
    }
}

fn set(names: &mut Names, name: &str, to: Option<Node>) {
    match to {
        Some(node) => names.insert(name.to_owned(), node),
        None => names.remove(name),
    };
}

/// Returns the content of a file, without preallocated space behind it.
fn held(file: &Path) -> Vec<u8> {
    let mut bytes = fs::read(file).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    bytes
}

fn same(copy: &Path, real: &Path) {
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(copy), names(real), "in `{}`", real.display());
    for name in names(copy) {
        let (copy, real) = (copy.join(&name), real.join(&name));
        if real.is_dir() {
            same(&copy, &real);
        } else if !name.to_str().unwrap().ends_with("-shm") {
            assert!(held(&copy) == held(&real), "`{}` was overlooked", real.display());
        }
    }
}
