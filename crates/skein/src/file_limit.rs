//! Open files: as many as a run needs, and no more workers at once than there are files for.
//!
//! The journal, its locks and the files of an attempt are open beside the pipes of workers. A process that runs out of
//! descriptors could not write its journal, so workers wait instead.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the journal and everything else but workers.
const BASE: u64 = 104;
/// Descriptors of a worker while it is watched, at most.
const EACH: u64 = 8;

/// Raises the limit of open files to what is needed for so many workers, as far as it may be raised. How many workers there
/// may be at once with what is allowed then.
pub fn raise_file_limit(wanted: u32) -> Result<u32, String> {
    let needed = BASE + EACH * u64::from(wanted);
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return Ok(wanted) };
    let raised = needed.min(limit.maximum.unwrap_or(needed)).max(current);
    // Where that is refused, there are as many as before.
    let allowed = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum })
    {
        Ok(()) => raised,
        Err(_) => current,
    };
    if wanted > 0 && allowed < BASE + EACH {
        return Err(format!(
            "this process may have {allowed} files open at once, and a run needs at least {}",
            BASE + EACH
        ));
    }
    let possible = u32::try_from(allowed.saturating_sub(BASE) / EACH).unwrap_or(u32::MAX);
    Ok(wanted.min(possible))
}
