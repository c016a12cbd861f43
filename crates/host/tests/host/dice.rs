//! Reproducible pseudo-random numbers.

/// Small numbers from a seed.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}
