//! From which life of the server this process heard last. Who goes from one life to another has to say so: what it was
//! granted in the first may not be known in the second, also where the second is the older one.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::{Incarnation, Stamp};

#[derive(Default)]
pub(super) struct Heard(Mutex<Option<Last>>);

#[derive(Clone, Copy)]
struct Last {
    life: Incarnation,
    /// Trust that the answer gave is counted from before this, so it ends before this and `longest`.
    at: Instant,
    longest: Duration,
}

impl Heard {
    /// The life that was heard from, as the scripts write it, while somebody may still rely on what it said; else
    /// nothing.
    pub(super) fn lately(&self) -> String {
        let last = self.lock().filter(|last| last.at.elapsed() <= last.longest);
        last.map_or(String::new(), |last| format!("{:032x}", last.life.0))
    }

    /// Notes from which life an answer came. Says whether the one before came from another.
    pub(super) fn note(&self, stamp: Stamp) -> bool {
        let now = Last { life: stamp.incarnation, at: Instant::now(), longest: stamp.longest };
        self.lock().replace(now).is_some_and(|before| before.life != now.life)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Last>> {
        // There is no step in it that a panic could leave half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::StoreTime;

    use super::*;

    fn stamp(life: u128, longest: Duration) -> Stamp {
        let now = StoreTime::from_micros(1);
        Stamp { now, shown: now, incarnation: Incarnation(life), longest }
    }

    #[test]
    fn another_life_is_noticed_and_the_last_one_is_told_for_one_longest() {
        let heard = Heard::default();
        assert_eq!(heard.lately(), "");

        assert!(!heard.note(stamp(7, Duration::from_secs(60))));
        assert_eq!(heard.lately(), "00000000000000000000000000000007");
        assert!(!heard.note(stamp(7, Duration::from_secs(60))));
        assert!(heard.note(stamp(8, Duration::ZERO)));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(heard.lately(), "");
    }
}
