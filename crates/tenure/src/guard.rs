//! What a worker shares with a guard: a small process that starts its work, outlives it, and ends the work in time.
//!
//! For work that lives in processes of its own, such as the command of `tenure run`. [`SharedPage::map`] comes first, then
//! the fork, then the worker with [`guarded_by`](crate::WorkerBuilder::guarded_by) in the parent. The guard, in the child,
//! [looks](SharedPage::look) until when the work may run, ends the lease *before* it sends the first signal, and closes it
//! with [`Namespace::close`](crate::admin::Admin::close) when nothing of the work is left.
//!
//! What holds, whatever the scheduler does to either side:
//!
//! 1. A lease's id stands in the page before the store is asked to open it: whoever finds the worker dead can close it.
//! 2. A deadline stands in the page before anybody is told of an ownership that relies on it.
//! 3. Ended is for ever. A lease that either side has ended never lives again, and a worker that would extend it learns of it in
//!    that very step: it does not own any more, as if its trust had run out.
//! 4. The guard ends only what it looked at. If the deadline was moved since, nothing happens, and it looks again.
//!
//! **Fork before any thread is started**, so before any worker, store or runtime is made: of a process with threads a
//! forked child may hardly do anything. What was made before the fork belongs to the parent alone, but for this page; a
//! guard that wants to ask a store opens it itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::LeaseId;
pub use tenure_core::Moment;

use crate::runtime::clock::Clocks;

/// The clocks that deadlines are counted on, read just now.
#[must_use]
pub fn now() -> Moment {
    Clocks::System.now()
}

/// One page of memory that a worker and its guard both see. One worker at a time writes to it.
#[derive(Debug)]
pub struct SharedPage {
    at: std::ptr::NonNull<Shared>,
}

/// Zeroed by the kernel, which is valid: no lease was ever asked for.
#[derive(Debug)]
struct Shared {
    /// Which lease, the how-manieth word about it, and where it stands: 24, 38 and 2 bits. Whatever else is read here counts
    /// only if this has not changed meanwhile.
    word: AtomicU64,
    lease_high: AtomicU64,
    lease_low: AtomicU64,
    /// Microseconds on the two clocks.
    until_boot: AtomicU64,
    until_raw: AtomicU64,
    margin: AtomicU64,
    /// By when the guard wants to have looked again, on the clock that counts suspend.
    beat_boot: AtomicU64,
}

/// Where a lease stands, as the page tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There was none yet.
    Absent,
    /// The store may have been asked to open it. Nothing can rely on it.
    Asked,
    /// It is good until its deadline.
    Live,
    /// One side has ended it, for ever.
    Ended,
}

/// The lease was ended by the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

const STATE_BITS: u32 = 2;
const VERSION_BITS: u32 = 38;
const STATES: u64 = (1 << STATE_BITS) - 1;
const VERSIONS: u64 = (1 << VERSION_BITS) - 1;

/// The word of the page, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn new(number: u64, version: u64, standing: Standing) -> Self {
        let state = match standing {
            Standing::Absent => 0,
            Standing::Asked => 1,
            Standing::Live => 2,
            Standing::Ended => 3,
        };
        // Both wrap around: who looks compares them for being the same, within one moment.
        Self(number << (STATE_BITS + VERSION_BITS) | (version & VERSIONS) << STATE_BITS | state)
    }

    fn number(self) -> u64 {
        self.0 >> (STATE_BITS + VERSION_BITS)
    }

    fn version(self) -> u64 {
        self.0 >> STATE_BITS & VERSIONS
    }

    fn standing(self) -> Standing {
        match self.0 & STATES {
            0 => Standing::Absent,
            1 => Standing::Asked,
            2 => Standing::Live,
            _ => Standing::Ended,
        }
    }

    /// The next word about the same lease.
    fn then(self, standing: Standing) -> Self {
        Self::new(self.number(), self.version() + 1, standing)
    }
}

/// What stood in the page at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    word: Word,
    lease: LeaseId,
    until: Moment,
    margin: Duration,
}

impl Look {
    /// Which of the worker's leases it is: 1, 2, 3, ...
    #[must_use]
    pub fn number(&self) -> u64 {
        self.word.number()
    }

    /// Where it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.word.standing()
    }

    /// Its id, to close it with.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Until when the work may rely on it, while it is live.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.until
    }

    /// How much later, at the earliest, the store lets another in.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// Whether work under this very lease may run at `now`.
    #[must_use]
    pub fn allows(&self, number: u64, now: Moment) -> bool {
        self.number() == number && self.standing() == Standing::Live && !now.has_reached(self.until)
    }
}

impl SharedPage {
    // ---- the guard's side ----------------------------------------------------------------------------------

    /// What stands there now.
    #[must_use]
    pub fn look(&self) -> Look {
        let page = self.shared();
        loop {
            let word = Word(page.word.load(Ordering::SeqCst));
            let load = |field: &AtomicU64| field.load(Ordering::SeqCst);
            let lease = LeaseId(u128::from(load(&page.lease_high)) << 64 | u128::from(load(&page.lease_low)));
            let span = |field: &AtomicU64| Duration::from_micros(load(field));
            let until = Moment::new(span(&page.until_boot), span(&page.until_raw));
            let margin = span(&page.margin);
            // A deadline that is being moved is a mixture of two that were both sound when they were written.
            if page.word.load(Ordering::SeqCst) == word.0 {
                return Look { word, lease, until, margin };
            }
        }
    }

    /// Ends the lease for ever, if it still stands as it was looked at. Otherwise nothing happens: look again. One that has
    /// ended already stays so, and that is not an error.
    #[must_use = "a lease that was extended meanwhile has not ended"]
    pub fn end(&self, look: &Look) -> bool {
        match look.standing() {
            Standing::Ended | Standing::Absent => true,
            Standing::Asked | Standing::Live => self.swap(look.word, look.word.then(Standing::Ended)),
        }
    }

    /// The guard looks, and will again by `next`.
    pub fn beat(&self, next: Moment) {
        self.shared().beat_boot.store(next.boot_micros(), Ordering::SeqCst);
    }

    // ---- the worker's side ---------------------------------------------------------------------------------

    /// How late the guard is with its beat.
    #[must_use]
    pub fn late_by(&self, now: Moment) -> Duration {
        let beat = self.shared().beat_boot.load(Ordering::SeqCst);
        Duration::from_micros(now.boot_micros().saturating_sub(beat))
    }

    /// The store is about to be asked to open this lease, perhaps again.
    pub(crate) fn opening(&self, lease: LeaseId) {
        let (page, before) = (self.shared(), self.look());
        if before.lease == lease && before.standing() != Standing::Absent {
            return;
        }
        // What was asked for and never opened; nobody relies on it.
        self.end_all();
        let halves = [(&page.lease_high, lease.0 >> 64), (&page.lease_low, lease.0)];
        for (field, half) in halves {
            field.store(half as u64, Ordering::SeqCst);
        }
        // Nobody else writes about a lease that has ended.
        let word = Word(page.word.load(Ordering::SeqCst));
        let next = Word::new(word.number() + 1, word.version() + 1, Standing::Asked);
        page.word.store(next.0, Ordering::SeqCst);
    }

    /// The work may rely on the lease until then. To be said before anybody is told.
    ///
    /// # Errors
    /// When the guard has ended it.
    pub(crate) fn extend(&self, until: Moment, margin: Duration) -> Result<(), Ended> {
        let page = self.shared();
        let word = Word(page.word.load(Ordering::SeqCst));
        if !matches!(word.standing(), Standing::Asked | Standing::Live) {
            return Err(Ended);
        }
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        page.margin.store(micros(margin), Ordering::SeqCst);
        page.until_boot.store(until.boot_micros(), Ordering::SeqCst);
        page.until_raw.store(until.raw_micros(), Ordering::SeqCst);
        if self.swap(word, word.then(Standing::Live)) { Ok(()) } else { Err(Ended) }
    }

    /// Nothing may rely on any lease from here on.
    pub(crate) fn end_all(&self) {
        while !self.end(&self.look()) {}
    }

    fn swap(&self, from: Word, to: Word) -> bool {
        let word = &self.shared().word;
        word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[allow(unsafe_code)] // One page from the kernel, shared over a fork.
mod memory {
    use std::ptr::NonNull;

    use super::{Shared, SharedPage};

    // SAFETY: the page is plain memory that holds nothing but atomics, reached by shared reference only.
    unsafe impl Send for SharedPage {}
    // SAFETY: as above; every access goes through an atomic.
    unsafe impl Sync for SharedPage {}

    impl SharedPage {
        /// A page in which no lease stands. Forked children see the same.
        ///
        /// # Errors
        /// When the kernel has no memory.
        pub fn map() -> std::io::Result<Self> {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            // SAFETY: a new anonymous mapping at an address of the kernel's choice; nothing existing is touched.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, prot, flags, -1, 0) };
            if at == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
            let page = NonNull::new(at.cast::<Shared>()).map(|at| Self { at });
            page.ok_or_else(|| std::io::Error::other("the kernel mapped a page at zero"))
        }

        #[inline]
        pub(super) fn shared(&self) -> &Shared {
            // SAFETY: the mapping is aligned to a page, larger than `Shared`, zeroed by the kernel (which is a valid
            // `Shared`), and stays until `self` is dropped. Atomics may be changed by another process.
            unsafe { self.at.as_ref() }
        }
    }

    impl Drop for SharedPage {
        fn drop(&mut self) {
            // SAFETY: the mapping was made by `map` with this size, and nobody in this process can reach it any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), SIZE) };
        }
    }

    const SIZE: usize = size_of::<Shared>().next_multiple_of(4096);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const MARGIN: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds), Duration::from_secs(seconds))
    }

    fn live(lease: u128) -> SharedPage {
        let page = SharedPage::map().expect("a page");
        page.opening(LeaseId(lease));
        assert_eq!(page.extend(at(10), MARGIN), Ok(()));
        page
    }

    #[test]
    fn a_lease_is_known_before_it_is_opened_and_allows_work_only_with_a_deadline() {
        let page = SharedPage::map().expect("a page");
        assert_eq!((page.look().standing(), page.look().number()), (Standing::Absent, 0));

        page.opening(LeaseId(u128::MAX - 1));
        let asked = page.look();
        assert_eq!((asked.standing(), asked.lease().0), (Standing::Asked, u128::MAX - 1));
        assert!(!asked.allows(1, at(0)));

        assert_eq!(page.extend(at(10), MARGIN), Ok(()));
        let live = page.look();
        assert!(live.allows(1, at(9)) && !live.allows(1, at(10)) && !live.allows(2, at(9)));
    }

    #[test]
    fn what_was_ended_never_lives_again_and_the_next_lease_does() {
        let page = live(1);

        assert!(page.end(&page.look()));
        assert_eq!(page.extend(at(20), MARGIN), Err(Ended));
        assert!(!page.look().allows(1, at(1)));
        // Asked for once more: it stays what it is.
        page.opening(LeaseId(1));
        assert_eq!(page.extend(at(20), MARGIN), Err(Ended));

        page.opening(LeaseId(2));
        assert_eq!(page.extend(at(20), MARGIN), Ok(()));
        assert!(page.look().allows(2, at(15)));
    }

    #[test]
    fn a_guard_ends_only_what_it_looked_at() {
        let page = live(1);
        let look = page.look();

        assert_eq!(page.extend(at(20), MARGIN), Ok(()));

        assert!(!page.end(&look));
        assert!(page.look().allows(1, at(15)));
        assert!(page.end(&page.look()));
    }

    #[test]
    fn of_an_extension_and_an_end_at_the_same_time_one_wins_and_both_know() {
        for _ in 0..2_000 {
            let page = Arc::new(live(1));
            let guard = std::thread::spawn({
                let page = page.clone();
                move || page.end(&page.look())
            });
            let mut extended = Ok(());
            for until in 20..25 {
                extended = page.extend(at(until), MARGIN);
            }
            let ended = guard.join().expect("it ends");

            // Extended last means that the end came to nothing, unless it came after everything.
            match (page.look().standing(), ended) {
                (Standing::Ended, true) | (Standing::Live, false) => {}
                other => panic!("they disagree: {other:?}, {extended:?}"),
            }
            if ended {
                assert_eq!(page.extend(at(30), MARGIN), Err(Ended));
            }
        }
    }

    #[test]
    fn the_beat_tells_how_late_the_guard_is() {
        let page = SharedPage::map().expect("a page");
        page.beat(at(10));

        assert_eq!(page.late_by(at(9)), Duration::ZERO);
        assert_eq!(page.late_by(at(12)), Duration::from_secs(2));
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[allow(unsafe_code)]
    fn a_forked_child_sees_and_ends_the_lease_of_its_parent() {
        let page = SharedPage::map().expect("a page");
        // SAFETY: the child uses atomics in shared memory and leaves by `_exit`: nothing that needs a lock of another thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            while page.look().standing() != Standing::Live {
                std::hint::spin_loop();
            }
            let ended = page.end(&page.look());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!ended)) };
        }
        page.opening(LeaseId(7));
        assert_eq!(page.extend(at(10), MARGIN), Ok(()));
        let mut status = 0;
        // SAFETY: waits for the child just made; `status` is valid for the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };

        assert_eq!((waited, libc::WEXITSTATUS(status)), (child, 0));
        assert_eq!(page.extend(at(20), MARGIN), Err(Ended));
    }
}
