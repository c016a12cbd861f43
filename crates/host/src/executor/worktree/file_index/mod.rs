//! An index of the files of a workspace: for each one its stamp and its git object, so that a snapshot costs what has
//! changed and runs no program.
//!
//! Owns the comparison of a folder with its last scan. A file is read again only if its stamp has changed, or if it was
//! so young at the last scan that a change since then need not show. The names in a folder are listed again only if the
//! folder itself has changed. Links are never followed, and special files are never opened. Does not know what a
//! snapshot is for.

mod ignore_rules;
mod objects;
mod storage;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io,
    num::NonZero,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use self::{
    ignore_rules::{RULES_FILE, RuleLevel},
    objects::ObjectKind,
};

pub(crate) use self::objects::{ObjectId, ObjectStore};

/// The folder of a repository, which is no part of its files.
const GIT: &[u8] = b".git";
/// The age below which a stamp does not prove that nothing has changed since: file systems count time in ticks.
const YOUNG_NANOS: i64 = 100_000_000;
/// The number of times that a file is read that changes meanwhile.
const TRIES: usize = 5;
/// The number of folders in one folder from which they are scanned in parallel.
const MANY_FOLDERS: usize = 8;
/// The maximum number of threads of a scan.
const THREADS: usize = 8;

/// The metadata of a file or folder that changes with it. No program can set the time of the change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct EntryStamp {
    mode: u32,
    size: u64,
    modified: i64,
    changed: i64,
    inode: u64,
    device: u64,
}

impl EntryStamp {
    fn from_stat(stat: &Stat) -> EntryStamp {
        let nanos = |seconds: i64, nanos| seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(nanos);
        EntryStamp {
            mode: stat.st_mode,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: nanos(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanos(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
            device: stat.st_dev,
        }
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// A file or link in the index.
#[derive(Debug, Clone, PartialEq)]
struct IndexedFile {
    stamp: EntryStamp,
    object: ObjectId,
    /// True if a later change is certain to change the stamp.
    settled: bool,
}

impl IndexedFile {
    /// The mode in a git tree.
    fn tree_mode(&self) -> &'static str {
        match self.stamp.kind() {
            FileType::Symlink => "120000",
            _ if self.stamp.mode & 0o100 != 0 => "100755",
            _ => "100644",
        }
    }
}

/// A folder in the index.
#[derive(Debug, Clone, Default, PartialEq)]
struct IndexedFolder {
    stamp: EntryStamp,
    settled: bool,
    /// The stamp of its ignore rules.
    rules: Option<EntryStamp>,
    /// The entries by name. A name whose file has not been read yet has no entry.
    entries: Vec<(Box<[u8]>, IndexedEntry)>,
    /// The tree of its entries, if nothing has changed since it was written. None for an empty folder, too.
    tree: Option<ObjectId>,
}

impl IndexedFolder {
    fn has_files(&self) -> bool {
        self.entries.iter().any(|(_, entry)| match entry {
            IndexedEntry::File(_) => true,
            IndexedEntry::Folder(inner) => inner.has_files(),
            IndexedEntry::New | IndexedEntry::TooLarge(_) => false,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
enum IndexedEntry {
    /// A name that was listed and not read yet.
    New,
    File(IndexedFile),
    /// A file that is larger than the limit.
    TooLarge(EntryStamp),
    Folder(IndexedFolder),
}

/// The index of a folder and everything below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FileIndex {
    root: IndexedFolder,
    /// The hash of the settings of the last scan.
    settings: [u8; 32],
}

/// The choice of files.
#[derive(Debug)]
pub(crate) struct ScanSettings<'a> {
    /// The path of the scanned folder in the repository; empty for its top.
    pub prefix: &'a Path,
    /// True if ignore rules in the folders count.
    pub obeys_rules: bool,
    /// Ignore rules outside of the files, the strongest last.
    pub rules: Vec<Vec<u8>>,
    /// Paths in the repository that belong to it although a rule excludes them.
    pub forced: BTreeSet<Vec<u8>>,
    /// The size above which a file is left out.
    pub largest: Option<u64>,
    /// The maximum numbers of files and of bytes.
    pub limits: Option<(usize, u64)>,
}

impl ScanSettings<'_> {
    /// Hashes everything beside the scanned folder that its content depends on.
    fn hash(&self, top: BorrowedFd<'_>) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        add(self.prefix.as_os_str().as_bytes());
        add(&[u8::from(self.obeys_rules)]);
        add(&self.largest.unwrap_or(u64::MAX).to_le_bytes());
        self.rules.iter().for_each(|rules| add(rules));
        add(b"forced");
        self.forced.iter().for_each(|path| add(path));
        for folder in self.prefix.ancestors().skip(1).filter(|_| self.obeys_rules) {
            let rules = stat_entry(top, folder.join(RULES_FILE).as_os_str().as_bytes());
            add(format!("{:?}", rules.ok().flatten()).as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// True if a path, or a path below it, belongs to the repository although a rule excludes it.
    fn is_forced(&self, path: &[u8], is_folder: bool) -> bool {
        if !is_folder {
            return self.forced.contains(path);
        }
        let inside = [path, b"/"].concat();
        self.forced.range(inside.clone()..).next().is_some_and(|found| found.starts_with(&inside))
    }
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScannedTree {
    pub tree: ObjectId,
    pub files: usize,
    pub bytes: u64,
    /// The number of files that were too large.
    pub left_out: usize,
    /// True if the index differs from before the scan.
    pub changed: bool,
    /// True if ignore rules differ from before the scan.
    pub rules_changed: bool,
}

/// The failure of a scan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} changes while it is read", .0.display())]
    Unsteady(PathBuf),
    /// There are more files or bytes than allowed.
    #[error("there are {files} files with {bytes} bytes")]
    OverLimit { files: usize, bytes: u64 },
}

impl FileIndex {
    /// True if nothing has been scanned.
    pub(crate) fn is_empty(&self) -> bool {
        *self == FileIndex::default()
    }

    /// Brings the index up to date with a folder, and writes the objects of everything that has changed. `top` is the
    /// top of the repository; only the part of it that the settings name is scanned. After an error the index is empty.
    pub(crate) fn scan(
        &mut self,
        top: BorrowedFd<'_>,
        settings: &ScanSettings<'_>,
        objects: &ObjectStore,
    ) -> Result<ScannedTree, ScanError> {
        let scanned = self.try_scan(top, settings, objects);
        if scanned.is_err() {
            *self = FileIndex::default();
        }
        scanned
    }

    fn try_scan(
        &mut self,
        top: BorrowedFd<'_>,
        settings: &ScanSettings<'_>,
        objects: &ObjectStore,
    ) -> Result<ScannedTree, ScanError> {
        let hash = settings.hash(top);
        let texts: Vec<&[u8]> = settings.rules.iter().map(Vec::as_slice).collect();
        let mut scan = FolderScan {
            settings,
            objects,
            young: now_nanos() - YOUNG_NANOS,
            path: Vec::new(),
            totals: ScanTotals::default(),
            changed: false,
            rules_changed: false,
            threads: thread::available_parallelism().map_or(1, NonZero::get).min(THREADS),
        };
        let parts: Vec<&OsStr> = settings.prefix.iter().collect();
        let relist = std::mem::replace(&mut self.settings, hash) != hash;
        scan.descend(top, &parts, &mut self.root, &RuleLevel::outermost(&texts), relist)?;
        let FolderScan { totals, changed, rules_changed, .. } = scan;
        if totals.over_limit(settings) {
            return Err(ScanError::OverLimit { files: totals.files, bytes: totals.bytes });
        }
        let tree = self.write_tree(settings.prefix, objects)?;
        Ok(ScannedTree {
            tree,
            files: totals.files,
            bytes: totals.bytes,
            left_out: totals.left_out,
            changed,
            rules_changed,
        })
    }

    /// Writes the trees of all folders that have changed, and those around the scanned folder.
    fn write_tree(&mut self, prefix: &Path, objects: &ObjectStore) -> Result<ObjectId, ScanError> {
        let failed = |error| ScanError::File { path: "the objects of the snapshot".into(), error };
        let mut tree = write_folder_tree(&mut self.root, objects).map_err(failed)?;
        for name in prefix.iter().rev() {
            if let Some(inner) = tree {
                let content = tree_line("40000", name.as_bytes(), inner);
                tree = Some(objects.write_bytes(ObjectKind::Tree, &content).map_err(failed)?);
            }
        }
        match tree {
            Some(tree) => Ok(tree),
            None => objects.write_bytes(ObjectKind::Tree, b"").map_err(failed),
        }
    }
}

fn now_nanos() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Writes the tree of a folder, and those below it that have changed. Git knows no empty folders.
fn write_folder_tree(folder: &mut IndexedFolder, objects: &ObjectStore) -> io::Result<Option<ObjectId>> {
    if folder.tree.is_some() {
        return Ok(folder.tree);
    }
    let mut lines = Vec::with_capacity(folder.entries.len());
    for (name, entry) in &mut folder.entries {
        match entry {
            IndexedEntry::File(file) => lines.push((name.to_vec(), tree_line(file.tree_mode(), name, file.object))),
            IndexedEntry::Folder(inner) => {
                if let Some(tree) = write_folder_tree(inner, objects)? {
                    // Git orders a folder as if its name ended with a slash.
                    lines.push(([name, &b"/"[..]].concat(), tree_line("40000", name, tree)));
                }
            }
            IndexedEntry::New | IndexedEntry::TooLarge(_) => {}
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    lines.sort();
    let content: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line).collect();
    folder.tree = Some(objects.write_bytes(ObjectKind::Tree, &content)?);
    Ok(folder.tree)
}

fn tree_line(mode: &str, name: &[u8], object: ObjectId) -> Vec<u8> {
    [mode.as_bytes(), b" ", name, b"\0", object.as_bytes()].concat()
}

#[derive(Debug, Clone, Default)]
struct ScanTotals {
    files: usize,
    bytes: u64,
    left_out: usize,
}

impl ScanTotals {
    fn add(&mut self, other: &ScanTotals) {
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.left_out += other.left_out;
    }

    fn over_limit(&self, settings: &ScanSettings<'_>) -> bool {
        settings.limits.is_some_and(|(files, bytes)| self.files > files || self.bytes > bytes)
    }
}

/// A name in a folder, and true for a folder.
type ListedName = (Box<[u8]>, bool);

/// The result of one thread of a scan.
struct ScanPart {
    totals: ScanTotals,
    changed: bool,
    rules_changed: bool,
    /// True if the tree of the folder around its folders changes.
    differs: bool,
}

/// A scan in progress.
struct FolderScan<'a> {
    settings: &'a ScanSettings<'a>,
    objects: &'a ObjectStore,
    /// Stamps from this time on prove nothing.
    young: i64,
    /// The path of the entry that is looked at.
    path: Vec<u8>,
    totals: ScanTotals,
    changed: bool,
    rules_changed: bool,
    /// The number of threads that may share the work.
    threads: usize,
}

impl FolderScan<'_> {
    /// Goes down to the scanned folder, and scans it. The rules of the folders around it count.
    fn descend(
        &mut self,
        folder: BorrowedFd<'_>,
        parts: &[&OsStr],
        index: &mut IndexedFolder,
        outer: &RuleLevel<'_>,
        relist: bool,
    ) -> Result<(), ScanError> {
        let [part, rest @ ..] = parts else { return self.scan_folder(folder, index, outer, relist, true) };
        let length = self.path.len();
        let level = RuleLevel::inside(outer, folder, length);
        self.path.extend_from_slice(part.as_bytes());
        let Some(inner) = open_folder(folder, part.as_bytes()).map_err(|error| self.failed(error))? else {
            *index = IndexedFolder::default();
            return Ok(());
        };
        let excluded = self.settings.obeys_rules && level.excludes(&self.path, true);
        self.path.push(b'/');
        let outer = if self.settings.obeys_rules { &level } else { outer };
        let all = RuleLevel::outermost(&[b"*"]);
        let outer = if excluded { &all } else { outer };
        self.descend(inner.as_fd(), rest, index, outer, relist)?;
        self.path.truncate(length);
        Ok(())
    }

    /// Scans a folder whose path, with a slash at its end, is `self.path`.
    fn scan_folder(
        &mut self,
        folder: BorrowedFd<'_>,
        index: &mut IndexedFolder,
        outer: &RuleLevel<'_>,
        relist: bool,
        is_root: bool,
    ) -> Result<(), ScanError> {
        let stamp = EntryStamp::from_stat(&fstat(folder).map_err(|errno| self.failed(errno.into()))?);
        let rules = if self.settings.obeys_rules { stat_entry(folder, RULES_FILE.as_bytes()) } else { Ok(None) };
        let rules = rules.map_err(|error| self.failed(error))?;
        self.rules_changed |= rules != index.rules;
        // New rules may apply to everything below.
        let relist = relist || rules != index.rules;
        let level = RuleLevel::inside(outer, folder, self.path.len());
        let level = if self.settings.obeys_rules { &level } else { outer };
        if relist || !index.settled || stamp != index.stamp {
            self.list_folder(folder, index, level, is_root)?;
            self.changed |= stamp != index.stamp || rules != index.rules;
            index.settled = stamp.changed < self.young && rules.is_none_or(|rules| rules.changed < self.young);
            (index.stamp, index.rules) = (stamp, rules);
        }
        let (mut entries, mut differs) = (std::mem::take(&mut index.entries), false);
        let is_folder = |entry: &IndexedEntry| matches!(entry, IndexedEntry::Folder(_));
        let shares = self.threads > 1
            && entries.iter().filter(|(_, entry)| is_folder(entry)).take(MANY_FOLDERS).count() == MANY_FOLDERS;
        for (name, entry) in entries.iter_mut().filter(|(_, entry)| !(shares && is_folder(entry))) {
            differs |= self.scan_named(folder, name, entry, level, relist)?;
        }
        if shares {
            let folders = entries.iter_mut().filter(|(_, entry)| is_folder(entry)).collect();
            differs |= self.scan_in_parallel(folder, folders, level, relist)?;
        }
        entries.retain(|(_, entry)| !matches!(entry, IndexedEntry::New));
        index.entries = entries;
        if differs {
            index.tree = None;
        }
        Ok(())
    }

    /// Scans folders that are beside each other, with one thread for each core.
    fn scan_in_parallel(
        &mut self,
        folder: BorrowedFd<'_>,
        folders: Vec<&mut (Box<[u8]>, IndexedEntry)>,
        rules: &RuleLevel<'_>,
        relist: bool,
    ) -> Result<bool, ScanError> {
        let queue = Mutex::new(folders.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let scan_some = |mut scan: FolderScan<'_>| {
            let mut differs = false;
            while let Some((name, entry)) = next() {
                differs |= scan.scan_named(folder, name, entry, rules, relist)?;
            }
            Ok(ScanPart { totals: scan.totals, changed: scan.changed, rules_changed: scan.rules_changed, differs })
        };
        let parts: Vec<Result<ScanPart, ScanError>> = thread::scope(|scope| {
            let started: Vec<_> = (0..self.threads)
                .map(|_| {
                    let part = FolderScan {
                        path: self.path.clone(),
                        totals: ScanTotals::default(),
                        changed: false,
                        rules_changed: false,
                        threads: 1,
                        ..*self
                    };
                    scope.spawn(|| scan_some(part))
                })
                .collect();
            started.into_iter().map(|part| part.join().expect("a scan does not panic")).collect()
        });
        let mut differs = false;
        for part in parts {
            let part = part?;
            self.totals.add(&part.totals);
            self.changed |= part.changed;
            self.rules_changed |= part.rules_changed;
            differs |= part.differs;
        }
        Ok(differs)
    }

    /// Scans one entry of a folder.
    fn scan_named(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        entry: &mut IndexedEntry,
        rules: &RuleLevel<'_>,
        relist: bool,
    ) -> Result<bool, ScanError> {
        let length = self.path.len();
        self.path.extend_from_slice(name);
        let differs = self.scan_entry(folder, name, entry, rules, relist)?;
        self.path.truncate(length);
        Ok(differs)
    }

    /// Compares the names in the index with those in the folder.
    fn list_folder(
        &mut self,
        folder: BorrowedFd<'_>,
        index: &mut IndexedFolder,
        rules: &RuleLevel<'_>,
        is_root: bool,
    ) -> Result<(), ScanError> {
        let names = self.list_names(folder, rules, is_root)?;
        let mut known = std::mem::take(&mut index.entries).into_iter().peekable();
        for (name, is_folder) in names {
            while known.next_if(|(old, _)| *old < name).is_some() {
                (self.changed, index.tree) = (true, None);
            }
            let old = known.next_if(|(old, _)| *old == name).map(|(_, entry)| entry);
            let entry = match old {
                Some(entry) if matches!(entry, IndexedEntry::Folder(_)) == is_folder => entry,
                _ => {
                    (self.changed, index.tree) = (true, None);
                    if is_folder { IndexedEntry::Folder(IndexedFolder::default()) } else { IndexedEntry::New }
                }
            };
            index.entries.push((name, entry));
        }
        if known.next().is_some() {
            (self.changed, index.tree) = (true, None);
        }
        Ok(())
    }

    /// The names in a folder that belong to the snapshot, in order.
    fn list_names(
        &mut self,
        folder: BorrowedFd<'_>,
        rules: &RuleLevel<'_>,
        is_root: bool,
    ) -> Result<Vec<ListedName>, ScanError> {
        let (mut names, length) = (Vec::new(), self.path.len());
        for entry in Dir::read_from(folder).map_err(|errno| self.failed(errno.into()))? {
            let entry = entry.map_err(|errno| self.failed(errno.into()))?;
            let name = entry.file_name().to_bytes();
            if name == GIT && !is_root {
                // A repository inside of another is no part of it.
                return Ok(Vec::new());
            }
            if matches!(name, b"." | b".." | GIT) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    stat_entry(folder, name).map_err(|error| self.failed(error))?.map(|stamp| stamp.kind())
                }
                kind => Some(kind),
            };
            let is_folder = kind == Some(FileType::Directory);
            if !is_folder && !matches!(kind, Some(FileType::RegularFile | FileType::Symlink)) {
                continue;
            }
            self.path.extend_from_slice(name);
            let belongs = !rules.excludes(&self.path, is_folder) || self.settings.is_forced(&self.path, is_folder);
            self.path.truncate(length);
            if belongs {
                names.push((name.into(), is_folder));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Compares an entry of the index with the file. Returns true if the tree of its folder changes.
    fn scan_entry(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        entry: &mut IndexedEntry,
        rules: &RuleLevel<'_>,
        relist: bool,
    ) -> Result<bool, ScanError> {
        let IndexedEntry::Folder(inner) = entry else { return self.scan_file(folder, name, entry) };
        let before = inner.tree;
        match open_folder(folder, name).map_err(|error| self.failed(error))? {
            Some(opened) => {
                self.path.push(b'/');
                // A folder that a rule excludes is here for the sake of files in it that belong to the repository.
                let all = RuleLevel::outermost(&[b"*"]);
                let path = &self.path[..self.path.len() - 1];
                let excluded = !self.settings.forced.is_empty() && rules.excludes(path, true);
                let rules = if excluded { &all } else { rules };
                self.scan_folder(opened.as_fd(), inner, rules, relist, false)?;
            }
            None => {
                self.changed = true;
                *entry = IndexedEntry::New;
                return Ok(true);
            }
        }
        Ok(inner.tree.is_none() && (before.is_some() || inner.has_files()))
    }

    fn scan_file(&mut self, folder: BorrowedFd<'_>, name: &[u8], entry: &mut IndexedEntry) -> Result<bool, ScanError> {
        let stamp = stat_entry(folder, name).map_err(|error| self.failed(error))?;
        let stamp = stamp.filter(|stamp| matches!(stamp.kind(), FileType::RegularFile | FileType::Symlink));
        let Some(stamp) = stamp else {
            // It was removed or replaced after its folder had been listed.
            self.changed = true;
            *entry = IndexedEntry::New;
            return Ok(true);
        };
        if self.settings.largest.is_some_and(|most| stamp.size > most) {
            self.totals.left_out += 1;
            let known = matches!(entry, IndexedEntry::TooLarge(_));
            self.changed |= *entry != IndexedEntry::TooLarge(stamp);
            *entry = IndexedEntry::TooLarge(stamp);
            return Ok(!known);
        }
        self.totals.files += 1;
        self.totals.bytes = self.totals.bytes.saturating_add(stamp.size);
        let known = match entry {
            IndexedEntry::File(file) if file.settled && file.stamp == stamp => return Ok(false),
            IndexedEntry::File(file) => Some((file.tree_mode(), file.object)),
            _ => None,
        };
        if self.totals.over_limit(self.settings) {
            return Ok(true);
        }
        let Some(file) = self.read_entry(folder, name)? else {
            self.changed = true;
            *entry = IndexedEntry::New;
            return Ok(true);
        };
        let differs = known != Some((file.tree_mode(), file.object));
        self.changed |= *entry != IndexedEntry::File(file.clone());
        *entry = IndexedEntry::File(file);
        Ok(differs)
    }

    /// Reads a file or link and writes its object. None if it is gone.
    fn read_entry(&self, folder: BorrowedFd<'_>, name: &[u8]) -> Result<Option<IndexedFile>, ScanError> {
        for _ in 0..TRIES {
            let read = match stat_entry(folder, name).map_err(|error| self.failed(error))? {
                Some(stamp) if stamp.kind() == FileType::Symlink => self.read_link(folder, name, stamp),
                Some(stamp) if stamp.kind() == FileType::RegularFile => self.read_file(folder, name),
                _ => return Ok(None),
            };
            match read {
                Ok(Some((stamp, object))) => {
                    let settled = stamp.changed < self.young;
                    return Ok(Some(IndexedFile { stamp, object, settled }));
                }
                Ok(None) => {}
                // It was replaced meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(code) if is_replaced(code)) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Err(ScanError::Unsteady(self.display_path()))
    }

    /// Reads a link. None if it was changed meanwhile.
    fn read_link(
        &self,
        folder: BorrowedFd<'_>,
        name: &[u8],
        stamp: EntryStamp,
    ) -> io::Result<Option<(EntryStamp, ObjectId)>> {
        let target = readlinkat(folder, name, Vec::new())?;
        let object = self.objects.write_bytes(ObjectKind::Blob, target.to_bytes())?;
        Ok((stat_entry(folder, name)? == Some(stamp)).then_some((stamp, object)))
    }

    /// Reads a file. None if it was changed meanwhile.
    fn read_file(&self, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<(EntryStamp, ObjectId)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut file = File::from(openat(folder, name, flags, Mode::empty())?);
        let stamp = EntryStamp::from_stat(&fstat(&file)?);
        if stamp.kind() != FileType::RegularFile {
            return Ok(None);
        }
        let Some(object) = self.objects.write_file(&mut file, stamp.size)? else { return Ok(None) };
        Ok((EntryStamp::from_stat(&fstat(&file)?) == stamp).then_some((stamp, object)))
    }

    fn failed(&self, error: io::Error) -> ScanError {
        ScanError::File { path: self.display_path(), error }
    }

    fn display_path(&self) -> PathBuf {
        Path::new(OsStr::from_bytes(&self.path)).to_owned()
    }
}

/// True for the errors of opening an entry that is gone, or that is of another kind than it was.
fn is_replaced(code: i32) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO, Errno::INVAL]
        .iter()
        .any(|errno| errno.raw_os_error() == code)
}

/// The stamp of an entry. None if there is none.
fn stat_entry(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<EntryStamp>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(EntryStamp::from_stat(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a folder. None if it is gone, or if something else has its name.
fn open_folder(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
