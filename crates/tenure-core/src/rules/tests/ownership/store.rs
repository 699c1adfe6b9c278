//! A store with a clock to set, and workers by label.

use super::*;

/// The store, and workers by label.
pub(super) struct Store {
    pub(super) world: World,
    /// What the callers vouch for.
    pub(super) judged_by: Option<StoreTime>,
    /// By lease: the first has the id 1.
    pub(super) labels: Vec<&'static str>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self { world: World::new(), judged_by: None, labels: vec![] }
    }

    /// A store found without data, which may have had some.
    pub(super) fn bereft() -> Self {
        let mut store = Self::new();
        store.world.lost_nothing = false;
        store
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.world.pass(span);
    }

    pub(super) fn now(&self) -> StoreTime {
        self.world.now
    }

    pub(super) fn now_less(&self, span: Duration) -> StoreTime {
        StoreTime::from_micros(self.world.now.as_micros() - u64::try_from(span.as_micros()).unwrap())
    }

    /// The next life of the store, with all its data.
    pub(super) fn restart(&mut self) {
        self.world.life = Incarnation(self.world.life.0 + 1);
    }

    pub(super) fn send(&mut self, lease: LeaseId, call: Call) -> Said {
        let request = self.world.request(lease, call);
        self.world.send(Request { judged_by: self.judged_by, ..request })
    }

    pub(super) fn renew_as(&mut self, lease: LeaseId, seq: u64) -> Said {
        self.world.renew_as(lease, seq)
    }

    pub(super) fn open(&mut self, label: &'static str) -> LeaseId {
        self.open_for(label, TTL)
    }

    pub(super) fn open_for(&mut self, label: &'static str, ttl: Duration) -> LeaseId {
        self.labels.push(label);
        let lease = LeaseId(self.labels.len() as u128);
        assert_eq!(self.open_again(lease, label, ttl), Said::Opened);
        lease
    }

    pub(super) fn open_again(&mut self, lease: LeaseId, text: &str, ttl: Duration) -> Said {
        self.send(lease, Call::Open { ttl, label: label(text), metadata: Metadata::default() })
    }

    /// A new worker that owns `job`.
    pub(super) fn own(&mut self, label: &'static str) -> LeaseId {
        let lease = self.open(label);
        granted(self.claim(lease));
        lease
    }

    /// A new worker that waits for `job`.
    pub(super) fn wait(&mut self, label: &'static str) -> LeaseId {
        let lease = self.open(label);
        waiting(self.claim(lease));
        lease
    }

    pub(super) fn renew(&mut self, lease: LeaseId) -> Said {
        self.send(lease, Call::Renew)
    }

    #[track_caller]
    pub(super) fn notices_and_more(&mut self, lease: LeaseId) -> (Vec<Notice>, bool) {
        match self.renew(lease) {
            Said::Kept { notices, more } => (notices, more),
            said => panic!("not kept: {said:?}"),
        }
    }

    #[track_caller]
    pub(super) fn wishes(&mut self, lease: LeaseId) -> Vec<Wish> {
        self.notices_and_more(lease).0.into_iter().map(|notice| notice.wish).collect()
    }

    /// Claims the one ticket of `job`.
    pub(super) fn claim(&mut self, lease: LeaseId) -> Claimed {
        self.claim_at(lease, "job")
    }

    pub(super) fn claim_at(&mut self, lease: LeaseId, resource: &str) -> Claimed {
        only_claimed(self.send(lease, claim_of(resource)))
    }

    pub(super) fn claim_with(&mut self, lease: LeaseId, tickets: Tickets, priority: i32) -> Claimed {
        let want = Want { resource: name("job"), tickets, priority };
        only_claimed(self.send(lease, Call::Claim(vec![want])))
    }

    pub(super) fn release(&mut self, lease: LeaseId) -> Released {
        self.release_at(lease, "job")
    }

    pub(super) fn release_at(&mut self, lease: LeaseId, resource: &str) -> Released {
        only_released(self.send(lease, release_of(resource)))
    }

    pub(super) fn step_down(&mut self, lease: LeaseId) -> Released {
        self.leave(lease, Leaving::SteppedDown)
    }

    pub(super) fn leave(&mut self, lease: LeaseId, how: Leaving) -> Released {
        only_released(self.send(lease, Call::Release(vec![Leave { resource: name("job"), how }])))
    }

    pub(super) fn close(&mut self, lease: LeaseId, why: Closing) {
        assert_eq!(self.send(lease, Call::Close(why)), Said::Closed);
    }

    pub(super) fn ask_at(&mut self, resource: &str, token: Token) -> StepDownReply {
        asked(self.world.act(Act::Ask(name(resource), token, None)))
    }

    pub(super) fn ask_for(&mut self, token: Token, successor: &str) -> StepDownReply {
        asked(self.world.act(Act::Ask(name("job"), token, Some(label(successor)))))
    }

    pub(super) fn evict(&mut self, token: Token) -> StepDownReply {
        asked(self.world.act(Act::Evict(name("job"), token)))
    }

    #[track_caller]
    pub(super) fn held(&mut self, lease: LeaseId) -> Vec<&'static str> {
        let Said::Held(holdings) = self.send(lease, Call::Held) else { panic!("the lease is dead") };
        let known = ["job", "x", "y", "z"];
        known.into_iter().filter(|name| holdings.iter().any(|h| h.resource.as_str() == *name)).collect()
    }

    /// Who was told to look, and after how long, since the last time.
    pub(super) fn hints(&mut self) -> Vec<(&'static str, Duration)> {
        let look = |signal| match signal {
            Signal::Look { to, after, .. } => Some((self.labels[to[0].0 as usize - 1], after)),
            _ => None,
        };
        core::mem::take(&mut self.world.signals).into_iter().filter_map(look).collect()
    }

    /// What happened, oldest first, with the endings that nobody has come across yet.
    pub(super) fn events(&self) -> Vec<Event> {
        let reader = self.reader();
        let mut events = self.world.history.clone();
        for key in self.world.records.keys() {
            if let Key::Resource(name) = key {
                events.extend(reader.endings(name, &self.resource(name.as_str())));
            }
        }
        events.sort_by_key(|event| event.at);
        events
    }

    pub(super) fn history(&self) -> Vec<(&'static str, HistoryEvent)> {
        self.events().iter().map(|event| (self.label(&event.worker), event.what)).collect()
    }

    pub(super) fn reader(&self) -> Reader {
        let metadata = |id: LeaseId| match self.world.find(&Key::Info(id)).value {
            Some(Value::Info(info)) => info.metadata,
            _ => Metadata::default(),
        };
        let leases = self.world.records.keys().filter_map(|key| match key {
            Key::Lease(id) => Some((*id, (self.world.lease(*id), metadata(*id)))),
            _ => None,
        });
        let meta = self.world.meta();
        let now = Some(self.world.now);
        Reader {
            now,
            leases: leases.collect(),
            withheld: Reader::withheld(Some(&meta), self.world.life, now),
        }
    }

    pub(super) fn view(&self) -> ResourceView {
        self.reader().view(&name("job"), &self.resource("job"))
    }

    pub(super) fn resource(&self, text: &str) -> Resource {
        match self.world.value(&Key::Resource(name(text))) {
            Some(Value::Resource(resource)) => resource,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn tickets(&self) -> u32 {
        self.view().tickets
    }

    /// The owners of `job`, by ticket.
    pub(super) fn owners(&self) -> Vec<&'static str> {
        self.view().owners.iter().map(|owner| self.label(&owner.worker)).collect()
    }

    /// Those who wait for `job`, in order.
    pub(super) fn waiters(&self) -> Vec<&'static str> {
        self.view().waiters.iter().map(|waiter| self.label(&waiter.worker)).collect()
    }

    pub(super) fn label(&self, worker: &Label) -> &'static str {
        self.labels.iter().find(|label| **label == worker.as_str()).unwrap()
    }

    /// How many stand in the queue of `job`, the dead among them.
    pub(super) fn queued(&self) -> usize {
        self.resource("job").queue.len()
    }
}

pub(super) fn asked(reply: Reply) -> StepDownReply {
    match reply {
        Reply::Asked(asked) => asked,
        other => panic!("{other:?}"),
    }
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

pub(super) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

pub(super) fn tickets(count: u32) -> Tickets {
    Tickets::new(count).unwrap()
}

pub(super) fn want(resource: &str) -> Want {
    Want { resource: name(resource), tickets: Tickets::ONE, priority: 0 }
}

pub(super) fn claim_of(resource: &str) -> Call {
    Call::Claim(vec![want(resource)])
}

pub(super) fn release_of(resource: &str) -> Call {
    Call::Release(vec![Leave { resource: name(resource), how: Leaving::Released }])
}

pub(super) fn notice_of(resource: &str, token: Token, wish: Wish) -> Notice {
    Notice { resource: name(resource), token, wish }
}

/// Kept, with nothing to tell.
pub(super) fn kept() -> Said {
    Said::Kept { notices: vec![], more: false }
}

#[track_caller]
pub(super) fn only_claimed(said: Said) -> Claimed {
    match said {
        Said::Claimed(answers) if answers.len() == 1 => answers[0],
        said => panic!("not one answer to a claim: {said:?}"),
    }
}

#[track_caller]
pub(super) fn only_released(said: Said) -> Released {
    match said {
        Said::Released(answers) if answers.len() == 1 => answers[0],
        said => panic!("not one answer to a release: {said:?}"),
    }
}

#[track_caller]
pub(super) fn waiting(claimed: Claimed) -> Waiting {
    match claimed {
        Claimed::Waiting(waiting) => waiting,
        claimed => panic!("not waiting: {claimed:?}"),
    }
}
