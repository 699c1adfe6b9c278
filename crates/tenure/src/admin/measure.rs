//! How fast a store answers, and what its clock shows: asked again and again for a while.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Answer, Call, Closing, Label, LeaseId, Metadata, Moment, Request, Said, Seq, StoreTime};

use super::{Admin, PATIENCE};
use crate::Error;
use crate::runtime::clock::Clocks;
use crate::runtime::engine::random;
use crate::store::Store;

/// What [`Admin::measure`] found. Each list is in the order of asking.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// Questions that change nothing.
    pub asked: Vec<RoundTrip>,
    /// Renewals of a lease: what every worker does all the time.
    pub renewed: Vec<RoundTrip>,
    /// The longest ttl that the namespace has seen; nothing if nobody has competed yet.
    pub longest: Duration,
}

/// One question, answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundTrip {
    /// When it was sent, counted from the first; by a clock that nobody sets.
    pub sent_after: Duration,
    /// How long the answer took.
    pub took: Duration,
    /// This host's wall clock when it was sent, in microseconds since 1970.
    pub wall_us: u64,
    /// The store's clock when it was answered, in microseconds: since 1970 on a server; on SQLite the time since the
    /// machine was first started with the file.
    pub store_us: u64,
}

/// So many are enough for a hundredth part.
const MOST: usize = 200;
/// Leaves the store to those who need it.
const PAUSE: Duration = Duration::from_millis(2);
/// The lease where nobody has had one yet.
const FIRST_TTL: Duration = Duration::from_secs(1);

impl Admin {
    /// Asks the store again and again, for up to `span` without changing anything and for up to `span` by renewing a
    /// lease of its own, labelled `label`, which it closes in the end. That lease competes for nothing, and is not
    /// longer than those that the namespace has seen: no quarantine lasts longer because of it.
    ///
    /// # Errors
    /// When the label breaks its limit, or the store does not answer, or does not let itself be written.
    pub async fn measure(&self, label: &str, span: Duration) -> Result<Measured, Error> {
        let (label, clocks) = (Label::new(label)?, self.opened.clocks.clone());
        let measure = move |store: Arc<dyn Store>| -> crate::store::Pending<'static, Measured> {
            Box::pin(async move { Probe::new(store, clocks).measure(label, span).await })
        };
        self.ask_store_within(span * 2 + PATIENCE, measure).await
    }
}

/// Who asks.
struct Probe {
    store: Arc<dyn Store>,
    clocks: Clocks,
    lease: LeaseId,
    seq: Seq,
    began_at: Moment,
}

impl Probe {
    fn new(store: Arc<dyn Store>, clocks: Clocks) -> Self {
        let began_at = clocks.now();
        Self { store, clocks, lease: LeaseId(random::<16>()), seq: Seq(0), began_at }
    }

    async fn measure(mut self, label: Label, span: Duration) -> Result<Measured, Error> {
        // The first makes the connection, and is not like the others.
        let (_, first) = self.ask(Call::Held).await?;
        let longest = first.stamp.longest;
        self.began_at = self.clocks.now();
        let asked = self.again_and_again(&Call::Held, span).await?;
        let ttl = if longest.is_zero() { FIRST_TTL } else { longest };
        let (_, opened) = self.ask(Call::Open { ttl, label, metadata: Metadata::default() }).await?;
        if opened.said != Said::Opened {
            return Err(Error::unavailable("the store opens no lease"));
        }
        let renewed = self.renew(span).await;
        let closed = self.ask(Call::Close(Closing::Left)).await;
        let renewed = renewed?;
        let (_, _closed) = closed?;
        Ok(Measured { asked, renewed, longest })
    }

    async fn renew(&mut self, span: Duration) -> Result<Vec<RoundTrip>, Error> {
        // As above: another connection may have to be made.
        let (_, _first) = self.ask(Call::Renew).await?;
        self.again_and_again(&Call::Renew, span).await
    }

    async fn again_and_again(&mut self, call: &Call, span: Duration) -> Result<Vec<RoundTrip>, Error> {
        let (mut trips, began_at) = (Vec::new(), self.clocks.now());
        loop {
            trips.push(self.ask(call.clone()).await?.0);
            if trips.len() >= MOST || self.clocks.now().longest_since(began_at) >= span {
                return Ok(trips);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn ask(&mut self, call: Call) -> Result<(RoundTrip, Answer), Error> {
        self.seq.0 += 1;
        let (asked_at, wall_us) = (self.clocks.now(), self.clocks.wall());
        let request =
            Request { lease: self.lease, seq: self.seq, asked_at, limit: PATIENCE, judged_by: None, call };
        let answer = self.store.call(&request).await?;
        let took = self.clocks.now().longest_since(asked_at);
        let sent_after = asked_at.shortest_since(self.began_at);
        let store_us = StoreTime::as_micros(answer.stamp.now);
        Ok((RoundTrip { sent_after, took, wall_us, store_us }, answer))
    }
}
