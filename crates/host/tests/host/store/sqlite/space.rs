//! Disks that are full, or cannot be written.

use std::{fs, path::Path, process::Command};

use skein_host::store::{AppendError, SqliteStore, Store, StoreError, StoreOpenError};

use super::super::{
    child::in_namespace,
    support::{Log, append, new_run, texts},
};

const MIB: u64 = 1024 * 1024;

#[test]
fn a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=64m tmpfs '{}'", dir.path().display());
    in_namespace(&mount, "full-disk", dir.path());
}

/// In a process of its own, on a disk of 64 MiB.
pub(crate) fn full_disk(disk: &Path) {
    let (state, ballast) = (disk.join("state"), disk.join("ballast"));
    let reserve = || fs::metadata(state.join("reserve")).unwrap().len();
    fs::write(&ballast, vec![1; 24 * MIB as usize]).unwrap();
    let store = SqliteStore::open(&state).unwrap();
    let mut log = Log::create(&store, "r");
    assert_eq!(reserve(), 16 * MIB);

    let text = "x".repeat(100_000);
    let mut written = 0;
    let error = loop {
        match log.append(&store, &[&text]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000, "64 MiB hold no more");
    };
    assert_eq!(error, AppendError::NoSpace);
    assert!(written > 20, "{written}");
    // The reserve is for urgent rows alone.
    assert_eq!(log.append(&store, &["small"]), Err(AppendError::NoSpace));
    assert!(matches!(store.create_runs(&[new_run("new")]), Err(StoreError::NoSpace)));
    let mut cancel = log.row(&["cancel"]);
    cancel.urgent = true;
    log.wrote(&cancel.batch.clone());
    append(&store, cancel).unwrap();
    assert_eq!(log.append(&store, &["small"]), Err(AppendError::NoSpace));
    assert_eq!(reserve(), 0);

    fs::remove_file(&ballast).unwrap();
    log.append(&store, &["goes on"]).unwrap();
    assert_eq!(reserve(), 16 * MIB);
    drop(store);

    let read = texts(&SqliteStore::open(&state).unwrap(), "r");
    assert_eq!(read.len(), written + 2);
    assert!(read[..written].iter().all(|found| *found == text));
    assert_eq!(read[written..], ["cancel", "goes on"]);
}

/// In a process of its own, on a disk that becomes read-only.
pub(crate) fn read_only(disk: &Path) {
    let state = disk.join("state");
    drop(SqliteStore::open(&state).unwrap());
    let remount = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(disk).status().unwrap();
    assert!(remount.success());
    for dir in [state, disk.join("new")] {
        let error = SqliteStore::open(&dir).unwrap_err();
        assert!(matches!(error, StoreOpenError::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("read-only"), "{error}");
    }
}
