//! Unpredictable random bytes.

use rustix::rand::{GetRandomFlags, getrandom};

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
