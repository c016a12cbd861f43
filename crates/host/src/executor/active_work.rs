//! What is at work for runs now, and how it is stopped: before it has a process, while it has one, and where it has none.

use std::sync::Arc;

use skein_core::ids::RunId;

use crate::{
    cancel_token::CancelToken,
    process::{MarkedWork, ProcessHandle},
};

/// What is being done, and for which run.
pub type WorkKey = (RunId, MarkedWork);

/// An attempt or a hook that has begun.
pub enum ActiveWork {
    /// Its program has not been started; whether it is still to be.
    Ahead { stopped: bool },
    Working {
        handle: ProcessHandle,
        /// How it is to end, if someone asked for that: what is started after it for the same is not to go on either.
        ending: Option<fn(&ProcessHandle)>,
    },
    /// It is done in this process.
    Called(Arc<CancelToken>),
}

impl ActiveWork {
    /// From now on it is stopped by this. It may have been called off before.
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
