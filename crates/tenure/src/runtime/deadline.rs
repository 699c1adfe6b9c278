//! The deadline of a worker's trust, where the check can read it without a lock. A forked child never believes it: it finds
//! the memory wiped or, where the system cannot do that, looks at whose it is.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::Moment;

use crate::runtime::process;

/// One page of memory. All zero means: nothing is to be relied on.
#[derive(Debug)]
pub(crate) struct Page {
    at: std::ptr::NonNull<Deadlines>,
    /// The process that made it.
    process: u32,
    /// Whether the kernel wipes it in a forked child. If not, the process is asked for with every look.
    is_wiped: bool,
}

/// Microseconds on the two clocks.
#[derive(Debug)]
struct Deadlines {
    trusted_boot: AtomicU64,
    trusted_raw: AtomicU64,
    protected_boot: AtomicU64,
    protected_raw: AtomicU64,
}

impl Page {
    /// Until when everything owned may be relied on, and until when the store lets nobody else in.
    pub(crate) fn trust(&self, until: Moment, protected_until: Moment) {
        let page = self.deadlines();
        page.protected_boot.store(protected_until.boot_micros(), Ordering::Relaxed);
        page.protected_raw.store(protected_until.raw_micros(), Ordering::Relaxed);
        page.trusted_boot.store(until.boot_micros(), Ordering::Release);
        page.trusted_raw.store(until.raw_micros(), Ordering::Release);
    }

    /// From here on nothing may be relied on.
    pub(crate) fn distrust(&self) {
        let page = self.deadlines();
        page.trusted_boot.store(0, Ordering::Release);
        page.trusted_raw.store(0, Ordering::Release);
    }

    /// Whether `now` is before the end of the trust, by both clocks. A half-written deadline is a mixture of two
    /// that were both sound when they were written, and so is it.
    #[inline]
    pub(crate) fn is_trusted(&self, now: Moment) -> bool {
        let page = self.deadlines();
        (self.is_wiped || self.is_here())
            && now.boot_micros() < page.trusted_boot.load(Ordering::Acquire)
            && now.raw_micros() < page.trusted_raw.load(Ordering::Acquire)
    }

    /// How long everything owned may still be relied on.
    pub(crate) fn trusted_for(&self, now: Moment) -> std::time::Duration {
        let page = self.deadlines();
        let boot = page.trusted_boot.load(Ordering::Acquire).saturating_sub(now.boot_micros());
        let raw = page.trusted_raw.load(Ordering::Acquire).saturating_sub(now.raw_micros());
        std::time::Duration::from_micros(boot.min(raw))
    }

    /// Whether this is the process that made it, not a forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// How long the store lets nobody else in, as far as is known.
    pub(crate) fn protected_for(&self, now: Moment) -> std::time::Duration {
        let page = self.deadlines();
        let boot = page.protected_boot.load(Ordering::Acquire).saturating_sub(now.boot_micros());
        let raw = page.protected_raw.load(Ordering::Acquire).saturating_sub(now.raw_micros());
        std::time::Duration::from_micros(boot.min(raw))
    }
}

#[allow(unsafe_code)] // One page from the kernel, wiped on fork.
mod memory {
    use std::ptr::NonNull;

    use super::{Deadlines, Page, process};

    // SAFETY: the page is plain memory that holds nothing but atomics, reached by shared reference only.
    unsafe impl Send for Page {}
    // SAFETY: as above; every access goes through an atomic.
    unsafe impl Sync for Page {}

    impl Page {
        /// A page that says: nothing is to be relied on.
        ///
        /// # Errors
        /// When the kernel has no memory.
        pub(crate) fn new() -> std::io::Result<Self> {
            let mut page = Self::not_wiped()?;
            #[cfg(target_os = "linux")]
            // SAFETY: the range is the mapping just made.
            let wiped = unsafe { libc::madvise(page.at.as_ptr().cast(), size(), libc::MADV_WIPEONFORK) } == 0;
            #[cfg(not(target_os = "linux"))]
            let wiped = false;
            page.is_wiped = wiped;
            Ok(page)
        }

        /// The same on a system that cannot wipe it.
        pub(super) fn not_wiped() -> std::io::Result<Self> {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new anonymous mapping at an address of the kernel's choice; nothing existing is touched.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), size(), prot, flags, -1, 0) };
            if at == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
            let page = NonNull::new(at.cast::<Deadlines>());
            let page = page.map(|at| Self { at, process: process::id(), is_wiped: false });
            page.ok_or_else(|| std::io::Error::other("the kernel mapped a page at zero"))
        }

        #[inline]
        pub(super) fn deadlines(&self) -> &Deadlines {
            // SAFETY: the mapping is aligned to a page, larger than `Deadlines`, zeroed by the kernel (which is a
            // valid `Deadlines`), and stays until `self` is dropped.
            unsafe { self.at.as_ref() }
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the mapping was made by `new` with this size, and nobody can reach it any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), size()) };
        }
    }

    const fn size() -> usize {
        size_of::<Deadlines>().next_multiple_of(4096)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(boot: u64, raw: u64) -> Moment {
        Moment::new(Duration::from_secs(boot), Duration::from_secs(raw))
    }

    // req: E1
    #[test]
    fn trust_ends_when_either_clock_says_so() {
        let page = Page::new().expect("a page");
        assert!(!page.is_trusted(at(0, 0)));

        page.trust(at(10, 10), at(11, 11));

        assert!(page.is_trusted(at(9, 9)) && !page.is_trusted(at(10, 9)) && !page.is_trusted(at(9, 10)));
        assert_eq!(page.trusted_for(at(9, 8)), Duration::from_secs(1));
        assert_eq!(page.protected_for(at(9, 8)), Duration::from_secs(2));
        page.distrust();
        assert!(!page.is_trusted(at(9, 9)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[allow(unsafe_code)]
    fn a_forked_child_never_believes() {
        let (page, not_wiped) = (Page::new().expect("a page"), Page::not_wiped().expect("a page"));
        assert!(page.is_wiped && !not_wiped.is_wiped);
        [&page, &not_wiped].iter().for_each(|page| page.trust(at(10, 10), at(11, 11)));

        // SAFETY: the child reads memory and leaves by `_exit`: nothing that needs a lock of another thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let believes = page.is_trusted(at(1, 1)) || not_wiped.is_trusted(at(1, 1));
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(believes)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made; `status` is valid for the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };

        assert_eq!((waited, libc::WEXITSTATUS(status)), (child, 0));
        assert!(page.is_trusted(at(1, 1)) && not_wiped.is_trusted(at(1, 1)));
    }
}
