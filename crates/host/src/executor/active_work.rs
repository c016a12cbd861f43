//! Work in progress for runs, and the way to stop it: before its process starts, during it, or when it has no process.

use std::sync::Arc;

use skein_core::ids::RunId;

use crate::{
    cancel_token::CancelToken,
    process::{MarkedWork, ProcessHandle},
};

/// The key of a piece of work: its run, and its attempt or hook.
pub type WorkKey = (RunId, MarkedWork);

/// An attempt or a hook that has begun.
pub enum ActiveWork {
    /// Its program has not been started. If `stopped`, it must not be started any more.
    Ahead { stopped: bool },
    Working {
        handle: ProcessHandle,
        /// The requested way to end it. Programs that are started later for the same work end in the same way.
        ending: Option<fn(&ProcessHandle)>,
    },
    /// It is executed inside the host process.
    Called(Arc<CancelToken>),
}

impl ActiveWork {
    /// Attaches the process through which it is stopped from now on. Ends that process at once if a stop was requested
    /// before.
    pub fn attach_process(&mut self, handle: ProcessHandle) {
        let ending = match self {
            ActiveWork::Ahead { stopped: true } => Some(ProcessHandle::stop as fn(&ProcessHandle)),
            ActiveWork::Called(call) if call.is_cancelled() => {
                Some(ProcessHandle::stop as fn(&ProcessHandle))
            }
            ActiveWork::Ahead { stopped: false } | ActiveWork::Called(_) => None,
            ActiveWork::Working { ending, .. } => *ending,
        };
        if let Some(end) = ending {
            end(&handle);
        }
        *self = ActiveWork::Working { handle, ending };
    }

    pub fn stop(&mut self) {
        match self {
            ActiveWork::Ahead { stopped } => *stopped = true,
            ActiveWork::Working { handle, ending } => {
                handle.stop();
                ending.get_or_insert(ProcessHandle::stop);
            }
            ActiveWork::Called(call) => call.cancel(),
        }
    }

    pub fn kill(&mut self) {
        match self {
            ActiveWork::Ahead { stopped } => *stopped = true,
            ActiveWork::Working { handle, ending } => {
                handle.kill();
                *ending = Some(ProcessHandle::kill);
            }
            ActiveWork::Called(call) => call.cancel(),
        }
    }
}
