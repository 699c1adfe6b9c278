//! Chance that repeats: everything in a run follows from its seed.

/// Splitmix64: small, quick, and good enough to choose faults.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // A few steps apart, so that neighbouring seeds have nothing in common.
        let mut rng = Self(seed.wrapping_mul(0xA076_1D64_78BD_642F) ^ 0x9E37_79B9_7F4A_7C15);
        rng.next();
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// One of `from..to`.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        if to <= from { from } else { from + self.next() % (to - from) }
    }

    /// True in `permille` of a thousand cases.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.next() % 1000 < permille
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = self.next() as usize % of.len();
        &of[index]
    }
}
