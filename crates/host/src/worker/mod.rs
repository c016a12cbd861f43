//! Workers: the processes that do the work of attempts, and nothing of them left behind.
//!
//! Owns starting a program, feeding it, keeping what it prints, noticing how it ended, and ending it with everything
//! it started, also after the engine itself was killed. Refuses to know what the work is for: outputs, retries and
//! the journal are the host's. [`start`] is where to begin; [`reap`] is for what an earlier life of the engine left.
//!
//! One rule for the rest of the process: only this module starts children in a process group of their own. A child
//! of ours in a foreign group or session that this module did not start is the orphan of an attempt.

mod below;
mod children;
mod ending;
mod find;
mod limit;
mod log;
mod mark;
mod memory;
mod outcome;
mod output;
mod process;
mod program;
mod reap;
mod recent;
mod record;
mod shown;
mod spawn;
mod start;
mod task;
mod tree;

pub use self::{
    below::end_all,
    children::adopt,
    limit::{Due, duration},
    log::{Logged, mend},
    mark::{Mark, MarkError, StateMark, Work, anyones_worker, worker_above},
    outcome::{Ended, How, Leaked, Refused, Which},
    program::{NotFound, find, find_trusted},
    reap::{Found, Reaped, leftovers, reap},
    record::{Record, records},
    shown::{Escape, shown},
    start::{Handle, run, start},
    task::{Filter, NewFilter, Talk, Task, Tell},
    tree::own_group,
};
pub(crate) use self::{
    mark::{VARIABLE as MARK_VARIABLE, line},
    outcome::refusal,
    tree::parent_of,
};
