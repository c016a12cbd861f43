//! The cancel token: an operation of this process that another thread can cancel.
//!
//! Owns the guarantees that waiters are woken, and that an operation cancelled before its start does not start.

use std::{
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

type CancelCallback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub struct CancelToken {
    state: Mutex<CancelState>,
    changed: Condvar,
}

#[derive(Default)]
struct CancelState {
    stopped: bool,
    /// The callbacks to call on cancellation.
    then: Vec<CancelCallback>,
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("stopped", &self.is_cancelled()).finish_non_exhaustive()
    }
}

impl CancelToken {
    fn lock_state(&self) -> MutexGuard<'_, CancelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cancel(&self) {
        let then = {
            let mut state = self.lock_state();
            state.stopped = true;
            std::mem::take(&mut state.then)
        };
        then.into_iter().for_each(|act| act());
        self.changed.notify_all();
    }

    /// Calls `act` on cancellation, or now if the token is cancelled already.
    pub(crate) fn call_on_cancel(&self, act: impl FnOnce() + Send + 'static) {
        let mut state = self.lock_state();
        if !state.stopped {
            return state.then.push(Box::new(act));
        }
        drop(state);
        act();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.lock_state().stopped
    }

    /// Waits for this time. Returns true if the token was not cancelled.
    pub(crate) fn sleep(&self, length: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock_state(), length, |state| !state.stopped);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn a_sleep_that_is_called_off_ends_at_once() {
        let stop = Arc::new(CancelToken::default());
        let other = Arc::clone(&stop);
        let sleeper = std::thread::spawn(move || other.sleep(Duration::from_secs(600)));
        stop.cancel();
        assert!(!sleeper.join().unwrap());
    }

    #[test]
    fn what_follows_is_done_once_before_or_after() {
        let (stop, (tell, told)) = (CancelToken::default(), mpsc::channel());
        let other = tell.clone();
        stop.call_on_cancel(move || tell.send(1).unwrap());
        stop.cancel();
        stop.cancel();
        stop.call_on_cancel(move || other.send(2).unwrap());
        assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2]);
    }
}
