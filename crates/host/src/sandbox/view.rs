//! The view of the file system that a worker has.
//!
//! Owns the order of operations. First, everything that is to be shown or writable is opened. Then everything becomes
//! read-only. Then `/dev`, `/proc`, `/run` and `/tmp` are replaced by the sandbox's own. Then the opened places are
//! mounted, outer folders before inner ones. Other processes are not affected, and the view ends with the last process
//! in it. No privileges are needed: a user gets them in namespaces of their own, and loses them when the program
//! starts.
//!
//! Every path is resolved without following links, compared with the file that the engine found there
//! ([`super::SandboxPlace`]), and then used by descriptor, so that nobody can redirect it in between.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, mkdirat, open, openat, symlinkat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
        fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
    },
};

use super::{
    SandboxPlace, SandboxSpec,
    mounts::{self, DeviceNodes, MountEntry},
    path_exists, resolve_path,
};

/// Folders that many programs share, with sockets of programs that execute requests. Each sandbox has its own.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const RUNTIME: [&str; 2] = ["/run", "/var/run"];
pub(super) const SHARED: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev"];

/// Links in `/run` through which some systems find their programs.
const RUNTIME_LINKS: [&str; 3] = ["current-system", "booted-system", "opengl-driver"];

/// The resolver configuration for host names. On many systems it is a link into `/run`.
const RESOLVER: &str = "/etc/resolv.conf";

/// Files and folders of `/proc` with which root can change or read the machine.
const KERNEL_READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];
const KERNEL_HIDDEN: [&str; 12] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/sched_debug",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];

/// The maximum number of sockets of other programs that are hidden.
const MOST_SOCKETS: usize = 256;

/// The reason why nothing is enforced.
#[derive(Debug)]
pub(super) enum SandboxViewError {
    /// This machine does not allow a view to be built. Nothing was changed.
    Unsupported(String),
    /// The view was started and is incomplete.
    Failed(String, io::Error),
}

trait ErrorContext<T> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T, SandboxViewError>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T, SandboxViewError> {
        self.map_err(|error| SandboxViewError::Failed(doing(), error.into()))
    }
}

/// A file or folder and its treatment.
struct ViewLayer<'a> {
    at: &'a Path,
    treatment: LayerTreatment,
}

enum LayerTreatment {
    Hidden(OwnedFd),
    Shown(OwnedFd),
    Writable(OwnedFd),
}

/// Everything that is opened before the view changes.
struct PreparedPlaces<'a> {
    devices: DeviceNodes,
    layers: Vec<ViewLayer<'a>>,
    /// One clone of the scratch folder for each folder that it replaces.
    scratch: Vec<OwnedFd>,
    resolver: Option<(PathBuf, OwnedFd)>,
    runtime_links: Vec<(&'static str, PathBuf)>,
    sockets: Vec<PathBuf>,
}

/// Builds the view that a sandbox describes.
pub(super) fn build_view(spec: &SandboxSpec, is_root: bool) -> Result<(), SandboxViewError> {
    let unsupported = |doing: &str, error: io::Error| SandboxViewError::Unsupported(format!("{doing}: {error}"));
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| unsupported("separating mounts", error.into()))?;
    new_filesystem("tmpfs", &[]).map_err(|error| unsupported("creating a file system", error))?;
    let held = PreparedPlaces::prepare(spec)?;
    protect_all(spec)?;
    replace_shared(&held, spec, is_root)?;
    for layer in &held.layers {
        layer.apply().context(|| format!("placing {}", layer.at.display()))?;
    }
    held.hide_sockets(spec);
    seal_layers(&held.layers)?;
    verify_view(spec, &held.layers)
}

impl<'a> PreparedPlaces<'a> {
    fn prepare(spec: &'a SandboxSpec) -> Result<PreparedPlaces<'a>, SandboxViewError> {
        let clone = |place: &SandboxPlace| {
            let tree = place.open().and_then(|found| clone_descriptor(&found));
            tree.context(|| format!("opening {}", place.path.display()))
        };
        let mut layers = Vec::new();
        for place in &spec.writes {
            layers.push(ViewLayer { at: &place.path, treatment: LayerTreatment::Writable(clone(place)?) });
        }
        for place in &spec.shows {
            layers.push(ViewLayer { at: &place.path, treatment: LayerTreatment::Shown(clone(place)?) });
        }
        for cover in &spec.covers {
            layers.push(ViewLayer { at: &cover.at, treatment: LayerTreatment::Shown(clone(&cover.source)?) });
        }
        for place in &spec.hides {
            let found = place.open().context(|| format!("opening {}", place.path.display()))?;
            layers.push(ViewLayer { at: &place.path, treatment: LayerTreatment::Hidden(found) });
        }
        // Outer places first. A place that is both written and shown is shown.
        layers.sort_by_key(|layer| (layer.at.components().count(), layer.at));
        let resolver = fs::canonicalize(RESOLVER).ok().filter(|path| is_within(path, &RUNTIME));
        Ok(PreparedPlaces {
            devices: DeviceNodes::open().context(|| "opening devices".to_owned())?,
            layers,
            scratch: match &spec.scratch {
                Some(place) => TEMPORARY.iter().map(|_| clone(place)).collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
            resolver: resolver.and_then(|path| Some((path.clone(), clone_tree(&path).ok()?))),
            runtime_links: read_runtime_links(),
            sockets: list_foreign_sockets(),
        })
    }

    /// Hides sockets of other programs that are outside of the replaced folders. Sockets that are created later are not
    /// hidden, as docs/security.md says.
    fn hide_sockets(&self, spec: &SandboxSpec) {
        let own = |path: &Path| {
            spec.writes.iter().chain(&spec.shows).any(|place| path.starts_with(&place.path)) && !spec.writes_everywhere
        };
        for path in self.sockets.iter().filter(|path| !own(path) && path_exists(path)) {
            // A socket that this user cannot reach need not be hidden.
            let _ = cover_file(path);
        }
    }
}

fn read_runtime_links() -> Vec<(&'static str, PathBuf)> {
    let read = |name: &'static str| Some((name, fs::read_link(Path::new(RUNTIME[0]).join(name)).ok()?));
    RUNTIME_LINKS.into_iter().filter_map(read).collect()
}

/// Lists the paths, without links, of sockets on which programs of this machine listen. The kernel lists them as they
/// were bound: a socket that was bound by a relative path, or was renamed, is not found.
fn list_foreign_sockets() -> Vec<PathBuf> {
    let list = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let bound = list.lines().filter_map(|line| Some(&line[line.find(" /")? + 1..]));
    let paths = bound.filter_map(|path| fs::canonicalize(path).ok());
    let mut paths: Vec<PathBuf> = paths.filter(|path| !is_within(path, &SHARED)).collect();
    paths.sort();
    paths.dedup();
    paths.truncate(MOST_SOCKETS);
    paths
}

fn is_within(path: &Path, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// Returns true if a path is below a folder that the sandbox replaces.
fn is_replaced(path: &Path, spec: &SandboxSpec) -> bool {
    path.starts_with("/dev") || !spec.keeps_shared_folders && is_within(path, &SHARED)
}

/// Makes everything read-only, or only the kernel's files if the program may write everywhere. `/proc` is handled
/// separately, since processes are not files.
fn protect_all(spec: &SandboxSpec) -> Result<(), SandboxViewError> {
    for mount in mounts::list_mounts().context(|| "listing mounts".to_owned())? {
        if is_protected(&mount, spec) {
            mount.make_read_only().context(|| format!("making {} read-only", mount.at.display()))?;
        }
    }
    Ok(())
}

fn is_protected(mount: &MountEntry, spec: &SandboxSpec) -> bool {
    mount.kind != "proc" && (!spec.writes_everywhere || mount.at.starts_with("/sys"))
}

/// Gives the sandbox its own folders in place of those that all programs of a machine share.
fn replace_shared(held: &PreparedPlaces<'_>, spec: &SandboxSpec, is_root: bool) -> Result<(), SandboxViewError> {
    held.devices.mount().context(|| "replacing /dev".to_owned())?;
    mount_proc(is_root).context(|| "replacing /proc".to_owned())?;
    if spec.keeps_shared_folders {
        return Ok(());
    }
    for folder in RUNTIME.map(Path::new).into_iter().filter(|folder| is_folder(folder)) {
        mount_runtime(folder, held).context(|| format!("replacing {}", folder.display()))?;
    }
    for (number, folder) in TEMPORARY.map(Path::new).into_iter().enumerate() {
        if is_folder(folder) {
            mount_temporary(folder, held.scratch.get(number)).context(|| format!("replacing {}", folder.display()))?;
        }
    }
    Ok(())
}

/// Returns true if the folder exists and is not a link.
fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Mounts a `/proc` that shows only the processes of the sandbox.
fn mount_proc(is_root: bool) -> io::Result<()> {
    match new_filesystem("proc", &[]) {
        Ok(processes) => attach_mount(&processes, Path::new("/proc"))?,
        // In a container whose own `/proc` is incomplete, the kernel does not allow a complete one. The container's
        // `/proc` shows processes of the same container, which a worker can neither signal nor inspect.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    // Root owns these files, with or without capabilities. For other users masks would only prevent agents from
    // building sandboxes of their own: the kernel mounts `/proc` only for processes that see it completely.
    if is_root { mask_kernel_files() } else { Ok(()) }
}

fn mask_kernel_files() -> io::Result<()> {
    for path in KERNEL_READ_ONLY.map(Path::new).into_iter().filter(|path| path_exists(path)) {
        let tree = clone_tree(path)?;
        attach_mount(&tree, path)?;
        mounts::make_read_only(&tree)?;
    }
    for path in KERNEL_HIDDEN.map(Path::new).into_iter().filter(|path| path_exists(path)) {
        cover_file(path)?;
    }
    Ok(())
}

fn mount_runtime(folder: &Path, held: &PreparedPlaces<'_>) -> io::Result<()> {
    let runtime = new_filesystem("tmpfs", &[("mode", "0755"), ("size", "16m")])?;
    attach_mount(&runtime, folder)?;
    for (name, target) in &held.runtime_links {
        symlinkat(target, &runtime, *name)?;
    }
    match &held.resolver {
        Some((path, file)) if path.starts_with(folder) => attach_tree(file, path, true),
        _ => Ok(()),
    }
}

fn mount_temporary(folder: &Path, scratch: Option<&OwnedFd>) -> io::Result<()> {
    match scratch {
        Some(scratch) => attach_mount(scratch, folder),
        None => attach_mount(&new_filesystem("tmpfs", &[("mode", "1777"), ("size", "64m")])?, folder),
    }
}

impl ViewLayer<'_> {
    fn apply(&self) -> io::Result<()> {
        match &self.treatment {
            LayerTreatment::Hidden(found) => hide_place(self.at, found),
            LayerTreatment::Shown(tree) | LayerTreatment::Writable(tree) => attach_tree(tree, self.at, false),
        }
    }

    fn is_writable(&self) -> bool {
        matches!(self.treatment, LayerTreatment::Writable(_))
    }
}

/// Mounts a tree at its path, which may have to be created in a folder of the sandbox.
fn attach_tree(tree: &OwnedFd, at: &Path, read_only: bool) -> io::Result<()> {
    make_mount_point(at, is_directory(tree)?)?;
    attach_mount(tree, at)?;
    if read_only { mounts::make_read_only(tree) } else { Ok(()) }
}

/// Mounts an empty folder or file over a place, if it is still visible.
fn hide_place(at: &Path, found: &OwnedFd) -> io::Result<()> {
    if !path_exists(at) {
        return Ok(());
    }
    match is_directory(found)? {
        true => attach_mount(&new_filesystem("tmpfs", &[("mode", "0755"), ("size", "1m")])?, at),
        false => cover_file(at),
    }
}

fn is_directory(descriptor: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(descriptor)?.st_mode).is_dir())
}

/// Mounts an empty file over another one.
fn cover_file(at: &Path) -> io::Result<()> {
    let nothing = clone_tree(Path::new("/dev/null"))?;
    attach_mount(&nothing, at)?;
    mounts::make_read_only(&nothing)
}

/// Creates missing folders above a path, and an empty folder or file at it. Follows no links.
fn make_mount_point(at: &Path, is_directory: bool) -> io::Result<()> {
    if path_exists(at) {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = open("/", flags, Mode::empty())?;
    let names: Vec<_> = at.strip_prefix("/").map_err(|_| Errno::INVAL)?.iter().collect();
    let Some((last, above)) = names.split_last() else { return Ok(()) };
    let make = |folder: &OwnedFd, name| match mkdirat(folder, name, Mode::from(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    };
    for name in above {
        folder = match openat(&folder, *name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                make(&folder, *name)?;
                openat(&folder, *name, flags, Mode::empty())?
            }
            opened => opened?,
        };
    }
    if is_directory {
        return Ok(make(&folder, *last)?);
    }
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&folder, *last, create, Mode::from(0o644))?;
    Ok(())
}

/// Makes the shown and hidden places read-only, now that they are complete.
fn seal_layers(layers: &[ViewLayer<'_>]) -> Result<(), SandboxViewError> {
    for layer in layers {
        if let LayerTreatment::Shown(tree) = &layer.treatment {
            mounts::make_read_only(tree).context(|| format!("making {} read-only", layer.at.display()))?;
        }
    }
    let covers = |mount: &MountEntry| layers.iter().rev().find(|layer| mount.at.starts_with(layer.at));
    for mount in mounts::list_mounts().context(|| "listing mounts".to_owned())? {
        if covers(&mount).is_some_and(|layer| !layer.is_writable()) {
            mount.make_read_only().context(|| format!("making {} read-only", mount.at.display()))?;
        }
    }
    Ok(())
}

/// Checks the finished view: whatever happened meanwhile, nothing else is writable.
fn verify_view(spec: &SandboxSpec, layers: &[ViewLayer<'_>]) -> Result<(), SandboxViewError> {
    for mount in mounts::list_mounts().context(|| "listing mounts".to_owned())? {
        let layer = layers.iter().rev().find(|layer| mount.at.starts_with(layer.at));
        let may_write = match layer {
            Some(layer) => layer.is_writable(),
            None => is_replaced(&mount.at, spec) || !is_protected(&mount, spec),
        };
        if !may_write && mount.is_reachable_and_writable() {
            let doing = format!("making {} read-only", mount.at.display());
            return Err(SandboxViewError::Failed(doing, io::Error::other("it was moved meanwhile")));
        }
    }
    Ok(())
}

/// Creates a file system that is not mounted yet.
pub(super) fn new_filesystem(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value)?;
    }
    fsconfig_create(&context)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    // Programs are executed from temporary folders, and terminals are devices.
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, kind != "tmpfs");
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, kind != "devpts");
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Clones the mounts at a path and below. No part of the path may be a link.
pub(super) fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    clone_descriptor(&resolve_path(path)?)
}

/// Clones the mounts at a descriptor and below.
pub(super) fn clone_descriptor(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(descriptor, "", flags)?)
}

/// Mounts a tree over a path in the view of this process.
pub(super) fn attach_mount(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    let target = resolve_path(at)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", &target, "", flags)?)
}
