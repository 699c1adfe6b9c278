//! Faults of links and servers, with newcomers among the workers: never two owners at once, as seen from outside;
//! tokens rise; the ownership returns when the fault ends.

use super::arena::{AT_LAST, Arena, JOB};
use super::*;
use tenure::types::Clock;
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
async fn the_owner_is_cut_off(tickets: u32, link: Link) {
    let mut arena = Arena::of(tickets, durable(), TTL).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.contestants[owner].proxy.set(link);
    arena.join(Clock::Sane).await;
    arena.moves_on_from(token).await;
    assert!(!arena.contestants[owner].is_owner());
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.pass(100).await;

    arena.until("all is owned at the end", Arena::is_full).await;
    arena.assert_survived();
}

/// One test per line, each with its tickets and what else it takes.
macro_rules! cases {
    ($run:ident: $($case:ident: $($with:expr),+;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $run($($with),+).await;
            }
        )+
    };
}

cases! { the_owner_is_cut_off:
    an_owner_whose_link_is_refused_stops_first: 1, Link::Refuse;
    an_owner_whose_replies_vanish_stops_first: 1, Link::DropReplies;
    an_owner_whose_requests_vanish_stops_first: 1, Link::DropRequests;
    an_owner_whose_link_hangs_stops_first: 1, Link::Hang;
    one_of_three_owners_whose_link_hangs_stops_first: 3, Link::Hang;
    an_owner_whose_link_is_half_open_stops_first: 1, Link::HalfOpen;
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

/// Does this a few times within a lease, lets one more join, and waits for longer than a lease.
async fn disturb(arena: &mut Arena, mut disturbance: impl FnMut(&Arena)) {
    for _ in 0..5 {
        disturbance(arena);
        arena.pass(8).await;
    }
    arena.join(Clock::Sane).await;
    arena.pass(100).await;
}

fn cut_all(arena: &Arena) {
    arena.contestants.iter().for_each(|contestant| contestant.proxy.cut());
}

/// Links that break and come back at once cost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_cut_again_and_again_cost_nothing() {
    let mut arena = Arena::of_three(durable(), LONG_TTL).await;

    disturb(&mut arena, cut_all).await;

    arena.assert_undisturbed();
}

/// The control: where they are cut all the time it does cost, and that is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_cut_and_do_not_come_back_cost_the_ownership() {
    let mut arena = Arena::of_three(durable(), TTL).await;

    arena.link_all(Link::Refuse);
    arena.pass(120).await;
    arena.link_all(Link::Pass);
    disturb(&mut arena, |_| {}).await;

    assert!(!arena.is_undisturbed(), "{:?}", arena.observer);
    arena.observer.assert_exclusive(1);
}

fn forget_and_kill(arena: &Arena) {
    for words in [
        &["SCRIPT", "FLUSH"][..],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
        &["SCRIPT", "FLUSH"],
    ] {
        arena.server.command(words);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_forgotten_and_clients_killed_under_load_cost_nothing() {
    let mut arena = Arena::of(3, durable(), LONG_TTL).await;

    disturb(&mut arena, forget_and_kill).await;
    arena.assert_undisturbed();

    // And the hints are heard again: the next owner does not wait for its next look, which is seconds away.
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());
    let begun = std::time::Instant::now();
    arena.contestants[owner].worker.shutdown().await;
    arena.moves_on_from(token).await;
    assert!(begun.elapsed() < LONG_TTL / 2, "{:?}", begun.elapsed());
    arena.observer.assert_exclusive(3);
}

/// The control: a server that takes no scripts any more is like one that is away, and that is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_refused_cost_the_ownership() {
    let mut arena = Arena::empty(durable(), TTL);
    arena.server.command(&["ACL", "SETUSER", "limited", "on", ">pass", "~*", "&*", "+@all"]);
    arena.credentials = "limited:pass@".to_owned();
    arena.begin().await;

    // They may run the scripts that the server has, and send it none.
    arena.server.command(&["ACL", "SETUSER", "limited", "-eval"]);
    forget_and_kill(&arena);
    arena.pass(120).await;
    arena.server.command(&["ACL", "SETUSER", "limited", "+eval"]);
    disturb(&mut arena, |_| {}).await;

    assert!(!arena.is_undisturbed(), "{:?}", arena.observer);
    arena.observer.assert_exclusive(1);
}

/// The control: hints that go nowhere are missed. Without a subscription the next one comes with its next look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_subscription_the_next_owner_is_late() {
    let mut arena = Arena::empty(durable(), LONG_TTL * 2);
    arena.server.command(&["ACL", "SETUSER", "deaf", "on", ">pass", "~*", "&*", "+@all", "-subscribe"]);
    arena.credentials = "deaf:pass@".to_owned();
    arena.begin().await;
    arena.until("the others wait", |arena| queued(&arena.server, JOB) == 2).await;
    // They have queued in the quarantine, and look once more when it is over: after that not for a ttl.
    arena.pass(25).await;

    let (owner, token) = (arena.owner().await, arena.observer.newest_token());
    let begun = std::time::Instant::now();
    arena.contestants[owner].worker.shutdown().await;
    arena.moves_on_from(token).await;

    assert!(begun.elapsed() > LONG_TTL / 2, "{:?}", begun.elapsed());
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
async fn stopped_beyond_the_ttl(tickets: u32) {
    let mut arena = Arena::of(tickets, durable(), TTL).await;
    let token = arena.observer.newest_token();

    arena.server.process().pause();
    arena.pass(250).await;
    assert_eq!(arena.observer.owners(), Vec::<String>::new(), "nobody believes without an answer");
    arena.server.process().resume();
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

cases! { stopped_beyond_the_ttl:
    a_server_that_stops_beyond_the_ttl_lets_nobody_in_twice: 1;
    a_server_with_three_owners_that_stops_beyond_the_ttl_lets_nobody_in_twice: 3;
}

/// With its file, a quick restart is another life in which what is owned is confirmed.
async fn restarted_within_the_ttl(tickets: u32) {
    let mut arena = Arena::of(tickets, durable(), LONG_TTL).await;

    arena.server.kill();
    arena.server.start();
    arena.join(Clock::Sane).await;
    arena.pass(120).await;

    arena.assert_undisturbed();
}

cases! { restarted_within_the_ttl:
    a_server_that_is_killed_and_restarted_within_the_ttl_loses_nothing: 1;
    a_server_with_three_owners_that_is_restarted_within_the_ttl_loses_nothing: 3;
}

async fn restarted_beyond_the_ttl(tickets: u32) {
    let mut arena = Arena::of(tickets, durable(), TTL).await;
    let token = arena.observer.newest_token();

    arena.server.kill();
    arena.pass(200).await;
    assert_eq!(arena.observer.owners(), Vec::<String>::new(), "nobody believes without an answer");
    arena.server.start();
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.assert_survived();
}

cases! { restarted_beyond_the_ttl:
    a_server_that_is_restarted_beyond_the_ttl_lets_nobody_in_twice: 1;
    a_server_with_three_owners_that_is_restarted_beyond_the_ttl_lets_nobody_in_twice: 3;
}

/// Without its data the server knows nobody: nothing is granted until every owner of before has stopped.
async fn restarted_without_data(tickets: u32) {
    // Long, so that the owner still believes when the server is back.
    let mut arena = Arena::of(tickets, Options::new(), LONG_TTL).await;
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

cases! { restarted_without_data:
    a_server_that_comes_back_without_its_data_lets_nobody_in_twice: 1;
    a_server_with_three_owners_that_comes_back_without_its_data_lets_nobody_in_twice: 3;
}

async fn emptied_under_load(tickets: u32) {
    let mut arena = Arena::of(tickets, durable(), TTL).await;
    let (owner, token) = (arena.owner().await, arena.observer.newest_token());

    arena.contestants[owner].proxy.set(Link::Hang);
    arena.server.command(&["FLUSHALL"]);
    arena.join(Clock::Sane).await;

    arena.moves_on_from(token).await;
    arena.contestants[owner].proxy.set(Link::Pass);
    arena.assert_survived();
}

cases! { emptied_under_load:
    a_server_that_is_emptied_under_load_lets_nobody_in_twice: 1;
    a_server_with_three_owners_that_is_emptied_under_load_lets_nobody_in_twice: 3;
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
    arena.until("the first one waits again", |arena| queued(&arena.server, JOB) > 0).await;
    arena.contestants[other].worker.shutdown().await;
    arena.moves_on_from(token).await;
    arena.assert_survived();
}
