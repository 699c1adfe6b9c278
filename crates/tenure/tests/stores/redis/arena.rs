//! Workers that compete for one resource, each over a link of its own that can go bad, and two who look on: one sees
//! what the workers say, the other takes each at its word for five ttl longer. The second is the control: wherever
//! the ownership moved because of a fault it has to see two at once, or the first proves nothing.

use super::*;
use std::time::Instant;
use tenure::store::OpenStore;
use tenure::types::Clock;
use tenure::{Campaign, Lead, Timing, Worker};
use testkit::observer::Observer;
use testkit::proxy::{Link, Proxy};

/// What they compete for.
pub(super) const JOB: &str = "job";
/// Longer than any fault and what follows it, also on a machine that is busy with other things.
pub(super) const AT_LAST: Duration = Duration::from_secs(60);

pub(super) struct Arena {
    pub(super) server: Redis,
    pub(super) observer: Arc<Observer>,
    credulous: Arc<Observer>,
    pub(super) ttl: Duration,
    /// How many may own it.
    pub(super) tickets: u32,
    /// How often those who join from now on renew.
    pub(super) renew: Duration,
    /// `USER:PASSWORD@`, for those who join from now on.
    pub(super) credentials: String,
    pub(super) contestants: Vec<Contestant>,
}

pub(super) struct Contestant {
    pub(super) proxy: Proxy,
    pub(super) worker: Worker,
    campaign: Option<Campaign>,
}

impl Contestant {
    pub(super) fn is_owner(&self) -> bool {
        self.campaign.as_ref().is_some_and(Campaign::is_owner)
    }
}

impl Arena {
    /// Nobody has joined yet.
    pub(super) fn empty(options: Options, ttl: Duration) -> Self {
        Self {
            server: fresh(options),
            observer: Arc::default(),
            credulous: Arc::default(),
            ttl,
            tickets: 1,
            renew: ttl / 3,
            credentials: String::new(),
            contestants: Vec::new(),
        }
    }

    /// Three compete, and one of them owns.
    pub(super) async fn of_three(options: Options, ttl: Duration) -> Self {
        Self::of(1, options, ttl).await
    }

    /// So many own it, and two more compete.
    pub(super) async fn of(tickets: u32, options: Options, ttl: Duration) -> Self {
        let mut arena = Self { tickets, ..Self::empty(options, ttl) };
        arena.begin().await;
        arena
    }

    /// Some join, two more than can own it.
    pub(super) async fn begin(&mut self) {
        for _ in 0..self.tickets + 2 {
            self.join(Clock::Sane).await;
        }
        self.until("all tickets are owned", Self::is_full).await;
    }

    /// Whether all tickets are owned.
    pub(super) fn is_full(&self) -> bool {
        self.observer.owners().len() == self.tickets as usize
    }

    /// One more competes, over a good link; while the server is away it tries until it is let in.
    pub(super) async fn join(&mut self, clock: Clock) -> usize {
        let index = self.enter(clock).await;
        self.compete(index);
        index
    }

    /// One more is there, and does not compete yet.
    pub(super) async fn enter(&mut self, clock: Clock) -> usize {
        let proxy = Proxy::to(self.server.port());
        let url = format!("redis://{}127.0.0.1:{}", self.credentials, proxy.port());
        let until = Instant::now() + AT_LAST;
        let store = loop {
            match open(&url).await {
                Ok(store) => break store,
                Err(error) => assert!(Instant::now() < until, "{}", chain(&error)),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let opened = OpenStore::new(Arc::new(store)).expect("a driver");
        let timing = Timing::new(self.ttl).and_then(|timing| timing.with_renew(self.renew));
        let timing = timing.expect("a sound timing").with_clock(clock);
        let label = format!("worker {}", self.contestants.len());
        let worker = Worker::on(opened).label(label).timing(timing).connect().await.expect("a worker");
        self.contestants.push(Contestant { proxy, worker, campaign: None });
        self.contestants.len() - 1
    }

    pub(super) fn compete(&mut self, index: usize) {
        let (observer, credulous, longer) = (self.observer.clone(), self.credulous.clone(), self.ttl * 5);
        let who = self.contestants[index].worker.label().to_owned();
        let watch = move |lead: Lead| {
            let (ticket, token, same) = (lead.ticket(), lead.token(), lead.clone());
            // The control first: it is looked at as soon as the other has seen enough.
            credulous.begin_credulous(&who, ticket, token, longer, move || same.holds());
            observer.begin(&who, ticket, token, move || lead.holds());
            async {}
        };
        let campaign = self.contestants[index].worker.campaign(JOB).tickets(self.tickets);
        let campaign = campaign.obtain(watch, |_| async {});
        self.contestants[index].campaign = Some(campaign.expect("a campaign"));
    }

    /// Waits for what has to come at last.
    pub(super) async fn until(&self, what: &str, happened: impl Fn(&Self) -> bool) {
        let until = Instant::now() + AT_LAST;
        while !happened(self) {
            assert!(Instant::now() < until, "not within {AT_LAST:?}: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Which of them owns.
    pub(super) async fn owner(&self) -> usize {
        self.until("somebody owns", |arena| arena.contestants.iter().any(Contestant::is_owner)).await;
        self.contestants.iter().position(Contestant::is_owner).expect("somebody owns")
    }

    /// Waits until somebody owns under a larger token than this, and all tickets are owned.
    pub(super) async fn moves_on_from(&self, token: Option<u64>) {
        self.until("the ownership moves on", |arena| {
            arena.observer.newest_token() > token && arena.is_full()
        })
        .await;
    }

    /// From here on every link is like this.
    pub(super) fn link_all(&self, link: Link) {
        self.contestants.iter().for_each(|contestant| contestant.proxy.set(link));
    }

    /// At no instant did more own than may, and tokens rose; and the control shows that this could have been seen.
    pub(super) fn assert_survived(&self) {
        let tickets = self.tickets as usize;
        self.observer.assert_exclusive(tickets);
        assert!(self.credulous.most() > tickets, "the control has seen nothing: {:?}", self.credulous);
    }

    /// The same where nothing was lost: each ticket had one ownership, and it lasts.
    pub(super) fn assert_undisturbed(&self) {
        self.observer.assert_exclusive(self.tickets as usize);
        assert!(self.is_undisturbed(), "{:?}", self.observer);
    }

    pub(super) fn is_undisturbed(&self) -> bool {
        self.is_full() && self.observer.begun() == self.tickets as usize
    }

    /// Lets so much of a ttl go by: faults have a length.
    pub(super) async fn pass(&self, percent: u32) {
        tokio::time::sleep(self.ttl * percent / 100).await;
    }
}
