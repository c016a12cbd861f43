//! The loss of power (A4): what was acknowledged is there, whatever of the rest the disk had written by then.
//!
//! A process works under `strace`, which writes down every call that changes a file. [`trace`] reads that, [`disk`] keeps
//! what the calls leave on a disk that was cut off, and the tests open what it may hold at many moments. Many more of
//! them:
//!
//! ```text
//! cargo test -p skein-host --test host -- --ignored --nocapture many_losses
//! ```

mod artifact;
mod disk;
mod journal;
mod trace;

pub use artifact::{left_before as artifact_left_before, play as artifact};
pub use journal::play as journal;

/// A folder that costs no disk where there is one, for what is written and read many times.
fn memory() -> tempfile::TempDir {
    let shared = std::path::Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap()
}
