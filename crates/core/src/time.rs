//! Points in time and durations, as plain numbers.
//!
//! Owns arithmetic that cannot overflow. Does not know a clock: every [`Timestamp`] came in with an input.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point in wall-clock time: milliseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A duration in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Timestamp {
    /// Returns the point in time this much later, or the latest possible one.
    pub fn saturating_add(self, length: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }

    /// Returns the duration since an earlier point in time; zero if the clock went back in between.
    pub fn duration_since(self, earlier: Timestamp) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Millis {
    pub const fn from_secs(n: u64) -> Millis {
        Millis(n.saturating_mul(1_000))
    }

    pub const fn from_mins(n: u64) -> Millis {
        Millis::from_secs(n.saturating_mul(60))
    }

    pub const fn from_hours(n: u64) -> Millis {
        Millis::from_mins(n.saturating_mul(60))
    }

    pub fn saturating_add(self, other: Millis) -> Millis {
        Millis(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Millis {
    /// Writes the shortest exact form in hours, minutes, seconds and milliseconds: `1h30m`, `250ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            let count = rest / size;
            rest %= size;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(i64::MAX).saturating_add(Millis(u64::MAX)), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5).duration_since(Timestamp(9)), Millis(0));
        assert_eq!(Timestamp(i64::MAX).duration_since(Timestamp(i64::MIN)), Millis(i64::MAX as u64));
    }

    #[test]
    fn lengths_read_well() {
        let shown = |n| Millis(n).to_string();
        assert_eq!((shown(0), shown(5_400_000), shown(61_250)), ("0s".into(), "1h30m".into(), "1m1s250ms".into()));
    }
}
