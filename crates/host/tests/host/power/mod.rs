//! Power loss (A4): acknowledged data is present, whatever part of the rest the disk had written by then.
//!
//! A process runs under `strace`, which records every call that changes a file. [`trace`] parses the record, [`disk`]
//! simulates a disk that loses power after these calls, and the tests open its possible contents at many moments. To
//! run many more of them:
//!
//! ```text
//! cargo test -p skein-host --test host -- --ignored --nocapture many_losses
//! ```

mod artifact;
mod disk;
mod journal;
mod trace;

pub(crate) use artifact::{left_before as artifact_left_before, play as artifact};
pub(crate) use journal::play as journal;

/// A folder in memory where possible, for data that is written and read many times.
fn memory() -> tempfile::TempDir {
    let shared = std::path::Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap()
}
