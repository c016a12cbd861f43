//! Objects of a git repository, written without git: blobs and trees as loose objects.
//!
//! Owns the format of loose objects and their names. An object is written to a temporary file first and then moved, so
//! that a crash never leaves a part of one under its name. Objects that the user's repository is known to have are not
//! written again.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::ZlibEncoder};
use ring::digest::{self, Algorithm, Context};

use crate::system;

/// The maximum size of an object whose bytes are held in memory while it is written.
const IN_MEMORY: u64 = 4 * 1024 * 1024;
/// The size of a piece of a larger object.
const PIECE: usize = 256 * 1024;
/// The longest name of an object in bytes.
const LONGEST: usize = 32;

/// The name of a git object: the hash of its content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    bytes: [u8; LONGEST],
    length: u8,
}

impl ObjectId {
    pub(crate) fn from_bytes(given: &[u8]) -> Option<ObjectId> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..given.len())?.copy_from_slice(given);
        Some(ObjectId { bytes, length: u8::try_from(given.len()).ok()? })
    }

    pub(crate) fn from_hex(text: &[u8]) -> Option<ObjectId> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let pairs = text.chunks_exact(2);
        let bytes: Option<Vec<u8>> = if pairs.remainder().is_empty() { pairs.map(pair).collect() } else { None };
        ObjectId::from_bytes(&bytes?)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The kind of a git object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Blob,
    Tree,
}

impl ObjectKind {
    fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Blob => "blob",
            ObjectKind::Tree => "tree",
        }
    }
}

/// The objects folder of a snapshot repository.
#[derive(Debug)]
pub(crate) struct ObjectStore {
    folder: PathBuf,
    algorithm: &'static Algorithm,
    /// Objects that a repository has from which this one borrows.
    borrowed: BTreeSet<ObjectId>,
}

impl ObjectStore {
    /// Opens the objects folder of a repository with this object format.
    pub(crate) fn new(folder: PathBuf, format: &str) -> ObjectStore {
        let algorithm = if format == "sha256" { &digest::SHA256 } else { &digest::SHA1_FOR_LEGACY_USE_ONLY };
        ObjectStore { folder, algorithm, borrowed: BTreeSet::new() }
    }

    /// Names objects that need not be written.
    pub(crate) fn borrow_objects(&mut self, objects: impl IntoIterator<Item = ObjectId>) {
        self.borrowed.extend(objects);
    }

    /// Writes an object, unless it exists.
    pub(crate) fn write_bytes(&self, kind: ObjectKind, content: &[u8]) -> io::Result<ObjectId> {
        let header = object_header(kind, content.len() as u64);
        let mut context = Context::new(self.algorithm);
        context.update(&header);
        context.update(content);
        let id = finish_id(context);
        if self.has_object(id) {
            return Ok(id);
        }
        let mut pending = PendingObject::create(&self.folder)?;
        pending.write_all(&header)?;
        pending.write_all(content)?;
        pending.move_to(&self.object_path(id))?;
        Ok(id)
    }

    /// Writes the content of a file as a blob, unless it exists. Returns None if the file does not have `size` bytes:
    /// it was changed while it was read.
    pub(crate) fn write_file(&self, file: &mut File, size: u64) -> io::Result<Option<ObjectId>> {
        if size > IN_MEMORY {
            return self.write_large_file(file, size);
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        file.take(size + 1).read_to_end(&mut content)?;
        if content.len() as u64 != size {
            return Ok(None);
        }
        self.write_bytes(ObjectKind::Blob, &content).map(Some)
    }

    /// Writes a blob piece by piece. Its name is known only after all of it has been compressed.
    fn write_large_file(&self, file: &mut File, size: u64) -> io::Result<Option<ObjectId>> {
        let header = object_header(ObjectKind::Blob, size);
        let mut context = Context::new(self.algorithm);
        context.update(&header);
        let mut pending = PendingObject::create(&self.folder)?;
        pending.write_all(&header)?;
        let (mut piece, mut left) = (vec![0; PIECE], size);
        loop {
            let read = file.read(&mut piece)?;
            let Some(rest) = left.checked_sub(read as u64) else { return Ok(None) };
            if read == 0 {
                break;
            }
            left = rest;
            context.update(&piece[..read]);
            pending.write_all(&piece[..read])?;
        }
        if left > 0 {
            return Ok(None);
        }
        let id = finish_id(context);
        if !self.has_object(id) {
            pending.move_to(&self.object_path(id))?;
        }
        Ok(Some(id))
    }

    fn has_object(&self, id: ObjectId) -> bool {
        self.borrowed.contains(&id) || self.object_path(id).exists()
    }

    pub(super) fn object_path(&self, id: ObjectId) -> PathBuf {
        let mut name = String::with_capacity(2 * LONGEST + 1);
        for (i, byte) in id.as_bytes().iter().enumerate() {
            let slash = if i == 1 { "/" } else { "" };
            let _ = write!(name, "{slash}{byte:02x}");
        }
        self.folder.join(name)
    }
}

fn object_header(kind: ObjectKind, size: u64) -> Vec<u8> {
    format!("{} {size}\0", kind.as_str()).into_bytes()
}

fn finish_id(context: Context) -> ObjectId {
    ObjectId::from_bytes(context.finish().as_ref()).expect("no digest is longer than the longest name")
}

/// An object that is being written. Dropping it removes its file.
struct PendingObject {
    path: PathBuf,
    file: Option<ZlibEncoder<File>>,
}

impl PendingObject {
    fn create(folder: &Path) -> io::Result<PendingObject> {
        let path = folder.join(format!("tmp_obj_{}", system::random_hex::<8>()));
        let file = File::create_new(&path)?;
        Ok(PendingObject { path, file: Some(ZlibEncoder::new(file, Compression::fast())) })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    /// Completes the object and gives it its name.
    fn move_to(mut self, place: &Path) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            drop(file.finish()?);
        }
        match fs::rename(&self.path, place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(place.parent().unwrap_or(place))?;
                fs::rename(&self.path, place)
            }
            other => other,
        }
    }
}

impl Drop for PendingObject {
    fn drop(&mut self) {
        // After the move there is nothing to remove.
        let _ = fs::remove_file(&self.path);
    }
}
