//! The output of a worker on its way through the filters, into the log and to the progress callback.
//!
//! Owns that path, the log on disk (its beginning and its end, however much there is, and the line that reports what
//! was cut between them), and the most recent output for a live display and for error messages. Never holds more than a
//! piece of the output at a time, never fails an attempt because of its log, and does not know the meaning of the
//! bytes. The beginning goes to the log itself. The rest goes to a ring buffer in a second file beside it, which is
//! appended to the log when the attempt ends, or by [`repair_log`] if the engine died before.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    mem,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use skein_core::limits;

use crate::{
    process::{OutputFilter, ProgressCallback, process_spec::ProcessSpec},
    terminal_escape::escape_for_terminal,
};

/// The minimum interval between progress reports.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The stream that a piece came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputStream {
    /// Standard output alone.
    Out,
    /// Standard error alone, or both in one.
    Both,
}

pub(super) struct ProcessOutput {
    log: WorkerLog,
    stdout: Option<WorkerLog>,
    filters: Option<[Box<dyn OutputFilter>; 2]>,
    filtered: Vec<u8>,
    recent: RecentOutput,
    tell: Option<ProgressCallback>,
    /// The earliest time of the next report, and whether there is something to report.
    next: Option<Instant>,
    news: bool,
}

impl ProcessOutput {
    pub(super) fn new(task: &mut ProcessSpec) -> ProcessOutput {
        let log = |path: &Path| WorkerLog::create(path, LogRetention::DEFAULT);
        let mut whole = log(&task.log);
        task.preface.iter().for_each(|note| whole.write(format!("[skein: {note}]\n").as_bytes()));
        ProcessOutput {
            log: whole,
            stdout: task.stdout.as_deref().map(log),
            filters: task.filter.as_ref().map(|new| [new(), new()]),
            filtered: Vec::new(),
            recent: RecentOutput::default(),
            tell: task.tell.take(),
            next: None,
            news: false,
        }
    }

    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(filters) = &mut self.filters else { return self.write_logs(stream, bytes) };
        let mut filtered = mem::take(&mut self.filtered);
        filters[stream as usize].push(bytes, &mut filtered);
        self.write_logs(stream, &filtered);
        filtered.clear();
        self.filtered = filtered;
    }

    fn write_logs(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.log.write(bytes);
        if let (OutputStream::Out, Some(stdout)) = (stream, &mut self.stdout) {
            stdout.write(bytes);
        }
        self.recent.push(bytes);
        self.news |= bytes.contains(&b'\n');
    }

    /// The time of the next report, if there is something to report.
    pub(super) fn progress_due(&self, now: Instant) -> Option<Instant> {
        (self.news && self.tell.is_some()).then(|| self.next.unwrap_or(now))
    }

    pub(super) fn report_progress(&mut self, now: Instant) {
        if self.progress_due(now).is_some_and(|due| due <= now) {
            self.report_now();
            self.next = now.checked_add(TELL_EVERY);
        }
    }

    fn report_now(&mut self) {
        self.news = false;
        if let (Some(tell), Some(line)) = (&mut self.tell, self.recent.last_line()) {
            tell(&line);
        }
    }

    /// Ends all streams. Returns the reports of the log and of the standard output file, and the recent output.
    pub(super) fn finish(mut self) -> (LogReport, Option<LogReport>, RecentOutput) {
        for (stream, mut filter) in
            [OutputStream::Out, OutputStream::Both].into_iter().zip(self.filters.take().into_iter().flatten())
        {
            let mut rest = Vec::new();
            filter.finish(&mut rest);
            self.write_logs(stream, &rest);
        }
        if self.news {
            self.report_now();
        }
        (self.log.finish(), self.stdout.map(WorkerLog::finish), self.recent)
    }
}

/// The number of bytes kept.
const BYTES: usize = 8 * 1024;
/// The part that an error message shows.
const TAIL_LINES: usize = 12;
const TAIL_BYTES: usize = 2 * 1024;
const LINE_BYTES: usize = 512;
/// The maximum that is passed to another worker.
const RECENT_BYTES: usize = limits::CHECK_OUTPUT_BYTES;

#[derive(Debug, Default)]
pub(super) struct RecentOutput {
    bytes: Vec<u8>,
}

/// Returns the last `most` bytes, starting at the beginning of a character if possible.
fn last_bytes(bytes: &[u8], most: usize) -> &[u8] {
    let mut from = bytes.len().saturating_sub(most);
    let near = bytes.len().min(from + 3);
    while from > 0 && from < near && (0x80..0xc0).contains(&bytes[from]) {
        from += 1;
    }
    &bytes[from..]
}

impl RecentOutput {
    pub(super) fn push(&mut self, piece: &[u8]) {
        let piece = &piece[piece.len().saturating_sub(BYTES)..];
        let over = (self.bytes.len() + piece.len()).saturating_sub(BYTES);
        self.bytes.drain(..over);
        self.bytes.extend_from_slice(piece);
    }

    /// The last complete line that is not blank.
    pub(super) fn last_line(&self) -> Option<String> {
        let end = self.bytes.iter().rposition(|b| *b == b'\n')?;
        let mut lines = self.bytes[..end].rsplit(|b| *b == b'\n');
        let line = lines.find(|line| !line.trim_ascii().is_empty())?;
        let line = line.trim_ascii_end();
        // The beginning of a line says most.
        let line = escape_for_terminal(&line[..line.len().min(LINE_BYTES)]);
        Some(line)
    }

    /// The last complete lines within a few kibibytes, safe to show.
    pub(super) fn recent_lines(&self) -> String {
        let all = self.bytes.trim_ascii_end();
        let mut bytes = last_bytes(all, RECENT_BYTES);
        if bytes.len() < all.len()
            && let Some(end) = bytes.iter().position(|b| *b == b'\n')
        {
            bytes = &bytes[end + 1..];
        }
        escape_for_terminal(bytes)
    }

    /// The last lines, safe to show.
    pub(super) fn tail_lines(&self) -> String {
        let bytes = last_bytes(self.bytes.trim_ascii_end(), TAIL_BYTES);
        let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        lines[from..].iter().map(|line| escape_for_terminal(line.trim_ascii_end())).collect::<Vec<_>>().join("\n")
    }
}

/// The number of bytes kept of the beginning and of the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogRetention {
    pub head: u64,
    pub tail: u64,
}

impl LogRetention {
    pub(super) const DEFAULT: LogRetention =
        LogRetention { head: limits::LOG_BYTES as u64 / 4, tail: limits::LOG_BYTES as u64 / 4 * 3 };
}

/// The result of writing a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogReport {
    /// The number of bytes printed.
    pub bytes: u64,
    /// The number of those bytes that are in the file, without the lines that report cuts.
    pub kept: u64,
    /// True if some bytes are missing.
    pub cut: bool,
    /// The reason why the log could not be written, if it could not.
    pub problem: Option<String>,
}

/// A log being written. Errors are recorded in the report and never returned to the writer.
#[derive(Debug)]
pub(super) struct WorkerLog {
    path: PathBuf,
    keep: LogRetention,
    head: Option<File>,
    ring: Option<LogRing>,
    /// The number of bytes given, and of those in the head.
    bytes: u64,
    in_head: u64,
    problem: Option<String>,
}

/// Appends a suffix to the file name of a path.
pub(super) fn append_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

const RING: &str = ".tail";
/// The disk space that a log reserves from the beginning.
const ROOM: u64 = 4096;

/// Creates a private file, never through a link.
fn create_private_file(path: &Path) -> io::Result<File> {
    private_file_options(true).open(path)
}

/// Returns options for a private file, which is created if there is none.
pub(super) fn private_file_options(empty: bool) -> OpenOptions {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(empty).mode(0o600).custom_flags(nofollow);
    options
}

impl WorkerLog {
    pub(super) fn create(path: &Path, keep: LogRetention) -> WorkerLog {
        let (head, problem) = match create_private_file(path) {
            Ok(file) => {
                // Reserves space for the closing line in case the disk fills up. A failure is ignored.
                let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, ROOM);
                (Some(file), None)
            }
            Err(error) => (None, Some(format!("the log {} cannot be created: {error}", path.display()))),
        };
        WorkerLog { path: path.to_owned(), keep, head, ring: None, bytes: 0, in_head: 0, problem }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.problem.is_some() {
            return;
        }
        let room = self.keep.head.saturating_sub(self.in_head);
        let (first, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        let written = self.write_head(first).and_then(|()| self.write_ring(rest));
        if let Err(error) = written {
            self.problem = Some(format!("the log {} cannot be written: {error}", self.path.display()));
        }
    }

    fn write_head(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(head) = &mut self.head else { return Ok(()) };
        while !bytes.is_empty() {
            match head.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.in_head += n as u64;
                    bytes = &bytes[n..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_ring(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.ring.is_none() {
            let file = create_private_file(&append_suffix(&self.path, RING))?;
            self.ring = Some(LogRing { file, head: self.in_head, size: self.keep.tail, through: 0 });
        }
        self.ring.as_mut().map_or(Ok(()), |ring| ring.write(bytes))
    }

    /// Appends the end to the beginning.
    pub(super) fn finish(mut self) -> LogReport {
        let ring = self.ring.take();
        let in_ring = ring.as_ref().map_or(0, |ring| ring.through.min(ring.size));
        let mut kept = self.in_head;
        if let Some(head) = &mut self.head {
            let joined = ring.map_or(Ok(()), |ring| ring.append_to_log(head));
            match joined {
                Ok(()) => kept += in_ring,
                Err(error) => {
                    let why = format!("the end of the log {} cannot be added: {error}", self.path.display());
                    self.problem.get_or_insert(why);
                }
            }
            if let Some(problem) = &self.problem {
                write_closing_line(head, problem);
            }
        }
        if in_ring > 0 {
            // A file that cannot be removed is harmless: `repair_log` would only append it again.
            let _ = fs::remove_file(append_suffix(&self.path, RING));
        }
        LogReport { bytes: self.bytes, kept, cut: kept < self.bytes, problem: self.problem }
    }
}

/// Writes the reason why a log ends early. On a full disk it overwrites the last bytes.
fn write_closing_line(log: &mut File, problem: &str) {
    let line = format!("\n[skein: the log ends here: {problem}]\n");
    let end = log.seek(SeekFrom::End(0)).unwrap_or(0);
    if log.write_all_at(line.as_bytes(), end).is_err() {
        let _ = log.write_all_at(line.as_bytes(), end.saturating_sub(line.len() as u64));
    }
}

/// The last bytes of a stream, in a file of bounded size. A trailer holds the number of bytes that passed through, and
/// the number of bytes in the log.
#[derive(Debug)]
struct LogRing {
    file: File,
    head: u64,
    size: u64,
    /// The number of bytes that passed through.
    through: u64,
}

/// Combined with the numbers of the trailer, so that another file is not mistaken for a ring.
const STATE: usize = 32;
const SEAL: u64 = 0x736b_6569_6e2d_7265;

impl LogRing {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        // Only the end of a piece longer than the ring would remain.
        if let Some(skip) = (bytes.len() as u64).checked_sub(self.size) {
            self.through += skip;
            bytes = &bytes[usize::try_from(skip).unwrap_or(0)..];
        }
        while !bytes.is_empty() {
            let at = self.through % self.size;
            let room = usize::try_from(self.size - at).unwrap_or(usize::MAX);
            let (first, rest) = bytes.split_at(bytes.len().min(room));
            self.file.write_all_at(first, at)?;
            self.through += first.len() as u64;
            bytes = rest;
        }
        let seal = self.head ^ self.size ^ self.through ^ SEAL;
        let mut state = [0; STATE];
        for (slot, value) in state.chunks_mut(8).zip([self.head, self.size, self.through, seal]) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        self.file.write_all_at(&state, self.size)
    }

    /// Opens a ring that an earlier process left.
    fn open(path: &Path) -> io::Result<Option<LogRing>> {
        let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut file = match OpenOptions::new().read(true).custom_flags(nofollow).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut state = [0; STATE];
        if file.seek(SeekFrom::End(-(STATE as i64))).and_then(|_| file.read_exact(&mut state)).is_err() {
            return Ok(None);
        }
        let word = |n: usize| state[n * 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (head, size, through, seal) = (word(0), word(1), word(2), word(3));
        let sound = size > 0 && head ^ size ^ through ^ SEAL == seal;
        Ok(sound.then_some(LogRing { file, head, size, through }))
    }

    /// Appends the content of the ring, in order, after a line with the number of cut bytes. Can be repeated.
    fn append_to_log(mut self, log: &mut File) -> io::Result<()> {
        log.set_len(self.head)?;
        log.seek(SeekFrom::End(0))?;
        if let Some(cut @ 1..) = self.through.checked_sub(self.size) {
            write!(log, "\n[skein: {cut} bytes were cut here]\n")?;
            let oldest = self.through % self.size;
            self.file.seek(SeekFrom::Start(oldest))?;
            io::copy(&mut Read::by_ref(&mut self.file).take(self.size - oldest), log)?;
        }
        self.file.seek(SeekFrom::Start(0))?;
        let newest = if self.through > self.size { self.through % self.size } else { self.through };
        io::copy(&mut self.file.take(newest), log)?;
        Ok(())
    }
}

/// Repairs a log whose engine died while it was written. A complete log is left as it is.
pub fn repair_log(path: &Path) -> io::Result<()> {
    let aside = append_suffix(path, RING);
    if let Some(ring) = LogRing::open(&aside)? {
        let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut log = OpenOptions::new().write(true).custom_flags(nofollow).open(path)?;
        ring.append_to_log(&mut log)?;
    }
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod log_tests {
    use super::*;

    const SMALL: LogRetention = LogRetention { head: 10, tail: 20 };

    /// Letters in sequence, so that each byte shows its position.
    fn stream(length: usize) -> Vec<u8> {
        (0..length).map(|n| b'a' + u8::try_from(n % 26).expect("a letter")).collect()
    }

    fn wanted(all: &[u8]) -> Vec<u8> {
        let Some(cut @ 1..) = all.len().checked_sub(30) else { return all.to_vec() };
        let mut file = all[..10].to_vec();
        file.extend_from_slice(format!("\n[skein: {cut} bytes were cut here]\n").as_bytes());
        file.extend_from_slice(&all[all.len() - 20..]);
        file
    }

    #[test]
    fn beginning_and_end_are_kept_at_every_length_and_in_pieces_of_every_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        for length in [0, 1, 9, 10, 11, 29, 30, 31, 49, 50, 51, 70, 200] {
            for piece in [1, 3, 7, 20, 21, 64, 500] {
                let all = stream(length);
                let mut log = WorkerLog::create(&path, SMALL);
                all.chunks(piece).for_each(|piece| log.write(piece));
                let logged = log.finish();
                assert_eq!(fs::read(&path).expect("the log"), wanted(&all), "{length} in pieces of {piece}");
                assert_eq!((logged.bytes, logged.kept), (length as u64, length.min(30) as u64));
                assert_eq!((logged.cut, logged.problem), (length > 30, None));
                assert!(!append_suffix(&path, RING).exists());
            }
        }
    }

    #[test]
    fn a_log_whose_engine_died_is_mended_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        for length in [5, 25, 30, 77] {
            let all = stream(length);
            let mut log = WorkerLog::create(&path, SMALL);
            all.chunks(7).for_each(|piece| log.write(piece));
            drop(log);
            if length > 10 {
                // It died while it appended the ring.
                let mut half = OpenOptions::new().append(true).open(&path).expect("the log");
                half.write_all(b"half of the end").expect("it can be written");
            }
            for _ in 0..2 {
                repair_log(&path).expect("it can be mended");
                assert_eq!(fs::read(&path).expect("the log"), wanted(&all), "{length}");
            }
        }
    }

    #[test]
    fn what_is_no_ring_is_thrown_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        fs::write(&path, "all of it").expect("a log");
        for junk in [&b""[..], b"short", &[0; 32], &[0xff; 100]] {
            fs::write(append_suffix(&path, RING), junk).expect("junk");
            repair_log(&path).expect("it can be mended");
            assert_eq!(fs::read(&path).expect("the log"), b"all of it");
            assert!(!append_suffix(&path, RING).exists());
        }
    }

    #[test]
    fn a_log_that_cannot_be_made_says_so_and_takes_what_it_is_given() {
        let mut log = WorkerLog::create(Path::new("/proc/nowhere/log"), SMALL);
        log.write(b"hello");
        let logged = log.finish();
        assert_eq!((logged.bytes, logged.kept, logged.cut), (5, 0, true));
        assert!(logged.problem.is_some_and(|problem| problem.contains("/proc/nowhere/log")));
    }

    #[test]
    fn a_link_in_place_of_a_log_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").expect("a file");
        std::os::unix::fs::symlink(&victim, dir.path().join("log")).expect("a link");
        let mut log = WorkerLog::create(&dir.path().join("log"), SMALL);
        log.write(b"hello");
        assert!(log.finish().problem.is_some());
        assert_eq!(fs::read(&victim).expect("a file"), b"mine");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_is_told() {
        let mut recent = RecentOutput::default();
        assert_eq!(recent.last_line(), None);
        recent.push(b"one\ntw");
        assert_eq!(recent.last_line().as_deref(), Some("one"));
        recent.push(b"o\r\n\n  \nthree");
        assert_eq!(recent.last_line().as_deref(), Some("two"));
        recent.push(&[b'x'; 100_000]);
        assert_eq!(recent.last_line(), None);
    }

    #[test]
    fn the_tail_is_short_and_safe() {
        let mut recent = RecentOutput::default();
        for n in 0..10_000 {
            recent.push(format!("line {n} \x1b[1m\n").as_bytes());
        }
        let tail = recent.tail_lines();
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.ends_with("line 9999 \\x1b[1m"), "{tail}");
        let more = recent.recent_lines();
        assert!(more.starts_with("line ") && more.ends_with(&tail) && more.lines().count() > 100, "{more}");
        recent.push("é".repeat(100_000).as_bytes());
        assert!(recent.tail_lines().chars().all(|c| c == 'é'));
        assert!(recent.tail_lines().len() <= TAIL_BYTES);
        assert!(recent.recent_lines().len() <= RECENT_BYTES);
        assert!(recent.bytes.len() <= BYTES && recent.bytes.capacity() <= 4 * BYTES);
    }
}
