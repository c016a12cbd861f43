//! The stored form of an index: a file that only saves work. A damaged one is ignored, and everything is read again.

use super::{EntryStamp, FileIndex, IndexedEntry, IndexedFile, IndexedFolder, ObjectId};

/// The first bytes of a stored index; the number changes with the format.
const MAGIC: &[u8] = b"skein file index 1\n";
const HASH: usize = 32;

const FILE: u8 = 1;
const UNSETTLED_FILE: u8 = 2;
const TOO_LARGE: u8 = 3;
const FOLDER: u8 = 4;

impl FileIndex {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.settings);
        write_folder(&self.root, &mut out);
        let hash = blake3::hash(&out);
        out.extend_from_slice(hash.as_bytes());
        out
    }

    /// Reads a stored index. None if it is damaged or has another format.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<FileIndex> {
        let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH)?)?;
        if blake3::hash(content).as_bytes() != hash {
            return None;
        }
        let mut input = IndexInput(content.strip_prefix(MAGIC)?);
        let settings = input.take(HASH)?.try_into().ok()?;
        let root = input.read_folder()?;
        input.0.is_empty().then_some(FileIndex { root, settings })
    }
}

fn write_folder(folder: &IndexedFolder, out: &mut Vec<u8>) {
    write_stamp(&folder.stamp, out);
    out.push(u8::from(folder.settled));
    out.push(u8::from(folder.rules.is_some()));
    if let Some(rules) = &folder.rules {
        write_stamp(rules, out);
    }
    write_bytes(folder.tree.as_ref().map_or(&[], ObjectId::as_bytes), out);
    out.extend_from_slice(&(folder.entries.len() as u64).to_le_bytes());
    for (name, entry) in &folder.entries {
        write_bytes(name, out);
        match entry {
            IndexedEntry::File(file) => {
                out.push(if file.settled { FILE } else { UNSETTLED_FILE });
                write_stamp(&file.stamp, out);
                write_bytes(file.object.as_bytes(), out);
            }
            IndexedEntry::TooLarge(stamp) => {
                out.push(TOO_LARGE);
                write_stamp(stamp, out);
            }
            IndexedEntry::Folder(inner) => {
                out.push(FOLDER);
                write_folder(inner, out);
            }
            IndexedEntry::New => unreachable!("a scan reads or removes every entry"),
        }
    }
}

fn write_stamp(stamp: &EntryStamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&stamp.mode.to_le_bytes());
    for number in [stamp.size, stamp.inode, stamp.device] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [stamp.modified, stamp.changed] {
        out.extend_from_slice(&time.to_le_bytes());
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The rest of a stored index.
struct IndexInput<'a>(&'a [u8]);

impl<'a> IndexInput<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take_byte(&mut self) -> Option<u8> {
        self.take_array::<1>().map(|[byte]| byte)
    }

    fn take_bytes(&mut self) -> Option<&'a [u8]> {
        let count = u16::from_le_bytes(self.take_array()?);
        self.take(usize::from(count))
    }

    fn read_stamp(&mut self) -> Option<EntryStamp> {
        Some(EntryStamp {
            mode: u32::from_le_bytes(self.take_array()?),
            size: u64::from_le_bytes(self.take_array()?),
            inode: u64::from_le_bytes(self.take_array()?),
            device: u64::from_le_bytes(self.take_array()?),
            modified: i64::from_le_bytes(self.take_array()?),
            changed: i64::from_le_bytes(self.take_array()?),
        })
    }

    fn read_folder(&mut self) -> Option<IndexedFolder> {
        let stamp = self.read_stamp()?;
        let settled = self.take_byte()? == 1;
        let rules = if self.take_byte()? == 1 { Some(self.read_stamp()?) } else { None };
        let tree = match self.take_bytes()? {
            [] => None,
            bytes => Some(ObjectId::from_bytes(bytes)?),
        };
        let count = u64::from_le_bytes(self.take_array()?);
        let entries = (0..count).map(|_| Some((self.take_bytes()?.into(), self.read_entry()?)));
        let entries = entries.collect::<Option<_>>()?;
        Some(IndexedFolder { stamp, settled, rules, entries, tree })
    }

    fn read_entry(&mut self) -> Option<IndexedEntry> {
        Some(match self.take_byte()? {
            kind @ (FILE | UNSETTLED_FILE) => IndexedEntry::File(IndexedFile {
                stamp: self.read_stamp()?,
                object: ObjectId::from_bytes(self.take_bytes()?)?,
                settled: kind == FILE,
            }),
            TOO_LARGE => IndexedEntry::TooLarge(self.read_stamp()?),
            FOLDER => IndexedEntry::Folder(self.read_folder()?),
            _ => return None,
        })
    }
}
