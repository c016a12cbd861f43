//! The clock of a host.
//!
//! Owns the one clock of a host: wall time that never goes back while the process lives and never stands still, even
//! while the machine sleeps. A wall clock that is set forward is followed, so that deadlines are met. One that is set
//! back is not, so that a wait of five seconds does not take an hour. Does not know what the time is used for.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use skein_core::time::Timestamp;

#[derive(Debug, Default)]
pub struct Clock {
    /// The maximum observed difference between wall time and the time since boot.
    ahead: AtomicI64,
}

impl Clock {
    pub fn new() -> Clock {
        Clock { ahead: AtomicI64::new(i64::MIN) }
    }

    pub fn now(&self) -> Timestamp {
        self.advance_to(read_millis(ClockId::Realtime), read_millis(ClockId::Boottime))
    }

    /// Moves the clock forward to at least this time.
    pub(crate) fn set_forward(&self, to: Timestamp) {
        self.advance_to(to.0, read_millis(ClockId::Boottime));
    }

    fn advance_to(&self, wall: i64, boot: i64) -> Timestamp {
        let ahead = wall.saturating_sub(boot);
        let most = self.ahead.fetch_max(ahead, Ordering::Relaxed).max(ahead);
        Timestamp(boot.saturating_add(most))
    }
}

fn read_millis(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_is_not_followed_and_one_set_forward_is() {
        let clock = Clock::new();
        assert_eq!(clock.advance_to(1_000_000, 10), Timestamp(1_000_000));
        assert_eq!(clock.advance_to(1_000_005, 15), Timestamp(1_000_005));
        assert_eq!(clock.advance_to(400_000, 20), Timestamp(1_000_010), "set back, and five more milliseconds passed");
        assert_eq!(clock.advance_to(9_000_000, 30), Timestamp(9_000_000), "set forward");
        assert_eq!(clock.advance_to(1_000_025, 35), Timestamp(9_000_005), "set right again");
        let (clock, later) = (Clock::new(), Timestamp(Clock::new().now().0 + 3_600_000));
        clock.set_forward(later);
        assert!(clock.now() >= later);
        clock.set_forward(Timestamp(0));
        assert!(clock.now() >= later);
    }
}
