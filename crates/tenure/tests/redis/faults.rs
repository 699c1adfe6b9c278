//! Faults of links and servers, with newcomers among the workers: never two owners at once, as seen from outside;
//! tokens rise; the ownership returns when the fault ends.

use super::arena::{AT_LAST, Arena, JOB};
use super::*;
use tenure::Clock;
use testkit::proxy::Link;

/// For faults that outlast it.
const TTL: Duration = Duration::from_millis(1_200);
/// For faults that must not cost the ownership, also on a machine that is busy with other things.
const LONG_TTL: Duration = Duration::from_secs(6);

fn durable() -> Options {
    Options::new().aof("everysec")
}

/// The owner's link goes bad for longer than its lease; the others take over once it has stopped, and it comes back as
/// one of them.
async fn the_owner_is_cut_off(link: Link) {
    let mut arena = Arena::of_three(durable(), TTL).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.contestants[owner].proxy.set(link);
    arena.join(Clock::Sane).await;
    arena.moves_on_from(token).await;
    assert!(!arena.contestants[owner].is_owner());
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.pass(100).await;

    arena.until("one owns at the end", |arena| arena.observer.owners().len() == 1).await;
    arena.assert_survived();
}

macro_rules! cut_off {
    ($($case:ident: $link:expr;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                the_owner_is_cut_off($link).await;
            }
        )+
    };
}

cut_off! {
    an_owner_whose_link_is_refused_stops_first: Link::Refuse;
    an_owner_whose_replies_vanish_stops_first: Link::DropReplies;
    an_owner_whose_requests_vanish_stops_first: Link::DropRequests;
    an_owner_whose_link_hangs_stops_first: Link::Hang;
    an_owner_whose_link_is_half_open_stops_first: Link::HalfOpen;
}

/// Every answer is nearly as old as a lease when it comes: none of it may count for more than it is worth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_come_after_nine_tenths_of_a_ttl_let_nobody_in_twice() {
    let mut arena = Arena::of_three(durable(), TTL).await;
    let token = arena.observer.newest_token();

    arena.link_all(Link::Delay { requests: Duration::ZERO, replies: TTL * 9 / 10 });
    arena.join(Clock::Sane).await;
    arena.pass(400).await;
    arena.link_all(Link::Pass);

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

/// Links that break and come back at once cost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_cut_again_and_again_cost_nothing() {
    let mut arena = Arena::of_three(durable(), LONG_TTL).await;

    for _ in 0..5 {
        arena.contestants.iter().for_each(|contestant| contestant.proxy.cut());
        arena.pass(8).await;
    }
    arena.join(Clock::Sane).await;
    arena.pass(100).await;

    arena.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_forgotten_and_clients_killed_under_load_cost_nothing() {
    let mut arena = Arena::of_three(durable(), LONG_TTL).await;

    for words in [
        &["SCRIPT", "FLUSH"][..],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
        &["SCRIPT", "FLUSH"],
    ] {
        arena.server.command(words);
        arena.pass(10).await;
    }
    arena.join(Clock::Sane).await;
    arena.pass(100).await;
    arena.assert_undisturbed();

    // And the hints are heard again: the next owner does not wait for its next look, which is seconds away.
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());
    let begun = std::time::Instant::now();
    arena.contestants[owner].worker.shutdown().await;
    arena.moves_on_from(token).await;
    assert!(begun.elapsed() < LONG_TTL / 2, "{:?}", begun.elapsed());
    arena.observer.assert_exclusive(1);
}

/// A server that is paused for less than the trust costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_for_a_moment_costs_nothing() {
    let arena = Arena::of_three(durable(), LONG_TTL).await;

    arena.server.process().pause();
    arena.pass(20).await;
    arena.server.process().resume();
    arena.pass(100).await;

    arena.assert_undisturbed();
}

/// One that is paused for longer answers with a rush of late requests: none of them revives anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_beyond_the_ttl_lets_nobody_in_twice() {
    let mut arena = Arena::of_three(durable(), TTL).await;
    let token = arena.observer.newest_token();

    arena.server.process().pause();
    arena.pass(250).await;
    assert_eq!(arena.observer.owners(), Vec::<String>::new(), "nobody believes without an answer");
    arena.server.process().resume();
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

/// With its file, a quick restart is another life in which what is owned is confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_restarted_within_the_ttl_loses_nothing() {
    let mut arena = Arena::of_three(durable(), LONG_TTL).await;

    arena.server.kill();
    arena.server.start();
    arena.join(Clock::Sane).await;
    arena.pass(120).await;

    arena.assert_undisturbed();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_beyond_the_ttl_lets_nobody_in_twice() {
    let mut arena = Arena::of_three(durable(), TTL).await;
    let token = arena.observer.newest_token();

    arena.server.kill();
    arena.pass(200).await;
    assert_eq!(arena.observer.owners(), Vec::<String>::new(), "nobody believes without an answer");
    arena.server.start();
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

/// Without its data the server knows nobody: nothing is granted until every owner of before has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_without_its_data_lets_nobody_in_twice() {
    let mut arena = Arena::of_three(Options::new(), TTL).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    // The owner cannot hear of it: only its own clock tells it to stop.
    arena.contestants[owner].proxy.set(Link::Hang);
    arena.server.kill();
    arena.server.wipe();
    arena.server.start();
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_emptied_under_load_lets_nobody_in_twice() {
    let mut arena = Arena::of_three(durable(), TTL).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.contestants[owner].proxy.set(Link::Hang);
    arena.server.command(&["FLUSHALL"]);
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.assert_survived();
}

/// The control of the two above: a server that vouches for itself falsely is believed, and then two own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quarantine_an_emptied_server_lets_another_in() {
    let mut arena = Arena::of_three(durable(), LONG_TTL).await;
    let owner = arena.owner().await;

    arena.link_all(Link::Hang);
    arena.server.command(&["FLUSHALL"]);
    vouch_for(&arena.server);
    arena.join(Clock::Sane).await;
    arena.until("the newcomer owns", |arena| arena.observer.begun() > 1).await;

    assert!(arena.contestants[owner].is_owner() && arena.observer.most() == 2, "{:?}", arena.observer);
}

/// A worker that has a lease in the copy from which the server comes back, and an ownership that is not in it.
async fn fall_back(ttl: Duration) -> Arena {
    let mut arena = Arena::empty(durable(), ttl);
    let owner = arena.enter(Clock::Sane).await;
    let warm_up = arena.contestants[owner].worker.campaign("warm-up").acquire_within(AT_LAST).await;
    warm_up.expect("an ownership").release().await;
    arena.server.keep();
    arena.compete(owner);
    arena.until("it owns", |arena| arena.observer.owners().len() == 1).await;
    arena.link_all(Link::Refuse);
    arena.server.kill();
    arena.server.restore();
    arena.server.start();
    arena
}

/// From an older file the server knows the lease and not the grant: the worker asks what it holds, and stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_back_to_an_older_file_lets_nobody_in_twice() {
    let mut arena = fall_back(TTL).await;
    let token = arena.observer.newest_token();

    arena.link_all(Link::Pass);
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

/// The same while the owner cannot be reached: then only the quarantine keeps others out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_falls_back_behind_the_owners_back_lets_nobody_in_twice() {
    let mut arena = fall_back(LONG_TTL).await;
    let token = arena.observer.newest_token();

    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

/// The control: were it the same life, the newcomer would be let in while the owner still believes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_another_life_an_older_file_lets_another_in() {
    let mut arena = fall_back(LONG_TTL).await;

    vouch_for(&arena.server);
    arena.join(Clock::Sane).await;
    arena.until("the newcomer owns", |arena| arena.observer.begun() > 1).await;

    assert!(arena.contestants[0].is_owner() && arena.observer.most() == 2, "{:?}", arena.observer);
}

/// Rights that are taken away in mid-lease are like silence: the owner stops in time, and comes back with the rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_revoked_in_mid_lease_let_nobody_in_twice() {
    let mut arena = Arena::empty(durable(), TTL);
    arena.server.command(&["ACL", "SETUSER", "limited", "on", ">pass", "~*", "&*", "+@all"]);
    arena.credentials = "limited:pass@".to_owned();
    arena.join(Clock::Sane).await;
    arena.until("it owns", |arena| arena.observer.owners().len() == 1).await;
    let token = arena.observer.newest_token();

    arena.server.command(&["ACL", "SETUSER", "limited", "-evalsha", "-eval"]);
    arena.credentials = String::new();
    let other = arena.join(Clock::Sane).await;
    arena.moves_on_from(token).await;
    assert!(arena.contestants[other].is_owner());

    let token = arena.observer.newest_token();
    arena.server.command(&["ACL", "SETUSER", "limited", "+evalsha", "+eval"]);
    arena
        .until("the first one waits again", |arena| {
            !matches!(arena.server.command(&["ZCARD", "{tenure}:queue"]), testkit::resp::Reply::Number(0))
        })
        .await;
    arena.contestants[other].worker.shutdown().await;
    arena.moves_on_from(token).await;
    arena.assert_survived();
    assert!(arena.server.command(&["HEXISTS", "{tenure}:resources", JOB]).text() == "1");
}
