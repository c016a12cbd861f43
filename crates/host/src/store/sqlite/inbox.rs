//! Wakes this process when one of its runs has a new request, or a request that it sent was answered.
//!
//! One thread waits on the process's pipe. A wake-up is lost if a process dies between writing and waking, so the
//! thread also looks every second. Does not know the meaning of requests.

use std::{
    collections::HashMap,
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use skein_core::ids::RunId;

use super::{
    owner::{LocalOwner, parse_leave_request},
    read::{self, ReaderPool},
    writer::StoreThread,
};
use crate::store::{InboxRequestId, NoticeCallback, RunClaim, StoreError, StoreNotice};

/// The longest time that a lost wake-up goes unnoticed.
const LOOK: Duration = Duration::from_secs(1);

/// The claims of this process: the keys of the runs and the epochs.
#[derive(Debug, Default)]
pub(super) struct HeldClaims(Mutex<HashMap<RunId, (i64, u64)>>);

impl HeldClaims {
    pub(super) fn insert(&self, key: i64, claim: &RunClaim) {
        lock(&self.0).insert(claim.run.clone(), (key, claim.epoch));
    }

    pub(super) fn run_key(&self, claim: &RunClaim) -> Option<i64> {
        lock(&self.0).get(&claim.run).filter(|(_, epoch)| *epoch == claim.epoch).map(|(key, _)| *key)
    }

    /// Forgets a claim. Returns the key of its run if the claim was held.
    pub(super) fn remove(&self, claim: &RunClaim) -> Option<i64> {
        let mut held = lock(&self.0);
        let (key, _) = *held.get(&claim.run).filter(|(_, epoch)| *epoch == claim.epoch)?;
        held.remove(&claim.run);
        Some(key)
    }

    fn claims(&self) -> Vec<(RunClaim, i64)> {
        let claim = |(run, (key, epoch)): (&RunId, &(i64, u64))| (RunClaim { run: run.clone(), epoch: *epoch }, *key);
        lock(&self.0).iter().map(claim).collect()
    }
}

#[derive(Debug)]
pub(super) struct InboxWatcher {
    shared: Arc<InboxState>,
    thread: StoreThread,
}

struct InboxState {
    me: Arc<LocalOwner>,
    readers: Arc<ReaderPool>,
    held: Arc<HeldClaims>,
    notify: Mutex<Option<NoticeCallback>>,
    /// The number of times that this process was woken.
    wakes: Mutex<u64>,
    woken: Condvar,
    ended: AtomicBool,
}

impl std::fmt::Debug for InboxState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxState").field("me", &self.me).finish_non_exhaustive()
    }
}

impl InboxWatcher {
    pub(super) fn start(
        me: Arc<LocalOwner>,
        readers: Arc<ReaderPool>,
        held: Arc<HeldClaims>,
    ) -> io::Result<InboxWatcher> {
        let shared = Arc::new(InboxState {
            me,
            readers,
            held,
            notify: Mutex::default(),
            wakes: Mutex::default(),
            woken: Condvar::new(),
            ended: AtomicBool::new(false),
        });
        let thread = StoreThread::start("skein-inbox", {
            let shared = Arc::clone(&shared);
            move || shared.run_loop()
        })?;
        Ok(InboxWatcher { shared, thread })
    }

    /// Sets the callback, which is also told of requests that arrived earlier.
    pub(super) fn watch(&self, notify: NoticeCallback) {
        *lock(&self.shared.notify) = Some(notify);
        self.shared.me.wake();
    }

    pub(super) fn wait_for_answer(
        &self,
        request: InboxRequestId,
        within: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let shared = &self.shared;
        let until = Instant::now().checked_add(within);
        loop {
            // Read before the query, so that a wake-up between the two is not missed.
            let seen = *lock(&shared.wakes);
            match shared.readers.read_in_transaction(|db| read::find_answer(db, request))? {
                None => return Err(StoreError::Failed(format!("there is no request {}", request.0))),
                Some(Some(answer)) => return Ok(Some(answer)),
                Some(None) => {}
            }
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let waited = shared.woken.wait_timeout_while(lock(&shared.wakes), left.min(LOOK), |now| *now == seen);
            drop(waited);
        }
    }
}

impl Drop for InboxWatcher {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.me.wake();
        self.thread.join();
    }
}

impl InboxState {
    fn run_loop(&self) {
        let mut unread = Vec::new();
        while !self.ended.load(Ordering::Acquire) {
            self.wait_for_wake(&mut unread);
            *lock(&self.wakes) += 1;
            self.woken.notify_all();
            self.look_for_changes();
            self.forward_leave_requests(&mut unread);
        }
    }

    /// Waits until another process wakes this one, at most until the next look.
    fn wait_for_wake(&self, unread: &mut Vec<u8>) {
        let mut pipe = self.me.pipe();
        let second = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&second)) {
            Ok(_) | Err(Errno::INTR) => {}
            // Without its pipe a process reacts slowly, but does not spin.
            Err(_) => std::thread::sleep(LOOK),
        }
        let mut bytes = [0; 4096];
        while let Ok(read) = pipe.read(&mut bytes)
            && read > 0
        {
            unread.extend_from_slice(&bytes[..read]);
        }
    }

    /// Sends a notice for each complete line from the pipe. An incomplete line is kept until the rest arrives.
    fn forward_leave_requests(&self, unread: &mut Vec<u8>) {
        let whole = unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = unread.drain(..whole).collect();
        for run in lines.split(|byte| *byte == b'\n').filter_map(parse_leave_request) {
            self.send_notice(StoreNotice::Leave(run));
        }
    }

    fn send_notice(&self, notice: StoreNotice) {
        let notify = lock(&self.notify).clone();
        if let Some(notify) = notify {
            let _ = catch_unwind(AssertUnwindSafe(|| notify(notice)));
        }
    }

    fn look_for_changes(&self) {
        if lock(&self.notify).is_none() {
            return;
        }
        // The claims are read first: one made after this is not checked.
        let held = self.held.claims();
        let found = self.readers.read_in_transaction(|db| {
            Ok((read::has_requests(db, self.me.id())?, read::read_epochs(db, self.me.id())?))
        });
        // A failed read may succeed at the next look; writers report persistent failures.
        let Ok((has_requests, epochs)) = found else { return };
        for (claim, key) in held {
            // A claim that was released meanwhile is not lost.
            if !epochs.contains(&(key, claim.epoch)) && self.held.remove(&claim).is_some() {
                self.send_notice(StoreNotice::Lost(claim));
            }
        }
        if has_requests {
            self.send_notice(StoreNotice::Requests);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
