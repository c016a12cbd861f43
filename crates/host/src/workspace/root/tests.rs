//! Names that try to leave, links that try to lead out, and entries that are not files.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::fs::{CWD, Mode, mkfifoat};
use tempfile::TempDir;

use super::*;

const WAYS: [PathResolver; 2] = [PathResolver::Kernel, PathResolver::Walk];

/// A folder with a root in it and a secret beside it.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/a/b")).unwrap();
        fs::create_dir_all(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        fs::write(dir.path().join("root/a/file"), "inside").unwrap();
        Place { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join("outside").join(name)
    }

    fn root(&self, way: PathResolver) -> RootFolder {
        RootFolder::open_with(&self.at(""), way).unwrap()
    }
}

fn why<T: std::fmt::Debug>(result: PathResult<T>) -> String {
    result.unwrap_err().why.to_string()
}

#[test]
fn names_that_leave_are_refused_by_every_operation() {
    let place = Place::new();
    let secret = place.outside("secret");
    for way in WAYS {
        let root = place.root(way);
        for name in ["../outside/secret", "a/../../outside/secret", "..", "a/b/../../../outside", "../root/a"] {
            let leaves = "it leads out of that folder";
            assert_eq!(why(root.read_file(name, 100)), leaves, "{name}");
            assert_eq!(why(root.replace_file(name, b"x")), leaves, "{name}");
            assert_eq!(why(root.open_folder(name)), leaves, "{name}");
            assert_eq!(why(root.make_folders(name, true)), leaves, "{name}");
            assert_eq!(why(root.remove(name)), leaves, "{name}");
            assert_eq!(why(root.entry_kind(name)), leaves, "{name}");
            assert_eq!(why(root.move_new("a/file", name)), leaves, "{name}");
        }
        assert_eq!(why(root.read_file(&secret, 100)), "it is an absolute path, not one in that folder");
        assert_eq!(why(root.replace_file(&secret, b"x")), "it is an absolute path, not one in that folder");
        assert_eq!(why(root.read_file("a\0b", 100)), "it contains a NUL byte");
        assert_eq!(why(root.read_file("x/".repeat(3_000), 100)), "it is too long: at most 4095 bytes");
        assert_eq!(root.read_file("a/b/../file", 100).unwrap(), b"inside");
        assert_eq!(root.read_file("./a//file/", 100).unwrap(), b"inside");
    }
    assert_eq!(fs::read(secret).unwrap(), b"secret");
}

#[test]
fn a_link_at_the_end_is_neither_read_nor_written() {
    let place = Place::new();
    symlink(place.outside("secret"), place.at("leaf")).unwrap();
    symlink("file", place.at("a/near")).unwrap();
    for way in WAYS {
        let root = place.root(way);
        let link = "`leaf` is a symbolic link, and those are not followed here";
        assert_eq!(why(root.read_file("leaf", 100)), link);
        assert_eq!(why(root.replace_file("leaf", b"x")), link);
        assert_eq!(why(root.open_folder("leaf")), link);
        assert_eq!(why(root.make_folders("leaf/x", true)), link);
        assert_eq!(why(root.read_file("a/near", 100)), "`a/near` is a symbolic link, and those are not followed here");
        assert_eq!(root.entry_kind("leaf").unwrap(), Some(EntryKind::Link));
    }
    assert_eq!(fs::read(place.outside("secret")).unwrap(), b"secret");
}

#[test]
fn a_link_on_the_way_never_leads_out() {
    let place = Place::new();
    symlink(place.outside(""), place.at("out")).unwrap();
    symlink("../outside", place.at("up")).unwrap();
    symlink("a", place.at("near")).unwrap();
    for way in WAYS {
        let root = place.root(way);
        for name in ["out/secret", "up/secret"] {
            assert!(root.read_file(name, 100).is_err(), "{name}");
            assert!(root.replace_file(name, b"x").is_err(), "{name}");
            assert!(root.create_file(Path::new(name).with_file_name("new"), false).is_err(), "{name}");
            assert!(root.remove(name).is_err(), "{name}");
            assert!(root.make_folders(format!("{name}/x"), false).is_err(), "{name}");
        }
        assert_eq!(
            why(root.replace_file("near/file", b"x")),
            "`near` is a symbolic link, and those are not followed here"
        );
    }
    assert_eq!(why(place.root(PathResolver::Kernel).read_file("out/secret", 100)), "it leads out of that folder");
    assert_eq!(place.root(PathResolver::Kernel).read_file("near/file", 100).unwrap(), b"inside");
    // The rules are stricter without the kernel's help.
    assert!(why(place.root(PathResolver::Walk).read_file("near/file", 100)).contains("`near` is a symbolic link"));
    assert_eq!(fs::read_dir(place.outside("")).unwrap().count(), 1);
}

#[test]
fn links_of_the_kernel_are_not_followed() {
    let outside = fs::File::open("/etc").unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&outside);
    let root = RootFolder::open(Path::new("/proc/self")).unwrap();
    for name in ["root/etc/passwd".to_owned(), "cwd".into(), format!("fd/{number}/passwd"), "exe".into()] {
        assert!(root.open_file(&name).is_err(), "{name}");
    }
    drop(outside);
}

#[test]
fn what_is_no_file_is_refused_and_hangs_nobody() {
    let place = Place::new();
    mkfifoat(CWD, place.at("fifo"), Mode::RWXU).unwrap();
    let _socket = UnixListener::bind(place.at("socket")).unwrap();
    let (done, waits) = mpsc::channel();
    let roots = WAYS.map(|way| place.root(way));
    let worker = thread::spawn(move || {
        for root in roots {
            let one = |name: &str| (why(root.read_file(name, 100)), why(root.replace_file(name, b"x")));
            done.send([one("fifo"), one("socket"), one("a")]).unwrap();
        }
        let null = RootFolder::open_with(Path::new("/dev"), PathResolver::Kernel).unwrap();
        assert_eq!(why(null.open_file("null")), "it is a device, not a regular file");
    });
    for _ in WAYS {
        let said = waits.recv_timeout(Duration::from_secs(30)).expect("a pipe must not hang us");
        let both = |thing: &str| {
            let text = format!("it is {thing}, not a regular file");
            (text.clone(), text)
        };
        assert_eq!(said, [both("a named pipe"), both("a socket"), both("a folder")]);
    }
    worker.join().unwrap();
}

#[test]
fn a_file_that_is_larger_than_wanted_is_not_read() {
    let place = Place::new();
    let root = place.root(PathResolver::detect());
    assert_eq!(root.read_file("a/file", 6).unwrap(), b"inside");
    assert_eq!(why(root.read_file("a/file", 5)), "it has 6 bytes, and the limit is 5");
    // Its size is reported as 0, although it is not empty.
    let proc = RootFolder::open(Path::new("/proc/self")).unwrap();
    assert!(why(proc.read_file("status", 100)).contains("the limit is 100"));
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let place = Place::new();
    let root = place.root(PathResolver::detect());
    let mut pending = root.create_file("a/file", true).unwrap();
    pending.write_all(b"half").unwrap();
    assert_eq!(root.read_file("a/file", 100).unwrap(), b"inside");
    drop(pending);
    assert_eq!(root.open_folder("a").unwrap().list_entries(10).unwrap().len(), 2);
    root.replace_file("a/file", b"new").unwrap();
    root.replace_file("a/other", b"x").unwrap();
    assert_eq!(root.read_file("a/file", 100).unwrap(), b"new");
    let names: Vec<_> = root.open_folder("a").unwrap().list_entries(10).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["b", "file", "other"]);
    assert_eq!(why(root.open_folder("a").unwrap().list_entries(2)), "it has more than 2 files and folders");
    assert_eq!(why(root.replace_file("none/file", b"x")), "there is no such file or folder");
}

#[test]
fn what_a_dead_writer_left_can_be_removed() {
    let place = Place::new();
    let root = place.root(PathResolver::detect());
    let pending = root.create_file("x", false).unwrap();
    std::mem::forget(pending);
    assert_eq!(root.list_entries(10).unwrap().len(), 2);
    root.remove_pending().unwrap();
    assert_eq!(root.list_entries(10).unwrap().len(), 1);
}

#[test]
fn folders_are_made_once_and_moved_only_to_where_nothing_is() {
    let place = Place::new();
    let root = place.root(PathResolver::detect());
    let made = root.make_folders("a/x/y", true).unwrap();
    assert_eq!(made.path(), place.at("a/x/y"));
    made.replace_file("f", b"1").unwrap();
    root.make_folders("a/x/y", true).unwrap();
    assert_eq!(root.read_file("a/x/y/f", 9).unwrap(), b"1");
    assert!(why(root.make_folders("a/file/x", true)).contains("not a folder"));
    root.move_new("a/x", "z").unwrap();
    assert_eq!(root.read_file("z/y/f", 9).unwrap(), b"1");
    root.make_folders("again", true).unwrap();
    assert_eq!(why(root.move_new("again", "z")), "it already exists");
}

#[test]
fn removing_goes_deep_and_stays_inside() {
    let place = Place::new();
    let root = place.root(PathResolver::detect());
    let mut deep = place.at("tree");
    fs::create_dir(&deep).unwrap();
    for i in 0..400 {
        fs::write(deep.join(format!("f{i}")), "x").unwrap();
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    symlink(place.outside(""), place.at("tree/d/out")).unwrap();
    mkfifoat(CWD, place.at("tree/d/fifo"), Mode::RWXU).unwrap();
    fs::set_permissions(place.at("tree/d/d"), std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
    assert!(root.remove("tree").unwrap());
    assert!(!root.remove("tree").unwrap());
    assert!(!root.remove("none/x").unwrap());
    assert_eq!(fs::read(place.outside("secret")).unwrap(), b"secret");
    symlink(place.outside(""), place.at("link")).unwrap();
    assert!(root.remove("link").unwrap());
    assert_eq!(fs::read(place.outside("secret")).unwrap(), b"secret");
    assert_eq!(root.list_entries(10).unwrap().len(), 1);
    assert!(root.remove(".").is_err());
}

/// Another thread swaps a folder for a link to outside, as fast as it can.
#[test]
fn a_race_for_a_folder_is_never_won() {
    let place = Place::new();
    fs::create_dir(place.at("real")).unwrap();
    fs::write(place.at("real/secret"), "inside").unwrap();
    symlink(place.outside(""), place.at("link")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = thread::spawn({
        let (stop, real, link) = (stop.clone(), place.at("real"), place.at("link"));
        move || {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &real, CWD, &link, exchange).unwrap();
            }
        }
    });
    let (mut read, mut refused) = (0, 0);
    for way in WAYS {
        let root = place.root(way);
        for i in 0..20_000 {
            match root.read_file("real/secret", 100) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"inside");
                    read += 1;
                }
                Err(_) => refused += 1,
            }
            if i % 50 == 0 {
                let _ = root.replace_file("real/new", b"mine");
                let _ = root.make_folders("real/made/x", true);
                let _ = root.remove("real/secret-too");
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(read > 0 && refused > 0, "the race was not run: {read} read, {refused} refused");
    let outside: Vec<_> = fs::read_dir(place.outside("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(outside, [OsStr::new("secret")]);
}

/// A pseudo-random generator, always the same for a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Random names over a random tree full of links: every opened entry is beneath the root.
#[test]
fn what_is_opened_is_always_beneath() {
    let parts = ["a", "b", "c", "l1", "l2", "l3", "..", ".", "", "f", "etc", "passwd", "outside", "secret"];
    let mut opened = 0;
    for seed in 1..=15 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let place = Place::new();
        let base = fs::canonicalize(place.at("")).unwrap();
        for folder in ["a/b/c", "b/a", "c"] {
            fs::create_dir_all(place.at(folder)).unwrap();
            fs::write(place.at(folder).join("f"), "inside").unwrap();
        }
        let random = |dice: &mut Dice| {
            let count = 1 + dice.roll(5);
            let parts: Vec<_> = (0..count).map(|_| parts[dice.roll(parts.len() as u64) as usize]).collect();
            let slash = if dice.roll(8) == 0 { "/" } else { "" };
            format!("{slash}{}", parts.join("/"))
        };
        for link in ["l1", "a/l1", "a/b/l2", "b/l3", "c/l1", "l2", "a/l3"] {
            let target = match dice.roll(4) {
                0 => place.outside("").display().to_string(),
                1 => "/".into(),
                _ => random(dice),
            };
            if !target.is_empty() {
                symlink(target, place.at(link)).unwrap();
            }
        }
        for _ in 0..400 {
            let name = random(dice);
            for way in WAYS {
                let root = place.root(way);
                match root.open_existing(&name) {
                    Ok(FileOrFolder::File(mut file, _)) => {
                        opened += 1;
                        let mut text = String::new();
                        file.read_to_string(&mut text).unwrap();
                        assert_eq!(text, "inside", "seed {seed}: {name}");
                    }
                    Ok(FileOrFolder::Folder(folder)) => {
                        opened += 1;
                        let number = std::os::fd::AsRawFd::as_raw_fd(&*folder.folder);
                        let real = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
                        assert!(real.starts_with(&base), "seed {seed}: {name} is {}", real.display());
                    }
                    Err(_) => {}
                }
                // Each one waits for the disk.
                if dice.roll(20) == 0 {
                    let _ = root.replace_file(&name, b"inside");
                }
            }
        }
        assert_eq!(fs::read(place.outside("secret")).unwrap(), b"secret", "seed {seed}");
        assert_eq!(fs::read_dir(place.outside("")).unwrap().count(), 1, "seed {seed}");
    }
    assert!(opened > 500, "only {opened} names led anywhere");
}
