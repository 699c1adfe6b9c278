//! Twenty workers, and rounds of blows: the owner is killed, stopped beyond its lease, told to leave; a waiter is
//! killed. Afterwards the books of all of them are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tenure::admin::{Admin, HistoryEvent, OwnerView};
use testkit::book::{self, Line};
use testkit::child::Child;
use testkit::dice::Dice;
use testkit::judge::{Fault, Findings, Granted, Rules, STEPS, books, check};
use testkit::metronome::{Lateness, Metronome};
use testkit::part::Part;
use testkit::{TempDir, boottime};

use super::await_some;
use super::child::start;
use super::worker::CLEANUP;

const WORKERS: usize = 20;
/// Short, because a worker that is stopped is waited for as long.
const TTL: Duration = Duration::from_secs(1);
/// After a grant the next one in the queue looks one step later (100 ms), and from then on watches the owner. An owner
/// that dies before that is found out by that look.
const SETTLED: Duration = Duration::from_millis(200);
/// What is promised beyond the remaining lease, and what twenty processes on two cores add.
const EXCESS: Duration = Duration::from_millis(50 + 950);
/// Set it to repeat the blows of a failure; their exact times are the machine's.
const SEED: &str = "TENURE_TEST_SEED";

/// One fleet at a time: two would measure each other.
static ARENA: Mutex<()> = Mutex::new(());

// req: O1 O8 O12 O13 T1 T6 E8
#[test]
fn through_200_rounds_of_blows_to_20_workers_there_is_never_more_than_one_owner_and_soon_one_again() {
    let _alone = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fleet = Fleet::new("worker", 1, WORKERS);

    let metronome = Metronome::start();
    let blows = fleet.survives(200);
    let late = metronome.stop();
    let findings = fleet.judged(&late).unwrap_or_else(|faults| panic!("{faults:#?}"));

    assert!(findings.intervals > 150, "only {} ownerships", findings.intervals);
    report(&findings, &blows, &late);
}

// req: O2 O12 H16
#[test]
fn through_60_rounds_with_three_tickets_there_are_never_more_than_three_and_no_ticket_is_owned_twice() {
    let _alone = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fleet = Fleet::new("worker", 3, WORKERS);

    let metronome = Metronome::start();
    let blows = fleet.survives(60);
    let late = metronome.stop();
    let findings = fleet.judged(&late).unwrap_or_else(|faults| panic!("{faults:#?}"));

    assert!(findings.intervals > 45, "only {} ownerships", findings.intervals);
    report(&findings, &blows, &late);
}

#[test]
fn workers_that_do_not_ask_whether_they_hold_are_caught() {
    let _alone = ARENA.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fleet = Fleet::new("broken worker", 1, 3);
    let owner = fleet.owner(0, 0);

    fleet.strike(Blow::Stop, &owner, 0);
    // The one that was stopped writes on, as if nothing had happened, while another owns.
    let lines = book::read(fleet.folder.path(), owner.worker.as_str()).len();
    await_some("more of the first owner", || {
        (book::read(fleet.folder.path(), owner.worker.as_str()).len() > lines + 10).then_some(())
    });

    let faults = fleet.judged(&Lateness::default()).expect_err("two own at once");
    let first = |fault: &Fault| matches!(fault, Fault::SameTicket(before, _) if before.worker == owner.worker.as_str());
    assert!(faults.iter().any(first), "{faults:#?}");
}

/// What is done to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    /// `kill -9` to the owner, which has just begun.
    Kill,
    /// `kill -9` to the owner, once the one behind it knows that it is the next.
    KillLater,
    /// The same, and to another one with it.
    KillTwo,
    /// `kill -9` to one who waits.
    KillWaiter,
    /// SIGSTOP to the owner until another owns, then SIGCONT.
    Stop,
    /// SIGTERM to the owner: it leaves as an application does.
    Leave,
}

/// Workers on one file, and what was done to them.
struct Fleet {
    part: Part,
    workers: BTreeMap<String, Child>,
    started: u32,
    crew: usize,
    ended: BTreeSet<String>,
    tools: Admin,
    runtime: tokio::runtime::Runtime,
    seed: TellSeed,
    // Last, so that it goes when the processes have gone.
    folder: TempDir,
}

impl Fleet {
    fn new(role: &str, tickets: u32, crew: usize) -> Self {
        let folder = testkit::folder();
        let part = Part { tickets, ..Part::in_folder(role, folder.path(), "", TTL) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tools = runtime.block_on(Admin::open(&part.url)).expect("the store opens");
        let seed = std::env::var(SEED).ok().map_or_else(boottime, |seed| seed.parse().expect("a seed"));
        let (workers, ended, seed) = (BTreeMap::new(), BTreeSet::new(), TellSeed(seed));
        let mut fleet = Self { part, workers, started: 0, crew, ended, tools, runtime, seed, folder };
        fleet.fill_up();
        fleet
    }

    fn fill_up(&mut self) {
        while self.workers.len() < self.crew {
            self.started += 1;
            let part = Part { name: format!("w{:03}", self.started), ..self.part.clone() };
            let process = start(&part);
            self.workers.insert(part.name, process);
        }
    }

    /// So many rounds; says which ownership ended by what.
    fn survives(&mut self, rounds: u32) -> BTreeMap<u64, Blow> {
        let mut dice = Dice::new(self.seed.0);
        let mut blows = BTreeMap::new();
        for _ in 0..rounds {
            let ticket = u32::try_from(dice.below(u64::from(self.part.tickets))).expect("few");
            let owner = self.owner(ticket, 0);
            let blow = match dice.below(100) {
                0..50 => Blow::Kill,
                50..70 => Blow::KillLater,
                70..77 => Blow::KillTwo,
                77..86 => Blow::KillWaiter,
                86..93 => Blow::Stop,
                _ => Blow::Leave,
            };
            // Most blows fall in the first moments of an ownership, or between two looks of it.
            let pause = if blow == Blow::KillLater { SETTLED } else { Duration::ZERO };
            std::thread::sleep(pause + Duration::from_micros(dice.below(3000)));
            self.strike(blow, &owner, dice.below(1000));
            blows.insert(owner.grant.token.0, blow);
            self.fill_up();
        }
        // Every ticket is owned again in the end, or this never returns.
        (0..self.part.tickets).for_each(|ticket| drop(self.owner(ticket, 0)));
        blows
    }

    /// Does it, and waits until the ticket is owned again.
    fn strike(&mut self, blow: Blow, owner: &OwnerView, chance: u64) {
        let (name, grant) = (owner.worker.as_str(), owner.grant);
        let owners: BTreeSet<String> =
            self.owners().into_iter().map(|owner| owner.worker.as_str().to_owned()).collect();
        let others = self.workers.keys().filter(|name| !owners.contains(*name));
        let others: Vec<String> = others.cloned().collect();
        let other = others[usize::try_from(chance).expect("small") % others.len()].clone();
        match blow {
            Blow::KillWaiter => return self.kill(&other),
            Blow::Kill | Blow::KillLater => self.kill(name),
            Blow::KillTwo => {
                self.kill(name);
                self.kill(&other);
            }
            Blow::Stop => self.workers[name].stop(),
            Blow::Leave => {
                self.workers[name].signal(Signal::TERM);
                self.ended.insert(name.to_owned());
            }
        }
        let _next = self.owner(grant.ticket.0, grant.token.0);
        match blow {
            Blow::Stop => self.workers[name].signal(Signal::CONT),
            Blow::Leave => {
                let status = self.workers.remove(name).expect("one of ours").ends();
                assert!(status.success(), "{name} left with {status}");
            }
            Blow::Kill | Blow::KillLater | Blow::KillTwo | Blow::KillWaiter => {}
        }
    }

    fn kill(&mut self, name: &str) {
        self.workers.remove(name).expect("one of ours").kill();
        self.ended.insert(name.to_owned());
    }

    /// Who owns the ticket under a larger token than this, and has begun.
    fn owner(&self, ticket: u32, above: u64) -> OwnerView {
        await_some("an owner", || {
            let owners = self.owners().into_iter();
            let mut owners =
                owners.filter(|owner| owner.grant.ticket.0 == ticket && owner.grant.token.0 > above);
            owners.find(|owner| {
                let began =
                    |line: &Line| matches!(line, Line::Begin { token, .. } if *token == owner.grant.token.0);
                let name = owner.worker.as_str();
                self.workers.contains_key(name) && book::read(self.folder.path(), name).iter().any(began)
            })
        })
    }

    fn owners(&self) -> Vec<OwnerView> {
        // Where the machine stood still for a while there was no answer in time; the next look has one.
        let view = self.runtime.block_on(self.tools.read("job")).unwrap_or_default();
        view.map(|view| view.owners).unwrap_or_default()
    }

    /// Ends them all, and has their books checked against the store's.
    fn judged(&mut self, late: &Lateness) -> Result<Findings, Vec<Fault>> {
        self.ended.extend(std::mem::take(&mut self.workers).into_keys());
        let entries = self.runtime.block_on(self.tools.history("job")).expect("an answer");
        let granted =
            entries.into_iter().filter(|entry| entry.what == HistoryEvent::Granted).map(|entry| Granted {
                worker: entry.worker.as_str().to_owned(),
                ticket: entry.grant.ticket.0,
                term: entry.grant.term.0,
                token: entry.grant.token.0,
            });
        let names: Vec<String> = (1..=self.started).map(|n| format!("w{n:03}")).collect();
        let books = books(self.folder.path(), names.iter().map(String::as_str));
        let rules = Rules {
            tickets: self.part.tickets,
            grants: granted.collect(),
            ended: self.ended.clone(),
            within: TTL + EXCESS,
            late: late.clone(),
        };
        check(&books, &rules)
    }
}

/// How long tickets were without an owner, by what ended the ownership before. A death that is proved does not
/// wait for the lease.
fn report(findings: &Findings, blows: &BTreeMap<u64, Blow>, late: &Lateness) {
    println!("the machine was late by {:?} (median), {:?} (worst)", late.median(), late.worst());
    let mut by_blow: BTreeMap<Blow, Vec<Duration>> = BTreeMap::new();
    for (token, gap) in &findings.gaps {
        if let Some(blow) = blows.get(token) {
            by_blow.entry(*blow).or_default().push(*gap);
        }
    }
    for (blow, gaps) in &mut by_blow {
        gaps.sort();
        let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!(
            "{blow:?}: {} times, without an owner for {median:?} (median), {longest:?} (longest)",
            gaps.len()
        );
        let limit = match blow {
            // Of a few nothing follows.
            _ if gaps.len() < 5 => continue,
            Blow::KillLater => Duration::from_millis(75),
            Blow::Leave => Duration::from_millis(150) + CLEANUP,
            Blow::Kill => TTL / 4,
            // Where the next in line died with the owner, the lease may have to run out.
            Blow::KillTwo | Blow::KillWaiter | Blow::Stop => continue,
        };
        let limit = limit + late.median() * STEPS;
        assert!(median < limit, "{blow:?} takes {median:?}: something was waited for");
    }
}

/// Says how to repeat it when the test fails.
struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "repeat these blows with {SEED}={} cargo test -p tenure --test processes rounds",
                self.0
            );
        }
    }
}
