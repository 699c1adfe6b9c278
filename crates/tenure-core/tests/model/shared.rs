//! What makes states few and small: parts that are shared and hashed once, without the names of versions.
//!
//! Versions are drawn at random, and nobody looks at more than whether two of them are the same. So two states that
//! differ only in what their versions are called are one: in the hash of a state each version counts as its place among
//! them.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// What all versions begin with, and nothing else does.
pub(crate) const VERSION: u64 = 0xA5 << 56;

/// A part of a state, shared by all states that have it in common, and hashed once when it has changed.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    /// The hash of the part, and the versions in it by their first places.
    named: Arc<(u64, Vec<u64>)>,
    part: Arc<T>,
    changed: bool,
}

impl<T: Clone + Hash> Shared<T> {
    pub(crate) fn new(part: T) -> Self {
        Self { named: Arc::new(key(&part)), part: Arc::new(part), changed: false }
    }

    pub(crate) fn change<R>(&mut self, by: impl FnOnce(&mut T) -> R) -> R {
        self.changed = true;
        by(Arc::make_mut(&mut self.part))
    }

    /// Hashes what has changed. A state is complete only then.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.named = Arc::new(key(&*self.part));
        }
    }

    /// What orders parts of one kind.
    pub(crate) fn key(&self) -> (u64, &[u64]) {
        (self.named.0, &self.named.1)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.named == other.named && self.part == other.part
    }
}

impl<T: Eq> Eq for Shared<T> {}

/// The hash of several parts together: what is the same version in two of them counts.
#[derive(Debug, Default)]
pub(crate) struct Renaming {
    mixed: u64,
    versions: Vec<u64>,
}

impl Renaming {
    pub(crate) fn add<T>(&mut self, part: &Shared<T>) {
        let (key, versions) = &*part.named;
        self.mix(*key);
        versions.iter().for_each(|version| self.write_u64(*version));
        self.mix(versions.len() as u64);
    }

    fn mix(&mut self, word: u64) {
        // The two halves of a product by a large odd number: each bit of the word reaches all of them.
        let product = u128::from(self.mixed ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        self.mixed = (product as u64) ^ ((product >> 64) as u64).rotate_left(23);
    }
}

impl Hasher for Renaming {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        if word & (0xFF << 56) != VERSION {
            return self.mix(word);
        }
        let known = self.versions.iter().position(|version| *version == word);
        let place = known.unwrap_or_else(|| {
            self.versions.push(word);
            self.versions.len() - 1
        });
        self.mix(VERSION | place as u64);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64((word >> 64) as u64);
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.mixed
    }
}

fn key(it: &impl Hash) -> (u64, Vec<u64>) {
    let mut hasher = Renaming::default();
    it.hash(&mut hasher);
    (hasher.mixed, hasher.versions)
}
