//! The clocks that trust is counted on, and waking up by them.
//!
//! `std::time::Instant` stops in suspend on Linux, and so do tokio's timers: neither is an authority here. The
//! clocks are read through libc's `clock_gettime`, so that a test can put another one in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::Moment;
use tokio::sync::Notify;

/// Which clocks a worker goes by.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clocks {
    #[default]
    System,
    ByHand(ManualClock),
}

/// A clock that moves only when it is told to, for tests of code that uses Tenure. It counts for the workers and
/// the `memory:` store that were made with it.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<ByHand>);

#[derive(Debug, Default)]
struct ByHand {
    /// The clock that counts suspend.
    boot: AtomicU64,
    /// The clock that does not.
    raw: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    /// A clock that shows an hour after its own beginning of time.
    #[must_use]
    pub fn new() -> Self {
        let clock = Self::default();
        clock.advance(Duration::from_secs(3600));
        clock
    }

    /// Lets so much time go by at once.
    pub fn advance(&self, span: Duration) {
        self.0.raw.fetch_add(micros(span), Ordering::SeqCst);
        self.0.boot.fetch_add(micros(span), Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }

    /// What it shows, counted from 1970 where it stands for the time of day.
    #[must_use]
    pub fn shows(&self) -> Duration {
        Duration::from_micros(self.boot())
    }

    /// Lets the machine be suspended for so long: only one of the two clocks counts it.
    #[cfg(test)]
    pub(crate) fn suspend(&self, span: Duration) {
        self.0.boot.fetch_add(micros(span), Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }

    fn boot(&self) -> u64 {
        self.0.boot.load(Ordering::SeqCst)
    }

    /// Waits until it shows so many microseconds.
    pub(crate) async fn until(&self, micros: u64) {
        loop {
            let moved = self.0.moved.notified();
            if self.boot() >= micros {
                return;
            }
            moved.await;
        }
    }
}

impl Clocks {
    /// Both clocks, read just now.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::System => Moment::new(system::counts_suspend(), system::is_not_slewed()),
            Self::ByHand(clock) => {
                let raw = clock.0.raw.load(Ordering::SeqCst);
                Moment::new(Duration::from_micros(clock.boot()), Duration::from_micros(raw))
            }
        }
    }

    /// Microseconds since 1970, for tokens and for when jobs are due. It may step.
    pub(crate) fn wall(&self) -> u64 {
        match self {
            Self::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
            }
            Self::ByHand(clock) => clock.boot(),
        }
    }

    /// Waits for so long, by the clock that counts suspend: after one it returns at once.
    pub(crate) async fn sleep(&self, span: Duration) {
        match self {
            Self::System => system::sleep(span).await,
            Self::ByHand(clock) => clock.until(clock.boot().saturating_add(micros(span))).await,
        }
    }

    /// As [`sleep`](Self::sleep), but a suspend may not count: it takes no call of the kernel.
    pub(crate) async fn doze(&self, span: Duration) {
        match self {
            Self::System => tokio::time::sleep(span).await,
            Self::ByHand(_) => self.sleep(span).await,
        }
    }
}

/// The timer of one who sleeps again and again: it is set anew each time, not made anew, which costs five calls of the
/// kernel on the way of every message.
#[derive(Debug)]
pub(crate) struct Alarm {
    clocks: Clocks,
    kept: Option<system::Timer>,
    /// When it will ring, if it has been set and has not rung yet: by the clock that counts suspend.
    rings_at: Option<Duration>,
}

impl Alarm {
    pub(crate) fn by(clocks: Clocks) -> Self {
        Self { clocks, kept: None, rings_at: None }
    }

    /// As [`Clocks::sleep`]. One that rings before the time, because it was set for another sleep that was given up, is
    /// not set anew until it has.
    pub(crate) async fn sleep(&mut self, span: Duration) {
        if let by_hand @ Clocks::ByHand(_) = &self.clocks {
            return by_hand.sleep(span).await;
        }
        let until = system::counts_suspend() + span;
        loop {
            let left = until.saturating_sub(system::counts_suspend());
            if self.kept.is_none() || self.rings_at.is_none_or(|rings_at| rings_at > until) {
                system::set_or_make(&mut self.kept, left);
                self.rings_at = Some(until);
            }
            system::ring(self.kept.as_ref(), left).await;
            self.rings_at = None;
            if system::counts_suspend() >= until {
                return;
            }
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[allow(unsafe_code)] // Reading clocks and timers of the kernel.
mod system {
    use std::time::Duration;

    #[cfg(target_os = "linux")]
    const COUNTS_SUSPEND: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(target_os = "linux")]
    const IS_NOT_SLEWED: libc::clockid_t = libc::CLOCK_MONOTONIC_RAW;
    // On macOS CLOCK_MONOTONIC_RAW counts suspend and is not slewed, CLOCK_UPTIME_RAW stops.
    #[cfg(target_os = "macos")]
    const COUNTS_SUSPEND: libc::clockid_t = libc::CLOCK_MONOTONIC_RAW;
    #[cfg(target_os = "macos")]
    const IS_NOT_SLEWED: libc::clockid_t = libc::CLOCK_UPTIME_RAW;

    #[inline]
    pub(super) fn counts_suspend() -> Duration {
        read(COUNTS_SUSPEND)
    }

    #[inline]
    pub(super) fn is_not_slewed() -> Duration {
        read(IS_NOT_SLEWED)
    }

    #[inline]
    fn read(clock: libc::clockid_t) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for one timespec, and lives for the whole call.
        let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
        // Both clocks exist wherever this builds; a kernel that refuses them cannot be trusted with time at all.
        assert!(!failed, "the kernel does not read clock {clock}");
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    #[cfg(target_os = "linux")]
    pub(super) type Timer = tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>;
    #[cfg(not(target_os = "linux"))]
    pub(super) type Timer = ();

    #[cfg(target_os = "linux")]
    pub(super) async fn sleep(span: Duration) {
        ring(timer(span).as_ref(), span).await;
    }

    /// Lets the timer that is kept fire after `span`, or a new one if there is none that can be set.
    #[cfg(target_os = "linux")]
    pub(super) fn set_or_make(kept: &mut Option<Timer>, span: Duration) {
        if !kept.as_ref().is_some_and(|timer| set(timer.get_ref(), span)) {
            *kept = timer(span);
        }
    }

    /// Waits until the timer has fired; for `span` if there is none.
    #[cfg(target_os = "linux")]
    pub(super) async fn ring(timer: Option<&Timer>, span: Duration) {
        match timer {
            Some(timer) => {
                // Readable means fired. An error here only wakes early, and then the caller looks again.
                if let Ok(mut fired) = timer.readable().await {
                    fired.clear_ready();
                }
            }
            None => tokio::time::sleep(span).await,
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn set_or_make(_: &mut Option<Timer>, _: Duration) {}

    #[cfg(not(target_os = "linux"))]
    pub(super) async fn ring(_: Option<&Timer>, span: Duration) {
        sleep(span).await;
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) async fn sleep(span: Duration) {
        // No timer counts suspend here: short naps bound how late a wake-up after one can be.
        let until = counts_suspend() + span;
        while let Some(left) = until.checked_sub(counts_suspend()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left.min(Duration::from_millis(500))).await;
        }
    }

    /// A timer that fires after `span` of the clock that counts suspend.
    #[cfg(target_os = "linux")]
    pub(super) fn timer(span: Duration) -> Option<Timer> {
        use std::os::fd::{FromRawFd, OwnedFd};

        // SAFETY: no pointers are passed; the result is checked below.
        let raw =
            unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if raw < 0 {
            return None;
        }
        // SAFETY: the descriptor was just made, is open, and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        if !set(&fd, span) {
            return None;
        }
        // SAFETY: an `OwnedFd` keeps one descriptor open, always the same, until it is dropped.
        unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE) }.ok()
    }

    /// Lets it fire after `span`, and not when it was to fire before. Says whether it will.
    #[cfg(target_os = "linux")]
    fn set(timer: &std::os::fd::OwnedFd, span: Duration) -> bool {
        use std::os::fd::AsRawFd;

        // Zero would disarm it.
        let span = span.max(Duration::from_nanos(1));
        let mut setting = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        };
        setting.it_value.tv_sec = libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX);
        setting.it_value.tv_nsec = span.subsec_nanos().into();
        // SAFETY: `setting` is valid for the call, and the old setting is not asked for.
        unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[test]
    fn both_system_clocks_run() {
        let before = Clocks::System.now();
        std::thread::sleep(Duration::from_millis(5));
        let after = Clocks::System.now();

        assert!(after.shortest_since(before) >= Duration::from_millis(4));
    }

    #[tokio::test]
    async fn a_system_sleep_lasts_as_long_as_asked() {
        let before = Clocks::System.now();

        Clocks::System.sleep(Duration::from_millis(20)).await;

        assert!(Clocks::System.now().longest_since(before) >= Duration::from_millis(20));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_timer_of_a_system_sleep_counts_suspend() {
        let timer = system::timer(Duration::from_secs(60)).expect("a timer");

        let fd = std::os::fd::AsRawFd::as_raw_fd(timer.get_ref());
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("it is open");

        let clock = info.lines().find_map(|line| line.strip_prefix("clockid:")).map(str::trim);
        assert_eq!(clock, Some(libc::CLOCK_BOOTTIME.to_string().as_str()), "{info}");
    }

    #[tokio::test]
    async fn an_alarm_is_set_again_before_and_after_it_has_rung() {
        let (mut alarm, hour) = (Alarm::by(Clocks::System), Duration::from_secs(3600));
        let given_up = tokio::time::timeout(Duration::from_millis(1), alarm.sleep(hour)).await;
        assert!(given_up.is_err());

        for _ in 0..3 {
            let before = Clocks::System.now();
            alarm.sleep(Duration::from_millis(20)).await;
            assert!(Clocks::System.now().longest_since(before) >= Duration::from_millis(20));
        }

        // Looked at once: however late that is, nobody has looked at the kernel's timers meanwhile.
        let mut short = Box::pin(alarm.sleep(Duration::from_millis(5)));
        let looked = std::future::poll_fn(|context| Poll::Ready(short.as_mut().poll(context))).await;
        assert_eq!(looked, Poll::Pending);
        drop(short);
        let before = Clocks::System.now();
        alarm.sleep(Duration::from_millis(20)).await;
        assert!(Clocks::System.now().longest_since(before) >= Duration::from_millis(20), "one given up rang");

        let rings = tokio::time::timeout(Duration::from_millis(30), alarm.sleep(hour)).await;
        assert!(rings.is_err(), "what it was set to before is forgotten");
    }

    #[tokio::test]
    async fn a_clock_by_hand_wakes_when_it_is_moved_far_enough() {
        let hand = ManualClock::new();
        let clocks = Clocks::ByHand(hand.clone());
        let sleeper = tokio::spawn({
            let clocks = clocks.clone();
            async move { clocks.sleep(Duration::from_secs(10)).await }
        });
        tokio::task::yield_now().await;

        hand.advance(Duration::from_secs(9));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        hand.advance(Duration::from_secs(1));

        sleeper.await.expect("it wakes");
    }
}
