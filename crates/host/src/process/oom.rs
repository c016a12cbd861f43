//! Counts of processes that the kernel killed because memory ran out.
//!
//! Owns reading the counters. They only say that it happened, not to which process: the caller guesses that.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use super::process_table::read_system_file;

const LATELY: Duration = Duration::from_secs(1);

/// The counter of the engine's own cgroup, if there is one.
fn find_own_counter() -> Option<&'static PathBuf> {
    static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let place = groups.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let file = PathBuf::from("/sys/fs/cgroup").join(place).join("memory.events");
        file.exists().then_some(file)
    };
    OWN.get_or_init(find).as_ref()
}

fn parse_kill_count(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The number of processes that were killed for memory so far.
pub(super) fn count_oom_kills() -> u64 {
    let own = find_own_counter().and_then(|file| parse_kill_count(&read_system_file(file, 1024)?));
    own.or_else(|| parse_kill_count(&read_system_file("/proc/vmstat", 16 * 1024)?)).unwrap_or(0)
}

/// The same number, at most a second old. Reading the counter takes longer than starting a process.
pub(super) fn recent_oom_kills() -> u64 {
    static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, count)) if at.elapsed() < LATELY => count,
        _ => last.insert((Instant::now(), count_oom_kills())).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_read_from_both_kinds_of_file() {
        assert_eq!(parse_kill_count(b"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(parse_kill_count(b"nr_free_pages 12\noom_kill 41\n"), Some(41));
        assert_eq!(parse_kill_count(b"oom_kill x\n"), None);
        assert_eq!(parse_kill_count(b""), None);
    }
}
