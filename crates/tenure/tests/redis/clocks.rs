//! Steps of the server's clock, with an owner that cannot be reached at that moment and newcomers that come then.

use super::arena::Arena;
use super::*;
use tenure::Clock;
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
