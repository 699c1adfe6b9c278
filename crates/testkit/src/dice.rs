//! Chance that a seed repeats.

use std::time::Duration;

/// Small, and the same everywhere: xorshift64*.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this bound.
    ///
    /// # Panics
    /// When there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Zero would stay zero.
        let mut x = self.0.max(1);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    /// A span from `least` up to `most`, in whole milliseconds.
    ///
    /// # Panics
    /// When the least is more than the most.
    pub fn span(&mut self, least: Duration, most: Duration) -> Duration {
        let between = u64::try_from((most - least).as_millis()).expect("a short span");
        least + Duration::from_millis(self.below(between + 1))
    }
}
