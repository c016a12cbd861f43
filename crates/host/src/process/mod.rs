//! Workers: the processes that do the work of attempts, and nothing of them left behind.
//!
//! Owns starting a program, feeding it, keeping what it prints, noticing how it ended, and ending it with everything
//! it started, also after the engine itself was killed. Refuses to know what the work is for: outputs, retries and
//! the journal are the host's. [`start`] is where to begin; [`reap`] is for what an earlier life of the engine left.
//!
//! One rule for the rest of the process: only this module starts children in a process group of their own. A child
//! of ours in a foreign group or session that this module did not start is the orphan of an attempt.

mod children;
mod deadlines;
mod descendants;
mod family;
mod log;
mod mark;
mod oom;
mod outcome;
mod output;
mod process_record;
mod process_spec;
mod process_table;
mod program;
mod reap;
mod recent_output;
mod spawn;
mod start;
mod supervisor;
mod terminal_escape;
mod termination;

pub use self::{
    children::become_subreaper,
    deadlines::{CommandDeadline, to_duration},
    descendants::kill_descendants,
    log::{LogReport, repair_log},
    mark::{MarkError, MarkedWork, ProcessMark, StateMark, find_any_worker_mark, find_worker_mark},
    outcome::{ExceededLimit, LeakedProcess, ProcessOutcome, ProcessReport, StartRefusal},
    process_record::{ProcessRecord, find_records},
    process_spec::{DialogPipes, OutputFilter, OutputFilterFactory, ProcessSpec, ProgressCallback},
    process_table::own_group,
    program::{ProgramLookupError, find_program, find_trusted_program},
    reap::{LeftoverProcess, ReapReport, find_leftovers, reap_leftovers},
    start::{ProcessHandle, run_process, start_process},
    terminal_escape::{TerminalEscaper, escape_for_terminal},
};
pub(crate) use self::{
    mark::{VARIABLE as MARK_VARIABLE, own_ancestry},
    outcome::classify_start_error,
    process_table::read_parent,
};
