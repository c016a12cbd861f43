//! Makes a source from bytes. Does not know how to read a disk or a network.

use std::sync::Arc;

use skein_core::{expr::ExprSpan, limits};

use crate::diagnostics::{Code, Diagnostic, SourceFile};

/// Makes a source from the bytes that were read, or a diagnostic. The caller may stop reading one byte after the limit.
pub fn load_source(name: &str, read: Result<Vec<u8>, String>) -> Result<Arc<SourceFile>, Diagnostic> {
    let empty = || SourceFile::new(name, "");
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(why) => {
            let message = format!("`{name}` cannot be read: {why}");
            return Err(Diagnostic::new(Code::CannotRead, &empty(), ExprSpan::default(), message));
        }
    };
    // Checked before any work that grows with the size of the file.
    if bytes.len() > limits::SOURCE_BYTES {
        return Err(diagnose_too_large(&empty()));
    }
    String::from_utf8(bytes)
        .map(|text| SourceFile::new(name, text))
        .map_err(|error| diagnose_not_utf8(name, error.as_bytes(), error.utf8_error().valid_up_to()))
}

/// Builds the diagnostic for a source above the size limit. It cannot give the size, because the file may not have been
/// read to its end.
pub(crate) fn diagnose_too_large(source: &Arc<SourceFile>) -> Diagnostic {
    let message = format!("this file has more than {} bytes", limits::SOURCE_BYTES);
    let hint = "split it into workflows that call one another";
    Diagnostic::new(Code::TooLarge, source, ExprSpan::default(), message).with_hint(hint)
}

fn diagnose_not_utf8(name: &str, bytes: &[u8], valid: usize) -> Diagnostic {
    let shown = SourceFile::new(name, String::from_utf8_lossy(bytes));
    let span = ExprSpan::new(valid, valid + char::REPLACEMENT_CHARACTER.len_utf8());
    let message = format!("this file is not UTF-8: the byte {:#04x} is invalid here", bytes[valid]);
    let hint = match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it looks like UTF-16: save it as UTF-8",
        _ => "save it as UTF-8",
    };
    Diagnostic::new(Code::NotUtf8, &shown, span, message).with_hint(hint)
}

/// Returns a diagnostic for a source above the size limit or the advised size.
pub(crate) fn diagnose_size(source: &Arc<SourceFile>) -> Option<Diagnostic> {
    let (size, most) = (source.text.len(), limits::SOURCE_BYTES_WARN);
    if size > limits::SOURCE_BYTES {
        return Some(diagnose_too_large(source));
    }
    let message = format!("this file has {size} bytes; more than {most} is hard to follow");
    let hint = "split it into workflows that call one another";
    let span = ExprSpan::default();
    (size > most).then(|| Diagnostic::new(Code::LargeSource, source, span, message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(read: Result<Vec<u8>, String>) -> Code {
        load_source("a.yaml", read).unwrap_err().code
    }

    #[test]
    fn what_cannot_be_a_source_is_said() {
        assert_eq!(code(Err("permission denied".to_owned())), Code::CannotRead);
        assert_eq!(code(Ok(vec![b' '; limits::SOURCE_BYTES + 1])), Code::TooLarge);
        assert_eq!(code(Ok(b"name: caf\xe9".to_vec())), Code::NotUtf8);
        assert!(load_source("a.yaml", Ok(vec![b' '; limits::SOURCE_BYTES])).is_ok());
    }

    #[test]
    fn the_byte_that_is_wrong_is_shown() {
        let diagnostic = load_source("a.yaml", Ok(b"a: 1\nb: caf\xe9\n".to_vec())).unwrap_err();
        let place = diagnostic.primary_label();
        assert_eq!(place.source.slice(place.span), "\u{fffd}");
        assert_eq!(place.source.position(place.span.start).line, 2);
        let utf16 = load_source("a.yaml", Ok(vec![0xff, 0xfe, b'a', 0])).unwrap_err();
        assert_eq!(utf16.hint.as_deref(), Some("it looks like UTF-16: save it as UTF-8"));
    }
}
