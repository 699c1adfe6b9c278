//! Steps of the server's clock, with an owner that cannot be reached at that moment and newcomers that come then.

use super::arena::Arena;
use super::*;
use tenure::Clock;
use testkit::proxy::Link;
use testkit::shim::Step;

const TTL: Duration = Duration::from_millis(1_500);
const LONG_TTL: Duration = Duration::from_secs(6);
const MINUTE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::new().aof("everysec").own_clock()
}

/// Those who watched the clock do not believe the step; a newcomer that is strict watches first.
async fn a_step_lets_nobody_in_twice(step: Step) {
    let mut arena = Arena::of_three(options(), TTL).await;
    // Everybody has watched for as long as the rules ask.
    arena.pass(250).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.contestants[owner].proxy.set(Link::Hang);
    arena.server.clock().step(step);
    arena.join(Clock::Strict).await;

    arena.moves_on_from(token).await;
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.pass(200).await;
    arena.until("one owns at the end", |arena| arena.observer.owners().len() == 1).await;
    arena.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_forward_lets_nobody_in_twice() {
    a_step_lets_nobody_in_twice(Step::Forward(MINUTE)).await;
}

/// The lease of the dead owner seems to last for a minute more. Nobody is let in before, which is safe; after it the
/// ownership returns, so the test goes on by stepping forward again.
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
    let mut arena = Arena::of_three(options(), TTL * 2).await;
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
