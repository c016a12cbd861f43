//! What this machine can do for a host: which calls the kernel has.
//!
//! Owns trying it. Refuses to conclude: what is done without is for who asks.

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    process::{PidfdFlags, child_subreaper, getpid, pidfd_open},
};

/// A call of the kernel that Skein relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFeature {
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Why it cannot be used, if it cannot.
    pub missing: Option<String>,
}

/// Tries the calls that not every kernel or container has.
pub fn probe_kernel_features() -> Vec<KernelFeature> {
    let call = |name, purpose, tried: rustix::io::Result<()>| {
        let missing = tried.err().map(|error| std::io::Error::from(error).to_string());
        KernelFeature { name, purpose, missing }
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

    #[test]
    fn a_kernel_that_runs_the_tests_has_the_calls() {
        let missing: Vec<KernelFeature> =
            probe_kernel_features().into_iter().filter(|call| call.missing.is_some()).collect();
        assert_eq!(missing, []);
    }
}
