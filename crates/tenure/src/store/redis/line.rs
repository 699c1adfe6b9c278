//! A connection that is shared by all who ask for the same kind of thing, and replaced when one of them has waited in
//! vain: what comes later does not queue behind a request that hangs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::scripts::Question;
use super::target::Target;
use super::trouble::{Outcome, Trouble};
use super::wire::Wire;

/// Before the second try to connect; each further one waits twice as long, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// After how long an unanswered connection is not used again by those who come with limits of their own.
const SUSPICIOUS: Duration = Duration::from_millis(50);

/// The connection for one kind of request.
pub(super) struct Line {
    target: Arc<Target>,
    current: Mutex<Option<Arc<Wire>>>,
    dialling: Mutex<Dialling>,
    /// Told whenever somebody has stopped dialling, with a connection or without.
    dialled: Notify,
}

/// Who connects now, and when the next one may. Mostly that is one; beside it those dial who cannot wait until it gives
/// up, because their leases are shorter.
struct Dialling {
    /// When each of them gives up.
    until: Vec<Instant>,
    pause: Duration,
    not_before: Instant,
}

impl Line {
    pub(super) fn to(target: Arc<Target>) -> Self {
        let dialling = Dialling { until: Vec::new(), pause: SHORTEST_PAUSE, not_before: Instant::now() };
        Self { target, current: Mutex::new(None), dialling: Mutex::new(dialling), dialled: Notify::new() }
    }

    /// Puts a question over the connection, and waits for the answer for up to `limit`. One who gives up before,
    /// having waited for a while, gives the connection up, too.
    pub(super) async fn carry(&self, limit: Duration, question: &Question<'_>) -> Outcome<Value> {
        self.carry_or_suspect(limit, limit / 4, question).await
    }

    /// The same for one whose own limit is not known here, and may be much shorter.
    pub(super) async fn carry_for_the_hasty(
        &self,
        limit: Duration,
        question: &Question<'_>,
    ) -> Outcome<Value> {
        self.carry_or_suspect(limit, SUSPICIOUS, question).await
    }

    async fn carry_or_suspect(
        &self,
        limit: Duration,
        suspicious: Duration,
        question: &Question<'_>,
    ) -> Outcome<Value> {
        let carried = async {
            let said = self.try_carry(limit, suspicious, question).await;
            match said {
                // It has run nothing there; where it belongs it may.
                Err(trouble) if trouble.moved_to().is_some() => {
                    self.target.move_to(trouble.moved_to().unwrap_or_default());
                    self.try_carry(limit, suspicious, question).await
                }
                said => said,
            }
        };
        // In this order: the request goes out before the limit is set.
        tokio::select! {
            biased;
            said = carried => said,
            () = tokio::time::sleep(limit) => Err(Trouble::Late),
        }
    }

    async fn try_carry(
        &self,
        limit: Duration,
        suspicious: Duration,
        question: &Question<'_>,
    ) -> Outcome<Value> {
        let wire = self.wire(limit).await?;
        let mut attempt = Attempt { line: self, wire, begun: Instant::now(), suspicious, answered: false };
        let said = question.put(&attempt.wire).await;
        attempt.answered = !said.as_ref().is_err_and(Trouble::breaks_connection);
        if !attempt.answered {
            self.retire(&attempt.wire);
        }
        said
    }

    /// The connection, made if there is none.
    async fn wire(&self, limit: Duration) -> Outcome<Arc<Wire>> {
        loop {
            // From before the look on: what ends between the look and the waiting is not missed.
            let dialled = self.dialled.notified();
            if let Some(wire) = self.current() {
                return Ok(wire);
            }
            match self.turn(limit) {
                Some(turn) => return self.dial(turn, limit).await,
                None => dialled.await,
            }
        }
    }

    /// The turn to connect, unless somebody does who gives up soon enough.
    fn turn(&self, limit: Duration) -> Option<Turn<'_>> {
        let (now, mut dialling) = (Instant::now(), lock(&self.dialling));
        // What others found out about the server is worth a quarter of the time.
        let from = dialling.not_before.clamp(now, now + limit / 4);
        // Half of it, so that there is a second try for those whose connection hangs as it is made.
        let until = from + limit / 2;
        if dialling.until.iter().any(|other| *other <= until) {
            return None;
        }
        dialling.until.push(until);
        Some(Turn { line: self, from, until })
    }

    async fn dial(&self, turn: Turn<'_>, limit: Duration) -> Outcome<Arc<Wire>> {
        tokio::time::sleep_until(turn.from).await;
        let dialled = tokio::time::timeout_at(turn.until, Wire::dial(&self.target)).await;
        match dialled.unwrap_or(Err(Trouble::Late)) {
            Ok(wire) => {
                lock(&self.dialling).pause = SHORTEST_PAUSE;
                // One who dialled beside us may have been faster, and others use that connection already.
                if let Some(wire) = self.current() {
                    return Ok(wire);
                }
                let wire = Arc::new(wire);
                *lock(&self.current) = Some(wire.clone());
                Ok(wire)
            }
            Err(trouble) => {
                let mut dialling = lock(&self.dialling);
                dialling.not_before = Instant::now() + jittered(dialling.pause.min(limit / 4));
                dialling.pause = (dialling.pause * 2).min(LONGEST_PAUSE);
                self.target.come_back();
                Err(trouble)
            }
        }
    }

    /// The connection, if it is good as far as is known.
    fn current(&self) -> Option<Arc<Wire>> {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|wire| wire.is_over() || wire.moves != self.target.moves()) {
            *current = None;
        }
        current.clone()
    }

    /// Lets nobody else use this connection; those who wait for answers over it go on waiting.
    fn retire(&self, wire: &Arc<Wire>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|present| Arc::ptr_eq(present, wire)) {
            *current = None;
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // There is no step in it that a panic could leave half done.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to connect, until it is dropped.
struct Turn<'a> {
    line: &'a Line,
    from: Instant,
    until: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut dialling = lock(&self.line.dialling);
        if let Some(index) = dialling.until.iter().position(|until| *until == self.until) {
            dialling.until.swap_remove(index);
        }
        drop(dialling);
        self.line.dialled.notify_waiters();
    }
}

/// A request on its way. Dropped before the answer has come, it may have been given up.
struct Attempt<'a> {
    line: &'a Line,
    wire: Arc<Wire>,
    begun: Instant,
    /// Unanswered for so long, its connection may hang.
    suspicious: Duration,
    answered: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        // One who leaves early has other reasons than a connection that hangs.
        if !self.answered && self.begun.elapsed() >= self.suspicious {
            self.line.retire(&self.wire);
        }
    }
}

/// Between a half and the whole of it: those who lost their link at the same moment come back one by one.
pub(super) fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness they come back together, which is no worse than before.
    let _none = getrandom::fill(&mut byte);
    pause / 2 + (pause / 2) * u32::from(byte[0]) / 255
}
