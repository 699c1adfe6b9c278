//! What the driver's thread and the user's share of one campaign: whether it owns, since when, and why not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::{EndReason, Grant, Label, Moment, ResourceName, Term, Token, Waiting};
use tokio::sync::Notify;

use crate::campaign::changes::{Changes, Listeners};
use crate::campaign::work_guard::WorkGuard;
use crate::runtime::clock::Clocks;
use crate::runtime::deadline::Page;
use crate::runtime::events::{self, Event};

/// What whoever does the work of a campaign has to act on.
#[derive(Debug)]
pub(crate) enum Signal {
    Start(Arc<WorkGuard>),
    Stop(EndReason),
    StopHard,
    /// A claim has to wait.
    Waiting,
}

/// Where a campaign stands, as the driver has said last. None can be missed that matters: no ownership begins before the work of
/// the one before has ended.
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Competing,
    /// The store has said that it has to wait.
    Waiting,
    /// It owns, and nobody has begun the work. What is dropped here has stopped.
    Starting(Arc<WorkGuard>),
    Owning,
    Stopping(EndReason),
    HardStop(EndReason),
    /// It is over, or the user has dropped it.
    Left,
}

/// What of the phases has been acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    #[default]
    Nothing,
    Waiting,
    Start,
    Stop,
    StopHard,
}

/// What happens to a campaign, as its [`changes`](crate::Campaign::changes) tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It owns a ticket.
    Acquired(Grant),
    /// It has to stop, or has lost what it owned ([`EndReason::is_gentle`] tells which).
    Ended(Grant, EndReason),
    /// The work did not end although it was told to, also by force. The worker does not compete for the resource again while
    /// it runs. See [`OnOverdue`](crate::types::OnOverdue).
    Overdue(Grant),
    /// It waits, and why.
    Waiting(Waiting),
    /// The resource has changed its owner so many times `within` the span that the worker was given, which is too
    /// often. Told once per span, after [`Acquired`](Self::Acquired).
    Flapping {
        /// By whatever worker.
        changes: u64,
        /// The span.
        within: Duration,
    },
    /// The resource has another number of tickets than before; at first: than this worker `asked` for. The worker that
    /// joined last decides.
    TicketsChanged {
        /// How many it has now.
        tickets: u32,
        /// How many this worker asked for.
        asked: u32,
    },
    /// Another live worker that competes for the resource has the same label. That is safe, but people cannot tell the
    /// two apart. Told once, by a worker that waits or that owns beside others.
    DuplicateLabel,
    /// The callback that does the work failed or panicked, and the ownership ends.
    WorkFailed {
        /// Of which ownership.
        term: Term,
        /// What it said.
        what: String,
    },
    /// The cleanup callback failed or panicked.
    CleanupFailed {
        /// Of which ownership.
        term: Term,
        /// What it said.
        what: String,
    },
    /// The cleanup callback did not end in time, and was dropped.
    CleanupDropped {
        /// Of which ownership.
        term: Term,
    },
}

/// Who is told what happens to a campaign, and of which one it happens.
#[derive(Debug)]
pub(crate) struct Announcer {
    pub(crate) worker: Label,
    pub(crate) resource: ResourceName,
    pub(crate) listeners: Listeners,
}

/// Whether a store is asked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Limited,
    Unlimited,
}

/// The state of a campaign that can be read from any thread.
#[derive(Debug)]
pub(crate) struct CampaignState {
    page: Arc<Page>,
    clocks: Clocks,
    reach: Reach,
    /// The token of the present ownership; zero when there is none or it was told to stop.
    token: AtomicU64,
    cell: Mutex<Cell>,
    /// Rung with every change of the phase.
    changed: Notify,
    announcer: Announcer,
}

#[derive(Debug, Default)]
struct Cell {
    phase: Phase,
    latest: Option<Latest>,
    /// The work of the latest ownership, while somebody does it.
    work: Weak<WorkGuard>,
}

/// The latest ownership, how it ended, and until when nobody else can have its ticket.
#[derive(Clone, Copy, Debug)]
struct Latest {
    grant: Grant,
    ending: Option<EndReason>,
    protection: Protection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    /// As long as the worker's lease goes.
    Lease,
    /// That lease is over, but nobody may take its tickets before then.
    Until(Moment),
    Over,
}

impl CampaignState {
    pub(crate) fn new(page: Arc<Page>, clocks: Clocks, announcer: Announcer) -> Arc<Self> {
        Self::with(Reach::Limited, page, clocks, announcer)
    }

    /// A ticket of a resource without limit: it is owned from the beginning, and no store is asked.
    pub(crate) fn unlimited(clocks: Clocks, announcer: Announcer) -> std::io::Result<Arc<Self>> {
        let page = Page::new()?;
        let ever = Moment::new(Duration::MAX, Duration::MAX);
        page.trust(ever, ever);
        Ok(Self::with(Reach::Unlimited, Arc::new(page), clocks, announcer))
    }

    fn with(reach: Reach, page: Arc<Page>, clocks: Clocks, announcer: Announcer) -> Arc<Self> {
        Arc::new(Self {
            page,
            clocks,
            reach,
            token: AtomicU64::new(0),
            cell: Mutex::default(),
            changed: Notify::new(),
            announcer,
        })
    }

    // ---- read by users -------------------------------------------------------------------------------------

    /// Whether the campaign owns right now.
    #[inline]
    pub(crate) fn owns(&self) -> bool {
        self.is_trusted() && self.token.load(Ordering::Acquire) != 0
    }

    /// Whether the ownership under `token` holds right now: three loads and two clock reads.
    // req: E1 E8
    #[inline]
    pub(crate) fn holds(&self, token: Token) -> bool {
        self.is_trusted() && self.token.load(Ordering::Acquire) == token.0
    }

    /// Asked before the token is looked at: whoever sees the deadline of a later lease then also sees that the
    /// ownership under the earlier one has ended.
    #[inline]
    fn is_trusted(&self) -> bool {
        self.page.is_trusted(self.clocks.now())
    }

    /// Whether there is an ownership that cannot be relied on right now: the store has been silent for too long.
    pub(crate) fn is_silent(&self) -> bool {
        self.token.load(Ordering::Acquire) != 0 && !self.is_trusted()
    }

    /// Whether work under `token` may be done right now: the ownership holds, or is being given up gently under a lease that
    /// is good.
    #[cfg(feature = "cron")]
    pub(crate) fn may_go_on(&self, token: Token) -> bool {
        let winds_down = || {
            self.latest(token).is_some_and(|latest| {
                // Why it ends may not be written down yet.
                latest.protection == Protection::Lease && latest.ending.is_none_or(EndReason::is_gentle)
            })
        };
        self.holds(token) || self.is_trusted() && winds_down()
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.reach == Reach::Unlimited
    }

    /// How long the ownership under `token` is still protected from the next one.
    pub(crate) fn remaining(&self, token: Token) -> Duration {
        if !self.page.is_here() {
            return Duration::ZERO;
        }
        match self.latest(token).map(|latest| latest.protection) {
            Some(Protection::Lease) => self.page.protected_for(self.clocks.now()),
            Some(Protection::Until(until)) => self.clocks.now().until(until),
            Some(Protection::Over) | None => Duration::ZERO,
        }
    }

    /// The work of the present ownership, if that holds. Whoever does a part of it keeps this meanwhile.
    pub(crate) fn present(&self) -> Option<Arc<WorkGuard>> {
        // First, so that a forked child takes no lock.
        if !self.owns() {
            return None;
        }
        let guard = self.cell().work.upgrade()?;
        self.holds(guard.grant.token).then_some(guard)
    }

    /// Whether the ownership under `token` has not ended, as far as the driver knows.
    pub(crate) fn is_present(&self, token: Token) -> bool {
        self.page.is_here() && self.latest(token).is_some_and(|latest| latest.ending.is_none())
    }

    /// Waits for the end of the ownership under `token`.
    pub(crate) async fn lost(&self, token: Token) -> EndReason {
        // A forked child owns nothing, and nobody would tell it.
        while self.page.is_here() {
            // Before the look, so that no change is missed.
            let changed = self.changed.notified();
            match self.latest(token) {
                Some(Latest { ending: None, .. }) => changed.await,
                Some(Latest { ending: Some(ending), .. }) => return ending,
                // A later one began, so this one has ended; its ending is not remembered.
                None => return EndReason::Expired,
            }
        }
        EndReason::Expired
    }

    pub(crate) fn listen(&self) -> Changes {
        self.announcer.listeners.listen()
    }

    /// Waits until there is something to act on; nothing when the campaign is over.
    pub(crate) async fn signal(&self, seen: &mut Seen) -> Option<Signal> {
        // In a forked child there is no driver that could say anything.
        while self.page.is_here() {
            // Before the look, so that no change is missed.
            let changed = self.changed.notified();
            let (signal, has_left) = {
                let mut cell = self.cell();
                (cell.next(seen), matches!(cell.phase, Phase::Left))
            };
            if signal.is_some() || has_left {
                return signal;
            }
            changed.await;
        }
        None
    }

    /// Nobody is there any more to act on anything. A start that nobody has taken has stopped with that.
    pub(crate) fn leave(&self) {
        if self.page.is_here() {
            self.enter(Phase::Left);
        }
    }

    // ---- written by whoever works --------------------------------------------------------------------------

    /// Whoever did the work of the ownership under `token` gives it up: from here on it does not hold, and nothing protects it,
    /// before anybody else may have the ticket. The driver has still to say so to those who wait for its end.
    pub(crate) fn give_up(&self, token: Token) {
        // Another token: that ownership is over already.
        let _other = self.token.compare_exchange(token.0, 0, Ordering::AcqRel, Ordering::Acquire);
        if self.page.is_here() {
            self.is_done(token);
        }
    }

    // ---- written by the driver -----------------------------------------------------------------------------

    pub(crate) fn begin(&self, guard: &Arc<WorkGuard>) {
        let grant = guard.grant;
        {
            let mut cell = self.cell();
            cell.work = Arc::downgrade(guard);
            cell.latest = Some(Latest { grant, ending: None, protection: Protection::Lease });
        }
        self.token.store(grant.token.0, Ordering::Release);
        self.enter(Phase::Starting(guard.clone()));
        self.publish(Change::Acquired(grant));
    }

    /// From here on the ownership does not hold, and everybody who waits for its end knows why.
    pub(crate) fn end(&self, token: Token, ending: EndReason) {
        self.token.store(0, Ordering::Release);
        let mut ended = None;
        if let Some(latest) = self.cell().latest.as_mut().filter(|latest| latest.grant.token == token) {
            ended = Some(latest.grant);
            latest.ending.get_or_insert(ending);
            if !ending.is_gentle() && latest.protection == Protection::Lease {
                latest.protection = Protection::Over;
            }
        }
        self.enter(Phase::Stopping(ending));
        ended.into_iter().for_each(|grant| self.publish(Change::Ended(grant, ending)));
    }

    /// The work was told to stop, and is to be dropped now.
    pub(crate) fn stop_hard(&self) {
        let ending = match self.cell().phase {
            Phase::Stopping(ending) => ending,
            _ => return,
        };
        self.enter(Phase::HardStop(ending));
    }

    /// A claim has to wait.
    pub(crate) fn waits(&self, waiting: Waiting) {
        self.enter(Phase::Waiting);
        self.publish(Change::Waiting(waiting));
    }

    pub(crate) fn has_left(&self) -> bool {
        matches!(self.cell().phase, Phase::Left)
    }

    /// The lease is over. Nobody takes its tickets before `protected_until`, if that is known.
    pub(crate) fn outlives_lease(&self, protected_until: Option<Moment>) {
        self.protect(|latest| match latest.protection {
            Protection::Lease => protected_until.map_or(Protection::Over, Protection::Until),
            known => known,
        });
    }

    /// The work of the ownership under `token` has ended, and the next one may begin.
    pub(crate) fn is_done(&self, token: Token) {
        self.protect(|latest| if latest.grant.token == token { Protection::Over } else { latest.protection });
    }

    fn protect(&self, protection: impl FnOnce(&Latest) -> Protection) {
        if let Some(latest) = self.cell().latest.as_mut() {
            latest.protection = protection(latest);
        }
    }

    /// The campaign is over, or the driver has ended, for whatever reason.
    pub(crate) fn abandon(&self) {
        let present = self.cell().latest.filter(|latest| latest.ending.is_none());
        if let Some(latest) = present {
            self.end(latest.grant.token, EndReason::Expired);
        }
        self.enter(Phase::Left);
        self.announcer.listeners.end();
    }

    fn enter(&self, phase: Phase) {
        let before = {
            let mut cell = self.cell();
            match cell.phase {
                // A start for it is dropped, and has stopped.
                Phase::Left => phase,
                _ => std::mem::replace(&mut cell.phase, phase),
            }
        };
        self.changed.notify_waiters();
        // After the lock: the end of a start is told to the driver.
        drop(before);
    }

    /// The latest ownership, if it is the one under `token`.
    fn latest(&self, token: Token) -> Option<Latest> {
        self.cell().latest.filter(|latest| latest.grant.token == token)
    }

    fn cell(&self) -> MutexGuard<'_, Cell> {
        // No step of it can be left half done.
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody who listens.
    pub(crate) fn publish(&self, change: Change) {
        let Announcer { worker, resource, listeners } = &self.announcer;
        listeners.tell(&change);
        events::tell(Event::Campaign { worker: worker.clone(), resource: resource.clone(), change });
    }
}

impl Cell {
    fn next(&mut self, seen: &mut Seen) -> Option<Signal> {
        let (signal, now) = match (&self.phase, *seen) {
            (Phase::Starting(guard), _) => (Signal::Start(guard.clone()), Seen::Start),
            (Phase::Waiting, before) if before != Seen::Waiting => (Signal::Waiting, Seen::Waiting),
            (Phase::Stopping(ending) | Phase::HardStop(ending), Seen::Start) => {
                (Signal::Stop(*ending), Seen::Stop)
            }
            (Phase::HardStop(_), Seen::Stop) => (Signal::StopHard, Seen::StopHard),
            // Also the end of what nobody has begun.
            _ => return None,
        };
        if let Signal::Start(_) = signal {
            self.phase = Phase::Owning;
        }
        *seen = now;
        Some(signal)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Ticket;

    use super::*;
    use crate::runtime::clock::ManualClock;
    use crate::runtime::engine::Commands;

    fn announcer() -> Announcer {
        let (worker, resource) = (Label::new("w").expect("a label"), ResourceName::new("r").expect("a name"));
        Announcer { worker, resource, listeners: Listeners::default() }
    }

    fn guard(token: u64) -> Arc<WorkGuard> {
        let (commands, _) = tokio::sync::mpsc::unbounded_channel();
        let grant = Grant { ticket: Ticket(0), term: Term(token), token: Token(token) };
        WorkGuard::new(ResourceName::new("r").expect("a name"), grant, Commands::new(commands))
    }

    // req: E8
    #[test]
    fn a_check_that_began_after_the_trust_had_run_out_is_false_whatever_the_driver_does_meanwhile() {
        let (hand, page) = (ManualClock::new(), Arc::new(Page::new().expect("a page")));
        let clocks = Clocks::ByHand(hand.clone());
        let state = CampaignState::new(page.clone(), clocks.clone(), announcer());
        // Every ownership up to this token has run out by the clock.
        let (over, lied, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    let token = over.load(Ordering::SeqCst);
                    if token != 0 && state.holds(Token(token)) {
                        lied.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            // Enough for the wrong order to be seen several times.
            for token in 1..200_000 {
                let until = clocks.now() + Duration::from_secs(1);
                page.trust(until, until);
                state.begin(&guard(token));
                hand.advance(Duration::from_secs(1));
                over.store(token, Ordering::SeqCst);
                page.distrust();
                state.end(Token(token), EndReason::Expired);
            }
            stop.store(1, Ordering::SeqCst);
        });

        assert_eq!(lied.into_inner(), 0);
    }

    #[test]
    fn what_is_left_of_an_ownership_is_not_what_is_left_of_the_next_lease() {
        let (hand, page) = (ManualClock::new(), Arc::new(Page::new().expect("a page")));
        let clocks = Clocks::ByHand(hand.clone());
        let state = CampaignState::new(page.clone(), clocks.clone(), announcer());
        let second = Duration::from_secs(1);
        let protected_until = clocks.now() + second * 3;
        page.trust(clocks.now() + second, protected_until);
        state.begin(&guard(1));

        hand.advance(second * 2);
        state.outlives_lease(Some(protected_until));
        state.end(Token(1), EndReason::Expired);
        page.trust(clocks.now() + second * 10, clocks.now() + second * 11);

        assert_eq!(state.remaining(Token(1)), second);
        hand.advance(second);
        assert_eq!(state.remaining(Token(1)), Duration::ZERO);
    }

    #[test]
    fn giving_up_ends_that_ownership_and_no_other() {
        let page = Arc::new(Page::new().expect("a page"));
        let (clocks, second) = (Clocks::ByHand(ManualClock::new()), Duration::from_secs(1));
        let state = CampaignState::new(page.clone(), clocks.clone(), announcer());
        page.trust(clocks.now() + second, clocks.now() + second * 2);
        state.begin(&guard(1));

        state.give_up(Token(2));
        assert!(state.holds(Token(1)));
        state.give_up(Token(1));
        assert!(!state.holds(Token(1)));
        assert_eq!(state.remaining(Token(1)), Duration::ZERO);

        state.begin(&guard(3));
        state.give_up(Token(1));
        assert!(state.holds(Token(3)));
    }

    #[test]
    fn what_was_taken_away_is_not_protected_and_what_winds_down_is_until_it_is_done() {
        let page = Arc::new(Page::new().expect("a page"));
        let clocks = Clocks::ByHand(ManualClock::new());
        let state = CampaignState::new(page.clone(), clocks.clone(), announcer());
        let second = Duration::from_secs(1);
        page.trust(clocks.now() + second, clocks.now() + second);

        state.begin(&guard(1));
        state.end(Token(1), EndReason::Evicted);
        assert_eq!(state.remaining(Token(1)), Duration::ZERO);
        state.begin(&guard(2));
        state.end(Token(2), EndReason::SteppedDown);
        assert_eq!(state.remaining(Token(2)), second);
        state.is_done(Token(2));
        assert_eq!(state.remaining(Token(2)), Duration::ZERO);
    }

    /// What there is to act on now.
    fn signals(state: &CampaignState, seen: &mut Seen) -> Vec<Signal> {
        std::iter::from_fn(|| state.cell().next(seen)).collect()
    }

    fn campaign() -> Arc<CampaignState> {
        CampaignState::new(Arc::new(Page::new().expect("a page")), Clocks::System, announcer())
    }

    #[test]
    fn a_start_a_stop_and_a_harder_stop_are_each_seen_once_however_late() {
        let (state, mut seen) = (campaign(), Seen::default());
        state.begin(&guard(1));
        assert!(matches!(signals(&state, &mut seen)[..], [Signal::Start(_)]));

        state.end(Token(1), EndReason::Expired);
        state.stop_hard();

        assert!(matches!(
            signals(&state, &mut seen)[..],
            [Signal::Stop(EndReason::Expired), Signal::StopHard]
        ));
        state.begin(&guard(2));
        assert!(matches!(signals(&state, &mut seen)[..], [Signal::Start(_)]));
    }

    // req: H7
    #[tokio::test]
    async fn a_start_that_nobody_takes_has_stopped_when_the_ownership_ends_or_the_campaign_is_left() {
        for is_left in [false, true] {
            let (state, mut seen) = (campaign(), Seen::default());
            let work = guard(1);
            state.begin(&work);

            if is_left {
                state.leave();
            } else {
                state.end(Token(1), EndReason::SteppedDown);
            }

            assert_eq!(Arc::strong_count(&work), 1, "the campaign has let go of it");
            assert!(signals(&state, &mut seen).is_empty());
            state.begin(&guard(2));
            assert_eq!(state.signal(&mut seen).await.is_none(), is_left);
        }
    }
}
