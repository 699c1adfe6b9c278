//! One timer for all the jobs of a worker: however many wait, one of them is waited for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::Error;
use crate::runtime::clock::{Alarm, Clocks};
use crate::runtime::driver::Driver;

/// The wall clock may be set: it is looked at once in a while, also when nothing is due.
const LOOK: Duration = Duration::from_secs(1);

/// Rings at points in time on the wall clock. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Clockwork {
    wheel: Arc<Wheel>,
}

#[derive(Debug, Default)]
struct Wheel {
    waits: Mutex<Waits>,
    /// Somebody waits for less than all the others.
    sooner: Notify,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Waits {
    /// By the time, in microseconds since 1970; of those with the same, by arrival.
    queue: BTreeMap<Place, oneshot::Sender<()>>,
    arrivals: u64,
}

type Place = (u64, u64);

impl Clockwork {
    /// Starts it on the thread of the driver.
    pub(crate) fn start(driver: &Driver, clocks: Clocks) -> Result<Self, Error> {
        let wheel = Arc::<Wheel>::default();
        driver.spawn(Box::pin(turn(wheel.clone(), clocks)))?;
        Ok(Self { wheel })
    }

    /// Waits until the wall clock shows so many microseconds since 1970, or more.
    pub(crate) async fn until(&self, micros: u64) {
        let (ring, rung) = oneshot::channel();
        let _place = self.wheel.queue(micros, ring);
        // Nobody drops it but who is rung, or does not wait any more.
        let _rung = rung.await;
    }
}

impl Drop for Clockwork {
    fn drop(&mut self) {
        self.wheel.is_over.store(true, Ordering::Release);
        self.wheel.sooner.notify_one();
    }
}

/// A place in the queue. Who does not wait any more leaves it.
struct Queued<'a> {
    wheel: &'a Wheel,
    place: Place,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.wheel.lock().queue.remove(&self.place);
    }
}

impl Wheel {
    fn queue(&self, micros: u64, ring: oneshot::Sender<()>) -> Queued<'_> {
        let mut waits = self.lock();
        let place = (micros, waits.arrivals);
        waits.arrivals += 1;
        waits.queue.insert(place, ring);
        if waits.queue.first_key_value().is_some_and(|(first, _)| *first == place) {
            self.sooner.notify_one();
        }
        Queued { wheel: self, place }
    }

    /// Rings for everybody whose time has come; says when the next one's comes.
    fn ring(&self, now: u64) -> Option<u64> {
        let mut waits = self.lock();
        let later = waits.queue.split_off(&(now.saturating_add(1), 0));
        let due = std::mem::replace(&mut waits.queue, later);
        let next = waits.queue.first_key_value().map(|((micros, _), _)| *micros);
        drop(waits);
        // Who does not wait any more misses nothing.
        for ring in due.into_values() {
            let _gone = ring.send(());
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        // No step of it can be left half done.
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn turn(wheel: Arc<Wheel>, clocks: Clocks) {
    let mut alarm = Alarm::by(clocks.clone());
    while !wheel.is_over.load(Ordering::Acquire) {
        let now = clocks.wall();
        let next = wheel.ring(now);
        let nap = async {
            match (next, &clocks) {
                (Some(next), Clocks::ByHand(clock)) => clock.until(next).await,
                (Some(next), Clocks::System) => {
                    alarm.sleep(Duration::from_micros(next.saturating_sub(now)).min(LOOK)).await;
                }
                (None, _) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = nap => {}
            () = wheel.sooner.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::ManualClock;

    #[tokio::test]
    async fn each_is_rung_when_its_time_has_come_and_who_left_is_forgotten() {
        let (hand, driver) = (ManualClock::new(), Driver::start().expect("a thread"));
        let clocks = Clocks::ByHand(hand.clone());
        let clockwork = Arc::new(Clockwork::start(&driver, clocks.clone()).expect("it starts"));
        let wait = |seconds: u64| {
            let (clockwork, at) = (clockwork.clone(), clocks.wall() + seconds * 1_000_000);
            tokio::spawn(async move { clockwork.until(at).await })
        };
        let (third, first, second) = (wait(30), wait(10), wait(20));
        while clockwork.wheel.lock().queue.len() < 3 {
            tokio::task::yield_now().await;
        }

        second.abort();
        hand.advance(Duration::from_secs(10));
        first.await.expect("it is rung");
        assert!(second.await.is_err() && !third.is_finished());
        assert_eq!(clockwork.wheel.lock().queue.len(), 1);
        hand.advance(Duration::from_secs(20));
        third.await.expect("it is rung");

        clockwork.until(0).await;
        assert!(clockwork.wheel.lock().queue.is_empty());
    }
}
