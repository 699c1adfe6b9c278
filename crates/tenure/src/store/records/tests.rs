//! Answers and commits that come late: a backend that holds them back, under the store that uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{
    Answer, Call, Capabilities, Claimed, Grant, Incarnation, Key, Label, LeaseId, Leave, Leaving, Metadata,
    Moment, Released, Request, ResourceName, ResourceView, Said, Seq, Term, Tickets, Want,
};
use tokio::sync::Notify;

use super::super::backend::{
    Backend, Change, Commits, History, Listing, Page, Signals, Snapshot, Subscriptions,
};
use super::super::{Known, MemoryBackend, Pending, RecordStore, Store, Warning};
use crate::runtime::clock::{Clocks, ManualClock};

const TTL: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(20);

/// Two workers of one process share what was read. An answer that was made before a release and arrives after it must
/// not bring the ownership back, also when no clock tells the two apart.
#[tokio::test]
async fn a_late_answer_does_not_bring_back_what_was_given_up() {
    let store = Late::store();
    let (a, b) = (open(&store, 1).await, open(&store, 2).await);
    let first = granted(claim(&store, a).await);

    store.backend().hold(Held::Answers);
    let joins = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, b).await }
    });
    store.backend().reached().await;
    store.backend().hold(Held::Nothing);
    assert_eq!(release(&store, a).await, Released::Free);
    store.backend().answer.notify_one();
    waiting(joins.await.expect("it runs"));

    // It queues behind the other, or is granted the next term; what it gave up is over.
    if let Claimed::Granted(again) = claim(&store, a).await {
        assert!(again.term > first.term, "{again:?} was given up already");
    }
}

/// A claim was given up while its commit was under way. Once the release is answered that commit changes nothing,
/// however late it is applied.
// req: S6
#[tokio::test]
async fn a_release_leaves_nothing_of_an_earlier_claim_that_is_still_under_way() {
    for exists in [false, true] {
        let store = Late::store();
        let (a, b) = (open(&store, 1).await, open(&store, 2).await);
        if exists {
            granted(claim(&store, b).await);
            release(&store, b).await;
        }
        give_up_a_claim(&store, a).await;

        assert_eq!(release(&store, a).await, Released::Free);
        store.backend().apply_late().await;

        assert!(view(&store).await.is_none_or(|view| view.owners.is_empty() && view.waiters.is_empty()));
        let next = granted(claim(&store, b).await);
        assert_eq!(next.term, Term(if exists { 2 } else { 1 }), "the late claim was granted");
    }
}

/// The same for a place in the queue.
// req: S6
#[tokio::test]
async fn a_release_leaves_no_place_of_an_earlier_claim_that_is_still_under_way() {
    let store = Late::store();
    let (a, b) = (open(&store, 1).await, open(&store, 2).await);
    granted(claim(&store, b).await);
    give_up_a_claim(&store, a).await;

    assert_eq!(release(&store, a).await, Released::Free);
    store.backend().apply_late().await;

    assert!(view(&store).await.is_some_and(|view| view.waiters.is_empty()));
}

/// Where the claim was applied before the release, the release ends it.
#[tokio::test]
async fn a_release_ends_an_earlier_claim_whose_answer_was_lost() {
    let store = Late::store();
    let (a, b) = (open(&store, 1).await, open(&store, 2).await);
    give_up_a_claim(&store, a).await;
    store.backend().apply_late().await;
    assert!(view(&store).await.is_some_and(|view| view.owners.len() == 1));

    assert_eq!(release(&store, a).await, Released::Free);

    assert!(view(&store).await.is_some_and(|view| view.owners.is_empty()));
    assert_eq!(granted(claim(&store, b).await).term, Term(2));
}

/// Waiting costs no write: neither to look again from a place in the queue, nor behind a queue that is full.
// req: C2
#[tokio::test]
async fn a_look_and_a_claim_behind_a_full_queue_write_nothing() {
    let store = Late::store();
    let owner = open(&store, 1).await;
    granted(claim(&store, owner).await);
    let mut head = None;
    for number in 0..65 {
        let waiter = open(&store, 2 + number).await;
        waiting(claim(&store, waiter).await);
        head = head.or(Some(waiter));
    }
    let behind = open(&store, 100).await;

    let before = store.backend().commits();
    waiting(claim(&store, behind).await);
    waiting(claim(&store, behind).await);
    waiting(claim(&store, head.expect("somebody waits")).await);

    assert_eq!(store.backend().commits() - before, 0);
    assert_eq!(view(&store).await.map(|view| view.waiters.len()), Some(65));
}

/// One record is damaged, or of a newer format.
#[tokio::test]
async fn a_damaged_resource_does_not_keep_others_of_its_batch_from_being_granted() {
    let store = Late::store();
    let a = open(&store, 1).await;
    let bad = ResourceName::new("bad").expect("a valid name");
    let key = Key::Resource(bad.clone());
    let life = store.backend().read(std::slice::from_ref(&key)).await.expect("an answer").life;
    let put = super::super::backend::Put {
        key: key.clone(),
        version: tenure_core::Version(7),
        value: Some(r#"{"format":2,"rev":1}"#.into()),
    };
    let expect = vec![(key, tenure_core::Version::NONE)];
    store
        .backend()
        .commit(life, &[Change { expect, put: vec![put], ..Change::default() }])
        .await
        .expect("done");

    let want = |resource| Want { resource, tickets: Tickets::ONE, priority: 0 };
    let request = Request {
        lease: a,
        seq: Seq(1),
        asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
        limit: PATIENCE,
        judged_by: None,
        call: Call::Claim(vec![want(bad), want(job())]),
    };
    let said = Store::call(&*store, &request).await;

    assert!(view(&store).await.is_some_and(|view| view.owners.len() == 1), "{said:?}");
}

/// The worker leaves while its claim of two resources is under way: it releases, and goes on waiting for the claim.
#[tokio::test]
async fn a_claim_of_two_takes_nothing_after_the_release_of_one() {
    let store = Late::store();
    let (a, b) = (open(&store, 1).await, open(&store, 2).await);
    store.backend().hold(Held::Delayed);
    let claims = tokio::spawn({
        let store = store.clone();
        async move { call(&store, a, Call::Claim(vec![want("job"), want("other")])).await }
    });
    store.backend().reached().await;
    store.backend().hold(Held::Nothing);

    assert_eq!(release(&store, a).await, Released::Free);
    store.backend().answer.notify_one();
    let said = claims.await.expect("it runs");

    assert!(matches!(claim(&store, b).await, Claimed::Granted(_)), "A has left, and was told {said:?}");
}

/// Two workers of one process want the same things, in orders of their own. If both went ahead, one would conflict;
/// of many, the unluckiest might never get through.
#[tokio::test]
async fn claims_of_one_process_do_not_conflict_with_each_other() {
    let store = Late::store();
    let (a, b) = (open(&store, 1).await, open(&store, 2).await);
    let before = store.backend().commits();
    let claim = |lease, names: [&str; 2]| {
        let (store, wants) = (store.clone(), names.map(want).to_vec());
        tokio::spawn(async move { call(&store, lease, Call::Claim(wants)).await })
    };

    store.backend().hold(Held::Delayed);
    let first = claim(a, ["job", "other"]);
    store.backend().reached().await;
    store.backend().hold(Held::Nothing);
    let second = claim(b, ["other", "job"]);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.backend().commits() - before, 1, "the second waits for the first");
    store.backend().answer.notify_one();

    let (first, second) = (first.await.expect("it runs"), second.await.expect("it runs"));
    assert!(
        matches!(&first, Said::Claimed(each) if each.iter().all(|one| matches!(one, Claimed::Granted(_))))
    );
    assert!(
        matches!(&second, Said::Claimed(each) if each.iter().all(|one| matches!(one, Claimed::Waiting(_))))
    );
    assert_eq!(store.backend().commits() - before, 2, "one commit each");
}

/// A worker with a ttl of an hour waits for something, and is killed.
#[tokio::test]
async fn the_ttl_of_a_waiter_that_died_is_forgotten() {
    let clock = ManualClock::new();
    let backend = MemoryBackend::by_hand(clock.clone());
    let store = RecordStore::on(backend, Clocks::ByHand(clock.clone()));
    let ask = |lease: u128, call: Call| {
        let request = Request {
            lease: LeaseId(lease),
            seq: Seq(1),
            asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
            limit: PATIENCE,
            judged_by: None,
            call,
        };
        let store = &store;
        async move { Store::call(store, &request).await.expect("an answer").said }
    };
    let open = |ttl| {
        let label = Label::new("worker").expect("a valid label");
        Call::Open { ttl, label, metadata: Metadata::default() }
    };
    let want = || Call::Claim(vec![Want { resource: job(), tickets: Tickets::ONE, priority: 0 }]);
    ask(1, open(TTL)).await;
    ask(1, want()).await;
    ask(2, open(Duration::from_secs(3600))).await;
    ask(2, want()).await;
    clock.advance(Duration::from_secs(60 * 24 * 3600));
    // A new worker takes over from both, which are dead for two months.
    ask(3, open(TTL)).await;
    assert!(
        matches!(ask(3, want()).await, Said::Claimed(claimed) if matches!(claimed[0], Claimed::Granted(_)))
    );

    // It is watched for an hour, then ended; an hour later its ttl is not noted any more; then the longest one falls.
    for hour in 0..4 {
        ask(10 + hour, open(TTL)).await;
        store.inner.sweep().await.expect("swept");
        clock.advance(Duration::from_secs(3600));
    }

    let client = store.inner.client();
    let meta = client.seen(&Key::Meta).and_then(tenure_core::rules::Record::meta).expect("known");
    assert_eq!(meta.longest, TTL, "after every restart of the store nothing is granted for so long");
}

/// A worker is killed and starts again under its label: it waits for the lease that it had before. Only a lease that is
/// renewed meanwhile belongs to somebody else.
// req: T11
#[tokio::test]
async fn a_dead_predecessor_with_the_same_label_is_not_another_worker() {
    let store = Late::store();
    let Clocks::ByHand(clock) = store.clocks().clone() else { panic!("a clock by hand") };
    let first = open(&store, 1).await;
    granted(claim(&store, first).await);
    clock.advance(Duration::from_secs(1));
    let again = open(&store, 2).await;
    waiting(claim(&store, again).await);
    let before = store.known(again, &job());

    clock.advance(Duration::from_secs(1));
    let renewal = call(&store, first, Call::Renew).await;

    assert!(matches!(renewal, Said::Kept { .. }), "{renewal:?}");
    assert_eq!((before.tickets, before.has_namesake), (Some(1), false));
    assert!(store.known(again, &job()).has_namesake);
    assert_eq!(store.known(again, &ResourceName::new("other").expect("a name")), Known::default());
}

// A backend that is late.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// Commits are applied at once, and answered when the test says so.
    Answers,
    /// Commits are not answered. They are applied when the test says so, if ever.
    Commits,
    /// Commits are applied, and answered, when the test says so.
    Delayed,
}

#[derive(Debug)]
struct Late {
    inner: MemoryBackend,
    held: Mutex<Held>,
    late: Mutex<Vec<(Incarnation, Vec<Change>)>>,
    commits: AtomicUsize,
    reached: Notify,
    answer: Notify,
}

type LateStore = Arc<RecordStore<Late>>;

impl Late {
    fn store() -> LateStore {
        let clock = ManualClock::new();
        let late = Self {
            inner: MemoryBackend::by_hand(clock.clone()),
            held: Mutex::new(Held::Nothing),
            late: Mutex::default(),
            commits: AtomicUsize::new(0),
            reached: Notify::new(),
            answer: Notify::new(),
        };
        Arc::new(RecordStore::on(late, Clocks::ByHand(clock)))
    }

    fn hold(&self, held: Held) {
        *self.held.lock().expect("no panic") = held;
    }

    fn held(&self) -> Held {
        *self.held.lock().expect("no panic")
    }

    /// Waits until something is held back.
    async fn reached(&self) {
        tokio::time::timeout(PATIENCE, self.reached.notified()).await.expect("something is held back");
    }

    /// Has the commits arrive that were held back.
    async fn apply_late(&self) {
        let late = std::mem::take(&mut *self.late.lock().expect("no panic"));
        assert!(!late.is_empty(), "nothing was held back");
        for (within, changes) in late {
            self.inner.commit(within, &changes).await.expect("an answer");
        }
    }

    fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }
}

impl Backend for Late {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn read<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Snapshot> {
        self.inner.read(keys)
    }

    fn commit<'a>(&'a self, within: Incarnation, changes: &'a [Change]) -> Pending<'a, Commits> {
        Box::pin(async move {
            self.commits.fetch_add(1, Ordering::SeqCst);
            if self.held() == Held::Commits {
                self.late.lock().expect("no panic").push((within, changes.to_vec()));
                self.reached.notify_one();
                return std::future::pending().await;
            }
            if self.held() == Held::Delayed {
                self.reached.notify_one();
                self.answer.notified().await;
                return self.inner.commit(within, changes).await;
            }
            let commits = self.inner.commit(within, changes).await;
            if self.held() == Held::Answers {
                self.reached.notify_one();
                self.answer.notified().await;
            }
            commits
        })
    }

    fn list<'a>(&'a self, of: Listing, after: Option<&'a Key>) -> Pending<'a, Page> {
        self.inner.list(of, after)
    }

    fn history<'a>(&'a self, of: Option<&'a ResourceName>, most: usize) -> Pending<'a, History> {
        self.inner.history(of, most)
    }

    fn listen(&self) -> Pending<'_, (Arc<dyn Subscriptions>, Signals)> {
        self.inner.listen()
    }

    fn lost_nothing(&self, within: Duration) -> Pending<'_, bool> {
        self.inner.lost_nothing(within)
    }

    fn safety(&self) -> Pending<'_, Vec<Warning>> {
        self.inner.safety()
    }
}

// Short words.

fn job() -> ResourceName {
    ResourceName::new("job").expect("a valid name")
}

async fn call(store: &LateStore, lease: LeaseId, call: Call) -> Said {
    let request = Request {
        lease,
        seq: Seq(1),
        asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
        limit: PATIENCE,
        judged_by: None,
        call,
    };
    let answer = tokio::time::timeout(PATIENCE, Store::call(&**store, &request)).await;
    let Answer { said, .. } = answer.expect("in time").expect("an answer");
    said
}

async fn open(store: &LateStore, number: u128) -> LeaseId {
    let lease = LeaseId(number);
    let label = Label::new("worker").expect("a valid label");
    let said = call(store, lease, Call::Open { ttl: TTL, label, metadata: Metadata::default() }).await;
    assert_eq!(said, Said::Opened);
    lease
}

fn want(name: &str) -> Want {
    Want { resource: ResourceName::new(name).expect("a valid name"), tickets: Tickets::ONE, priority: 0 }
}

async fn claim(store: &LateStore, lease: LeaseId) -> Claimed {
    match call(store, lease, Call::Claim(vec![want("job")])).await {
        Said::Claimed(claimed) => claimed[0],
        said => panic!("a claim was answered {said:?}"),
    }
}

async fn release(store: &LateStore, lease: LeaseId) -> Released {
    let leave = Leave { resource: job(), how: Leaving::Released };
    match call(store, lease, Call::Release(vec![leave])).await {
        Said::Released(released) => released[0],
        said => panic!("a release was answered {said:?}"),
    }
}

/// Claims, and gives the claim up while its commit is under way.
async fn give_up_a_claim(store: &LateStore, lease: LeaseId) {
    store.backend().hold(Held::Commits);
    tokio::select! {
        claimed = claim(store, lease) => panic!("the commit was held back, but the claim was answered {claimed:?}"),
        () = store.backend().reached() => {}
    }
    store.backend().hold(Held::Nothing);
}

async fn view(store: &LateStore) -> Option<ResourceView> {
    Store::read(&**store, Some(&job())).await.expect("an answer").pop()
}

fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("a claim that should be granted was answered {claimed:?}"),
    }
}

fn waiting(claimed: Claimed) {
    assert!(matches!(claimed, Claimed::Waiting(_)), "{claimed:?}");
}
