//! What this machine can do for a host: which walls the kernel can put around a worker, and which calls it has.
//!
//! Owns trying it. Refuses to conclude: what is done without is for who asks.

use std::{fs::OpenOptions, thread};

use landlock::{ABI, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetStatus};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    process::{PidfdFlags, child_subreaper, getpid, pidfd_open},
};

/// What Landlock, the kernel's wall around files, does here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Landlock {
    /// A thread was kept from writing by it, a moment ago. The version is that of the kernel.
    Holds { version: i32 },
    /// The kernel has it, and was started without it.
    NotEnabled,
    /// The kernel does not have it.
    NotBuilt,
    /// It should be there, and does not do what it says. Why.
    Fails(String),
}

/// Tries Landlock on a thread that ends: what is taken from a thread is never given back.
pub fn landlock() -> Landlock {
    let tried = thread::Builder::new().name("landlock".to_owned()).spawn(behind_wall);
    let tried = tried.map(thread::JoinHandle::join);
    match tried {
        Ok(Ok(Ok(found))) => found,
        Ok(Ok(Err(error))) => Landlock::Fails(error.to_string()),
        Ok(Err(_)) => Landlock::Fails("it could not be tried".to_owned()),
        Err(error) => Landlock::Fails(error.to_string()),
    }
}

fn behind_wall() -> Result<Landlock, landlock::RulesetError> {
    let writes = || OpenOptions::new().write(true).open("/dev/null").is_ok();
    let before = writes();
    let rules = Ruleset::default().handle_access(AccessFs::from_write(ABI::V1))?.create()?;
    let status = rules.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::NotEnabled => Landlock::NotEnabled,
        LandlockStatus::NotImplemented => Landlock::NotBuilt,
        LandlockStatus::Available { .. } if status.ruleset == RulesetStatus::NotEnforced => {
            Landlock::Fails("the kernel does not enforce what it accepted".to_owned())
        }
        LandlockStatus::Available { .. } if before && writes() => {
            Landlock::Fails("a file could be written all the same".to_owned())
        }
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            Landlock::Holds { version: kernel_abi.unwrap_or(effective_abi as i32) }
        }
    })
}

/// A call of the kernel that Skein relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Why it cannot be used, if it cannot.
    pub missing: Option<String>,
}

/// Tries the calls that not every kernel or container has.
pub fn calls() -> Vec<Call> {
    let call = |name, purpose, tried: rustix::io::Result<()>| {
        let missing = tried.err().map(|error| std::io::Error::from(error).to_string());
        Call { name, purpose, missing }
    };
    let beneath = openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH);
    vec![
        call("pidfd", "the end of a worker is seen, and never another process ended in its place", {
            pidfd_open(getpid(), PidfdFlags::empty()).map(drop)
        }),
        call("subreaper", "what a worker leaves behind is found", child_subreaper().map(drop)),
        call("openat2", "no name in a workflow leads out of its folder", beneath.map(drop)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a thread gave up, the others still have.
    #[test]
    fn only_the_thread_that_tries_is_walled_in() {
        let found = landlock();
        assert_ne!(found, Landlock::Fails("a file could be written all the same".to_owned()));
        let dir = tempfile::tempdir().expect("a directory can be made");
        std::fs::write(dir.path().join("file"), "x").expect("it can be written here");
        assert_eq!(landlock(), found, "it can be tried again");
    }

    #[test]
    fn a_kernel_that_runs_the_tests_has_the_calls() {
        let missing: Vec<Call> = calls().into_iter().filter(|call| call.missing.is_some()).collect();
        assert_eq!(missing, []);
    }
}
