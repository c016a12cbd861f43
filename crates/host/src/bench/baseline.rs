//! The baseline: the speed of the machine without Skein.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::BenchError;

/// A row of about the size that one step adds to a journal.
const ROW: [u8; 300] = [7; 300];

/// Times `count` commits of one small row by one writer, each synced like those of the journal.
pub fn time_commits(folder: &Path, count: usize) -> Result<Duration, BenchError> {
    let path = folder.join("commits.db");
    let db = rusqlite::Connection::open(&path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    crate::store::configure_connection(&db)?;
    db.execute_batch("CREATE TABLE t (x BLOB)")?;
    let began = Instant::now();
    for _ in 0..count {
        db.prepare_cached("INSERT INTO t VALUES (?1)")?.execute([&ROW[..]])?;
    }
    let took = began.elapsed();
    drop(db);
    fs::remove_file(path)?;
    Ok(took)
}

/// Times `count` small appends to a file, each synced.
pub fn time_syncs(folder: &Path, count: usize) -> Result<Duration, BenchError> {
    let path = folder.join("syncs");
    let mut file = File::create(&path)?;
    let began = Instant::now();
    for _ in 0..count {
        file.write_all(&ROW)?;
        file.sync_data()?;
    }
    let took = began.elapsed();
    fs::remove_file(path)?;
    Ok(took)
}

/// Times `count` processes that do nothing, `at_once` in parallel.
pub fn time_spawns(count: usize, at_once: usize) -> Result<Duration, BenchError> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let work = || {
        while next.fetch_add(1, Ordering::Relaxed) < count {
            check_success(Command::new("true"))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| {
            one.join().unwrap_or_else(|_| Err(BenchError::Failed("a thread that starts processes failed".into())))
        })
    })?;
    Ok(began.elapsed())
}

/// Times the same with `make`. Returns `None` if it is not installed.
pub fn time_make(folder: &Path, count: usize, at_once: usize) -> Result<Option<Duration>, BenchError> {
    let targets: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
    let targets = targets.join(" ");
    let text = format!(".PHONY: all {targets}\nall: {targets}\n{targets}:\n\t@true\n");
    fs::write(folder.join("Makefile"), text)?;
    let mut command = Command::new("make");
    command.arg(format!("-j{at_once}")).current_dir(folder).env_remove("MAKEFLAGS");
    let began = Instant::now();
    match check_success(command) {
        Ok(()) => Ok(Some(began.elapsed())),
        Err(BenchError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_success(mut command: Command) -> Result<(), BenchError> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let name = || command.get_program().to_string_lossy().into_owned();
    status.success().then_some(()).ok_or_else(|| BenchError::Failed(format!("`{}` failed: {status}", name())))
}
