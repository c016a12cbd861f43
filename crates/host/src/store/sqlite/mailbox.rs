//! Wakes this process when something was said to its runs, or answered to what it said.
//!
//! One thread waits on the process's pipe. Because a wake-up can be lost when a process dies between writing and
//! waking, it looks every second in any case. Refuses to know what letters say.

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
    owner::{Me, run_to_leave},
    read::{self, Readers},
    thread::Thread,
};
use crate::store::{Claim, LetterId, Notice, Notify, StoreError};

/// How long a lost wake-up can go unnoticed.
const LOOK: Duration = Duration::from_secs(1);

/// The claims that this process has: the numbers of the runs, and the epochs.
#[derive(Debug, Default)]
pub struct Held(Mutex<HashMap<RunId, (i64, u64)>>);

impl Held {
    pub fn insert(&self, key: i64, claim: &Claim) {
        lock(&self.0).insert(claim.run.clone(), (key, claim.epoch));
    }

    pub fn key(&self, claim: &Claim) -> Option<i64> {
        lock(&self.0).get(&claim.run).filter(|(_, epoch)| *epoch == claim.epoch).map(|(key, _)| *key)
    }

    /// Forgets a claim, and gives the number of its run if there was one.
    pub fn remove(&self, claim: &Claim) -> Option<i64> {
        let mut held = lock(&self.0);
        let (key, _) = *held.get(&claim.run).filter(|(_, epoch)| *epoch == claim.epoch)?;
        held.remove(&claim.run);
        Some(key)
    }

    fn all(&self) -> Vec<(Claim, i64)> {
        let claim =
            |(run, (key, epoch)): (&RunId, &(i64, u64))| (Claim { run: run.clone(), epoch: *epoch }, *key);
        lock(&self.0).iter().map(claim).collect()
    }
}

#[derive(Debug)]
pub struct Mailbox {
    shared: Arc<Shared>,
    thread: Thread,
}

struct Shared {
    me: Arc<Me>,
    readers: Arc<Readers>,
    held: Arc<Held>,
    notify: Mutex<Option<Notify>>,
    /// How often this process was woken.
    wakes: Mutex<u64>,
    woken: Condvar,
    ended: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub fn start(me: Arc<Me>, readers: Arc<Readers>, held: Arc<Held>) -> io::Result<Mailbox> {
        let shared = Arc::new(Shared {
            me,
            readers,
            held,
            notify: Mutex::default(),
            wakes: Mutex::default(),
            woken: Condvar::new(),
            ended: AtomicBool::new(false),
        });
        let thread = Thread::start("skein-mailbox", {
            let shared = Arc::clone(&shared);
            move || shared.work()
        })?;
        Ok(Mailbox { shared, thread })
    }

    /// Tells someone from now on, also of what came before.
    pub fn watch(&self, notify: Notify) {
        *lock(&self.shared.notify) = Some(notify);
        self.shared.me.wake();
    }

    pub fn answered(&self, letter: LetterId, within: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        let shared = &self.shared;
        let until = Instant::now().checked_add(within);
        loop {
            // Before the look: a wake-up between the two is not missed.
            let seen = *lock(&shared.wakes);
            match shared.readers.with(|db| read::answer(db, letter))? {
                None => return Err(StoreError::Failed(format!("there is no letter {}", letter.0))),
                Some(Some(answer)) => return Ok(Some(answer)),
                Some(None) => {}
            }
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let waited =
                shared.woken.wait_timeout_while(lock(&shared.wakes), left.min(LOOK), |now| *now == seen);
            drop(waited);
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.me.wake();
        self.thread.end();
    }
}

impl Shared {
    fn work(&self) {
        let mut unread = Vec::new();
        while !self.ended.load(Ordering::Acquire) {
            self.wait(&mut unread);
            *lock(&self.wakes) += 1;
            self.woken.notify_all();
            self.look();
            self.tell_requests(&mut unread);
        }
    }

    /// Until someone wakes this process, at most until the next look.
    fn wait(&self, unread: &mut Vec<u8>) {
        let mut pipe = self.me.pipe();
        let second = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&second)) {
            Ok(_) | Err(Errno::INTR) => {}
            // Without its pipe a process is slow to hear, and no busier for it.
            Err(_) => std::thread::sleep(LOOK),
        }
        let mut bytes = [0; 4096];
        while let Ok(read) = pipe.read(&mut bytes)
            && read > 0
        {
            unread.extend_from_slice(&bytes[..read]);
        }
    }

    /// Passes on what whole lines from the pipe ask for. The rest of a line is kept until it comes.
    fn tell_requests(&self, unread: &mut Vec<u8>) {
        let whole = unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = unread.drain(..whole).collect();
        for run in lines.split(|byte| *byte == b'\n').filter_map(run_to_leave) {
            self.tell(Notice::Leave(run));
        }
    }

    fn tell(&self, notice: Notice) {
        let notify = lock(&self.notify).clone();
        if let Some(notify) = notify {
            let _ = catch_unwind(AssertUnwindSafe(|| notify(notice)));
        }
    }

    fn look(&self) {
        if lock(&self.notify).is_none() {
            return;
        }
        // The claims first: one made after this is not looked for.
        let held = self.held.all();
        let found =
            self.readers.with(|db| Ok((read::has_mail(db, self.me.id())?, read::epochs(db, self.me.id())?)));
        // What cannot be read now may be at the next look; who writes learns of real trouble.
        let Ok((mail, epochs)) = found else { return };
        for (claim, key) in held {
            // One that was let go of meanwhile is not lost.
            if !epochs.contains(&(key, claim.epoch)) && self.held.remove(&claim).is_some() {
                self.tell(Notice::Lost(claim));
            }
        }
        if mail {
            self.tell(Notice::Mail);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
