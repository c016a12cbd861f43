//! Random numbers that are a function of a seed.
//!
//! Owns one small generator (splitmix64) and hashing by label, so that a draw depends on its subject and not on the
//! number of earlier draws. Does not know entropy, clocks, or the drawn values.

/// A stream of pseudo-random numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a number so that every bit of the result depends on every bit of the argument.
pub(crate) fn mix_bits(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes a seed and a text into one number.
pub(crate) fn hash_label(seed: u64, text: &str) -> u64 {
    let folded = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3) // FNV-1a
    });
    mix_bits(seed.wrapping_add(STEP) ^ mix_bits(folded))
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: mix_bits(seed.wrapping_add(STEP)) }
    }

    /// Derives an independent stream for a label, without advancing this one.
    pub fn fork(&self, label: &str) -> Rng {
        Rng { state: hash_label(self.state, label) }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix_bits(self.state)
    }

    /// Returns a number less than `n`, or 0 if `n` is 0.
    pub fn next_below(&mut self, n: u64) -> u64 {
        // The bias of the multiplication is far too small to affect a behavioural test.
        u64::try_from((u128::from(self.next_u64()) * u128::from(n)) >> 64).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both inclusive.
    pub fn next_between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next_below(high.saturating_sub(low).saturating_add(1))
    }

    pub fn next_u32_between(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.next_between(u64::from(low), u64::from(high))).unwrap_or(high)
    }

    /// True with a probability of `n` in a thousand.
    pub fn chance_permille(&mut self, n: u64) -> bool {
        self.next_below(1_000) < n
    }

    pub fn chance_percent(&mut self, n: u64) -> bool {
        self.next_below(100) < n
    }

    pub fn pick_index(&mut self, len: usize) -> usize {
        usize::try_from(self.next_below(len as u64)).unwrap_or(0)
    }

    /// Picks one element; the slice must not be empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.pick_index(of.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_label_another() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert_eq!((0..9).map(|_| a.next_u64()).collect::<Vec<_>>(), (0..9).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert_ne!(a.fork("x").next_u64(), a.fork("y").next_u64());
        assert_eq!(a.fork("x").next_u64(), a.fork("x").next_u64());
    }

    #[test]
    fn a_range_is_filled_and_not_left() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 4];
        (0..400).for_each(|_| seen[rng.pick_index(4)] += 1);
        assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
        assert_eq!(rng.next_below(0), 0);
    }
}
