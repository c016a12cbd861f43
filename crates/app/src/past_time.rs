//! Times in the past that people type: a date, a time in UTC, or a duration before now.

use skein_core::{engine::format_utc, time::Timestamp};
use skein_dialects::DurationUnits;
use skein_host::clock::Clock;

use crate::app_error::{AppError, AppErrorKind};

/// Parses a time and formats it in UTC, so that times can be compared as text.
pub fn parse_past_time(text: &str) -> Result<String, AppError> {
    if let Ok(ago) = DurationUnits::All.parse(text) {
        let now = Clock::default().now().0;
        return Ok(format_utc(Timestamp(now.saturating_sub(i64::try_from(ago.0).unwrap_or(i64::MAX)))));
    }
    let form = "0000-00-00T00:00:00Z";
    let fits = text.bytes().zip(form.bytes()).all(|(found, wanted)| match wanted {
        b'0' => found.is_ascii_digit(),
        wanted => found == wanted,
    });
    if fits && (text.len() == form.len() || text.len() == 10) {
        return Ok(text.to_owned());
    }
    let hint = "a date such as 2026-11-16, a time such as 2026-11-16T08:00:00Z, or how long ago, such as 24h";
    Err(AppError::new(AppErrorKind::Usage, &format!("`{text}` is not a valid time"), Some(hint)))
}
