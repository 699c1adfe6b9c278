//! Workers in processes of their own, each over a link of its own, and a judge who reads afterwards what they wrote down:
//! for each instant at which a worker found that it holds, a line.

use super::arena::JOB;
use super::*;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;
use tempfile::TempDir;
use tenure::{Lead, Timing, Worker};
use testkit::child::again;
use testkit::process::Process;
use testkit::proxy::{Link, Proxy};

const ROLE: &str = "TENURE_TEST_ROLE";
const URL: &str = "TENURE_TEST_URL";
const BOOK: &str = "TENURE_TEST_BOOK";
const TICKETS: &str = "TENURE_TEST_TICKETS";
const MILLIS: &str = "TENURE_TEST_TTL_MS";
/// For faults that outlast it.
const TTL: Duration = Duration::from_millis(1_500);
/// For faults that must not outlast it, also on a machine that is busy with other things.
const LONG_TTL: Duration = Duration::from_secs(8);
/// How often an owner looks and writes.
const BEAT: Duration = Duration::from_millis(1);
/// Longer than any fault and what follows it.
const AT_LAST: Duration = Duration::from_secs(60);

/// Not a test but the other process; without a role it is over at once.
#[test]
fn a_child_plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = std::env::var(URL).expect("a URL");
        let book = PathBuf::from(std::env::var_os(BOOK).expect("a book"));
        let number = |name| std::env::var(name).expect(name).parse::<u32>().expect("a number");
        let (tickets, ttl) = (number(TICKETS), Duration::from_millis(number(MILLIS).into()));
        let label = book.file_name().expect("a name").to_string_lossy().into_owned();
        let until = Instant::now() + AT_LAST;
        let worker = loop {
            let timing = Timing::new(ttl).expect("a sound timing");
            match Worker::builder(&url).label(&label).timing(timing).connect().await {
                Ok(worker) => break worker,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let honest = role == "honest";
        let start = move |lead| write_down(lead, book.clone(), honest);
        let campaign = worker.campaign(JOB).tickets(tickets);
        let _campaign = campaign.obtain(start, |_| async {}).expect("a campaign");
        std::future::pending::<()>().await;
    });
}

/// While it holds, or, if it is not honest, for ever after it has once held.
async fn write_down(lead: Lead, book: PathBuf, honest: bool) {
    let mut book = OpenOptions::new().append(true).create(true).open(book).expect("a book");
    loop {
        // Read before the check that it stands for: whoever holds after it held at it.
        let at = now();
        if honest && !lead.holds() {
            return;
        }
        let line = format!("{at} {} {}\n", lead.ticket(), lead.token());
        book.write_all(line.as_bytes()).expect("it can be written");
        match honest {
            true => tokio::time::sleep(BEAT).await,
            // Nobody can stop it.
            false => std::thread::sleep(BEAT),
        }
    }
}

/// The host's clock, in microseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).expect("after boot") * 1_000_000
        + u64::try_from(time.tv_nsec / 1000).expect("positive")
}

/// One ownership, as far as its worker wrote of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stint {
    worker: usize,
    ticket: u32,
    token: u64,
    first: u64,
    last: u64,
}

struct Fleet {
    server: Redis,
    tickets: u32,
    ttl: Duration,
    links: Vec<Proxy>,
    // Before the folder with their books.
    processes: Vec<Process>,
    folder: TempDir,
}

impl Fleet {
    /// As many workers as there are tickets, and two more. All tickets are owned.
    fn of(tickets: u32, role: &str, ttl: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = fresh(Options::new().aof("everysec"));
        let mut fleet = Self { server, tickets, ttl, links: vec![], processes: vec![], folder };
        for _ in 0..tickets + 2 {
            fleet.join(role);
        }
        fleet.until_full();
        fleet
    }

    fn join(&mut self, role: &str) {
        let link = Proxy::to(self.server.port());
        let mut command = again(module_path!(), &[]);
        command.env(ROLE, role).env(TICKETS, self.tickets.to_string());
        command.env(MILLIS, self.ttl.as_millis().to_string());
        command.env(URL, format!("redis://127.0.0.1:{}", link.port()));
        command.env(BOOK, self.book(self.links.len())).stdout(Stdio::null());
        self.processes.push(Process::start(command, "this program"));
        self.links.push(link);
    }

    fn book(&self, worker: usize) -> PathBuf {
        self.folder.path().join(format!("worker-{worker}"))
    }

    /// What was written so far, in the order of the beginnings. A line that was not finished says nothing.
    fn stints(&self) -> Vec<Stint> {
        let mut stints: BTreeMap<(usize, u64), Stint> = BTreeMap::new();
        for worker in 0..self.links.len() {
            let text = std::fs::read_to_string(self.book(worker)).unwrap_or_default();
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            for line in whole.lines() {
                let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
                let &[at, ticket, token] = &numbers[..] else { panic!("not a line of a book: {line:?}") };
                let ticket = u32::try_from(ticket).expect("a ticket");
                let new = Stint { worker, ticket, token, first: at, last: at };
                stints.entry((worker, token)).or_insert(new).last = at;
            }
        }
        let mut stints: Vec<Stint> = stints.into_values().collect();
        stints.sort_by_key(|stint| stint.first);
        stints
    }

    /// Those that have been written of within the last moments.
    fn present(&self) -> Vec<Stint> {
        let since = now() - 100_000;
        self.stints().into_iter().filter(|stint| stint.last >= since).collect()
    }

    fn newest_token(&self) -> u64 {
        self.stints().iter().map(|stint| stint.token).max().unwrap_or(0)
    }

    fn until(&self, what: &str, mut happened: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + AT_LAST;
        while !happened(self) {
            assert!(Instant::now() < until, "not within {AT_LAST:?}: {what}; {:?}", self.stints());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn until_full(&self) {
        self.until("all tickets are owned", |fleet| fleet.present().len() == fleet.tickets as usize);
    }

    /// Waits until somebody owns under a larger token than this, and all tickets are owned.
    fn until_it_moves_on_from(&self, token: u64) {
        self.until("the ownership moves on", |fleet| fleet.newest_token() > token);
        self.until_full();
    }

    /// What must not be: more than K at one instant, one ticket twice, a token that does not rise.
    fn faults(&self) -> Vec<String> {
        let (stints, mut faults) = (self.stints(), vec![]);
        for (index, stint) in stints.iter().enumerate() {
            let crowd = stints.iter().filter(|other| (other.first..=other.last).contains(&stint.first));
            if crowd.count() > self.tickets as usize {
                faults.push(format!("too many when {stint:?} began"));
            }
            for before in stints[..index].iter().filter(|before| before.ticket == stint.ticket) {
                if before.last >= stint.first {
                    faults.push(format!("one ticket twice: {before:?} and {stint:?}"));
                }
                if before.token >= stint.token {
                    faults.push(format!("the token does not rise: {before:?} and {stint:?}"));
                }
            }
        }
        faults
    }

    fn pass(&self, percent: u32) {
        std::thread::sleep(self.ttl * percent / 100);
    }
}

/// The link of one owner hangs for longer than its lease.
fn an_owners_link_hangs(fleet: &mut Fleet) {
    let (owner, token) = (fleet.present()[0].worker, fleet.newest_token());
    fleet.links[owner].set(Link::Hang);
    fleet.join("honest");
    fleet.until_it_moves_on_from(token);
    fleet.links[owner].set(Link::Pass);
    fleet.pass(100);
    fleet.until_full();
}

#[test]
fn processes_whose_owner_hangs_never_own_more_than_one_ticket() {
    let mut fleet = Fleet::of(1, "honest", TTL);
    an_owners_link_hangs(&mut fleet);
    assert_eq!(fleet.faults(), Vec::<String>::new());
}

#[test]
fn processes_of_which_an_owner_hangs_never_own_more_than_three_tickets() {
    let mut fleet = Fleet::of(3, "honest", TTL);
    an_owners_link_hangs(&mut fleet);
    assert_eq!(fleet.faults(), Vec::<String>::new());
}

/// The control: an owner that does not ask whether it holds is caught.
#[test]
fn a_process_that_goes_on_while_its_link_hangs_is_caught() {
    let fleet = Fleet::of(1, "dishonest", TTL);
    let (owner, token) = (fleet.present()[0].worker, fleet.newest_token());
    fleet.links[owner].set(Link::Hang);
    fleet.until("another owns, too", |fleet| fleet.newest_token() > token && fleet.present().len() > 1);

    let faults = fleet.faults();
    assert!(faults.iter().any(|fault| fault.contains("one ticket twice")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.contains("too many")), "{faults:?}");
}

/// The server is away for longer than a lease, and comes back with its data.
#[test]
fn processes_survive_a_server_that_is_killed_and_restarted_beyond_the_ttl() {
    let mut fleet = Fleet::of(3, "honest", TTL);
    let token = fleet.newest_token();

    fleet.server.kill();
    fleet.join("honest");
    fleet.pass(200);
    assert_eq!(fleet.present(), vec![], "nobody believes without an answer");
    fleet.server.start();

    fleet.until_it_moves_on_from(token);
    assert_eq!(fleet.faults(), Vec::<String>::new());
}

/// And for a moment, in which nothing is lost.
#[test]
fn processes_go_on_when_a_server_is_killed_and_restarted_within_the_ttl() {
    let mut fleet = Fleet::of(3, "honest", LONG_TTL);
    let token = fleet.newest_token();

    fleet.server.kill();
    fleet.server.start();
    fleet.join("honest");
    fleet.pass(120);

    fleet.until_full();
    assert_eq!((fleet.faults(), fleet.newest_token()), (Vec::<String>::new(), token));
}

/// It comes back without its data, and one of the owners cannot be reached: nothing is granted until all have stopped.
#[test]
fn processes_survive_a_server_that_comes_back_without_its_data() {
    let mut fleet = Fleet::of(3, "honest", LONG_TTL);
    let (owner, token) = (fleet.present()[0].worker, fleet.newest_token());

    fleet.links[owner].set(Link::Hang);
    fleet.server.kill();
    fleet.server.wipe();
    fleet.server.start();
    fleet.join("honest");

    fleet.until_it_moves_on_from(token);
    fleet.links[owner].set(Link::Pass);
    assert_eq!(fleet.faults(), Vec::<String>::new());
}

/// The control of the restarts: were it no new life, and without a quarantine, others would own beside the one that
/// cannot be reached.
#[test]
fn processes_are_let_in_twice_by_a_server_that_vouches_for_itself_falsely() {
    let mut fleet = Fleet::of(1, "honest", LONG_TTL);
    let (owner, token) = (fleet.present()[0].worker, fleet.newest_token());

    fleet.links.iter().for_each(|link| link.set(Link::Refuse));
    fleet.server.kill();
    fleet.server.wipe();
    fleet.server.start();
    vouch_for(&fleet.server);
    fleet.join("honest");
    fleet.until("the newcomer owns", |fleet| fleet.newest_token() > token);

    // The first one says so again at its next check.
    let twice =
        |fault: &String| fault.contains("one ticket twice") && fault.contains(&format!("worker: {owner},"));
    fleet.until("both have said that they own", |fleet| fleet.faults().iter().any(twice));
}
