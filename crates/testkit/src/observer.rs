//! Watches from outside whether two own the same at once.
//!
//! Every ownership is registered with a check of its own, which is looked at many times per second from a thread that
//! belongs to nobody. Once a check has said no it must never say yes again; so two that both say yes, with the first
//! still saying so after the second was asked, were true at the same instant. There are no false alarms, however
//! late this thread is scheduled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks.
const EVERY: Duration = Duration::from_micros(500);

/// The observer of one resource.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    watching: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    present: Vec<Ownership>,
    begun: Vec<(String, u32, u64)>,
    most: usize,
    troubles: Vec<String>,
}

/// One ownership, as it is watched.
struct Ownership {
    who: String,
    ticket: u32,
    token: u64,
    holds: Box<dyn Fn() -> bool + Send>,
    /// How long it is believed after it said no: for controls.
    longer: Duration,
    last: Instant,
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with ticket {} and token {}", self.who, self.ticket, self.token)
    }
}

impl Ownership {
    fn is_believed(&mut self, now: Instant) -> bool {
        if (self.holds)() {
            self.last = now;
        }
        now.duration_since(self.last) < self.longer || self.last == now
    }
}

impl Observer {
    /// Begins to watch.
    ///
    /// # Panics
    /// When there is no thread for it.
    #[must_use]
    pub fn new() -> Self {
        let (seen, over) = (Arc::<Mutex<Seen>>::default(), Arc::new(AtomicBool::new(false)));
        let (watched, is_over) = (seen.clone(), over.clone());
        let watch = move || {
            while !is_over.load(Ordering::Relaxed) {
                lock(&watched).look();
                std::thread::sleep(EVERY);
            }
        };
        let watching =
            std::thread::Builder::new().name("testkit-observer".into()).spawn(watch).expect("a thread");
        Self { seen, over, watching: Some(watching) }
    }

    /// Somebody owns from here on, for as long as `holds` says so.
    pub fn begin(&self, who: &str, ticket: u32, token: u64, holds: impl Fn() -> bool + Send + 'static) {
        self.begin_credulous(who, ticket, token, Duration::ZERO, holds);
    }

    /// The same for one that believes for so much longer than it holds: the control.
    pub fn begin_credulous(
        &self,
        who: &str,
        ticket: u32,
        token: u64,
        longer: Duration,
        holds: impl Fn() -> bool + Send + 'static,
    ) {
        let mut seen = lock(&self.seen);
        seen.begun.push((who.to_owned(), ticket, token));
        let (who, last) = (who.to_owned(), Instant::now());
        seen.present.push(Ownership { who, ticket, token, holds: Box::new(holds), longer, last });
        seen.look();
    }

    /// How many ownerships have begun.
    #[must_use]
    pub fn begun(&self) -> usize {
        lock(&self.seen).begun.len()
    }

    /// The token of the newest ownership.
    #[must_use]
    pub fn newest_token(&self) -> Option<u64> {
        lock(&self.seen).begun.last().map(|(_, _, token)| *token)
    }

    /// Who owns now, by name.
    #[must_use]
    pub fn owners(&self) -> Vec<String> {
        let mut seen = lock(&self.seen);
        seen.look();
        seen.present.iter().map(|ownership| ownership.who.clone()).collect()
    }

    /// The most that were seen to own at one instant.
    #[must_use]
    pub fn most(&self) -> usize {
        lock(&self.seen).most
    }

    /// Panics unless at most `tickets` ever owned at once, no two the same ticket, and each token of a ticket was
    /// larger than the one before.
    ///
    /// # Panics
    /// When a promise was broken.
    pub fn assert_exclusive(&self, tickets: usize) {
        let seen = lock(&self.seen);
        assert!(seen.most <= tickets, "{} owned at once: {:?}", seen.most, seen.troubles);
        assert!(seen.troubles.is_empty(), "{:?}", seen.troubles);
        for (index, (who, ticket, token)) in seen.begun.iter().enumerate() {
            let before = seen.begun[..index].iter().rev().find(|(_, other, _)| other == ticket);
            let rises = before.is_none_or(|(_, _, before)| before < token);
            assert!(rises, "the token of {who} is {token}, after {before:?}");
        }
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(watching) = self.watching.take() {
            let _ended = watching.join();
        }
    }
}

impl Seen {
    fn look(&mut self) {
        let now = Instant::now();
        self.present.retain_mut(|ownership| ownership.is_believed(now));
        if self.present.len() <= self.most.min(1) {
            self.most = self.most.max(self.present.len());
            return;
        }
        // Asked once more: whoever says yes now said so all the time since the first round.
        let again = Instant::now();
        self.present.retain_mut(|ownership| ownership.is_believed(again));
        self.most = self.most.max(self.present.len());
        for (index, one) in self.present.iter().enumerate() {
            if let Some(other) = self.present[..index].iter().find(|other| other.ticket == one.ticket) {
                let trouble = format!("{other:?} and {one:?}");
                if !self.troubles.contains(&trouble) && self.troubles.len() < 10 {
                    self.troubles.push(trouble);
                }
            }
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(observer: &Observer, who: &str, ticket: u32, token: u64) -> Arc<AtomicBool> {
        let holds = Arc::new(AtomicBool::new(true));
        let looked_at = holds.clone();
        observer.begin(who, ticket, token, move || looked_at.load(Ordering::SeqCst));
        holds
    }

    #[test]
    fn one_after_the_other_is_exclusive() {
        let observer = Observer::new();
        let a = switch(&observer, "a", 0, 1);
        a.store(false, Ordering::SeqCst);
        let _b = switch(&observer, "b", 0, 2);

        observer.assert_exclusive(1);
        assert_eq!((observer.most(), observer.begun(), observer.owners()), (1, 2, vec!["b".to_owned()]));
    }

    #[test]
    #[should_panic(expected = "2 owned at once")]
    fn two_at_once_are_seen() {
        let observer = Observer::new();
        let (_a, _b) = (switch(&observer, "a", 0, 1), switch(&observer, "b", 0, 2));

        observer.assert_exclusive(1);
    }

    #[test]
    #[should_panic(expected = "a with ticket 1 and token 1 and b with ticket 1 and token 2")]
    fn two_with_one_ticket_are_seen() {
        let observer = Observer::new();
        let (_a, _b) = (switch(&observer, "a", 1, 1), switch(&observer, "b", 1, 2));

        observer.assert_exclusive(2);
    }

    #[test]
    #[should_panic(expected = "the token of b is 1")]
    fn a_token_that_does_not_rise_is_seen() {
        let observer = Observer::new();
        switch(&observer, "a", 0, 1).store(false, Ordering::SeqCst);
        switch(&observer, "b", 0, 1).store(false, Ordering::SeqCst);

        observer.assert_exclusive(1);
    }

    #[test]
    fn who_believes_for_longer_is_caught() {
        let observer = Observer::new();
        observer.begin_credulous("a", 0, 1, Duration::from_secs(60), || false);
        let _b = switch(&observer, "b", 0, 2);

        assert_eq!(observer.most(), 2);
    }
}
