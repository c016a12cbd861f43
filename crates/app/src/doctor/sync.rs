//! Measurement of the time of a sync to disk, at the place of the journal, and its effect on runs.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    time::{Duration, Instant},
};

use super::{DoctorFinding, TrialFile, state::StateLocation};

/// The number of syncs that are measured, and the time limit for all of them.
const TIMES: usize = 24;
const TIME: Duration = Duration::from_secs(2);
/// The approximate size of one event of a run.
const PIECE: usize = 4096;
/// A slower sync is noticeable.
const SLOW: Duration = Duration::from_millis(30);
/// No disk is this fast: a layer above the disk reports syncs too early.
const INCREDIBLE: Duration = Duration::from_micros(10);

pub fn check_sync(home: &StateLocation) -> Option<DoctorFinding> {
    // A folder that is not writable is reported elsewhere.
    let mut taken = measure_syncs(home).ok().filter(|taken| !taken.is_empty())?;
    taken.sort();
    let (middle, slowest) = (taken[taken.len() / 2], taken[taken.len() - 1]);
    Some(sync_finding(middle, slowest))
}

fn measure_syncs(home: &StateLocation) -> io::Result<Vec<Duration>> {
    let trial = TrialFile::new(&home.there);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&trial.0)?;
    let (begun, mut taken) = (Instant::now(), Vec::with_capacity(TIMES));
    while taken.len() < TIMES && begun.elapsed() < TIME {
        file.write_all(&[0; PIECE])?;
        let from = Instant::now();
        file.sync_data()?;
        taken.push(from.elapsed());
    }
    Ok(taken)
}

fn sync_finding(middle: Duration, slowest: Duration) -> DoctorFinding {
    let steps = (1.0 / middle.as_secs_f64().max(1e-6)).round();
    let message = format!(
        "{} each, at worst {}: a run does about {steps:.0} consecutive steps per second, and runs share syncs",
        format_duration(middle),
        format_duration(slowest)
    );
    if middle > SLOW {
        return DoctorFinding::warning("sync", message, "another disk would be faster: `--state DIR` or SKEIN_STATE");
    }
    if middle < INCREDIBLE {
        let hint = "a sync is reported before the disk has the data; a power failure could lose acknowledged events";
        return DoctorFinding::warning("sync", message, hint);
    }
    DoctorFinding::ok("sync", message)
}

fn format_duration(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::{super::DoctorLevel, *};

    #[test]
    fn what_syncs_take_is_told_and_judged() {
        let of = |micros: u64| sync_finding(Duration::from_micros(micros), Duration::from_millis(50));
        assert_eq!(
            (of(1).level, of(500).level, of(40_000).level),
            (DoctorLevel::Warning, DoctorLevel::Ok, DoctorLevel::Warning)
        );
        assert!(
            of(500).message.starts_with("0.50 ms each, at worst 50 ms: a run does about 2000 consecutive steps"),
            "{:?}",
            of(500)
        );
    }
}
