//! The test bed of `tenure run`: real process trees on SQLite, Redis and PostgreSQL, with a ttl of 2 s. One of main, guard and
//! command is killed, stopped, crashed or hung, again and again; each time
//!
//! - no two commands are alive at any moment, with all that they started: the next one wins a lock that every process of
//!   the one before held, and all of them write down on one clock when they lived;
//! - nothing of the one before is left;
//! - the next one starts in time: 100 ms after `kill -9` of main or command, otherwise within what was left of the lease plus
//!   50 ms.
//!
//! `TENURE_BED_ROUNDS=20 cargo test -p tenure-cli --test bed -- --nocapture` runs it at length and shows the figures;
//! `TENURE_BED_ONLY='kill -9 of main'` only some of it.
//!
//! On an overloaded machine, a start that is late by up to a second is forgiven if tasks waited for a processor that long. A
//! round that fails while the machine stalled for longer than half the margin is inconclusive, and is played again; after a
//! few of them it is a failure.
#![cfg(target_os = "linux")]

mod arena;
mod fault;
mod round;
mod tree;

use std::time::Duration;

use self::arena::Arena;
use self::fault::{Burial, Fault, Held, Victim, inflict};
use self::round::{Scores, contest};

/// How often each is done to each; more at length.
const ROUNDS: usize = 2;

fn rounds() -> usize {
    std::env::var("TENURE_BED_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

// req: O12 E8
#[test]
fn sqlite_survives_whatever_happens_to_one_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    survive("sqlite", &format!("sqlite:{}/tenure.db", folder.path().display()));
}

// req: O12 E8
#[test]
fn redis_survives_whatever_happens_to_one_of_them() {
    let server = testkit::redis::Options::new().start();
    survive("redis", &server.url());
}

// req: O12 E8
#[test]
fn postgres_survives_whatever_happens_to_one_of_them() {
    let server = testkit::postgres::Options::new().start();
    survive("postgres", &server.url());
}

/// Those after which somebody waits for the end of a lease run side by side; those that are a matter of milliseconds one
/// after the other, so that they measure `tenure` and not each other.
fn survive(store: &str, url: &str) {
    let all = || Victim::ALL.into_iter().flat_map(|victim| Fault::ALL.map(|fault| (victim, fault)));
    let only = std::env::var("TENURE_BED_ONLY").unwrap_or_default();
    let wanted = |(victim, fault): &(Victim, Fault)| format!("{fault} of {victim}").contains(&only);
    let (quick, slow): (Vec<_>, Vec<_>) = all().filter(wanted).partition(|(_, fault)| fault.is_deadly());
    let mut scores: Vec<Scores> = std::thread::scope(|scope| {
        let slow: Vec<_> = slow
            .into_iter()
            .map(|(victim, fault)| {
                scope.spawn(move || contest(&mut Arena::new(url, victim, fault), rounds()))
            })
            .collect();
        let quick = quick
            .into_iter()
            .map(|(victim, fault)| contest(&mut Arena::new(url, victim, fault), rounds()))
            .collect::<Vec<_>>();
        let slow = slow.into_iter().map(|contest| contest.join().expect("a contest"));
        quick.into_iter().chain(slow).collect()
    });
    scores.sort_by_key(Scores::name);
    let failed: Vec<String> = scores.iter().flat_map(Scores::failures).collect();
    for score in &scores {
        println!("{store:<9}{score}");
    }
    assert!(failed.is_empty(), "{store}: {}", failed.join("\n"));
}

/// The planted bug: the lock proves the death of main, and nobody ends what main had started.
#[test]
fn a_lock_that_proves_a_death_without_the_guard_is_found_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}/tenure.db", folder.path().display());
    let mut arena = Arena::new(&url, Victim::Main, Fault::Kill).with_planted("no-guard");

    let scores = contest(&mut arena, 3);

    let found: Vec<String> = scores.failures().collect();
    assert!(found.iter().any(|why| why.contains("were alive at once")), "{scores}: {found:?}");
}

/// It is reported, and as long as it is there nobody else begins although main is dead: the lease is not closed, and on SQLite
/// its lock is held.
#[test]
fn what_sigkill_does_not_end_is_reported_and_its_lease_is_not_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}/tenure.db", folder.path().display());
    let mut arena = Arena::new(&url, Victim::Main, Fault::Kill).with_ttl("60s");
    let owner = arena.set_up(0).expect("an owner");
    let held = Held::hold(owner.command, Burial::WhenLetGo);

    let done = inflict(Fault::Kill, owner.main);
    let will_not_die = "of its processes cannot be killed; the lease is not closed";
    arena.until("a report", || arena.said().contains(will_not_die).then_some(())).expect("a report");
    assert!(arena.lives(owner.term).is_empty(), "nobody else begins");
    held.let_go();
    done.undo();

    let next = || arena.lives(owner.term).into_iter().find(|life| life.part == "root");
    let next = arena.until("the next command", next).expect("the next command");
    assert!(!next.overlaps);
}

/// Nothing here should ever take so long.
const LIMIT: Duration = Duration::from_secs(30);
