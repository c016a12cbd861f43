//! Reserved disk space, so that a cancel can be recorded on a full disk.
//!
//! All processes go by the size of the reserve file. If it is smaller than it should be, space ran out, and only urgent
//! writes are done until the reserve can be allocated again.

use std::{
    fs::{File, OpenOptions},
    io,
};

use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs},
    io::Errno,
};

use super::{
    StoreOpenError,
    state_folder::{StateFolder, open_plain_file, private_options},
};

const BYTES: u64 = 16 * 1024 * 1024;
/// The space that must be free in addition before the reserve is allocated, or it would be released again at once.
const SLACK: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct SpaceReserve(File);

impl SpaceReserve {
    pub(super) fn open(place: &StateFolder) -> Result<SpaceReserve, StoreOpenError> {
        let options = &mut OpenOptions::new();
        open_plain_file(private_options(options.write(true).create(true).truncate(false)), &place.reserve_path())
            .map(SpaceReserve)
    }

    /// True if the reserve exists or could be allocated again.
    pub(super) fn ensure_reserved(&self) -> bool {
        self.len() >= BYTES || self.allocate().is_ok()
    }

    /// Releases the space for urgent writes. Returns false if there was none.
    pub(super) fn release_space(&self) -> bool {
        self.len() > 0 && self.0.set_len(0).is_ok()
    }

    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |meta| meta.len())
    }

    fn allocate(&self) -> io::Result<()> {
        let disk = fstatvfs(&self.0)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < BYTES + SLACK {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let made = match fallocate(&self.0, FallocateFlags::empty(), 0, BYTES) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.fill_with_zeros(),
            made => made.map_err(io::Error::from),
        };
        if made.is_err() {
            // A part of it would be space that nobody can use.
            let _ = self.0.set_len(0);
        }
        made
    }

    /// Allocates the space by writing, for file systems without `fallocate`.
    fn fill_with_zeros(&self) -> io::Result<()> {
        io::Seek::rewind(&mut &self.0)?;
        io::copy(&mut io::Read::take(io::repeat(0), BYTES), &mut &self.0).map(drop)
    }
}
