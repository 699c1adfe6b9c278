//! Workers that compete for one ticket while something goes wrong, newcomers among them, and a judge who looks at
//! all of them from outside.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tenure::{Campaign, Clock, Timing, Worker};

use crate::fixture::lock;
use crate::words::SOON;

/// How often the judge looks.
const LOOK: Duration = Duration::from_micros(300);
/// How many compete at a time; then one who does not own leaves for each who comes.
const CROWD: usize = 5;

struct Person {
    worker: Worker,
    campaign: Campaign,
}

pub(crate) struct Scene {
    namespace: String,
    timing: Timing,
    people: Arc<Mutex<Vec<Arc<Person>>>>,
    tokens: Arc<Mutex<Vec<u64>>>,
    judge: Judge,
}

/// Looks at everybody, and remembers the most who owned at one instant.
struct Judge {
    most: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scene {
    pub(crate) fn new(namespace: &str, ttl: Duration) -> Self {
        let people = Arc::default();
        Self {
            namespace: namespace.to_owned(),
            timing: Timing::new(ttl).expect("a timing"),
            judge: Judge::of(&people),
            people,
            tokens: Arc::default(),
        }
    }

    /// Newcomers watch the store's clock first.
    pub(crate) fn strict(mut self) -> Self {
        self.timing = self.timing.with_clock(Clock::Strict);
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
        join(url, &self.namespace, self.timing, &self.tokens, &self.people).await
    }

    /// From now until it is dropped somebody new comes every so often, and somebody who does not own leaves.
    pub(crate) fn newcomers(&self, url: &str, every: Duration) -> tokio::task::JoinHandle<()> {
        let (url, namespace, timing) = (url.to_owned(), self.namespace.clone(), self.timing);
        let (tokens, people) = (self.tokens.clone(), self.people.clone());
        tokio::spawn(async move {
            loop {
                join(&url, &namespace, timing, &tokens, &people).await;
                let leaver = {
                    let mut people = lock(&people);
                    let idle = people.iter().skip(1).position(|person| !person.campaign.is_owner());
                    idle.filter(|_| people.len() > CROWD).map(|index| people.remove(index + 1))
                };
                if let Some(person) = leaver {
                    person.worker.shutdown_within(Duration::from_millis(200)).await;
                }
                tokio::time::sleep(every).await;
            }
        })
    }

    /// Waits until somebody owns under a token above all that were given before now, or goes on owning.
    pub(crate) async fn somebody_owns(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while !lock(&self.people).iter().any(|person| person.campaign.is_owner()) {
            assert!(Instant::now() < until, "nobody owns within {limit:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the first who came owns.
    pub(crate) async fn the_first_owns(&self) {
        let until = Instant::now() + SOON;
        while !lock(&self.people)[0].campaign.is_owner() {
            assert!(Instant::now() < until, "the first does not own within {SOON:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn first_is_owner(&self) -> bool {
        lock(&self.people)[0].campaign.is_owner()
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
        lock(&self.tokens).len()
    }

    /// The most who owned at one instant.
    pub(crate) fn most_owners(&self) -> usize {
        self.judge.most.load(Ordering::SeqCst)
    }

    /// Never more than one owner, and tokens that rise.
    pub(crate) fn holds_what_is_promised(&self) {
        assert_eq!(self.most_owners(), 1, "owners at one instant");
        let tokens = lock(&self.tokens);
        assert!(tokens.is_sorted_by(|a, b| a < b), "tokens that do not rise: {tokens:?}");
    }
}

async fn join(
    url: &str,
    namespace: &str,
    timing: Timing,
    tokens: &Arc<Mutex<Vec<u64>>>,
    people: &Arc<Mutex<Vec<Arc<Person>>>>,
) -> bool {
    let Ok(worker) = Worker::builder(url).namespace(namespace).timing(timing).connect().await else {
        return false;
    };
    let campaign = worker
        .campaign("job")
        .with(tokens.clone())
        .obtain(async |own, tokens: Arc<Mutex<Vec<u64>>>| lock(&tokens).push(own.token()), async |_, _| {});
    let campaign = campaign.expect("it competes");
    lock(people).push(Arc::new(Person { worker, campaign }));
    true
}

impl Judge {
    fn of(people: &Arc<Mutex<Vec<Arc<Person>>>>) -> Self {
        let (most, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (people, seen, over) = (people.clone(), most.clone(), is_over.clone());
        let look = move || {
            while !over.load(Ordering::SeqCst) {
                let people: Vec<Arc<Person>> = lock(&people).clone();
                let owning = || people.iter().filter(|person| person.campaign.is_owner());
                let first: Vec<&Arc<Person>> = owning().collect();
                // Those who still own when all have been looked at owned together at the instant between.
                let together = first.iter().filter(|person| person.campaign.is_owner()).count();
                seen.fetch_max(together, Ordering::SeqCst);
                std::thread::sleep(LOOK);
            }
        };
        let thread = std::thread::Builder::new().name("judge".into()).spawn(look).expect("a thread");
        Self { most, is_over, thread: Some(thread) }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A judge who panicked has said so.
            let _ended = thread.join();
        }
    }
}
