//! Hand-overs: who is woken, how soon, and what that costs.

use super::*;
use std::time::Instant;
use tenure::store::{Closing, Hints, Released};
use tenure_core::HistoryEvent;

/// Far below the ttl of a minute after which a waiter would look by itself.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn hinted(hints: &mut Hints) -> tenure_core::Hint {
    tokio::time::timeout(AT_ONCE, hints.recv()).await.expect("at once").expect("a hint")
}

/// One that owns "job", and one in another process that waits for it and listens.
struct Pair {
    server: Redis,
    stores: [RedisStore; 2],
    owner: LeaseId,
    next: LeaseId,
    hints: Hints,
}

impl Pair {
    async fn new() -> Self {
        let server = fresh(Options::new());
        let stores =
            [open(&server.url()).await.expect("a store"), open(&server.url()).await.expect("a store")];
        let owner = opened_as(&stores[0], "owner", Duration::from_secs(60)).await;
        let next = opened_as(&stores[1], "next", Duration::from_secs(60)).await;
        let hints = stores[1].hints(next).await.expect("a subscription");
        assert!(matches!(claimed(&stores[0], owner, "job").await, Claimed::Granted(_)));
        assert!(matches!(claimed(&stores[1], next, "job").await, Claimed::Waiting(_)));
        Self { server, stores, owner, next, hints }
    }
}

#[tokio::test]
async fn a_release_wakes_the_head_at_once_and_leaves_what_it_should() {
    let Pair { server: _server, stores, owner, next, mut hints } = Pair::new().await;
    let before = stores[0].read(Some(&name("job"))).await.expect("a view")[0].owners[0].grant;

    let released = said(&stores[0], owner, releasing(&["job"], Leaving::Released)).await;
    assert_eq!(released, Said::Released(vec![Released::Free]));
    let hint = hinted(&mut hints).await;
    assert_eq!((hint.lease, hint.resource, hint.after), (next, name("job"), Duration::ZERO));
    let Claimed::Granted(grant) = claimed(&stores[1], next, "job").await else { panic!("not granted") };

    assert_eq!((grant.ticket, grant.term.0), (before.ticket, before.term.0 + 1));
    assert!(grant.token > before.token, "{grant:?} after {before:?}");
    let view = stores[0].read(Some(&name("job"))).await.expect("a view").swap_remove(0);
    assert_eq!((view.tickets, view.owners.len(), view.waiters.len()), (1, 1, 0));
    assert_eq!((view.owners[0].worker.as_str(), view.owners[0].grant), ("next", grant));
    assert!(
        matches!(said(&stores[1], next, Call::Held).await, Said::Held(held) if held[0].token == grant.token)
    );
    assert_eq!(said(&stores[0], owner, Call::Held).await, Said::Held(vec![]));
    let past = stores[0].history(Some(&name("job"))).await.expect("entries");
    let past: Vec<_> = past.iter().map(|entry| (entry.what, entry.worker.as_str(), entry.grant)).collect();
    assert_eq!(
        past,
        [
            (HistoryEvent::Granted, "owner", before),
            (HistoryEvent::Released, "owner", before),
            (HistoryEvent::Granted, "next", grant),
        ]
    );

    // The same once more: what was given is given again, and a ticket that has another owner is not freed.
    assert_eq!(claimed(&stores[1], next, "job").await, Claimed::Granted(grant));
    said(&stores[0], owner, releasing(&["job"], Leaving::Released)).await;
    assert_eq!(claimed(&stores[1], next, "job").await, Claimed::Granted(grant));
}

/// The record comes with the hint: a release is one request, and so is the claim that follows. (Two, if somebody has joined
/// the queue since the owner looked last.)
#[tokio::test]
async fn a_hand_over_is_two_requests() {
    let Pair { server, stores, owner, next, mut hints } = Pair::new().await;
    // What is looked after in the background has to be over.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(matches!(claimed(&stores[0], owner, "job").await, Claimed::Granted(_)));
    let before = scripts_run(&server);

    said(&stores[0], owner, releasing(&["job"], Leaving::Released)).await;
    let released = scripts_run(&server);
    hinted(&mut hints).await;
    assert!(matches!(claimed(&stores[1], next, "job").await, Claimed::Granted(_)));

    assert_eq!((released - before, scripts_run(&server) - released), (1, 1));
}

fn scripts_run(server: &Redis) -> u64 {
    let text = server.command(&["INFO", "commandstats"]).text();
    let calls = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test]
async fn an_owner_that_steps_down_or_leaves_wakes_the_head_at_once() {
    for call in [releasing(&["job"], Leaving::SteppedDown), Call::Close(Closing::Left)] {
        let Pair { server: _server, stores, owner, next, mut hints } = Pair::new().await;

        said(&stores[0], owner, call).await;

        assert_eq!(hinted(&mut hints).await.resource, name("job"));
        assert!(matches!(claimed(&stores[1], next, "job").await, Claimed::Granted(_)));
    }
}

/// Whoever closes a lease need not know what it owned: those who wait have followed it.
#[tokio::test]
async fn the_end_of_a_lease_wakes_the_head_whoever_ends_it() {
    let Pair { server, stores, owner, next, mut hints } = Pair::new().await;
    let stranger = open(&server.url()).await.expect("a store");
    // It follows the owner a moment after it was told to wait.
    testkit::eventually(
        PATIENCE,
        "the waiter follows the owner",
        || matches!(server.command(&["PUBSUB", "CHANNELS", "{tenure}:t_*"]), Reply::List(all) if all.len() == 2),
    );

    assert_eq!(said(&stranger, owner, Call::Close(Closing::Proved)).await, Said::Closed);

    assert_eq!(hinted(&mut hints).await.resource, name("job"));
    assert!(matches!(claimed(&stores[1], next, "job").await, Claimed::Granted(_)));
}

/// A head that does not listen does not hold up the others: the hint goes on to the next at once.
#[tokio::test]
async fn where_the_head_does_not_listen_the_next_is_woken() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, deaf, next] = [opened(&store).await, opened(&store).await, opened(&store).await];
    let mut hints = store.hints(next).await.expect("a subscription");
    for lease in [owner, deaf, next] {
        claimed(&store, lease, "job").await;
    }

    said(&store, owner, releasing(&["job"], Leaving::Released)).await;

    let hint = hinted(&mut hints).await;
    assert_eq!((hint.resource, hint.after), (name("job"), Duration::ZERO));
}

/// Nor does a second one: the first may hang, and then the third is to look one step later.
#[tokio::test]
async fn where_the_second_does_not_listen_the_third_looks_a_step_later() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, head, deaf] = [opened(&store).await, opened(&store).await, opened(&store).await];
    let third = opened(&store).await;
    let mut hints = store.hints(third).await.expect("a subscription");
    let _heard = store.hints(head).await.expect("a subscription");
    for lease in [owner, head, deaf, third] {
        claimed(&store, lease, "job").await;
    }

    said(&store, owner, releasing(&["job"], Leaving::Released)).await;

    let hint = hinted(&mut hints).await;
    assert_eq!(hint.resource, name("job"));
    assert!(hint.after >= Duration::from_millis(100), "{hint:?}");
}

/// The first lease of a namespace asks for hints before there is anything: it hears them all the same.
#[tokio::test]
async fn whoever_asks_for_hints_before_the_namespace_exists_hears_them() {
    let server = Options::new().start();
    let [store, other] =
        [open(&server.url()).await.expect("a store"), open(&server.url()).await.expect("a store")];
    let ttl = Duration::from_secs(2);
    let next = LeaseId(u128::from_le_bytes(random()));
    let mut hints = store.hints(next).await.expect("a subscription");
    assert_eq!(server.command(&["EXISTS", "{tenure}:meta"]), Reply::Number(0), "only an opening knows a ttl");
    assert_eq!(said(&store, next, opening(Duration::from_secs(60))).await, Said::Opened);
    vouch_for(&server);
    let owner = opened_as(&other, "owner", ttl).await;
    assert!(matches!(claimed(&other, owner, "job").await, Claimed::Granted(_)));
    claimed(&store, next, "job").await;

    said(&other, owner, releasing(&["job"], Leaving::Released)).await;

    assert_eq!(hinted(&mut hints).await.resource, name("job"));
}

/// Forty processes that come at once: one owns, and each has its turn as soon as the one before has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_come_at_once_each_has_its_turn() {
    const MANY: usize = 40;
    let server = fresh(Options::new());
    let mut workers = tokio::task::JoinSet::new();
    let (inside, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    for _ in 0..MANY {
        let (url, inside, most) = (server.url(), inside.clone(), most.clone());
        workers.spawn(async move {
            let store = open(&url).await.expect("a store");
            let lease = opened(&store).await;
            let mut hints = store.hints(lease).await.expect("a subscription");
            let token = loop {
                match claimed(&store, lease, "job").await {
                    Claimed::Granted(grant) => break grant.token,
                    Claimed::Waiting(waiting) => {
                        let _hint = tokio::time::timeout(waiting.look_again, hints.recv()).await;
                    }
                }
            };
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            said(&store, lease, releasing(&["job"], Leaving::Released)).await;
            token
        });
    }

    let mut tokens = Vec::new();
    while let Some(token) = workers.join_next().await {
        tokens.push(token.expect("no panic"));
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!((tokens.len(), most.load(Ordering::SeqCst)), (MANY, 1));
    // Without hints each would wait for a ttl of a minute.
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
}
