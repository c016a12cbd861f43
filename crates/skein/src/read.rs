//! Reading source files: regular files only, and never more of one than a source may have.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
    sync::Arc,
};

use skein_core::{expr::Span, limits};
use skein_dialects::{Code, Diagnostic, Source};

/// Reads a source, under the name that people are shown.
pub fn source(path: &Path, name: &str) -> Result<Arc<Source>, Box<Diagnostic>> {
    let unread =
        |code, message| Box::new(Diagnostic::new(code, &Source::new(name, ""), Span::default(), message));
    let bytes =
        bytes(path).map_err(|why| unread(Code::CannotRead, format!("cannot read `{name}`: {why}")))?;
    if bytes.len() > limits::SOURCE_BYTES {
        let message = format!("`{name}` has more than {} bytes", limits::SOURCE_BYTES);
        return Err(unread(Code::TooLarge, message));
    }
    String::from_utf8(bytes).map(|text| Source::new(name, text)).map_err(|error| not_utf8(name, &error))
}

/// What a file holds, up to one byte more than a source may have, so that a longer one is seen to be.
fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    // Opening a pipe would wait for a writer.
    let is_file = |metadata: &fs::Metadata| metadata.is_file();
    let kind = fs::metadata(path).map_err(|error| plain(&error))?;
    if kind.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if !is_file(&kind) {
        return Err("it is not a regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| plain(&error))?;
    if !file.metadata().map_err(|error| plain(&error)).as_ref().is_ok_and(is_file) {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(limits::SOURCE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(|error| plain(&error))?;
    Ok(bytes)
}

/// An error of the operating system without its number.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "reading it is not permitted".to_owned(),
        _ => error.to_string(),
    }
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> Box<Diagnostic> {
    let at = error.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
    let source = Source::new(name, text);
    let message = format!("this file is not text in UTF-8: byte {at} is part of no character");
    let hint = "save it as UTF-8";
    Box::new(Diagnostic::new(Code::NotUtf8, &source, Span::new(at, at + 1), message).hint(hint))
}
