use std::{
    fs,
    os::unix::{
        ffi::OsStringExt,
        fs::{PermissionsExt, symlink},
    },
    process::Command,
    thread,
    time::Duration,
};

use super::*;

/// A repository, an index of it, and git as the judge.
struct IndexedRepository {
    folder: tempfile::TempDir,
    index: FileIndex,
    objects: ObjectStore,
    prefix: PathBuf,
    largest: Option<u64>,
}

impl IndexedRepository {
    fn new() -> IndexedRepository {
        let folder = tempfile::tempdir().unwrap();
        let repository = folder.path().join("top");
        fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "--quiet"]);
        let objects = repository.join(".git/objects");
        IndexedRepository {
            index: FileIndex::default(),
            objects: ObjectStore::new(objects, "sha1"),
            prefix: PathBuf::new(),
            largest: None,
            folder,
        }
    }

    fn top(&self) -> PathBuf {
        self.folder.path().join("top")
    }

    fn write(&self, name: &str, text: &str) -> &IndexedRepository {
        let path = self.top().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn settings(&self) -> ScanSettings<'_> {
        let excluded = fs::read(self.top().join(".git/info/exclude")).unwrap_or_default();
        let forced = git_bytes(&self.top(), &["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"]);
        let forced = forced.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
        let (prefix, largest) = (self.prefix.as_path(), self.largest);
        ScanSettings { prefix, obeys_rules: true, rules: vec![excluded], forced, largest, limits: None }
    }

    fn try_scan(&mut self) -> Result<ScannedTree, ScanError> {
        let top = File::open(self.top()).unwrap();
        let mut index = std::mem::take(&mut self.index);
        let scanned = index.scan(top.as_fd(), &self.settings(), &self.objects);
        self.index = index;
        scanned
    }

    fn scan(&mut self) -> ScannedTree {
        self.try_scan().unwrap()
    }

    /// The tree that git itself makes of the files.
    fn tree_of_git(&self) -> String {
        let index = self.folder.path().join("judge");
        let _ = fs::remove_file(&index);
        let own = self.top().join(".git/index");
        if own.exists() {
            fs::copy(own, &index).unwrap();
        }
        let run = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.args(["-c", "core.autocrlf=false"]).args(arguments).current_dir(self.top());
            let output = command.env("GIT_INDEX_FILE", &index).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        run(&["add", "--all"]);
        // Repositories inside of this one are no part of a snapshot.
        for line in run(&["ls-files", "--stage"]).lines().filter(|line| line.starts_with("160000")) {
            run(&["update-index", "--force-remove", line.split('\t').nth(1).unwrap()]);
        }
        run(&["write-tree"])
    }

    /// Scans, and compares the tree with git's and with that of a new index.
    fn check(&mut self) -> ScannedTree {
        let scanned = self.scan();
        assert_eq!(scanned.tree.to_string(), self.tree_of_git());
        let stored = FileIndex::from_bytes(&self.index.to_bytes()).expect("it can be read");
        assert_eq!(stored, self.index);
        scanned
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    drop(git_bytes(folder, arguments));
}

fn git_bytes(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let output = Command::new("git").args(who).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Waits until stamps prove that nothing has changed since.
fn grow_old() {
    thread::sleep(Duration::from_nanos(u64::try_from(YOUNG_NANOS).unwrap()) + Duration::from_millis(20));
}

#[test]
fn empty_folder_has_the_empty_tree() {
    let mut repository = IndexedRepository::new();
    fs::create_dir_all(repository.top().join("a/b")).unwrap();
    let scanned = repository.check();
    assert_eq!((scanned.files, scanned.bytes), (0, 0));
}

#[test]
fn names_are_ordered_as_git_orders_them() {
    let mut repository = IndexedRepository::new();
    repository.write("a.b", "2").write("a-b", "3").write("a/x", "1").write("ab", "4").write("a0/y", "5");
    let odd = std::ffi::OsString::from_vec(b"new\nline \xff\"".to_vec());
    fs::write(repository.top().join(odd), "6").unwrap();
    assert_eq!(repository.check().files, 6);
}

#[test]
fn links_and_modes_are_kept_and_special_files_are_not() {
    let mut repository = IndexedRepository::new();
    repository.write("run", "#!/bin/sh\n").write("folder/file", "x");
    fs::set_permissions(repository.top().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("folder", repository.top().join("to-folder")).unwrap();
    symlink("nowhere", repository.top().join("to-nothing")).unwrap();
    assert!(Command::new("mkfifo").arg(repository.top().join("pipe")).status().unwrap().success());
    assert_eq!(repository.check().files, 4);
    fs::set_permissions(repository.top().join("run"), fs::Permissions::from_mode(0o644)).unwrap();
    repository.check();
    // A folder that becomes a link is not entered.
    fs::remove_dir_all(repository.top().join("folder")).unwrap();
    symlink("/", repository.top().join("folder")).unwrap();
    assert_eq!(repository.check().files, 4);
}

#[test]
fn changes_are_found() {
    let mut repository = IndexedRepository::new();
    repository.write("a/b/c", "1").write("a/d", "2").write("e", "3");
    let first = repository.check();
    assert!(first.changed);
    grow_old();
    let second = repository.check();
    assert_eq!(second.tree, first.tree);
    assert!(!repository.check().changed, "everything is old and unchanged");
    repository.write("a/b/c", "one");
    let third = repository.check();
    assert!(third.changed && third.tree != first.tree);
    fs::remove_file(repository.top().join("a/b/c")).unwrap();
    repository.check();
    repository.write("a/b/new/deep", "4");
    repository.check();
    fs::rename(repository.top().join("a"), repository.top().join("z")).unwrap();
    repository.check();
    fs::remove_dir_all(repository.top().join("z")).unwrap();
    fs::write(repository.top().join("z"), "a file now").unwrap();
    assert_eq!(repository.check().files, 2);
}

/// A program that writes the same number of bytes and sets the old time again changes the file all the same.
#[test]
fn change_with_the_old_size_and_time_is_found() {
    let mut repository = IndexedRepository::new();
    repository.write("a", "one");
    let path = repository.top().join("a");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    for wait in [true, false] {
        if wait {
            grow_old();
        }
        let before = repository.check();
        fs::write(&path, if wait { "two" } else { "six" }).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_ne!(repository.check().tree, before.tree);
    }
}

#[test]
fn ignore_rules_are_obeyed() {
    let mut repository = IndexedRepository::new();
    repository.write(".gitignore", "*.log\n/build/\n!keep.log\ndeep/**/x\n# comment\n\\#odd\n");
    repository.write("a.log", "").write("keep.log", "").write("build/out", "").write("sub/build/out", "");
    repository.write("sub/.gitignore", "!a.log\nsecret\n").write("sub/a.log", "").write("sub/secret/x", "");
    repository.write("deep/1/2/x", "").write("deep/1/y", "").write("#odd", "").write("other", "");
    fs::write(repository.top().join(".git/info/exclude"), "other\n").unwrap();
    repository.check();
    // New rules apply to files that have not changed.
    grow_old();
    repository.check();
    repository.write("sub/.gitignore", "secret\n");
    repository.check();
    fs::remove_file(repository.top().join(".gitignore")).unwrap();
    repository.check();
    fs::write(repository.top().join(".git/info/exclude"), "").unwrap();
    repository.check();
}

#[test]
fn tracked_files_belong_to_it_although_a_rule_excludes_them() {
    let mut repository = IndexedRepository::new();
    repository.write(".gitignore", "out/\n").write("out/kept", "1").write("out/left", "2").write("out/in/kept", "3");
    git(&repository.top(), &["add", "--force", "out/kept", "out/in/kept"]);
    assert_eq!(repository.check().files, 3);
    repository.write("out/new", "4");
    assert_eq!(repository.check().files, 3);
    git(&repository.top(), &["rm", "--quiet", "--cached", "out/kept"]);
    assert_eq!(repository.check().files, 2);
}

#[test]
fn nested_repositories_are_left_out() {
    let mut repository = IndexedRepository::new();
    repository.write("a", "1").write("inner/b", "2");
    repository.check();
    git(&repository.top().join("inner"), &["init", "--quiet"]);
    repository.write("inner/c", "3");
    git(&repository.top().join("inner"), &["add", "--all"]);
    git(&repository.top().join("inner"), &["commit", "--quiet", "--message=x"]);
    assert_eq!(repository.check().files, 1);
    fs::remove_dir_all(repository.top().join("inner/.git")).unwrap();
    assert_eq!(repository.check().files, 3);
}

#[test]
fn large_files_are_left_out_and_counted() {
    let mut repository = IndexedRepository::new();
    repository.largest = Some(10);
    repository.write("small", "1");
    let small = repository.check();
    repository.write("large", "more than ten bytes");
    let both = repository.scan();
    assert_eq!((both.tree, both.left_out, both.files), (small.tree, 1, 1));
    repository.write("large", "less");
    assert_eq!(repository.check().left_out, 0);
}

#[test]
fn part_of_a_repository_is_scanned_alone() {
    let mut repository = IndexedRepository::new();
    repository.write(".gitignore", "*.log\n").write("a/b/c", "1").write("a/b/x.log", "").write("a/d", "2");
    repository.prefix = "a/b".into();
    let scanned = repository.scan();
    assert_eq!(scanned.files, 1);
    let listed = git_bytes(&repository.top(), &["ls-tree", "-r", "--name-only", &scanned.tree.to_string()]);
    assert_eq!(listed, b"a/b/c\n");
    grow_old();
    repository.scan();
    repository.write(".gitignore", "");
    assert_eq!(repository.scan().files, 2);
    repository.write(".gitignore", "/a\n");
    assert_eq!(repository.scan().files, 0);
    repository.prefix = "gone".into();
    assert_eq!(repository.scan().files, 0);
}

#[test]
fn folder_over_the_limit_is_refused() {
    let mut repository = IndexedRepository::new();
    repository.write("a", "1").write("b", "22");
    let top = File::open(repository.top()).unwrap();
    let mut index = FileIndex::default();
    for (limits, fits) in [((2, 3), true), ((1, 3), false), ((2, 2), false)] {
        let settings = ScanSettings { limits: Some(limits), ..repository.settings() };
        match index.scan(top.as_fd(), &settings, &repository.objects) {
            Ok(_) => assert!(fits, "{limits:?}"),
            Err(ScanError::OverLimit { files, bytes }) => assert_eq!((files, bytes, fits), (2, 3, false)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(repository.check().files, 2);
}

#[test]
fn large_content_is_written_piece_by_piece() {
    let mut repository = IndexedRepository::new();
    let text = "0123456789abcdef".repeat(600_000);
    repository.write("large", &text);
    let scanned = repository.check();
    let content = git_bytes(&repository.top(), &["cat-file", "blob", &format!("{}:large", scanned.tree)]);
    assert_eq!(content, text.as_bytes());
    let left = fs::read_dir(repository.top().join(".git/objects")).unwrap();
    let left = left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("tmp"));
    assert_eq!(left.count(), 0, "no temporary file is left");
}

#[test]
fn borrowed_objects_are_not_written() {
    let mut repository = IndexedRepository::new();
    repository.write("a", "content");
    let id = git_bytes(&repository.top(), &["hash-object", "a"]);
    let id = ObjectId::from_hex(id.trim_ascii()).unwrap();
    repository.objects.borrow_objects([id]);
    repository.scan();
    assert!(!repository.objects.object_path(id).exists());
    assert_eq!(ObjectId::from_hex(b"abc"), None);
    assert_eq!(ObjectId::from_hex(b"zz"), None);
}

#[test]
fn damaged_index_is_not_read() {
    let mut repository = IndexedRepository::new();
    repository.write("a/b", "1").write("c", "2");
    repository.scan();
    let bytes = repository.index.to_bytes();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        assert_eq!(FileIndex::from_bytes(&damaged), None, "byte {place}");
        assert_eq!(FileIndex::from_bytes(&bytes[..place]), None, "cut at {place}");
    }
}

/// Random operations, each followed by a comparison with git.
#[test]
fn random_changes_are_found() {
    let mut repository = IndexedRepository::new();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    for _ in 0..150 {
        for _ in 0..draw(4) {
            let folder = ["", "a/", "a/b/", "c/", "c/a/b/"][usize::try_from(draw(5)).unwrap()];
            let name = ["one", "two", "x.log", ".gitignore", "a"][usize::try_from(draw(5)).unwrap()];
            let path = repository.top().join(format!("{folder}{name}"));
            let _ = fs::create_dir_all(path.parent().unwrap());
            let text = ["", "one\n", "*.log\n", "/two\n", "!x.log\n", "a/\n"][usize::try_from(draw(6)).unwrap()];
            let _ = match draw(6) {
                0 => fs::remove_file(&path),
                1 => fs::remove_dir_all(&path),
                2 => symlink("one", &path),
                3 => fs::rename(repository.top().join("a"), repository.top().join("c/moved")),
                _ => fs::write(&path, text),
            };
        }
        repository.check();
    }
}
