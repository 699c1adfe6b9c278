//! Steps of the server's clock, with an owner that cannot be reached at that moment and newcomers that come then.

use super::arena::Arena;
use super::*;
use tenure::types::Clock;
use testkit::proxy::Link;
use testkit::shim::Step;

const TTL: Duration = Duration::from_secs(3);
const LONG_TTL: Duration = Duration::from_secs(6);
const MINUTE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::new().aof("everysec").own_clock()
}

/// Those who watched the clock do not believe the step; a newcomer that is strict watches first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_forward_lets_nobody_in_twice() {
    let mut arena = Arena::empty(options(), TTL);
    arena.renew = TTL / 10;
    arena.begin().await;
    // Everybody has watched for as long as the rules ask.
    arena.pass(250).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.contestants[owner].proxy.set(Link::Hang);
    arena.server.clock().step(Step::Forward(MINUTE));
    // The others renew, so that their own leases are good by the new time. Who then loses its subscription looks at
    // once, while the owner still believes: what it makes of the owner's lease is the point of this.
    arena.pass(20).await;
    let others = arena.contestants.iter().enumerate().filter(|(index, _)| *index != owner);
    others.for_each(|(_, other)| other.proxy.cut());
    arena.join(Clock::Strict).await;

    arena.moves_on_from(token).await;
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.pass(200).await;
    arena.until("one owns at the end", |arena| arena.observer.owners().len() == 1).await;
    arena.assert_survived();
}

/// A lease that is renewed goes by the clock as it is now: nothing is lost, and its end comes neither early nor late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_back_lets_nobody_in_twice() {
    let mut arena = Arena::of_three(options(), TTL).await;
    arena.pass(250).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.server.clock().step(Step::Back(MINUTE));
    arena.join(Clock::Strict).await;
    arena.pass(200).await;
    arena.assert_undisturbed();

    // Renewed since, by the clock as it is now, the lease ends as it should.
    arena.contestants[owner].proxy.set(Link::Hang);
    arena.moves_on_from(token).await;
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.assert_survived();
}

/// An owner that can be reached keeps what it has over a step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_forward_takes_nothing_from_an_owner_that_is_there() {
    let mut arena = Arena::of_three(options(), TTL).await;
    arena.pass(250).await;

    arena.server.clock().step(Step::Forward(MINUTE));
    arena.join(Clock::Strict).await;
    arena.pass(250).await;

    arena.assert_undisturbed();
}

/// The control: a newcomer that takes the clock at its word lets itself in while the owner still believes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credulous_newcomer_believes_a_step() {
    let mut arena = Arena::of_three(options(), LONG_TTL).await;
    let owner = arena.owner().await;

    arena.link_all(Link::Hang);
    arena.server.clock().step(Step::Forward(MINUTE));
    arena.join(Clock::Sane).await;
    arena.until("the newcomer owns", |arena| arena.observer.begun() > 1).await;

    assert!(arena.contestants[owner].is_owner() && arena.observer.most() == 2, "{:?}", arena.observer);
}

// ---- a step back: nothing is blocked for longer than one ttl, however far it goes --------------------------------

const STEPS_BACK: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(15 * 60)];
const SHORT_TTL: Duration = Duration::from_secs(2);

/// Renews and claims like a waiter, with what its own clock vouches for; says how long it took.
async fn granted_after(store: &RedisStore, lease: LeaseId, judged_by: Option<StoreTime>) -> Duration {
    let begun = std::time::Instant::now();
    loop {
        let renewed = said(store, lease, Call::Renew).await;
        assert!(matches!(renewed, Said::Kept { .. }), "{renewed:?}");
        let claim = Request { judged_by, ..request(lease, claiming("job")) };
        let claim = Request { asked_at: tenure::guard::now(), ..claim };
        match store.call(&claim).await.expect("an answer").said {
            Said::Claimed(claimed) => match claimed[0] {
                Claimed::Granted(_) => return begun.elapsed(),
                Claimed::Waiting(waiting) => {
                    assert!(waiting.look_again <= SHORT_TTL * 2, "{waiting:?}");
                    assert!(begun.elapsed() < PATIENCE, "{waiting:?}");
                }
            },
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(SHORT_TTL / 10).await;
    }
}

/// The owner is dead, and the clock goes back: the head waits for one ttl from when it looks, whether it knew the owner
/// before the step or comes after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_owner_blocks_its_ticket_for_one_ttl_after_a_step_back() {
    for step in STEPS_BACK {
        for knows_the_owner in [true, false] {
            let server = fresh(Options::new().own_clock());
            let dead = open(&server.url()).await.expect("a store");
            let owner = opened_as(&dead, "owner", SHORT_TTL).await;
            assert!(matches!(claimed(&dead, owner, "job").await, Claimed::Granted(_)));
            let store = open(&server.url()).await.expect("a store");
            let next = opened_as(&store, "next", SHORT_TTL).await;
            if knows_the_owner {
                assert!(matches!(claimed(&store, next, "job").await, Claimed::Waiting(_)));
            }

            server.clock().step(Step::Back(step));
            let waited = granted_after(&store, next, None).await;

            assert!(waited < SHORT_TTL * 2, "{waited:?} after a step of {step:?}, {knows_the_owner}");
            assert!(waited > SHORT_TTL / 2, "{waited:?}: the owner may have renewed just before the step");
        }
    }
}

/// The same as a worker does it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_takes_over_from_a_dead_owner_within_a_ttl_after_a_step_back() {
    for step in STEPS_BACK {
        let mut arena = Arena::of_three(options(), TTL).await;
        arena.pass(150).await;
        let (owner, token) = (arena.owner().await, arena.observer.newest_token());

        arena.contestants[owner].proxy.set(Link::Hang);
        arena.server.clock().step(Step::Back(step));
        let begun = std::time::Instant::now();
        arena.join(Clock::Sane).await;
        arena.moves_on_from(token).await;

        // One ttl from when the waiters look, which they do within a ttl.
        assert!(begun.elapsed() < TTL * 5 / 2, "{:?} after a step of {step:?}", begun.elapsed());
        arena.contestants[owner].proxy.set(Link::Pass);
        arena.assert_survived();
    }
}

/// A quarantine that has begun lasts for one longest ttl, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_lasts_for_one_ttl_after_a_step_back() {
    for step in STEPS_BACK {
        for knows_of_it in [true, false] {
            let mut server = fresh(Options::new().aof("always").own_clock());
            let before = open(&server.url()).await.expect("a store");
            opened_as(&before, "before", SHORT_TTL).await;
            server.kill();
            server.start();
            // Whoever comes first begins it.
            let first = open(&server.url()).await.expect("a store");
            let mut next = opened_as(&first, "next", SHORT_TTL).await;
            let quarantined = claimed(&first, next, "job").await;
            assert!(
                matches!(quarantined, Claimed::Waiting(look) if look.why == tenure_core::WaitReason::Quarantine)
            );
            let mut store = first;

            server.clock().step(Step::Back(step));
            if !knows_of_it {
                store = open(&server.url()).await.expect("a store");
                next = opened_as(&store, "newcomer", SHORT_TTL).await;
            }
            let waited = granted_after(&store, next, None).await;

            assert!(waited < SHORT_TTL * 2, "{waited:?} after a step of {step:?}, {knows_of_it}");
            assert!(waited > SHORT_TTL / 2, "{waited:?}: owners of before may still believe");
        }
    }
}
