//! What belongs to one process. A forked child inherits the memory of its parent, but not its threads: what they hold or
//! serve is of no use to it, and to close it would disturb the parent.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Error;

/// The id of this process, asked anew each time: it differs in a forked child.
pub(crate) fn id() -> u32 {
    std::process::id()
}

/// A value that only the process that made it may use. A forked child gets an error instead, and leaks its copy.
#[derive(Clone, Debug)]
pub(crate) struct Owned<T> {
    process: u32,
    /// Absent only while it is dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: id(), value: Some(value) }
    }

    /// # Errors
    /// In a forked child.
    pub(crate) fn get(&self) -> Result<&T, Error> {
        self.value.as_ref().filter(|_| self.is_here()).ok_or_else(Error::forked)
    }

    /// What is made of it belongs to the same process.
    pub(crate) fn map<U>(&self, make: impl FnOnce(&T) -> U) -> Owned<U> {
        Owned { process: self.process, value: self.value.as_ref().map(make) }
    }

    pub(crate) fn is_here(&self) -> bool {
        self.process == id()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            // Its sockets, and what waits for them, are the parent's, too.
            std::mem::forget(self.value.take());
        }
    }
}

/// A value that each process makes for itself. A forked child does not look at its parent's, which another thread may have
/// been changing at the fork.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Made<T>>);

#[derive(Debug)]
struct Made<T> {
    process: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[allow(unsafe_code)] // A static that can be replaced without a lock.
    pub(crate) fn get(&'static self, make: impl Fn() -> T) -> &'static T {
        let process = id();
        let mut found = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or from `Box::into_raw` below. What was published is never freed.
            match unsafe { found.as_ref() } {
                Some(made) if made.process == process => return &made.value,
                _ => {}
            }
            let made = Box::into_raw(Box::new(Made { process, value: make() }));
            match self.0.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
                // The parent's, if there was one, is leaked.
                Ok(_) => found = made,
                Err(faster) => {
                    // SAFETY: made by `Box::into_raw` above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    found = faster;
                }
            }
        }
    }
}

/// Ends the process at once: no destructor or exit handler runs, because work that cannot be stopped may hold any lock.
#[allow(unsafe_code)] // `_exit`, and writing without the lock of the standard library.
pub(crate) fn exit_at_once(why: &str, code: i32) -> ! {
    let line = format!("tenure: {why}\n");
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointers are valid for the calls. Nothing is written to a pipe that is full, which would block.
    unsafe {
        if libc::poll(&raw mut stderr, 1, 0) == 1 && stderr.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        }
        libc::_exit(code)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Runs this in a forked child, and says whether it was true there.
    #[allow(unsafe_code)]
    fn in_child(look: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs only what it is given and leaves by `_exit`; nothing that it does needs another thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let said = look();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(said)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made; `status` is valid for the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child);
        assert!(libc::WIFEXITED(status), "the child died: {status}");
        libc::WEXITSTATUS(status) == 1
    }

    struct Rings<'a>(&'a AtomicU32);

    impl Drop for Rings<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_is_owned_is_refused_and_leaked_in_a_forked_child() {
        let dropped = AtomicU32::new(0);
        let owned = Owned::new(Rings(&dropped));
        assert!(owned.get().is_ok());

        let (looked, owned) = (owned.get().is_ok(), Some(owned));
        let refused = in_child(|| {
            let mut owned = owned;
            let error = owned.as_ref().and_then(|owned| owned.get().err()).map(|error| error.to_string());
            owned.take();
            error.is_some_and(|error| error.contains("forked")) && dropped.load(Ordering::SeqCst) == 0
        });

        assert!(looked && refused);
    }

    #[test]
    fn a_forked_child_makes_its_own_although_another_thread_holds_the_parents() {
        static TABLE: PerProcess<Mutex<u32>> = PerProcess::new();
        let table = || TABLE.get(|| Mutex::new(id()));
        let held = table().lock().expect("a lock");
        assert_eq!(*held, id());

        let own = in_child(|| table().try_lock().is_ok_and(|own| *own == id()));

        assert!(own);
        assert!(std::ptr::eq(table(), TABLE.get(|| Mutex::new(0))));
    }
}
