//! Many workers at once: what the store says to them, taken together, has to make sense.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{
    Call, Claimed, Closing, Grant, LeaseId, Leave, Leaving, Metadata, Released, Said, Term, Ticket, Want,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Fixture;
use super::chance::Chance;
use super::world::{answered, fresh, label, name, request, tickets};
use crate::store::{Hints, Store};

/// How many workers there are.
const WORKERS: u64 = 32;
/// What they compete for, and how many tickets there are of it.
const RESOURCES: [(&str, u32); 3] = [("one", 1), ("another", 1), ("three", 3)];
/// Until so many ownerships have begun.
const GRANTS: usize = 240;
/// A store that works needs a second or two.
const LIMIT: Duration = Duration::from_secs(60);
/// Waiters look again no later than this: what is tested is who gets a ticket, not how soon.
const NAP: Duration = Duration::from_millis(25);
/// None of the leases runs out.
const TTL: Duration = Duration::from_secs(300);

/// A record of all answers shows, at every instant, at most K owners and every ticket once; over all, terms that
/// go up by one and tokens that grow with them.
pub async fn many_workers_at_once_never_own_more_than_k_tickets(fixture: impl Fixture) {
    let book = Arc::new(Book::default());
    let until = Instant::now() + LIMIT;

    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        tasks.spawn(Competitor::new(number, fixture.store(), book.clone()).compete(until));
    }
    while let Some(done) = tasks.join_next().await {
        // The first mistake is the one to look at; the others are dropped with the set.
        done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }

    book.close();
}

/// One worker that claims everything, holds what it gets for a moment, and gives it up in one way or another.
struct Competitor {
    number: u64,
    store: Arc<dyn Store>,
    book: Arc<Book>,
    chance: Chance,
    lease: LeaseId,
    seq: u64,
    /// What it holds, and counts as held from the grant's answer to before the release is sent.
    held: BTreeMap<&'static str, Grant>,
}

impl Competitor {
    fn new(number: u64, store: Arc<dyn Store>, book: Arc<Book>) -> Self {
        let chance = Chance::new(number);
        Self { number, store, book, chance, lease: fresh(), seq: 0, held: BTreeMap::new() }
    }

    async fn compete(mut self, until: Instant) {
        let mut hints = self.open().await;
        while self.book.grants() < GRANTS {
            assert!(Instant::now() < until, "{} ownerships within {LIMIT:?}", self.book.grants());
            self.claim().await;
            if self.held.is_empty() {
                // A hint is a wake-up; without one it looks by itself.
                let _woken = tokio::time::timeout(NAP, hints.recv()).await;
            } else {
                tokio::task::yield_now().await;
                if self.chance.percent(8) {
                    self.close().await;
                    hints = self.open().await;
                } else {
                    self.give_up().await;
                }
            }
        }
        self.close().await;
    }

    async fn open(&mut self) -> Hints {
        self.lease = fresh();
        let label = label(&format!("worker-{}", self.number));
        let said = self.say(Call::Open { ttl: TTL, label, metadata: Metadata::default() }).await;
        assert_eq!(said, Said::Opened);
        answered(self.store.hints(self.lease)).await
    }

    async fn claim(&mut self) {
        let want = |(resource, count): &(&str, u32)| Want {
            resource: name(resource),
            tickets: tickets(*count),
            priority: 0,
        };
        let said = self.say(Call::Claim(RESOURCES.iter().map(want).collect())).await;
        let Said::Claimed(answers) = said else { panic!("a claim was answered {said:?}") };
        assert_eq!(answers.len(), RESOURCES.len());
        for ((resource, _), answer) in RESOURCES.into_iter().zip(answers) {
            self.hear(resource, answer);
        }
    }

    async fn give_up(&mut self) {
        let how = self.chance.one_of(&[Leaving::Released, Leaving::Failed, Leaving::SteppedDown]);
        let resources = self.let_go();
        let leaves = resources.iter().map(|resource| Leave { resource: name(resource), how });
        let said = self.say(Call::Release(leaves.collect())).await;
        let Said::Released(answers) = said else { panic!("a release was answered {said:?}") };
        assert_eq!(answers.len(), resources.len());
        for (resource, answer) in resources.into_iter().zip(answers) {
            match (how, answer) {
                (Leaving::SteppedDown, Released::Again(claimed)) => self.hear(resource, claimed),
                (Leaving::Released | Leaving::Failed, Released::Free) => {}
                (how, answer) => panic!("{resource} was given up by {how:?}, which was answered {answer:?}"),
            }
        }
    }

    async fn close(&mut self) {
        self.let_go();
        assert_eq!(self.say(Call::Close(Closing::Left)).await, Said::Closed);
    }

    fn hear(&mut self, resource: &'static str, claimed: Claimed) {
        match (claimed, self.held.get(resource)) {
            (Claimed::Granted(grant), Some(held)) => assert_eq!(grant, *held, "another grant of {resource}"),
            (Claimed::Granted(grant), None) => {
                self.book.begin(resource, grant);
                self.held.insert(resource, grant);
            }
            (Claimed::Waiting(_), None) => {}
            (claimed, held) => panic!("{resource}, of which it holds {held:?}, was answered {claimed:?}"),
        }
    }

    fn let_go(&mut self) -> Vec<&'static str> {
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|(resource, grant)| self.book.end(resource, *grant));
        held.into_keys().collect()
    }

    async fn say(&mut self, call: Call) -> Said {
        self.seq += 1;
        let request = request(self.lease, self.seq, None, call);
        answered(self.store.call(&request)).await.said
    }
}

/// Who holds what, as the workers were told.
#[derive(Default)]
struct Book(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    holding: BTreeMap<&'static str, BTreeMap<Ticket, Grant>>,
    granted: Vec<(&'static str, Grant)>,
}

impl Book {
    fn grants(&self) -> usize {
        self.open().granted.len()
    }

    fn begin(&self, resource: &'static str, grant: Grant) {
        let mut pages = self.open();
        pages.granted.push((resource, grant));
        let holding = pages.holding.entry(resource).or_default();
        let before = holding.insert(grant.ticket, grant);
        let count = RESOURCES.iter().find(|(name, _)| *name == resource).map_or(0, |(_, count)| *count);

        assert_eq!(before, None, "{resource}: the ticket of {grant:?} is held already");
        assert!(grant.ticket.0 < count, "{resource} has {count} tickets: {grant:?}");
        assert!(holding.len() <= count as usize, "{resource} has {count} tickets: {holding:?}");
    }

    fn end(&self, resource: &'static str, grant: Grant) {
        let mut pages = self.open();
        let ended = pages.holding.get_mut(resource).and_then(|holding| holding.remove(&grant.ticket));
        assert_eq!(ended, Some(grant));
    }

    /// Checks what can be said of all ownerships together.
    fn close(&self) {
        let mut pages = self.open();
        pages.granted.sort_by_key(|(resource, grant)| (*resource, grant.term));
        for (resource, _) in RESOURCES {
            let of = pages.granted.iter().filter(|(name, _)| *name == resource).map(|(_, grant)| *grant);
            let grants: Vec<Grant> = of.collect();
            let terms: Vec<Term> = grants.iter().map(|grant| grant.term).collect();
            assert_eq!(terms, (1..=grants.len() as u64).map(Term).collect::<Vec<_>>(), "{resource}");
            assert!(grants.is_sorted_by(|a, b| a.token < b.token), "{resource}: {grants:?}");
            assert!(grants.len() > 1, "{resource} changed hands {} times", grants.len());
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Pages> {
        // A worker that found a mistake panics with it in hand; the others may still look.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
