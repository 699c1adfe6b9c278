//! Workers in processes of their own, while the server is killed or the link to the owners hangs. What each of them
//! wrote down is judged afterwards, together with the history of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::admin::{Admin, HistoryEvent};
use tenure::store::PostgresStore;
use testkit::TempDir;
use testkit::book::{self, Line};
use testkit::child::Child;
use testkit::judge::{Fault, Findings, Granted, Rules, books, check};
use testkit::metronome::Lateness;
use testkit::part::Part;
use testkit::postgres::{Options, Postgres};
use testkit::proxy::{Link, Proxy};

use super::fixture::{contact, end_quarantine};
use crate::competitor;

const TTL: Duration = Duration::from_secs(1);
/// How soon there are owners again; most of it is for a machine that is busy with other tests.
const RECOVERS: Duration = Duration::from_secs(30);

/// Processes that compete: the first, who own, over a link that goes bad, the others over a good one.
struct Fleet {
    workers: BTreeMap<String, Child>,
    part: Part,
    tools: Admin,
    link: Proxy,
    server: Postgres,
    folder: TempDir,
}

impl Fleet {
    async fn of(role: &str, tickets: u32) -> Self {
        Self::with_ttl(role, tickets, TTL).await
    }

    /// As many own as there are tickets, and as many wait.
    async fn with_ttl(role: &str, tickets: u32, ttl: Duration) -> Self {
        let (server, folder) = (Options::new().start(), testkit::folder());
        let link = Proxy::to(server.port());
        let tools = Admin::open(&server.url()).await.expect("a store");
        let namespace = tenure::store::Namespace::default();
        contact(&PostgresStore::open(&server.url(), &namespace).await.expect("a store")).await;
        end_quarantine(&server, namespace.as_str());
        let part = Part { tickets, ..Part::new(role, &server.url(), folder.path(), "", ttl) };
        let mut fleet = Self { workers: BTreeMap::new(), part, tools, link, server, folder };
        let (bad, good) = (fleet.server.url_at(fleet.link.port()), fleet.server.url());
        (0..tickets).for_each(|_| fleet.joins(&bad));
        fleet.owners_above(0).await;
        (0..tickets).for_each(|_| fleet.joins(&good));
        fleet
    }

    fn joins(&mut self, url: &str) {
        let name = format!("w{}", self.workers.len());
        let part = Part { url: url.to_owned(), name: name.clone(), ..self.part.clone() };
        let process = Child::start(competitor::command(&part));
        assert_eq!(process.hears(), "competes");
        self.workers.insert(name, process);
    }

    /// Waits until every ticket is owned, by a worker that has begun, under a token above this; the newest of them.
    async fn owners_above(&self, token: u64) -> u64 {
        let until = tokio::time::Instant::now() + RECOVERS;
        loop {
            let view = self.tools.read("job").await.ok().flatten();
            let owners = view.map(|view| view.owners).unwrap_or_default();
            let begun = owners.iter().filter(|owner| {
                let own = owner.grant.token.0;
                let begins = |line: &Line| matches!(line, Line::Begin { token, .. } if *token == own);
                own > token && book::read(self.folder.path(), owner.worker.as_str()).iter().any(begins)
            });
            if begun.count() == self.part.tickets as usize {
                return owners.iter().map(|owner| owner.grant.token.0).max().unwrap_or_default();
            }
            assert!(tokio::time::Instant::now() < until, "not every ticket is owned within {RECOVERS:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The link of the owners hangs until others own, and for a while after.
    async fn survives_a_hanging_link(&self) {
        let before = self.owners_above(0).await;
        self.link.set(Link::Hang);
        self.owners_above(before).await;
        tokio::time::sleep(TTL / 2).await;
        self.link.set(Link::Pass);
        tokio::time::sleep(TTL).await;
    }

    /// Ends them all, and has their books checked against the store's.
    async fn judged(mut self) -> Result<Findings, Vec<Fault>> {
        let names: BTreeSet<String> = std::mem::take(&mut self.workers).into_keys().collect();
        let entries = self.tools.history("job").await.expect("an answer");
        let granted = entries.into_iter().filter(|entry| entry.what == HistoryEvent::Granted);
        let grants = granted.map(|entry| Granted {
            worker: entry.worker.as_str().to_owned(),
            ticket: entry.grant.ticket.0,
            term: entry.grant.term.0,
            token: entry.grant.token.0,
        });
        let books = books(self.folder.path(), names.iter().map(String::as_str));
        let (tickets, grants) = (self.part.tickets, grants.collect());
        // How long it takes is what `owners_above` looks at.
        let rules = Rules { tickets, grants, ended: names, within: RECOVERS * 10, late: Lateness::default() };
        check(&books, &rules)
    }
}

#[track_caller]
fn in_order(judged: Result<Findings, Vec<Fault>>, least: usize) {
    let findings = judged.unwrap_or_else(|faults| panic!("{faults:#?}"));
    assert!(findings.intervals >= least, "only {} ownerships", findings.intervals);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_of_one_process_that_hangs() {
    let fleet = Fleet::of("worker", 1).await;
    fleet.survives_a_hanging_link().await;
    in_order(fleet.judged().await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_of_three_processes_that_hangs() {
    let fleet = Fleet::of("worker", 3).await;
    fleet.survives_a_hanging_link().await;
    in_order(fleet.judged().await, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_processes_that_do_not_ask_whether_they_hold_are_caught() {
    let fleet = Fleet::of("broken worker", 3).await;
    fleet.survives_a_hanging_link().await;

    let faults = fleet.judged().await.expect_err("more own than may");
    assert!(faults.iter().any(|fault| matches!(fault, Fault::SameTicket(..))), "{faults:#?}");
    assert!(faults.iter().any(|fault| matches!(fault, Fault::Crowd(..))), "{faults:#?}");
}

/// The server is killed, and back after so long: the first own until then, and others or they themselves afterwards.
async fn restarted(tickets: u32, ttl: Duration, down: Duration) {
    let mut fleet = Fleet::with_ttl("worker", tickets, ttl).await;
    let before = fleet.owners_above(0).await;

    fleet.server.kill();
    tokio::time::sleep(down).await;
    fleet.server.start();
    fleet.owners_above(if down > ttl { before } else { 0 }).await;
    tokio::time::sleep(ttl).await;
    fleet.owners_above(0).await;

    in_order(fleet.judged().await, if down > ttl { 2 } else { 1 } * tickets as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_one_process_that_is_killed_and_back_within_the_lease() {
    restarted(1, TTL * 6, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_three_processes_that_is_killed_and_back_after_the_lease() {
    restarted(3, TTL, TTL * 2).await;
}
