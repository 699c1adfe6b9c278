//! `memory:` One process; the ledger behind a mutex. For tests and examples.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_core::{
    Answer, Asked, Here, Hint, Holder, Incarnation, JobSaid, JobStep, JobView, Label, LeaseId, Ledger,
    Message, Payload, Published, Request, ResourceName, ResourceView, StoreTime, Token,
};
use tokio::sync::mpsc;

use super::{Entry, Hints, Messages, Pending, Store};
use crate::Error;
use crate::clock::{ClockByHand, Clocks};

/// A store in this process. It never restarts, so its incarnation is always the same.
#[derive(Debug)]
pub struct MemoryStore {
    clocks: Clocks,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    listeners: HashMap<LeaseId, mpsc::UnboundedSender<Hint>>,
    /// Who wants to hear what the owners of a resource send.
    audience: BTreeMap<ResourceName, Vec<mpsc::UnboundedSender<Message>>>,
}

impl Inner {
    /// Sends the hints that follow from a step. Where nobody listens, or somebody was told already, the hint goes on to
    /// the next.
    fn wake(&mut self, here: Here) {
        let mut hints = self.ledger.take_hints();
        // Two reasons to wake somebody are one.
        let mut known = HashSet::new();
        hints.retain(|hint| known.insert(hint.clone()));
        let mut told = HashSet::new();
        for hint in hints {
            let mut next = Some(hint);
            while let Some(hint) = next {
                let heard = !told.contains(&(hint.resource.clone(), hint.lease)) && self.tell(&hint);
                next = if heard { None } else { self.ledger.pass_on(here, &hint) };
                told.insert((hint.resource, hint.lease));
            }
        }
    }

    /// Sends to whoever has subscribed, and forgets who does not listen any more.
    fn send(&mut self, message: &Message) {
        if let Some(audience) = self.audience.get_mut(&message.resource) {
            audience.retain(|to| to.send(message.clone()).is_ok());
        }
    }

    /// Whether somebody listens there.
    fn tell(&mut self, hint: &Hint) -> bool {
        let heard = self.listeners.get(&hint.lease).is_some_and(|to| to.send(hint.clone()).is_ok());
        if !heard {
            self.listeners.remove(&hint.lease);
        }
        heard
    }
}

const INCARNATION: Incarnation = Incarnation(1);

impl MemoryStore {
    /// An empty store on the system's clocks.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Clocks::System)
    }

    /// An empty store on a clock that is moved by hand.
    #[must_use]
    pub fn by_hand(clock: ClockByHand) -> Self {
        Self::on(Clocks::ByHand(clock))
    }

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    fn on(clocks: Clocks) -> Self {
        let inner =
            Inner { ledger: Ledger::new(INCARNATION), listeners: HashMap::new(), audience: BTreeMap::new() };
        Self { clocks, inner: Mutex::new(inner) }
    }

    fn here(&self) -> Result<Here, Error> {
        let now = StoreTime::from_micros(self.clocks.now().boot_micros());
        Ok(Here::new(now, self.clocks.wall(), INCARNATION)?)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The ledger has no step that a panic could leave half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out one step, then wakes whom it concerns.
    fn step<T>(&self, act: impl FnOnce(&mut Ledger, Here) -> T) -> Result<T, Error> {
        let mut inner = self.lock();
        // Read under the lock, so that time does not go back from one step to the next.
        let here = self.here()?;
        let done = act(&mut inner.ledger, here);
        inner.wake(here);
        Ok(done)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn call<'a>(&'a self, request: &'a Request) -> Pending<'a, Answer> {
        Box::pin(async move { self.step(|ledger, here| ledger.apply(here, request)) })
    }

    fn hints(&self, lease: LeaseId) -> Pending<'_, Hints> {
        Box::pin(async move {
            let (to, hints) = mpsc::unbounded_channel();
            let mut inner = self.lock();
            inner.listeners.retain(|_, listener| !listener.is_closed());
            inner.listeners.insert(lease, to);
            Ok(hints)
        })
    }

    fn read<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<ResourceView>> {
        Box::pin(async move {
            self.step(|ledger, here| match resource {
                Some(resource) => ledger.read(here, resource.as_str()).into_iter().collect(),
                None => ledger.resources().filter_map(|name| ledger.read(here, name.as_str())).collect(),
            })
        })
    }

    fn history<'a>(&'a self, resource: Option<&'a ResourceName>) -> Pending<'a, Vec<Entry>> {
        Box::pin(async move {
            self.step(|ledger, here| {
                let records = ledger.history(here).into_iter();
                let wanted = records.filter(|record| resource.is_none_or(|name| *name == record.resource));
                wanted.map(|record| Entry::of(record, here.now())).collect()
            })
        })
    }

    fn ask<'a>(
        &'a self,
        resource: &'a ResourceName,
        token: Token,
        successor: Option<&'a Label>,
    ) -> Pending<'a, Asked> {
        Box::pin(
            async move { self.step(|ledger, here| ledger.ask(here, resource.as_str(), token, successor)) },
        )
    }

    fn evict<'a>(&'a self, resource: &'a ResourceName, token: Token) -> Pending<'a, Asked> {
        Box::pin(async move { self.step(|ledger, here| ledger.evict(here, resource.as_str(), token)) })
    }

    fn job<'a>(&'a self, step: &'a JobStep) -> Pending<'a, JobSaid> {
        Box::pin(async move { self.step(|ledger, here| ledger.job(here, step)) })
    }

    fn jobs<'a>(&'a self, job: Option<&'a ResourceName>) -> Pending<'a, Vec<JobView>> {
        Box::pin(async move { self.step(|ledger, _| ledger.jobs(job.map(ResourceName::as_str))) })
    }

    fn publish<'a>(&'a self, holder: &'a Holder, payload: &'a Payload) -> Pending<'a, Published> {
        Box::pin(async move {
            let mut inner = self.lock();
            let here = self.here()?;
            let Some(ticket) = inner.ledger.ticket_of(here, holder) else { return Ok(Published::NotOwner) };
            let (resource, token) = (holder.resource.clone(), holder.token);
            inner.send(&Message { resource, ticket, token, payload: payload.clone() });
            Ok(Published::Sent)
        })
    }

    fn subscribe<'a>(&'a self, resource: &'a ResourceName) -> Pending<'a, Messages> {
        Box::pin(async move {
            let (to, messages) = mpsc::unbounded_channel();
            let mut inner = self.lock();
            for audience in inner.audience.values_mut() {
                audience.retain(|to| !to.is_closed());
            }
            inner.audience.retain(|_, audience| !audience.is_empty());
            inner.audience.entry(resource.clone()).or_default().push(to);
            Ok(messages)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Call, Leave, Leaving, Metadata, Moment, Said, Seq, Tickets, Want};

    use super::*;

    async fn ask(store: &MemoryStore, lease: u128, seq: u64, call: Call) -> Said {
        let request = Request {
            lease: LeaseId(lease),
            seq: Seq(seq),
            asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
            limit: Duration::from_secs(1),
            judged_by: None,
            longest: Duration::ZERO,
            call,
        };
        store.call(&request).await.expect("an answer").said
    }

    // req: H8
    #[tokio::test]
    async fn where_nobody_listens_the_hint_goes_on_to_the_next_at_once_and_the_step_to_the_one_behind() {
        let store = MemoryStore::new();
        let name = ResourceName::new("job").expect("a name");
        let want = Want { resource: name.clone(), tickets: Tickets::ONE, priority: 0 };
        let mut hints = Vec::new();
        // The owner, one who never listened, one who does not any more, and two who do.
        for lease in 1..=5 {
            let label = Label::new("worker").expect("a label");
            let open = Call::Open { ttl: Duration::from_secs(15), label, metadata: Metadata::default() };
            assert_eq!(ask(&store, lease, 1, open).await, Said::Opened);
            if lease > 2 {
                hints.push(store.hints(LeaseId(lease)).await.expect("a subscription"));
            }
            ask(&store, lease, 2, Call::Claim(vec![want.clone()])).await;
        }
        drop(hints.remove(0));

        let leave = Leave { resource: name, how: Leaving::Released };
        ask(&store, 1, 3, Call::Release(vec![leave])).await;

        assert_eq!(hints[0].try_recv().map(|hint| hint.after), Ok(Duration::ZERO));
        assert_eq!(hints[1].try_recv().map(|hint| hint.after), Ok(Duration::from_millis(100)));
        assert!(hints[0].try_recv().is_err() && hints[1].try_recv().is_err(), "each is told once");
    }
}
