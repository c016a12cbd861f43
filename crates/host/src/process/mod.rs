//! Processes: starts and supervises the programs that do the work of attempts, and leaves none of them behind.
//!
//! Owns starting a program, feeding its input, keeping its output, detecting its end, and ending it with everything it
//! started, also after the engine itself was killed. Does not know the purpose of the work: outputs, retries and the
//! journal belong to the host. Start reading at [`start_process`]; [`reap_leftovers`] handles the processes that an
//! earlier engine left.
//!
//! One rule for the rest of the engine: only this module starts children in a process group of their own. A child of
//! the engine in a foreign group or session that this module did not start is the orphan of an attempt.

mod children;
mod mark;
mod output;
mod process_spec;
mod process_table;
mod program;
mod reap;
mod start;
mod supervisor;
mod termination;

pub(crate) use self::{mark::own_ancestry, start::run_process};

pub use self::{
    children::{become_subreaper, kill_descendants},
    mark::{MarkError, MarkedWork, ProcessMark, StateMark, find_any_worker_mark, find_worker_mark},
    output::{LogReport, repair_log},
    process_spec::{
        DialogPipes, ExceededLimit, LeakedProcess, OutputFilter, OutputFilterFactory, ProcessOutcome, ProcessReport,
        ProcessSpec, ProgressCallback,
    },
    process_table::own_group,
    program::{ProgramLookupError, find_program, find_trusted_program},
    reap::{LeftoverProcess, ProcessRecord, ReapReport, find_leftovers, find_records, reap_leftovers},
    start::{ProcessHandle, start_process},
    supervisor::{CommandDeadline, to_duration},
};
