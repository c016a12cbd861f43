//! Reasons why a state directory cannot be opened, with advice for the user.

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error(
        "`{}` is on a file system of type {kind}, on which locks and syncs are not reliable, so a journal there can \
         be lost. Choose a directory on a local disk, with `--state DIR` or `SKEIN_STATE`", .dir.display()
    )]
    Network { dir: PathBuf, kind: &'static str },
    #[error(
        "`{}` is on a file system that is mounted read-only. Mount it for writing, or choose another directory with \
         `--state DIR` or `SKEIN_STATE`", .dir.display()
    )]
    ReadOnly { dir: PathBuf },
    #[error(
        "`{}` belongs to user {owner}, but this is user {me}. Run as that user, or choose another directory with \
         `--state DIR` or `SKEIN_STATE`", .path.display()
    )]
    Foreign { path: PathBuf, owner: u32, me: u32 },
    #[error(
        "other users can write to `{}` (its mode is {mode:04o}), so its content cannot be trusted. Check the content, \
         then run `chmod 700` on it", .dir.display()
    )]
    Open { dir: PathBuf, mode: u32 },
    #[error(
        "`{}` is not a regular file, but a link or something else. Put the database itself there, or remove it",
        .path.display()
    )]
    NotAFile { path: PathBuf },
    #[error("`{}` is not a directory. Remove it, or choose another with `--state DIR` or `SKEIN_STATE`", .dir.display())]
    NotADirectory { dir: PathBuf },
    #[error(
        "`{}` is a database, but not one of Skein's. Choose another directory with `--state DIR` or `SKEIN_STATE`",
        .path.display()
    )]
    NotOurs { path: PathBuf },
    #[error(
        "`{}` was written by a newer Skein (format {found}; this one reads up to {known}). Use that version; nothing \
         was changed", .path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "`{}` is in an older format (format {found}; this one writes {known}), and {others} of an older version use it. \
         Stop them and try again", .path.display()
    )]
    InUse { path: PathBuf, found: i64, known: i64, others: String },
    #[error(
        "the file system of `{}` cannot share memory between processes, which the journal needs. Choose a directory \
         on a local disk, with `--state DIR` or `SKEIN_STATE`", .path.display()
    )]
    NoWal { path: PathBuf },
    #[error("`{}`: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("`{}` cannot be opened: {error}", .path.display())]
    Database { path: PathBuf, error: rusqlite::Error },
}
