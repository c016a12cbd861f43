//! What is at work for runs now, and how it is stopped: before it has a process, while it has one, and where it has none.

use std::sync::Arc;

use skein_core::ids::RunId;

use crate::{
    stop::Stop,
    worker::{Handle, Work},
};

/// What is being done, and for which run.
pub type Doing = (RunId, Work);

/// An attempt or a hook that has begun.
pub enum Live {
    /// Its program has not been started; whether it is still to be.
    Ahead { stopped: bool },
    Working {
        handle: Handle,
        /// How it is to end, if someone asked for that: what is started after it for the same is not to go on either.
        ending: Option<fn(&Handle)>,
    },
    /// It is done in this process.
    Called(Arc<Stop>),
}

impl Live {
    /// From now on it is stopped by this. It may have been called off before.
    pub fn started(&mut self, handle: Handle) {
        let ending = match self {
            Live::Ahead { stopped: true } => Some(Handle::stop as fn(&Handle)),
            Live::Called(call) if call.is_stopped() => Some(Handle::stop as fn(&Handle)),
            Live::Ahead { stopped: false } | Live::Called(_) => None,
            Live::Working { ending, .. } => *ending,
        };
        if let Some(end) = ending {
            end(&handle);
        }
        *self = Live::Working { handle, ending };
    }

    pub fn stop(&mut self) {
        match self {
            Live::Ahead { stopped } => *stopped = true,
            Live::Working { handle, ending } => {
                handle.stop();
                ending.get_or_insert(Handle::stop);
            }
            Live::Called(call) => call.stop(),
        }
    }

    pub fn kill(&mut self) {
        match self {
            Live::Ahead { stopped } => *stopped = true,
            Live::Working { handle, ending } => {
                handle.kill();
                *ending = Some(Handle::kill);
            }
            Live::Called(call) => call.stop(),
        }
    }
}
