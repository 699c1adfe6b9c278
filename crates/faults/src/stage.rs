//! A store and a fleet on it, and rounds: what a plan says is done, one thing after the other, and then everything has to be
//! owned again.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use tenure::admin::{Admin, HistoryEvent};
use testkit::Micros;
use testkit::boottime;
use testkit::proxy::Link;

use crate::Failure;
use crate::fault::{Act, Blow, Deed, Fault, Plan, Setting, Target};
use crate::fleet::{Cast, Fleet, Owner, Role};
use crate::ground::Ground;
use crate::judge::{Auditor, Granted, Ticket, Window};
use crate::list::Entry;
use crate::part::{self, Order, Ruling};

/// How long everything may take to be owned again. Nothing should ever come near it.
const LIMIT: Duration = Duration::from_secs(60);
/// What a hand-over may take beyond the lease.
const EXCESS: Duration = Duration::from_millis(50);
/// What a dead waiter at the head of a queue costs.
const STEP: Duration = Duration::from_millis(100);
/// How long it takes for all to see another rule.
const SETTLES: Duration = Duration::from_millis(40);

/// Whom a mark is about if not a worker.
pub(crate) const STORE: &str = "store";

pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
    tools: Admin,
    runtime: tokio::runtime::Runtime,
    auditor: Auditor,
    round: u64,
    crowded: Vec<String>,
    // After those who use it.
    pub(crate) ground: Ground,
}

/// What was done to whom, and from when to when.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// A worker, or the store.
    pub(crate) whom: String,
    pub(crate) what: String,
    pub(crate) from: Micros,
    pub(crate) to: Micros,
}

/// One round, as it was played.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) fault: Fault,
    pub(crate) seed: u64,
    pub(crate) blows: u32,
    pub(crate) window: Window,
    pub(crate) marks: Vec<Mark>,
    /// Entries that were lost.
    pub(crate) lost: Vec<String>,
    /// Resources that still had more owners than tickets when the round gave them more again.
    pub(crate) crowded: Vec<String>,
}

/// Who was struck, and how.
struct Struck {
    slot: usize,
    label: String,
    blow: Blow,
    from: Micros,
}

impl Stage {
    pub(crate) fn set(ground: Ground, cast: Cast) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tools = runtime.block_on(Admin::open_named(&ground.url(None), &cast.namespace))?;
        let fleet = Fleet::start(&ground, cast)?;
        let (auditor, crowded) = (Auditor::default(), Vec::new());
        Ok(Self { fleet, tools, runtime, auditor, round: 0, crowded, ground })
    }

    pub(crate) fn setting(&self) -> Setting<'_> {
        let Cast { ttl, tickets, run, .. } = &self.fleet.cast;
        Setting { kind: self.ground.kind(), ttl: *ttl, tickets, run }
    }

    /// Waits until every ticket is owned.
    pub(crate) fn until_full(&mut self) -> Result<(), Failure> {
        let (began, all) = (Instant::now(), self.fleet.all_tickets());
        loop {
            self.fleet.fill_up(&self.ground)?;
            let owners: BTreeSet<_> = self.fleet.owners().into_keys().collect();
            if owners == all {
                return Ok(());
            }
            if began.elapsed() > LIMIT {
                let free: Vec<_> = all.difference(&owners).collect();
                let said = self.fleet.said_by_all();
                return Err(format!("owned by nobody for {LIMIT:?}: {free:?}; they said:\n{said}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Plays one round of a fault, as its seed has it.
    pub(crate) fn play(&mut self, fault: Fault, seed: u64) -> Result<Round, Failure> {
        let plan = Plan::of(fault, seed, &self.setting());
        self.until_full()?;
        self.round += 1;
        self.fleet.rule(Ruling { round: self.round, checks_tokens: fault.pauses() })?;
        std::thread::sleep(SETTLES);
        let from = boottime();
        self.crowded.clear();
        let (mut marks, healed) = self.act(&plan, fault)?;
        self.wait_out(fault, from);
        self.until_full()?;
        for target in plan.afterwards {
            if let Some(owner) = self.victim(target, Blow::StepDown, fault, &BTreeSet::new()) {
                self.strike(&owner, Blow::StepDown)?;
            }
        }
        std::thread::sleep(SETTLES);
        self.until_full()?;
        let to = boottime();
        marks.iter_mut().filter(|mark| mark.to == 0).for_each(|mark| mark.to = to);
        let lost = self.audit()?;
        let window =
            Window { from, to, healed, bound: self.bound(fault, &plan), free: self.may_be_free(fault) };
        let crowded = std::mem::take(&mut self.crowded);
        Ok(Round { fault, seed, blows: plan.blows(), window, marks, lost, crowded })
    }

    /// Does what the plan says, when it says so.
    fn act(&mut self, plan: &Plan, fault: Fault) -> Result<(Vec<Mark>, Option<Micros>), Failure> {
        let (began, mut marks, mut healed) = (Instant::now(), Vec::new(), None);
        let mut struck: HashMap<usize, Struck> = HashMap::new();
        for (at, act) in &plan.acts {
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            let from = boottime();
            match *act {
                Act::Strike(number, target, blow) => {
                    let busy: BTreeSet<usize> = struck.values().map(|struck| struck.slot).collect();
                    let Some(owner) = self.victim(target, blow, fault, &busy) else { continue };
                    let label = self.fleet.label(owner.slot).to_owned();
                    self.strike(&owner, blow)?;
                    match blow {
                        Blow::Stop | Blow::StandStill | Blow::Link(_) | Blow::Block(_) => {
                            struck.insert(number, Struck { slot: owner.slot, label, blow, from });
                        }
                        _ => marks.push(Mark { whom: label, what: told(blow), from, to: boottime() }),
                    }
                }
                Act::Heal(number) => {
                    let Some(struck) = struck.remove(&number) else { continue };
                    self.heal(&struck);
                    let Struck { label, blow, from, .. } = struck;
                    marks.push(Mark { whom: label, what: told(blow), from, to: boottime() });
                }
                Act::Store(deed) => {
                    self.deed(deed)?;
                    if is_the_end(deed) {
                        healed = Some(boottime());
                        let of_store = |mark: &&mut Mark| mark.whom == STORE && mark.to == 0;
                        marks.iter_mut().filter(of_store).for_each(|mark: &mut Mark| mark.to = boottime());
                    } else {
                        // Until it is undone, or the round is over.
                        let to = if lasts(deed) { 0 } else { boottime() };
                        marks.push(Mark { whom: STORE.into(), what: format!("{deed:?}"), from, to });
                        if matches!(deed, Deed::Forget | Deed::Empty) {
                            healed = Some(boottime());
                        }
                    }
                }
                Act::Newcomer => {
                    let (slot, label) = self.least()?;
                    self.fleet.kill(slot, &self.ground, false)?;
                    marks.push(Mark { whom: label, what: "newcomer".into(), from, to: boottime() });
                }
            }
        }
        Ok((marks, healed))
    }

    /// Who is struck: the owner of the target, or of the next ticket whose owner can be.
    fn victim(&self, target: Target, blow: Blow, fault: Fault, busy: &BTreeSet<usize>) -> Option<Owner> {
        let owners = self.fleet.owners();
        let fits = |owner: &&Owner| {
            let role = self.fleet.role(owner.slot);
            let by_role = match blow {
                Blow::Block(_) => role == Role::Library { beacon: fault == Fault::Beacon },
                Blow::StandStill | Blow::Leap(_) | Blow::StepDown => role.is_library(),
                Blow::Kill | Blow::Stop | Blow::Link(_) | Blow::Ask | Blow::Leave => true,
            };
            by_role && !busy.contains(&owner.slot)
        };
        let at = (target.resource, target.ticket);
        owners.range(at..).chain(owners.range(..at)).map(|(_, owner)| owner).find(fits).cloned()
    }

    fn strike(&mut self, owner: &Owner, blow: Blow) -> Result<(), Failure> {
        let slot = owner.slot;
        match blow {
            Blow::Kill => drop(self.fleet.kill(slot, &self.ground, false)?),
            Blow::Stop | Blow::StandStill => self.fleet.stop(slot),
            Blow::Block(span) => self.fleet.order(slot, Order::Block(u64::try_from(span.as_millis())?))?,
            Blow::Link(link) => self.fleet.set_link(slot, link),
            Blow::Leap(span) => self.fleet.clock(slot).suspend(span),
            Blow::StepDown => self.fleet.order(slot, Order::StepDown(owner.target.resource))?,
            Blow::Ask => {
                let name = part::name(owner.target.resource);
                // It may have given it up meanwhile; and where the store is slow, nothing is asked.
                let _told = self.runtime.block_on(self.tools.ask(&name, owner.token, None));
            }
            Blow::Leave => self.fleet.leave(slot, &self.ground)?,
        }
        Ok(())
    }

    fn heal(&self, struck: &Struck) {
        // Another may have come in its place meanwhile, and what was done to that one is not undone.
        if self.fleet.label(struck.slot) != struck.label {
            return self.fleet.set_link(struck.slot, Link::Pass);
        }
        match struck.blow {
            Blow::Stop => self.fleet.go_on(struck.slot),
            Blow::StandStill => {
                let span = Duration::from_micros(boottime() - struck.from);
                self.fleet.clock(struck.slot).stand_still(span);
                self.fleet.go_on(struck.slot);
            }
            Blow::Link(_) => self.fleet.set_link(struck.slot, Link::Pass),
            Blow::Kill | Blow::Block(_) | Blow::Leap(_) | Blow::StepDown | Blow::Ask | Blow::Leave => {}
        }
    }

    fn deed(&mut self, deed: Deed) -> Result<(), Failure> {
        let namespace = self.fleet.cast.namespace.clone();
        match deed {
            Deed::Kill => self.ground.kill(),
            Deed::Start => self.ground.start(),
            Deed::Pause => self.ground.pause()?,
            Deed::Resume => self.ground.resume()?,
            Deed::Forget => self.ground.forget(&namespace)?,
            Deed::Empty => self.ground.empty(&namespace)?,
            Deed::RemoveCode => self.ground.remove_code(&namespace),
            Deed::RestoreCode => self.ground.restore_code(),
            Deed::Clock(step) => self.ground.step_clock(step),
            Deed::FillDisk => self.ground.fill_disk(),
            Deed::FreeDisk => self.ground.free_disk(),
            Deed::Links(link) => (0..self.fleet.len()).for_each(|slot| self.fleet.set_link(slot, link)),
            Deed::Tickets(k) => {
                self.count_owners();
                let (slot, _) = self.least()?;
                self.fleet.change_tickets(slot, &self.ground, k)?;
            }
        }
        Ok(())
    }

    /// Whether every resource has come down to the tickets that it has by now, as the store says.
    fn count_owners(&mut self) {
        // A store that does not answer here is not what this is about.
        let views = self.runtime.block_on(self.tools.read_all()).unwrap_or_default();
        for view in views.iter().filter(|view| view.owners.len() > view.tickets as usize) {
            let (name, owners, tickets) = (&view.resource, view.owners.len(), view.tickets);
            self.crowded.push(format!("{name} has {owners} owners and {tickets} tickets"));
        }
    }

    /// The worker through the library that owns least.
    fn least(&self) -> Result<(usize, String), Failure> {
        let owners = self.fleet.owners();
        let count = |slot: &usize| owners.values().filter(|owner| owner.slot == *slot).count();
        let library = (0..self.fleet.len()).filter(|slot| self.fleet.role(*slot).is_library());
        let slot = library.min_by_key(count).ok_or("a fleet without workers")?;
        Ok((slot, self.fleet.label(slot).to_owned()))
    }

    /// Steps of a clock have to lie two leases apart.
    fn wait_out(&self, fault: Fault, from: Micros) {
        if matches!(fault, Fault::ClockForward | Fault::ClockBack) {
            let elapsed = Duration::from_micros(boottime() - from);
            std::thread::sleep((self.fleet.cast.ttl * 3).saturating_sub(elapsed));
        }
    }

    /// How long a ticket may have no owner: what L2 promises, and what it leaves to others to promise.
    fn bound(&self, fault: Fault, plan: &Plan) -> Duration {
        let ttl = self.fleet.cast.ttl;
        // Everybody who goes away may have been first in a queue.
        let goes = |act: &&(Duration, Act)| match act.1 {
            Act::Strike(..) | Act::Newcomer => true,
            Act::Heal(_) | Act::Store(_) => false,
        };
        let steps = STEP * u32::try_from(plan.acts.iter().filter(goes).count()).unwrap_or(0);
        match fault {
            // A quarantine of one lease, after which those who were told that theirs is gone come back.
            Fault::StoreBlip
            | Fault::StoreDown
            | Fault::StorePause
            | Fault::DataLoss
            | Fault::DiskFull
            | Fault::Code => ttl * 2 + EXCESS + steps,
            // The slowest answer that counted.
            Fault::Delay => ttl * 2 + EXCESS + steps,
            // A judgement that is held back.
            Fault::ClockForward | Fault::ClockBack => ttl * 2 + EXCESS + steps,
            // About two round trips, unless who is told first does not come.
            Fault::StepDown => EXCESS + STEP * 2,
            _ => ttl + EXCESS + steps,
        }
    }

    fn may_be_free(&self, fault: Fault) -> BTreeSet<(u32, u32)> {
        let all = self.fleet.all_tickets();
        let several = |(resource, _): &(u32, u32)| self.fleet.cast.tickets[*resource as usize] > 1;
        if fault == Fault::Tickets { all.into_iter().filter(several).collect() } else { BTreeSet::new() }
    }

    /// Looks for all entries that were acknowledged.
    fn audit(&mut self) -> Result<Vec<String>, Failure> {
        self.fleet.rule(Ruling { round: self.round + 1, checks_tokens: false })?;
        std::thread::sleep(SETTLES);
        let written = self.fleet.written()?;
        let mut settled = self.fleet.lists(self.round - 1)?;
        merge(&mut settled, self.fleet.lists(self.round)?);
        let mut lists = settled.clone();
        merge(&mut lists, self.fleet.lists(self.round + 1)?);
        if self.round > 2 {
            self.fleet.remove_lists(self.round - 2);
        }
        Ok(self.auditor.missing(&written, &lists, &settled))
    }

    /// All grants that the store's history knows, in order.
    pub(crate) fn grants(&self) -> Result<Vec<Granted>, Failure> {
        let entries = self.runtime.block_on(self.tools.history_of_all())?;
        let granted = entries.into_iter().filter(|entry| entry.what == HistoryEvent::Granted);
        let of = |entry: tenure::store::Entry| {
            let resource = part::number(entry.resource.as_str())?;
            Some(Granted { resource, term: entry.grant.term.0, token: entry.grant.token.0 })
        };
        Ok(granted.filter_map(of).collect())
    }

    pub(crate) fn url(&self) -> String {
        self.ground.url(None)
    }
}

/// Puts the entries of some lists behind those of others.
pub(crate) fn merge(lists: &mut HashMap<Ticket, Vec<Entry>>, more: HashMap<Ticket, Vec<Entry>>) {
    for (at, entries) in more {
        lists.entry(at).or_default().extend(entries);
    }
}

/// Whether this undoes what was done to the store.
fn is_the_end(deed: Deed) -> bool {
    matches!(
        deed,
        Deed::Start
            | Deed::Resume
            | Deed::RestoreCode
            | Deed::FreeDisk
            | Deed::Links(Link::Pass)
            | Deed::Tickets(3)
    )
}

/// Whether it lasts until it is undone.
fn lasts(deed: Deed) -> bool {
    !matches!(deed, Deed::Forget | Deed::Empty | Deed::Clock(_))
}

fn told(blow: Blow) -> String {
    match blow {
        Blow::Kill => "kill -9".into(),
        Blow::Stop => "SIGSTOP".into(),
        Blow::Block(_) => "blocked".into(),
        Blow::Link(link) => format!("link: {link:?}"),
        Blow::StandStill => "suspended".into(),
        Blow::Leap(_) => "BOOTTIME leaps".into(),
        Blow::StepDown => "step down".into(),
        Blow::Ask => "asked".into(),
        Blow::Leave => "leaves".into(),
    }
}
