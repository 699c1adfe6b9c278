//! The worker processes: who they are, what they wrote so far, and what can be done to one of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::process::{Process, stop_between_writes};
use testkit::proxy::{Link, Proxy};
use testkit::shim::Clock;
use testkit::{Micros, boottime};

use crate::Failure;
use crate::book::{self, Kind as About};
use crate::fault::Target;
use crate::ground::Ground;
use crate::judge::{Ticket, Written};
use crate::list::{Entry, List};
use crate::part::{self, Order, Orders, Part, Plant, Rule, Ruling};

/// Who has written within this span owns now, unless it is dead.
const FRESH: Duration = Duration::from_millis(60);
/// What a command has when it is stopped gently.
const GRACE: &str = "300ms";

/// Who competes for what.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) namespace: String,
    pub(crate) ttl: Duration,
    /// The tickets of each resource.
    pub(crate) tickets: Vec<u32>,
    /// How many workers through the library.
    pub(crate) library: usize,
    /// Every so-manieth of them has to beat.
    pub(crate) beacons: usize,
    /// The resources for which `tenure run` competes, too, with as many processes as there are tickets and one more.
    pub(crate) run: Vec<u32>,
    pub(crate) plant: Option<Plant>,
}

/// Processes, and the folder that they share.
#[derive(Debug)]
pub(crate) struct Fleet {
    // The processes go before the folder.
    slots: Vec<Slot>,
    leaving: Vec<Process>,
    pub(crate) cast: Cast,
    clock: Clock,
    rule: Rule,
    started: u32,
    /// What ended although nobody ended it.
    pub(crate) died: Vec<String>,
    scene: TempDir,
}

/// A place in the fleet: a process, and after it the next one.
#[derive(Debug)]
struct Slot {
    role: Role,
    link: Option<Proxy>,
    clock: Clock,
    process: Option<Process>,
    label: String,
    orders: Orders,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Through the library; with a beacon or without.
    Library { beacon: bool },
    /// Through `tenure run`.
    Run { resource: u32 },
}

impl Role {
    pub(crate) fn is_library(self) -> bool {
        matches!(self, Self::Library { .. })
    }
}

/// Who owns a ticket now.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) slot: usize,
    pub(crate) target: Target,
    pub(crate) token: u64,
}

impl Fleet {
    /// Everybody starts.
    pub(crate) fn start(ground: &Ground, cast: Cast) -> Result<Self, Failure> {
        // In memory, if there is such a place: a process that waits for a busy disk is late with everything.
        let shared = Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir());
        let mut folder = tempfile::Builder::new();
        folder.prefix("tenure-faults-");
        let scene = shared.map_or_else(|| folder.tempdir(), |shared| folder.tempdir_in(shared))?;
        fs::create_dir(part::books(scene.path()))?;
        fs::create_dir(part::lists(scene.path()))?;
        let (clock, rule) = (Clock::in_folder(scene.path()), Rule::of(scene.path())?);
        let library =
            (0..cast.library).map(|index| Role::Library { beacon: (index + 1) % cast.beacons == 0 });
        let run = cast.run.iter().flat_map(|resource| {
            let count = cast.tickets[*resource as usize] + 1;
            (0..count).map(|_| Role::Run { resource: *resource })
        });
        let roles: Vec<Role> = library.chain(run).collect();
        let (slots, leaving, died) = (Vec::new(), Vec::new(), Vec::new());
        let mut fleet = Self { slots, leaving, cast, clock, rule, started: 0, died, scene };
        for role in roles {
            let index = fleet.slots.len();
            let (link, clock) = (ground.link(), fleet.clock.another(&format!("clock-{index}")));
            let (label, orders) = (String::new(), Orders::of(fleet.scene.path(), "nobody")?);
            fleet.slots.push(Slot { role, link, clock, process: None, label, orders });
            fleet.launch(index, ground, false)?;
        }
        Ok(fleet)
    }

    pub(crate) fn label(&self, slot: usize) -> &str {
        &self.slots[slot].label
    }

    pub(crate) fn role(&self, slot: usize) -> Role {
        self.slots[slot].role
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Starts the next process of a place, which comes to it as a newcomer.
    fn launch(&mut self, index: usize, ground: &Ground, strict: bool) -> Result<(), Failure> {
        self.started += 1;
        let label = format!("w{index}.{}", self.started);
        let tickets = self.cast.tickets.clone();
        self.launch_as(index, ground, label, tickets, strict)
    }

    fn launch_as(
        &mut self,
        index: usize,
        ground: &Ground,
        label: String,
        tickets: Vec<u32>,
        strict: bool,
    ) -> Result<(), Failure> {
        let slot = &self.slots[index];
        let (url, us) = (ground.url(slot.link.as_ref()), std::env::current_exe()?);
        let (ttl_ms, cast) = (u64::try_from(self.cast.ttl.as_millis())?, &self.cast);
        let mut command = match slot.role {
            Role::Library { beacon } => {
                let part = Part {
                    label: label.clone(),
                    url,
                    namespace: cast.namespace.clone(),
                    scene: self.scene.path().to_owned(),
                    ttl_ms,
                    tickets,
                    beacon_ms: beacon.then_some(ttl_ms / 2),
                    strict,
                    seed: u64::from(self.started) * 7919,
                    plant: cast.plant,
                };
                let mut command = Command::new(us);
                command.arg(crate::WORKER).arg(serde_json::to_string(&part)?);
                slot.clock.wind(&mut command);
                command
            }
            Role::Run { resource } => {
                let mut command = Command::new(tenure()?);
                let (ttl, k) = (format!("{ttl_ms}ms"), tickets[resource as usize].to_string());
                command.args(["run", &part::name(resource), "--store", &url, "--namespace", &cast.namespace]);
                command.args(["--label", &label, "--ttl", &ttl, "--grace", GRACE, "--tickets", &k]);
                // They come first: so they own most of the time, and are struck when their resource is.
                command.args(["--priority", "1", "--restart", "always", "--wait-for-store", "--"]);
                command.arg(us).arg(crate::COMMAND).arg(self.scene.path());
                command
            }
        };
        let said = self.scene.path().join(format!("{label}.stderr"));
        command.stdout(Stdio::null()).stderr(OpenOptions::new().create(true).append(true).open(said)?);
        let (orders, process) =
            (Orders::of(self.scene.path(), &label)?, Process::start(command, "this program"));
        let slot = &mut self.slots[index];
        (slot.label, slot.orders, slot.process) = (label, orders, Some(process));
        Ok(())
    }

    /// A process in every place. What ended by itself is noted.
    pub(crate) fn fill_up(&mut self, ground: &Ground) -> Result<(), Failure> {
        self.leaving.retain_mut(|process| process.ended().is_none());
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let ended = slot.process.as_mut().map(Process::ended);
            if let Some(Some(status)) = ended {
                let label = slot.label.clone();
                self.died.push(format!("{label} ended with {status}: {}", self.said(&label)));
            }
            if !matches!(ended, Some(None)) {
                self.launch(index, ground, false)?;
            }
        }
        Ok(())
    }

    /// The end of what a process told people.
    fn said(&self, label: &str) -> String {
        testkit::process::tail(&self.scene.path().join(format!("{label}.stderr")))
    }

    pub(crate) fn said_by_all(&self) -> String {
        let said = |slot: &Slot| format!("{}: {}", slot.label, self.said(&slot.label));
        self.slots.iter().map(said).collect::<Vec<String>>().join("\n")
    }

    /// The books of a worker: one through `tenure run` has one per command.
    fn books(&self, label: &str) -> Vec<PathBuf> {
        let folder = part::books(self.scene.path());
        let whole = folder.join(label);
        if whole.exists() {
            return vec![whole];
        }
        let prefix = format!("{label}+");
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        let of_it = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        of_it.map(|entry| entry.path()).collect()
    }

    /// Who owns what now, by the books of those who live.
    pub(crate) fn owners(&self) -> BTreeMap<Ticket, Owner> {
        let mut owners = BTreeMap::new();
        let since = boottime() - u64::try_from(FRESH.as_micros()).unwrap_or(0);
        for (slot, place) in self.slots.iter().enumerate().filter(|(_, place)| place.process.is_some()) {
            for record in self.books(&place.label).iter().flat_map(|path| book::read(path)) {
                if record.kind == About::Ownership && record.ended.is_none() && record.last >= since {
                    let (resource, ticket, token) = (record.resource, record.ticket, record.token);
                    let owner = Owner { slot, target: Target { resource, ticket }, token };
                    owners.insert((resource, ticket), owner);
                }
            }
        }
        owners
    }

    pub(crate) fn all_tickets(&self) -> BTreeSet<Ticket> {
        let all = (0u32..).zip(&self.cast.tickets);
        all.flat_map(|(resource, tickets)| (0..*tickets).map(move |ticket| (resource, ticket))).collect()
    }

    /// Everything that was ever written.
    pub(crate) fn written(&self) -> Result<Vec<Written>, Failure> {
        let mut all = Vec::new();
        for entry in fs::read_dir(part::books(self.scene.path()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The command of a `tenure run` is its worker.
            let worker = name.split('+').next().unwrap_or_default().to_owned();
            all.extend(
                book::read(&path).into_iter().map(|record| Written { worker: worker.clone(), record }),
            );
        }
        Ok(all)
    }

    /// What stands in the lists of a round.
    pub(crate) fn lists(&self, round: u64) -> Result<HashMap<Ticket, Vec<Entry>>, Failure> {
        let mut lists = HashMap::new();
        for (resource, ticket) in self.all_tickets() {
            let list = List::of(&part::lists(self.scene.path()), round, resource, ticket);
            lists.insert((resource, ticket), list.read()?);
        }
        Ok(lists)
    }

    pub(crate) fn remove_lists(&self, round: u64) {
        for (resource, ticket) in self.all_tickets() {
            List::of(&part::lists(self.scene.path()), round, resource, ticket).remove();
        }
    }

    pub(crate) fn rule(&self, ruling: Ruling) -> Result<(), Failure> {
        Ok(self.rule.set(ruling)?)
    }

    // ---- what can be done to one of them ------------------------------------------------------------------------

    /// `kill -9`; a newcomer takes its place at once. Says when it was gone.
    pub(crate) fn kill(&mut self, slot: usize, ground: &Ground, strict: bool) -> Result<Micros, Failure> {
        if let Some(process) = self.slots[slot].process.take() {
            process.kill();
        }
        let at = boottime();
        self.set_link(slot, Link::Pass);
        self.launch(slot, ground, strict)?;
        Ok(at)
    }

    pub(crate) fn stop(&self, slot: usize) {
        if let Some(process) = &self.slots[slot].process {
            stop_between_writes(process.pid());
        }
    }

    pub(crate) fn go_on(&self, slot: usize) {
        if let Some(process) = &self.slots[slot].process {
            process.resume();
        }
    }

    pub(crate) fn order(&mut self, slot: usize, order: Order) -> Result<(), Failure> {
        Ok(self.slots[slot].orders.give(order)?)
    }

    pub(crate) fn set_link(&self, slot: usize, link: Link) {
        if let Some(proxy) = &self.slots[slot].link {
            proxy.set(link);
        }
    }

    pub(crate) fn clock(&self, slot: usize) -> &Clock {
        &self.slots[slot].clock
    }

    /// It leaves as an application does; a newcomer takes its place at once.
    pub(crate) fn leave(&mut self, slot: usize, ground: &Ground) -> Result<(), Failure> {
        match self.slots[slot].role {
            Role::Library { .. } => self.order(slot, Order::Leave)?,
            Role::Run { .. } => {
                if let Some(process) = &self.slots[slot].process {
                    process.signal(Signal::TERM);
                }
            }
        }
        self.leaving.extend(self.slots[slot].process.take());
        self.launch(slot, ground, false)
    }

    /// A newcomer that wants so many tickets of the resources with several takes the place of another.
    pub(crate) fn change_tickets(&mut self, slot: usize, ground: &Ground, k: u32) -> Result<(), Failure> {
        if let Some(process) = self.slots[slot].process.take() {
            process.kill();
        }
        self.started += 1;
        let label = format!("w{slot}.{}", self.started);
        let tickets = self.cast.tickets.iter().map(|tickets| if *tickets == 1 { 1 } else { k }).collect();
        self.launch_as(slot, ground, label, tickets, false)
    }

    /// Keeps the folder beyond the end of this program.
    pub(crate) fn keep(self) -> PathBuf {
        let Self { slots, leaving, scene, .. } = self;
        drop((slots, leaving));
        scene.keep()
    }
}

/// The command line, built beside this program.
fn tenure() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name("tenure");
    match path.exists() {
        true => Ok(path),
        false => Err(format!("{} is missing; `cargo build -p tenure-cli` makes it", path.display()).into()),
    }
}
