//! The state directory: checks that it can hold a journal, and the paths in it.
//!
//! Owns paths, modes and the refusal of places that would lose data. Does not know the contents of the files. Nothing
//! here opens the database file: closing any descriptor of it would drop SQLite's locks.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::fs::{OFlags, StatVfsMountFlags, statfs, statvfs};

use super::StoreOpenError;

/// The folder with the files of each process that shares a state folder.
pub(super) const OWNERS: &str = "owners";

/// A state directory that passed the checks.
#[derive(Debug, Clone)]
pub(super) struct StateFolder {
    dir: PathBuf,
}

impl StateFolder {
    /// Creates the directory if there is none, and checks it.
    pub(super) fn prepare(dir: &Path) -> Result<StateFolder, StoreOpenError> {
        make_folder(dir)?;
        let dir = fs::canonicalize(dir).map_err(|error| StoreOpenError::Io { path: dir.into(), error })?;
        let place = StateFolder { dir };
        check_file_system(&place.dir)?;
        place.check_directory()?;
        place.check_files()?;
        for sub in [place.owners_path(), place.blobs_path()] {
            match DirBuilder::new().mode(0o700).create(&sub) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(place.io_error(sub, error));
                }
                Err(_) if !fs::symlink_metadata(&sub).is_ok_and(|meta| meta.is_dir()) => {
                    return Err(StoreOpenError::NotADirectory { dir: sub });
                }
                _ => {}
            }
        }
        place.write_gitignore()?;
        Ok(place)
    }

    pub(super) fn database_path(&self) -> PathBuf {
        self.dir.join("skein.db")
    }

    pub(super) fn owners_path(&self) -> PathBuf {
        self.dir.join(OWNERS)
    }

    pub(super) fn blobs_path(&self) -> PathBuf {
        self.dir.join("blobs")
    }

    pub(super) fn snapshots_path(&self) -> PathBuf {
        self.dir.join("snapshots")
    }

    pub(super) fn reserve_path(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    pub(super) fn acknowledged_path(&self) -> PathBuf {
        self.dir.join("acknowledged")
    }

    /// The two locks of the turnstile.
    pub(super) fn turn_lock_paths(&self) -> [PathBuf; 2] {
        [self.dir.join("next.lock"), self.dir.join("now.lock")]
    }

    /// Creates a database if there is none: a complete one, or none at all. Skein chooses its mode; SQLite gives the
    /// files beside it the same one. The caller holds the turnstile.
    pub(super) fn make_database(
        &self,
        make: impl FnOnce(&Path) -> Result<(), StoreOpenError>,
    ) -> Result<(), StoreOpenError> {
        let (path, new) = (self.database_path(), self.dir.join("skein.db.new"));
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(());
        }
        for left in ["", "-wal", "-shm"] {
            remove_if_exists(&append_suffix(&new, left)).map_err(|error| self.io_error(new.clone(), error))?;
        }
        private_options(OpenOptions::new().write(true).create_new(true))
            .open(&new)
            .map_err(|error| self.io_error(new.clone(), error))?;
        make(&new)?;
        let synced = File::open(&new).and_then(|file| file.sync_all());
        synced
            .and_then(|()| fs::rename(&new, &path))
            .and_then(|()| sync_directory(&self.dir))
            .and_then(|()| self.sync_ancestors())
            .map_err(|error| self.io_error(path, error))
    }

    /// Syncs the folders above, which may be as new: created by this process or by one that was killed before it synced
    /// them. A folder that may not be read was created by another user, and one on another file system existed before.
    fn sync_ancestors(&self) -> io::Result<()> {
        let here = fs::metadata(&self.dir)?.dev();
        for above in self.dir.ancestors().skip(1) {
            if fs::metadata(above)?.dev() != here {
                break;
            }
            match sync_directory(above) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
                synced => synced?,
            }
        }
        Ok(())
    }

    fn check_directory(&self) -> Result<(), StoreOpenError> {
        let meta = fs::metadata(&self.dir).map_err(|error| self.io_error(self.dir.clone(), error))?;
        if !meta.is_dir() {
            return Err(StoreOpenError::NotADirectory { dir: self.dir.clone() });
        }
        check_owner(&self.dir, &meta)?;
        let mode = meta.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(StoreOpenError::Open { dir: self.dir.clone(), mode });
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), StoreOpenError> {
        const FILES: [&str; 7] =
            ["skein.db", "skein.db-wal", "skein.db-shm", "next.lock", "now.lock", "reserve", "acknowledged"];
        for path in FILES.map(|name| self.dir.join(name)) {
            match fs::symlink_metadata(&path) {
                Ok(meta) if !meta.is_file() => return Err(StoreOpenError::NotAFile { path }),
                Ok(meta) => check_owner(&path, &meta)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.io_error(path, error)),
            }
        }
        Ok(())
    }

    /// Keeps the directory out of the project's git history.
    fn write_gitignore(&self) -> Result<(), StoreOpenError> {
        let path = self.dir.join(".gitignore");
        match private_options(OpenOptions::new().write(true).create_new(true)).open(&path) {
            Ok(mut file) => io::Write::write_all(&mut file, b"*\n").map_err(|error| self.io_error(path, error)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(self.io_error(path, error)),
        }
    }

    fn io_error(&self, path: PathBuf, error: io::Error) -> StoreOpenError {
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => StoreOpenError::ReadOnly { dir: self.dir.clone() },
            _ => StoreOpenError::Io { path, error },
        }
    }
}

/// Returns the absolute path of a directory that can hold a journal, creating it if there is none. None: opening it
/// will report the reason.
pub(super) fn make_checked_folder(dir: &Path) -> Option<PathBuf> {
    make_folder(dir).ok()?;
    let place = StateFolder { dir: fs::canonicalize(dir).ok()? };
    check_file_system(&place.dir).ok()?;
    place.check_directory().ok()?;
    Some(place.dir)
}

fn make_folder(dir: &Path) -> Result<(), StoreOpenError> {
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => StoreOpenError::ReadOnly { dir: dir.into() },
        _ => StoreOpenError::Io { path: dir.into(), error },
    };
    if fs::metadata(dir).is_ok() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(fail)?;
    // Checked before anything is created in an unsuitable place.
    check_file_system(parent)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(fail(error)),
        // It is synced later, when it holds something that must survive.
        _ => Ok(()),
    }
}

fn check_file_system(dir: &Path) -> Result<(), StoreOpenError> {
    let fail = |error: rustix::io::Errno| StoreOpenError::Io { path: dir.into(), error: error.into() };
    // The magic number is signed on some machines, and then its upper half is meaningless.
    if let Some(kind) = find_network_type(statfs(dir).map_err(fail)?.f_type as u32, || read_mount_type(dir)) {
        return Err(StoreOpenError::Network { dir: dir.into(), kind });
    }
    if statvfs(dir).map_err(fail)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(StoreOpenError::ReadOnly { dir: dir.into() });
    }
    Ok(())
}

/// The file system of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, as a person would name it.
    pub kind: String,
    /// True if another machine may write to it too: a journal is refused there.
    pub network: bool,
    /// True if its content is lost when the machine stops.
    pub memory: bool,
    pub read_only: bool,
    /// The number of bytes free for this user.
    pub free: u64,
}

/// Inspects the file system of a directory.
pub fn inspect_file_system(dir: &Path) -> io::Result<FileSystem> {
    let magic = statfs(dir)?.f_type as u32;
    let status = statvfs(dir)?;
    let mounted = read_mount_type(dir);
    let network = find_network_type(magic, || mounted.clone());
    let known = LOCAL.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name);
    let kind = network.or(known).map(str::to_owned).or(mounted);
    Ok(FileSystem {
        kind: kind.unwrap_or_else(|| format!("unknown ({magic:#x})")),
        network: network.is_some(),
        memory: MEMORY.contains(&magic),
        read_only: status.f_flag.contains(StatVfsMountFlags::RDONLY),
        free: status.f_bavail.saturating_mul(status.f_frsize),
    })
}

fn check_owner(path: &Path, meta: &fs::Metadata) -> Result<(), StoreOpenError> {
    let me = rustix::process::geteuid().as_raw();
    match meta.uid() {
        owner if owner == me => Ok(()),
        owner => Err(StoreOpenError::Foreign { path: path.into(), owner, me }),
    }
}

/// The identity of the database as it was opened. If a folder is moved, removed or replaced while a process uses it,
/// the open files go with it, and later readers do not find what is written to them.
#[derive(Debug)]
pub(super) struct DatabaseLocation {
    path: PathBuf,
    is: (u64, u64),
    /// The write-ahead log, which exists from the first commit on.
    log: PathBuf,
    log_is: OnceLock<(u64, u64)>,
}

impl DatabaseLocation {
    pub(super) fn new(place: &StateFolder) -> io::Result<DatabaseLocation> {
        let path = place.database_path();
        let meta = fs::symlink_metadata(&path)?;
        let log = append_suffix(&path, "-wal");
        Ok(DatabaseLocation { is: (meta.dev(), meta.ino()), path, log, log_is: OnceLock::new() })
    }

    /// Checks that the files are still in place. The error is a message for the user.
    pub(super) fn check_unmoved(&self) -> Result<(), String> {
        let is = |path: &Path| match fs::symlink_metadata(path) {
            Ok(meta) => Ok((meta.dev(), meta.ino())),
            Err(error) => Err(moved_message(path, &error.to_string())),
        };
        if is(&self.path)? != self.is {
            return Err(moved_message(&self.path, "another file is in its place"));
        }
        let log = is(&self.log)?;
        match *self.log_is.get_or_init(|| log) == log {
            true => Ok(()),
            false => Err(moved_message(&self.log, "another file is in its place")),
        }
    }
}

fn moved_message(path: &Path, why: &str) -> String {
    let path = path.display();
    format!("the journal `{path}` was moved or removed while in use, together with the last writes: {why}")
}

/// Sets options for files that only their user may read. Links are not followed, and opening a pipe does not block.
pub(super) fn private_options(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits() as i32)
}

/// Opens a file of the state directory, creating it if there is none. It must be a regular file.
pub(super) fn open_plain_file(path: &Path) -> Result<File, StoreOpenError> {
    let io = |error| StoreOpenError::Io { path: path.into(), error };
    // Checked before it is opened, because opening a device can have effects.
    if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(StoreOpenError::NotAFile { path: path.into() });
    }
    let mut options = OpenOptions::new();
    let options = private_options(options.read(true).write(true).create(true).truncate(false));
    let file = options.open(path).map_err(io)?;
    match file.metadata().map_err(io)?.is_file() {
        true => Ok(file),
        false => Err(StoreOpenError::NotAFile { path: path.into() }),
    }
}

/// Appends a suffix to the file name of a path.
fn append_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

pub(super) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes new and renamed entries of a directory durable.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// File systems that more than one machine may write to, by the magic number from `statfs`.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "vboxsf"),
];
/// Common file systems on local disks.
const LOCAL: &[(u32, &str)] = &[
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x794c_7630, "overlay"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];
const MEMORY: &[u32] = &[0x0102_1994, 0x8584_58f6];
const FUSE: u32 = 0x6573_5546;

/// Returns the type of a network file system. File systems in user space all share one number, and most of them reach
/// another machine; the few that are known to be local are recognised by their name.
fn find_network_type(magic: u32, mounted_as: impl FnOnce() -> Option<String>) -> Option<&'static str> {
    if magic == FUSE {
        return match mounted_as().as_deref() {
            Some("fuseblk" | "fuse.fuse-overlayfs") => None,
            _ => Some("FUSE"),
        };
    }
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Returns the type of the file system as it was mounted.
fn read_mount_type(dir: &Path) -> Option<String> {
    let dev = fs::metadata(dir).ok()?.dev();
    let device = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_number() {
        for (magic, kind) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9p"), (FUSE, "FUSE")] {
            assert_eq!(find_network_type(magic, || Some("fuse.sshfs".into())), Some(kind));
        }
        let (ext4, tmpfs, btrfs) = (0xef53, 0x0102_1994, 0x9123_683e);
        for local in [ext4, tmpfs, btrfs] {
            assert_eq!(find_network_type(local, || None), None);
        }
        assert_eq!(find_network_type(FUSE, || Some("fuseblk".into())), None);
    }

    #[test]
    fn what_a_directory_is_on_is_told() {
        let memory = inspect_file_system(Path::new("/dev/shm")).expect("it is there");
        assert_eq!((memory.kind.as_str(), memory.memory, memory.network), ("tmpfs", true, false));
        assert!(memory.free > 0 && !memory.read_only);
        let of_the_system = inspect_file_system(Path::new("/proc")).expect("it is there");
        assert_eq!((of_the_system.kind.as_str(), of_the_system.memory), ("proc", false));
        assert!(inspect_file_system(Path::new("/no/such/directory")).is_err());
    }

    #[test]
    fn the_type_of_a_mount_is_found() {
        assert_eq!(read_mount_type(Path::new("/proc")).as_deref(), Some("proc"));
    }
}
