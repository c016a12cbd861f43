//! A notification file, which gets one line per message.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use rustix::fs::{Mode, OFlags, open};
use serde_json::Value;

/// Appends a line. A partial line that a crash left is ended first, so that this one is complete.
pub fn append_line(path: &Path, message: &Value) -> io::Result<()> {
    // Does not block if the path is a pipe.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut line = Vec::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        line.extend((last != *b"\n").then_some(b'\n'));
    }
    line.extend(message.to_string().bytes().chain([b'\n']));
    file.write_all(&line)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn half_a_line_is_ended_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("told.jsonl");
        append_line(&path, &json!({"n": 1})).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"n\": ").unwrap();
        append_line(&path, &json!({"n": 2})).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\": \n{\"n\":2}\n");
        assert!(append_line(folder.path(), &json!(1)).is_err());
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("pipe"), Mode::RWXU).unwrap();
        assert!(append_line(&folder.path().join("pipe"), &json!(1)).is_err());
    }
}
