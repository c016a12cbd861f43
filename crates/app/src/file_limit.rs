//! The limit of open files: raised as far as a run needs, with fewer concurrent workers if it cannot be raised.
//!
//! The journal, its locks and the files of an attempt are open beside the pipes of workers. A process without free
//! descriptors could not write its journal, so workers wait instead.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the journal and everything else except workers.
const BASE: u64 = 104;
/// Maximum number of descriptors of a running worker.
const EACH: u64 = 8;

/// Raises the limit of open files to the number that this many workers need, as far as the system permits. Returns the
/// number of workers that can run at once under the resulting limit.
pub fn raise_file_limit(wanted: u32) -> Result<u32, String> {
    let needed = BASE + EACH * u64::from(wanted);
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return Ok(wanted) };
    let raised = needed.min(limit.maximum.unwrap_or(needed)).max(current);
    // If raising fails, the present limit stays.
    let allowed = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum })
    {
        Ok(()) => raised,
        Err(_) => current,
    };
    if wanted > 0 && allowed < BASE + EACH {
        return Err(format!(
            "the limit of open files is {allowed}, and a run needs at least {}",
            BASE + EACH
        ));
    }
    let possible = u32::try_from(allowed.saturating_sub(BASE) / EACH).unwrap_or(u32::MAX);
    Ok(wanted.min(possible))
}
