//! Chance: bytes that nobody can foresee.

use rustix::rand::{GetRandomFlags, getrandom};

pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system has randomness long before anything of ours runs, and gives so few bytes whole.
    let _ = getrandom(&mut bytes, GetRandomFlags::empty());
    bytes
}

/// The same as text.
pub fn random_hex<const N: usize>() -> String {
    random_bytes::<N>().iter().map(|byte| format!("{byte:02x}")).collect()
}
