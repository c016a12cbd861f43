//! Services of the operating system that several rooms use: probes of the kernel features that Skein needs, random
//! bytes, and the reading of files that may be anything. Does not decide how to continue without a feature.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2},
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
        let missing = tried.err().map(|error| io::Error::from(error).to_string());
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

/// Reads at most this many bytes of a regular file. Opening a pipe does not wait for its other end.
pub(crate) fn read_regular_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
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
