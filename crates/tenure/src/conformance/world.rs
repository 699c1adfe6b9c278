//! What the cases share: a store with its time, and short words for what workers and operators ask of it.
//!
//! Every answer is waited for with a limit, and everything that can be checked of any answer is checked here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::{
    Answer, Call, Claimed, Closing, HistoryEvent, LeaseId, Leave, Leaving, Metadata, Notice, Released,
    ResourceView, Said, Stamp, StepDownReply, StoreTime, Token, Want, Wish,
};

pub(super) use super::words::*;
use super::{Fixture, Hinting, Restarted};
use crate::store::{Entry, Hints, Store};

/// A store, its time, and the numbers of the requests to it.
pub(super) struct World<F> {
    pub(super) fixture: F,
    pub(super) store: Arc<dyn Store>,
    /// What the callers vouch for.
    pub(super) judged_by: Option<StoreTime>,
    seq: u64,
    last: Option<Stamp>,
    /// How long the slowest answer took.
    took: Duration,
}

// Time and what is sent.
impl<F: Fixture> World<F> {
    pub(super) fn of(fixture: F) -> Self {
        let store = fixture.store();
        Self { fixture, store, judged_by: None, seq: 0, last: None, took: ZERO }
    }

    /// Whether the store wakes its waiters; one that may be silent has nothing to show, but has to subscribe.
    pub(super) fn is_silent(&self) -> bool {
        self.fixture.hinting() == Hinting::MayBeSilent
    }

    /// What the store's clock shows: learned from a question that changes nothing and marks nobody.
    pub(super) async fn now(&mut self) -> StoreTime {
        self.answer(LeaseId(0), 0, Call::Held).await.stamp.now
    }

    /// Lets at least so much time go by on the store's clock.
    pub(super) async fn pass(&mut self, span: Duration) {
        let until = self.now().await + span;
        self.pass_until(until).await;
    }

    /// Lets time go by until the store's clock has reached `until`.
    pub(super) async fn pass_until(&mut self, until: StoreTime) {
        for _ in 0..1_000 {
            let left = until.since(self.now().await);
            if left.is_zero() {
                return;
            }
            self.fixture.pass(left).await;
        }
        panic!("time was to go by until {until:?}, but the store's clock has not got there");
    }

    pub(super) async fn restart(&mut self) -> Restarted {
        let restarted = self.fixture.restart().await;
        self.store = self.fixture.store();
        let before = self.last.take();
        let after = self.answer(LeaseId(0), 0, Call::Held).await.stamp;
        let stayed = before.is_none_or(|before| before.incarnation == after.incarnation);
        assert_eq!(stayed, restarted == Restarted::SameLife, "the fixture says {restarted:?}");
        restarted
    }

    /// Sends one request with this number, and says by whom and when it was answered, too.
    pub(super) async fn answer(&mut self, lease: LeaseId, seq: u64, call: Call) -> Answer {
        let request = request(lease, seq, self.judged_by, call);
        let began = Instant::now();
        let answer = answered(self.store.call(&request)).await;
        self.took = self.took.max(began.elapsed());
        assert!(answer.stamp.shown >= answer.stamp.now, "answered before it was decided: {:?}", answer.stamp);
        if let Some(last) = self.last {
            let Stamp { incarnation, longest, .. } = answer.stamp;
            assert_eq!(incarnation, last.incarnation, "the store began another life without a restart");
            assert!(longest >= last.longest, "the longest ttl went from {:?} to {longest:?}", last.longest);
        }
        self.last = Some(answer.stamp);
        answer
    }

    /// Sends one request with this number.
    pub(super) async fn send(&mut self, lease: LeaseId, seq: u64, call: Call) -> Said {
        self.answer(lease, seq, call).await.said
    }

    /// Sends one request with the next number, higher than all before.
    pub(super) async fn send_next(&mut self, lease: LeaseId, call: Call) -> Said {
        let seq = self.next_seq();
        self.send(lease, seq, call).await
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        // Room below each, for those who want to be late; and never as small as what a case chooses itself.
        1_000 + self.seq * 10
    }

    /// When the last request was applied.
    pub(super) fn answered_at(&self) -> StoreTime {
        self.stamp().now
    }

    /// When the last answer was made: from then on spans are counted.
    pub(super) fn shown_at(&self) -> StoreTime {
        self.stamp().shown
    }

    /// A span that came with an answer is the expected one, as far as clocks can tell: how long answers are under way, this
    /// one and those on which it rests, is known to whoever asked, and not to the store's clock.
    #[track_caller]
    pub(super) fn assert_about(&self, span: Duration, expected: Duration) {
        let slack = TOLERANCE + self.took;
        assert!(
            span.abs_diff(expected) <= slack,
            "{span:?} is not about {expected:?}, give or take {slack:?}"
        );
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.last.expect("something was asked")
    }
}

// What workers ask.
impl<F: Fixture> World<F> {
    pub(super) async fn open(&mut self, label: &str) -> LeaseId {
        self.open_for(label, LONG).await
    }

    pub(super) async fn open_for(&mut self, label: &str, ttl: Duration) -> LeaseId {
        let lease = fresh();
        // Who was opened later is later by every store's clock, however coarse, also by one moved by hand.
        self.fixture.pass(Duration::from_millis(1)).await;
        assert_eq!(self.open_again(lease, label, ttl).await, Said::Opened);
        lease
    }

    pub(super) async fn open_again(&mut self, lease: LeaseId, label: &str, ttl: Duration) -> Said {
        self.open_with(lease, label, ttl, &Metadata::default()).await
    }

    pub(super) async fn open_with(
        &mut self,
        lease: LeaseId,
        text: &str,
        ttl: Duration,
        metadata: &Metadata,
    ) -> Said {
        self.send_next(lease, Call::Open { ttl, label: label(text), metadata: metadata.clone() }).await
    }

    /// A new worker that owns the job.
    pub(super) async fn own(&mut self, label: &str) -> LeaseId {
        self.own_for(label, LONG).await
    }

    pub(super) async fn own_for(&mut self, label: &str, ttl: Duration) -> LeaseId {
        let lease = self.open_for(label, ttl).await;
        granted(self.claim(lease).await);
        lease
    }

    /// A new worker that waits for the job.
    pub(super) async fn wait(&mut self, label: &str) -> LeaseId {
        self.wait_for(label, LONG).await
    }

    pub(super) async fn wait_for(&mut self, label: &str, ttl: Duration) -> LeaseId {
        let lease = self.open_for(label, ttl).await;
        waiting(self.claim(lease).await);
        lease
    }

    /// Several new workers that claim `tickets` of the job, in this order.
    pub(super) async fn crowd<const N: usize>(&mut self, labels: [&str; N], count: u32) -> [LeaseId; N] {
        let mut leases = [LeaseId(0); N];
        for (lease, label) in leases.iter_mut().zip(labels) {
            *lease = self.open(label).await;
            self.claim_with(*lease, count, 0).await;
        }
        leases
    }

    pub(super) async fn renew(&mut self, lease: LeaseId) -> Said {
        self.send_next(lease, Call::Renew).await
    }

    pub(super) async fn notices(&mut self, lease: LeaseId) -> (Vec<Notice>, bool) {
        match self.renew(lease).await {
            Said::Kept { notices, more } => (notices, more),
            said => panic!("a renewal that should be kept was answered {said:?}"),
        }
    }

    /// All notices for this lease by resource: those given, and what later renewals bring until there are so many.
    pub(super) async fn all_notices(
        &mut self,
        lease: LeaseId,
        first: Vec<Notice>,
        count: usize,
    ) -> BTreeMap<String, Notice> {
        let mut all = BTreeMap::new();
        let mut notices = first;
        for _ in 0..200 {
            let named = |notice: Notice| (notice.resource.to_string(), notice);
            all.extend(notices.into_iter().map(named));
            if all.len() >= count {
                return all;
            }
            // The store looks for the rest in the background.
            tokio::time::sleep(TOLERANCE).await;
            notices = self.notices(lease).await.0;
        }
        panic!("{} notices of {count} were told: {:?}", all.len(), all.keys());
    }

    pub(super) async fn wishes(&mut self, lease: LeaseId) -> Vec<Wish> {
        self.notices(lease).await.0.into_iter().map(|notice| notice.wish).collect()
    }

    /// Claims the one ticket of the job.
    pub(super) async fn claim(&mut self, lease: LeaseId) -> Claimed {
        self.claim_at(lease, JOB).await
    }

    pub(super) async fn claim_at(&mut self, lease: LeaseId, resource: &str) -> Claimed {
        only_claimed(self.send_next(lease, claim_of(resource)).await)
    }

    pub(super) async fn claim_with(&mut self, lease: LeaseId, count: u32, priority: i32) -> Claimed {
        let want = Want { resource: name(JOB), tickets: tickets(count), priority };
        only_claimed(self.send_next(lease, Call::Claim(vec![want])).await)
    }

    pub(super) async fn release(&mut self, lease: LeaseId) -> Released {
        self.leave(lease, JOB, Leaving::Released).await
    }

    pub(super) async fn step_down(&mut self, lease: LeaseId) -> Released {
        self.leave(lease, JOB, Leaving::SteppedDown).await
    }

    pub(super) async fn leave(&mut self, lease: LeaseId, resource: &str, how: Leaving) -> Released {
        let leave = Leave { resource: name(resource), how };
        only_released(self.send_next(lease, Call::Release(vec![leave])).await)
    }

    pub(super) async fn close(&mut self, lease: LeaseId, why: Closing) {
        assert_eq!(self.send_next(lease, Call::Close(why)).await, Said::Closed);
    }

    /// What the lease holds, by name.
    pub(super) async fn held(&mut self, lease: LeaseId) -> Vec<String> {
        match self.send(lease, 0, Call::Held).await {
            Said::Held(holdings) => {
                let mut names: Vec<String> = holdings.iter().map(|h| h.resource.to_string()).collect();
                names.sort();
                names
            }
            said => panic!("a question for what a live lease holds was answered {said:?}"),
        }
    }
}

// What operators ask, and what people read.
impl<F: Fixture> World<F> {
    pub(super) async fn ask(&mut self, token: Token, successor: Option<&str>) -> StepDownReply {
        self.ask_at(JOB, token, successor).await
    }

    pub(super) async fn ask_at(
        &mut self,
        resource: &str,
        token: Token,
        successor: Option<&str>,
    ) -> StepDownReply {
        answered(self.store.ask(&name(resource), token, successor.map(label).as_ref())).await
    }

    pub(super) async fn evict(&mut self, token: Token) -> StepDownReply {
        self.evict_at(JOB, token).await
    }

    pub(super) async fn evict_at(&mut self, resource: &str, token: Token) -> StepDownReply {
        answered(self.store.evict(&name(resource), token)).await
    }

    /// Subscribes to the wake-ups for this lease.
    pub(super) async fn listen(&self, lease: LeaseId) -> Hints {
        answered(self.store.hints(lease)).await
    }

    pub(super) async fn view(&self) -> ResourceView {
        let mut views = answered(self.store.read(Some(&name(JOB)))).await;
        assert_eq!(views.len(), 1, "views of one resource: {views:?}");
        views.remove(0)
    }

    pub(super) async fn all_names(&self) -> Vec<String> {
        answered(self.store.read(None)).await.iter().map(|view| view.resource.to_string()).collect()
    }

    /// The owners of the job, by ticket.
    pub(super) async fn owners(&self) -> Vec<String> {
        self.view().await.owners.iter().map(|owner| owner.worker.to_string()).collect()
    }

    /// Those who wait for the job, in order.
    pub(super) async fn waiters(&self) -> Vec<String> {
        self.view().await.waiters.iter().map(|waiter| waiter.worker.to_string()).collect()
    }

    /// What happened to the job, oldest first.
    pub(super) async fn history(&self) -> Vec<(String, HistoryEvent)> {
        self.entries().await.iter().map(|entry| (entry.worker.to_string(), entry.what)).collect()
    }

    pub(super) async fn entries(&self) -> Vec<Entry> {
        answered(self.store.history(Some(&name(JOB)))).await
    }
}

impl<F> fmt::Debug for World<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("store", &self.store).finish_non_exhaustive()
    }
}
