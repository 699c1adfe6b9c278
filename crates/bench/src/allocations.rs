//! The global allocator of this program, which counts: how often each thread asked, and how much is in use.

#![allow(unsafe_code)] // A global allocator is unsafe by nature; it hands on to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    // Without a destructor, so that it can be used as long as the thread allocates.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// How often this thread has asked for memory.
pub(crate) fn by_this_thread() -> u64 {
    ASKED.get()
}

/// How many bytes the whole process has asked for and not given back.
pub(crate) fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Counts, and hands on to the system's allocator.
pub(crate) struct Counting;

// SAFETY: every call goes to the system's allocator as it came; what is counted beside it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        LIVE.fetch_add(size, Ordering::Relaxed);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and `at` came from `System`.
        unsafe { System.realloc(at, layout, size) }
    }
}
