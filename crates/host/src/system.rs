//! Services of the operating system besides files and processes: probes of the kernel features that Skein needs,
//! and random bytes. Does not decide how to continue without a feature: the caller does.

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    process::{PidfdFlags, child_subreaper, getpid, pidfd_open},
    rand::{GetRandomFlags, getrandom},
};

/// A system call that Skein relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFeature {
    pub name: &'static str,
    /// The use that Skein makes of it.
    pub purpose: &'static str,
    /// The reason why it is not available, if it is not.
    pub missing: Option<String>,
}

/// Probes the system calls that some kernels or containers lack.
pub fn probe_kernel_features() -> Vec<KernelFeature> {
    let call = |name, purpose, tried: rustix::io::Result<()>| {
        let missing = tried.err().map(|error| std::io::Error::from(error).to_string());
        KernelFeature { name, purpose, missing }
    };
    let beneath = openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH);
    vec![
        call("pidfd", "it detects the exit of a worker without signalling another process", {
            pidfd_open(getpid(), PidfdFlags::empty()).map(drop)
        }),
        call("subreaper", "it finds processes that a worker leaves behind", child_subreaper().map(drop)),
        call("openat2", "it keeps file names of a workflow inside its folder", beneath.map(drop)),
    ]
}

pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system has enough randomness long before Skein starts, and returns a few bytes completely.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes
}

/// Returns random bytes as hexadecimal text.
pub(crate) fn random_hex<const N: usize>() -> String {
    random_bytes::<N>().iter().map(|byte| format!("{byte:02x}")).collect()
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
