//! Workers that compete for a few tickets while something goes wrong, newcomers among them, and two who look on from
//! outside: one sees what the workers say, the other takes each at its word for a minute longer. The second is the
//! control: wherever ownership moved because of a fault it has to see too many at once, or the first proves nothing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::types::Clock;
use tenure::{Campaign, Lead, Timing, Worker};
use testkit::observer::Observer;

use super::fixture::lock;
use super::words::SOON;

/// Longer than any fault and what follows it.
const LONGER: Duration = Duration::from_secs(60);
/// How many compete at a time, beside those who own; then one who does not own leaves for each who comes.
const CROWD: usize = 4;

struct Person {
    worker: Worker,
    campaign: Campaign,
}

pub(crate) struct Scene {
    part: Part,
    people: Arc<Mutex<Vec<Arc<Person>>>>,
}

/// What everybody competes for, how, and who looks on.
#[derive(Clone)]
struct Part {
    namespace: String,
    timing: Timing,
    tickets: u32,
    observer: Arc<Observer>,
    credulous: Arc<Observer>,
}

impl Scene {
    pub(crate) fn new(namespace: &str, ttl: Duration) -> Self {
        let part = Part {
            namespace: namespace.to_owned(),
            timing: Timing::new(ttl).expect("a timing"),
            tickets: 1,
            observer: Arc::default(),
            credulous: Arc::default(),
        };
        Self { part, people: Arc::default() }
    }

    /// So many may own at once.
    pub(crate) fn tickets(mut self, tickets: u32) -> Self {
        self.part.tickets = tickets;
        self
    }

    /// Newcomers watch the store's clock first.
    pub(crate) fn strict(mut self) -> Self {
        self.part.timing = self.part.timing.with_clock(Clock::Strict);
        self
    }

    /// Somebody joins, and competes from then on.
    pub(crate) async fn joins(&self, url: &str) {
        let until = Instant::now() + SOON;
        while !self.tries_to_join(url).await {
            assert!(Instant::now() < until, "nobody can join within {SOON:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn tries_to_join(&self, url: &str) -> bool {
        join(url, &self.part, &self.people).await
    }

    /// From now until it is dropped somebody new comes every so often, and somebody who does not own leaves.
    pub(crate) fn newcomers(&self, url: &str, every: Duration) -> tokio::task::JoinHandle<()> {
        let (url, part, people) = (url.to_owned(), self.part.clone(), self.people.clone());
        let (first, most) = (part.tickets as usize, part.tickets as usize + CROWD);
        tokio::spawn(async move {
            loop {
                join(&url, &part, &people).await;
                let leaver = {
                    let mut people = lock(&people);
                    let idle = people.iter().skip(first).position(|person| !person.campaign.is_owner());
                    idle.filter(|_| people.len() > most).map(|index| people.remove(index + first))
                };
                if let Some(person) = leaver {
                    person.worker.shutdown_within(Duration::from_millis(200)).await;
                }
                tokio::time::sleep(every).await;
            }
        })
    }

    /// Waits until every ticket is owned.
    pub(crate) async fn all_are_owned(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while self.owners() < self.part.tickets as usize {
            assert!(Instant::now() < until, "not every ticket is owned within {limit:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn owners(&self) -> usize {
        lock(&self.people).iter().filter(|person| person.campaign.is_owner()).count()
    }

    /// Waits until the first who came own.
    pub(crate) async fn the_first_own(&self) {
        let until = Instant::now() + SOON;
        while !self.first_are_owners() {
            assert!(Instant::now() < until, "the first do not own within {SOON:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Whether as many as there are tickets came first, and own.
    pub(crate) fn first_are_owners(&self) -> bool {
        let (people, tickets) = (lock(&self.people), self.part.tickets as usize);
        people.len() >= tickets && people[..tickets].iter().all(|person| person.campaign.is_owner())
    }

    /// Whether none of the first owns.
    pub(crate) fn first_own_nothing(&self) -> bool {
        let (people, tickets) = (lock(&self.people), self.part.tickets as usize);
        people.iter().take(tickets).all(|person| !person.campaign.is_owner())
    }

    /// Whoever owns hands over.
    pub(crate) async fn steps_down(&self) {
        let owner = lock(&self.people).iter().find(|person| person.campaign.is_owner()).cloned();
        if let Some(person) = owner {
            person.campaign.step_down().await;
        }
    }

    /// Everybody leaves.
    pub(crate) async fn ends(&self) {
        let people = std::mem::take(&mut *lock(&self.people));
        for person in people {
            person.worker.shutdown().await;
        }
    }

    pub(crate) fn ownerships(&self) -> usize {
        self.part.observer.begun()
    }

    /// The most who owned at one instant.
    pub(crate) fn most_owners(&self) -> usize {
        self.part.observer.most()
    }

    /// Never more owners than tickets, and tokens that rise.
    pub(crate) fn holds_what_is_promised(&self) {
        self.part.observer.assert_exclusive(self.part.tickets as usize);
    }

    /// The same after a fault that moved the ownership: somebody who had gone on would have been seen.
    pub(crate) fn holds_what_could_have_failed(&self) {
        self.holds_what_is_promised();
        // Whoever owns may not have begun yet.
        let seen = || self.part.credulous.most() > self.part.tickets as usize;
        tokio::task::block_in_place(|| testkit::eventually(SOON, "the control sees too many owners", seen));
    }
}

async fn join(url: &str, part: &Part, people: &Arc<Mutex<Vec<Arc<Person>>>>) -> bool {
    let builder = Worker::builder(url).namespace(&part.namespace).timing(part.timing);
    let Ok(worker) = builder.connect().await else { return false };
    let (looks_on, label) = (part.clone(), worker.label().to_owned());
    let watch = move |lead: Lead| {
        let (ticket, token, same) = (lead.ticket(), lead.token(), lead.clone());
        looks_on.observer.begin(&label, ticket, token, move || lead.holds());
        looks_on.credulous.begin_credulous(&label, ticket, token, LONGER, move || same.holds());
        async {}
    };
    let campaign = worker.campaign("job").tickets(part.tickets).obtain(watch, |_| async {});
    lock(people).push(Arc::new(Person { worker, campaign: campaign.expect("it competes") }));
    true
}
