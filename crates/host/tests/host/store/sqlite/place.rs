//! The directories that are accepted, and the files in them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use skein_host::store::{SqliteStore, Store, StoreOpenError};

use super::{
    super::{child::in_namespace, support::Log},
    raw,
};

fn refused(dir: &Path) -> (StoreOpenError, String) {
    let error = SqliteStore::open(dir).unwrap_err();
    let told = error.to_string();
    (error, told)
}

#[test]
fn a_new_directory_is_for_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a").join("state");
    let store = SqliteStore::open(&state).unwrap();
    Log::create(&store, "r").append(&store, &["0"]).unwrap();
    store.put_blob(b"value").unwrap();
    assert_eq!(fs::read_to_string(state.join(".gitignore")).unwrap(), "*\n");
    let mut waiting = vec![state];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mode = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.mode() & 0o7777, mode, "{}", path.display());
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (error, told) = refused(dir.path());
        assert!(matches!(error, StoreOpenError::Open { .. }) && told.contains("chmod 700"), "{told}");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    SqliteStore::open(dir.path()).unwrap();
}

#[test]
fn a_directory_of_someone_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = if rustix::process::geteuid().is_root() {
        chown(dir.path(), Some(12_345), None).unwrap();
        dir.path()
    } else {
        Path::new("/usr")
    };
    let (error, told) = refused(theirs);
    assert!(matches!(error, StoreOpenError::Foreign { .. }) && told.contains("belongs to user"), "{told}");
}

#[test]
fn a_database_that_is_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    for name in ["skein.db", "skein.db-wal"] {
        let state = dir.path().join(format!("state-{name}"));
        fs::create_dir(&state).unwrap();
        symlink(&elsewhere, state.join(name)).unwrap();
        let (error, told) = refused(&state);
        assert!(matches!(error, StoreOpenError::NotAFile { .. }) && told.contains(name), "{told}");
    }
    assert_eq!(fs::read(&elsewhere).unwrap(), b"");
}

#[test]
fn a_file_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(refused(&file).0, StoreOpenError::NotADirectory { .. }));
}

#[test]
fn a_read_only_file_system_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs tmpfs '{}'", dir.path().display());
    in_namespace(&mount, "read-only", dir.path());
}

#[test]
fn a_newer_database_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    Log::create(&store, "r").append(&store, &["0"]).unwrap();
    drop(store);
    // Some of it is still in the log, as after a crash.
    let db = raw(dir.path());
    db.pragma_update(None, "user_version", 99).unwrap();
    let copy = tempfile::tempdir().unwrap();
    let files = ["skein.db", "skein.db-wal"];
    let mut before = Vec::new();
    for name in files {
        let bytes = fs::read(dir.path().join(name)).unwrap();
        assert!(!bytes.is_empty());
        fs::write(copy.path().join(name), &bytes).unwrap();
        before.push(bytes);
    }
    for _ in 0..2 {
        let (error, told) = refused(copy.path());
        assert!(matches!(error, StoreOpenError::Newer { found: 99, .. }) && told.contains("99"), "{told}");
    }
    let after = files.map(|name| fs::read(copy.path().join(name)).unwrap());
    assert!(before == after);
}
