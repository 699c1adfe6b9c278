//! Workers in processes of their own, each over a link of its own. What they wrote down is judged afterwards.

use std::process::Stdio;
use std::time::Duration;

use testkit::TempDir;
use testkit::judge::{Fault, Interval, books, intervals, overlaps};
use testkit::part::Part;
use testkit::process::Process;
use testkit::proxy::{Link, Proxy};
use testkit::redis::{Options, Redis};

use super::{fresh, vouch_for};
use crate::competitor;

/// For faults that outlast it.
const TTL: Duration = Duration::from_millis(1_500);
/// For faults that must not outlast it, also on a machine that is busy with other things.
const LONG_TTL: Duration = Duration::from_secs(8);
/// Longer than any fault and what follows it.
const AT_LAST: Duration = Duration::from_secs(60);

struct Fleet {
    server: Redis,
    part: Part,
    links: Vec<Proxy>,
    // Before the folder with their books.
    processes: Vec<Process>,
    folder: TempDir,
}

impl Fleet {
    /// As many workers as there are tickets, and two more. All tickets are owned.
    fn of(tickets: u32, role: &str, ttl: Duration) -> Self {
        let folder = testkit::folder();
        let server = fresh(Options::new().aof("everysec"));
        let part = Part { tickets, ..Part::new(role, "", folder.path(), "", ttl) };
        let mut fleet = Self { server, part, links: vec![], processes: vec![], folder };
        for _ in 0..tickets + 2 {
            fleet.join();
        }
        fleet.until_full();
        fleet
    }

    fn join(&mut self) {
        let link = Proxy::to(self.server.port());
        let (url, name) = (format!("redis://127.0.0.1:{}", link.port()), name(self.links.len()));
        let mut command = competitor::command(&Part { url, name, ..self.part.clone() });
        command.stdout(Stdio::null());
        self.processes.push(Process::start(command, "this program"));
        self.links.push(link);
    }

    /// What was written so far, in the order of the beginnings.
    fn owned(&self) -> Vec<Interval> {
        let names: Vec<String> = (0..self.links.len()).map(name).collect();
        intervals(&books(self.folder.path(), names.iter().map(String::as_str)))
    }

    /// Those that have been written of within the last moments.
    fn present(&self) -> Vec<Interval> {
        let since = testkit::boottime() - 100_000;
        self.owned().into_iter().filter(|own| own.last >= since).collect()
    }

    /// The link of somebody who owns now.
    fn owner(&self) -> usize {
        let present = self.present();
        (0..self.links.len()).find(|worker| name(*worker) == present[0].worker).expect("one of ours")
    }

    fn newest_token(&self) -> u64 {
        self.owned().iter().map(|own| own.token).max().unwrap_or(0)
    }

    fn until(&self, what: &str, mut happened: impl FnMut(&Self) -> bool) {
        testkit::eventually(AT_LAST, what, || happened(self));
    }

    fn until_full(&self) {
        self.until("all tickets are owned", |fleet| fleet.present().len() == fleet.part.tickets as usize);
    }

    /// Waits until somebody owns under a larger token than this, and all tickets are owned.
    fn until_it_moves_on_from(&self, token: u64) {
        self.until("the ownership moves on", |fleet| fleet.newest_token() > token);
        self.until_full();
    }

    fn faults(&self) -> Vec<Fault> {
        overlaps(&self.owned(), self.part.tickets)
    }

    fn pass(&self, percent: u32) {
        std::thread::sleep(self.part.ttl * percent / 100);
    }
}

fn name(worker: usize) -> String {
    format!("w{worker}")
}

/// The link of one owner hangs for longer than its lease.
fn an_owners_link_hangs(fleet: &mut Fleet) {
    let (owner, token) = (fleet.owner(), fleet.newest_token());
    fleet.links[owner].set(Link::Hang);
    fleet.join();
    fleet.until_it_moves_on_from(token);
    fleet.links[owner].set(Link::Pass);
    fleet.pass(100);
    fleet.until_full();
}

#[test]
fn processes_whose_owner_hangs_never_own_more_than_one_ticket() {
    let mut fleet = Fleet::of(1, "worker", TTL);
    an_owners_link_hangs(&mut fleet);
    assert_eq!(fleet.faults(), Vec::<Fault>::new());
}

#[test]
fn processes_of_which_an_owner_hangs_never_own_more_than_three_tickets() {
    let mut fleet = Fleet::of(3, "worker", TTL);
    an_owners_link_hangs(&mut fleet);
    assert_eq!(fleet.faults(), Vec::<Fault>::new());
}

/// The control: an owner that does not ask whether it holds is caught.
#[test]
fn a_process_that_goes_on_while_its_link_hangs_is_caught() {
    let fleet = Fleet::of(1, "broken worker", TTL);
    let (owner, token) = (fleet.owner(), fleet.newest_token());
    fleet.links[owner].set(Link::Hang);
    fleet.until("another owns, too", |fleet| fleet.newest_token() > token && fleet.present().len() > 1);

    let faults = fleet.faults();
    assert!(faults.iter().any(|fault| matches!(fault, Fault::SameTicket(..))), "{faults:?}");
    assert!(faults.iter().any(|fault| matches!(fault, Fault::Crowd(..))), "{faults:?}");
}

/// The server is away for longer than a lease, and comes back with its data.
#[test]
fn processes_survive_a_server_that_is_killed_and_restarted_beyond_the_ttl() {
    let mut fleet = Fleet::of(3, "worker", TTL);
    let token = fleet.newest_token();

    fleet.server.kill();
    fleet.join();
    fleet.pass(200);
    assert_eq!(fleet.present(), vec![], "nobody believes without an answer");
    fleet.server.start();

    fleet.until_it_moves_on_from(token);
    assert_eq!(fleet.faults(), Vec::<Fault>::new());
}

/// And for a moment, in which nothing is lost.
#[test]
fn processes_go_on_when_a_server_is_killed_and_restarted_within_the_ttl() {
    let mut fleet = Fleet::of(3, "worker", LONG_TTL);
    let token = fleet.newest_token();

    fleet.server.kill();
    fleet.server.start();
    fleet.join();
    fleet.pass(120);

    fleet.until_full();
    assert_eq!((fleet.faults(), fleet.newest_token()), (Vec::<Fault>::new(), token));
}

/// It comes back without its data, and one of the owners cannot be reached: nothing is granted until all have stopped.
#[test]
fn processes_survive_a_server_that_comes_back_without_its_data() {
    let mut fleet = Fleet::of(3, "worker", LONG_TTL);
    let (owner, token) = (fleet.owner(), fleet.newest_token());

    fleet.links[owner].set(Link::Hang);
    fleet.server.kill();
    fleet.server.wipe();
    fleet.server.start();
    fleet.join();

    fleet.until_it_moves_on_from(token);
    fleet.links[owner].set(Link::Pass);
    assert_eq!(fleet.faults(), Vec::<Fault>::new());
}

/// The control of the restarts: were it no new life, and without a quarantine, others would own beside the one that
/// cannot be reached.
#[test]
fn processes_are_let_in_twice_by_a_server_that_vouches_for_itself_falsely() {
    let mut fleet = Fleet::of(1, "worker", LONG_TTL);
    let (owner, token) = (fleet.owner(), fleet.newest_token());

    fleet.links.iter().for_each(|link| link.set(Link::Refuse));
    fleet.server.kill();
    fleet.server.wipe();
    fleet.server.start();
    vouch_for(&fleet.server);
    fleet.join();
    fleet.until("the newcomer owns", |fleet| fleet.newest_token() > token);

    // The first one says so again at its next check.
    let twice = |fault: &Fault| matches!(fault, Fault::SameTicket(before, _) if before.worker == name(owner));
    fleet.until("both have said that they own", |fleet| fleet.faults().iter().any(twice));
}
