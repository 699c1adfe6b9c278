//! A worker through the library, in a process of its own. Three threads: the application's runtime, in which the campaigns
//! live; a witness, who asks `holds()` and writes down that it did; and a hand, which adds to the lists of what is owned.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::types::Clock;
use tenure::{Campaign, EndReason, Lead, Timing, Worker};
use testkit::dice::Dice;
use testkit::{Micros, boottime};
use tokio::sync::mpsc;

use crate::Failure;
use crate::book::{Book, How, Kind, Page, Record};
use crate::list::{Entry, List, Refused};
use crate::part::{self, Order, Orders, Part, Plant, Rule, Ruling};

/// How often the witness looks.
const LOOK: Duration = Duration::from_millis(2);
/// The pause between two rounds of the hand.
const REST: Duration = Duration::from_millis(15);
/// Between reading a list and the check before it is written: two at once are to meet here.
const THINKS: Duration = Duration::from_micros(300);
/// Between that check and the write, where the token is checked: pauses are to fall in here.
const HESITATES: Duration = Duration::from_millis(2);
/// The same where nobody checks it.
const HESITATES_LONG: Duration = Duration::from_millis(40);
/// How long a cleanup takes: others would come in meanwhile if they could.
const CLEANUP: Duration = Duration::from_millis(4);

/// What the threads share.
struct Shared {
    part: Part,
    book: Book,
    held: Mutex<Vec<Arc<Held>>>,
    count: AtomicU64,
}

/// One ownership, and the work under it.
struct Held {
    lead: Lead,
    resource: u32,
    token: u64,
    ticket: u32,
    page: Page,
    work: Mutex<Work>,
    /// When it was last seen to hold; planted ones believe for longer.
    seen: AtomicU64,
}

#[derive(Default)]
struct Work {
    is_over: bool,
    written: u64,
    refused: u64,
    slow: u64,
}

/// Plays the part until it is told to leave.
pub(crate) fn play(part: Part) -> Result<(), Failure> {
    let book = Book::begin(&part::books(&part.scene).join(&part.label))?;
    let (orders, obeyed) = mpsc::unbounded_channel();
    let mut told = Orders::of(&part.scene, &part.label)?;
    let shared = Arc::new(Shared { part, book, held: Mutex::default(), count: AtomicU64::new(0) });
    let (witness, hand) = (shared.clone(), shared.clone());
    std::thread::Builder::new().name("witness".into()).spawn(move || {
        loop {
            // A book that cannot be written proves nothing: then there is no sense in going on.
            witness.look().expect("the book can be written");
            while let Some(order) = told.take() {
                let _gone = orders.send(order);
            }
            std::thread::sleep(LOOK);
        }
    })?;
    std::thread::Builder::new().name("hand".into()).spawn(move || hand.work())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(compete(&shared, obeyed))
}

async fn compete(shared: &Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Order>) -> Result<(), Failure> {
    let part = &shared.part;
    let ttl = Duration::from_millis(part.ttl_ms);
    let mut timing = Timing::new(ttl)?;
    if let Some(beacon) = part.beacon_ms {
        timing = timing.with_beacon(Duration::from_millis(beacon))?;
    }
    if part.strict {
        timing = timing.with_clock(Clock::Strict);
    }
    // The store may be away; who comes then waits for it.
    let worker = loop {
        let builder = Worker::builder(&part.url).namespace(&part.namespace).label(&part.label);
        match builder.timing(timing).connect().await {
            Ok(worker) => break worker,
            Err(error) => eprintln!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    if let Some(beacon) = part.beacon_ms {
        let beating = worker.clone();
        tokio::spawn(async move {
            loop {
                beating.beat();
                tokio::time::sleep(Duration::from_millis(beacon / 8)).await;
            }
        });
    }
    let campaigns = enter(shared, &worker).await?;
    loop {
        match orders.recv().await {
            Some(Order::StepDown(resource)) => {
                if let Some((_, campaign)) = campaigns.iter().find(|(at, _)| *at == resource) {
                    campaign.step_down().await;
                }
            }
            Some(Order::Block(millis)) => std::thread::sleep(Duration::from_millis(millis)),
            Some(Order::Leave) | None => break,
        }
    }
    worker.shutdown().await;
    Ok(())
}

/// Enters the campaigns in an order of its own, a little apart: so everybody owns something.
async fn enter(shared: &Arc<Shared>, worker: &Worker) -> Result<Vec<(u32, Campaign)>, Failure> {
    let (mut dice, mut campaigns) = (Dice::new(shared.part.seed), Vec::new());
    let mut resources: Vec<u32> = (0u32..).zip(&shared.part.tickets).map(|(resource, _)| resource).collect();
    while !resources.is_empty() {
        let resource = resources.swap_remove(usize::try_from(dice.below(resources.len() as u64))?);
        let tickets = shared.part.tickets[resource as usize];
        let campaign = worker.campaign(part::name(resource)).tickets(tickets);
        let (starting, ending) = (shared.clone(), shared.clone());
        let begin = move |lead| starting.clone().begin(resource, lead);
        let end = move |why| ending.clone().end(resource, why);
        campaigns.push((resource, campaign.obtain(begin, end)?));
        tokio::time::sleep(Duration::from_millis(dice.below(8))).await;
    }
    Ok(campaigns)
}

impl Shared {
    fn is(&self, plant: Plant) -> bool {
        self.part.plant == Some(plant)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called on a win.
    async fn begin(self: Arc<Self>, resource: u32, lead: Lead) -> io::Result<()> {
        if self.is(Plant::BeginsLate) {
            tokio::time::sleep(Duration::from_millis(self.part.ttl_ms * 2)).await;
        }
        let at = boottime();
        if !lead.holds() {
            return Ok(());
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let (term, token) =
            if self.is(Plant::OwnNumbers) { (number, number) } else { (lead.term(), lead.token()) };
        let record = Record {
            kind: Kind::Ownership,
            resource,
            ticket: lead.ticket(),
            term,
            token,
            began: at,
            last: at,
            ended: None,
            written: 0,
            refused: 0,
            slow: 0,
        };
        let page = self.book.enter(&record)?;
        let (ticket, work, seen) = (lead.ticket(), Mutex::default(), AtomicU64::new(at));
        self.held().push(Arc::new(Held { lead, resource, token, ticket, page, work, seen }));
        Ok(())
    }

    /// The cleanup: called when it has ended, before the ticket is free.
    async fn end(self: Arc<Self>, resource: u32, ending: EndReason) -> io::Result<()> {
        let held: Vec<Arc<Held>> = {
            let mut all = self.held();
            let ended: Vec<Arc<Held>> =
                all.iter().filter(|held| held.resource == resource).cloned().collect();
            if !self.is(Plant::GoesOn) && !self.is(Plant::BelievesTooLong) {
                all.retain(|held| held.resource != resource);
            }
            ended
        };
        if self.is(Plant::GoesOn) {
            return Ok(());
        }
        for held in &held {
            // Waits for the entry that is being written.
            held.work().is_over = true;
        }
        tokio::time::sleep(CLEANUP).await;
        held.iter().try_for_each(|held| held.page.ended(boottime(), How::of(ending)))
    }

    /// The witness: who holds, holds now.
    fn look(&self) -> io::Result<()> {
        let held: Vec<Arc<Held>> = self.held().clone();
        for held in held {
            let at = boottime();
            if held.lead.holds() {
                held.seen.store(at, Ordering::Relaxed);
                held.page.held(at)?;
            } else if self.believes(&held, at) {
                held.page.held(at)?;
            }
        }
        Ok(())
    }

    /// Planted: belief without reason.
    fn believes(&self, held: &Held, at: Micros) -> bool {
        // Trust ends at 0.8 ttl.
        let longer = self.part.ttl_ms * 1_000 * 70 / 100;
        match self.part.plant {
            Some(Plant::GoesOn) => true,
            Some(Plant::BelievesTooLong) => at - held.seen.load(Ordering::Relaxed) < longer,
            _ => false,
        }
    }

    /// The hand: adds to the list of each ticket that is owned, again and again.
    fn work(&self) {
        let rule = Rule::of(&self.part.scene).expect("the rule can be read");
        let intruder = self.is(Plant::Intrudes).then(|| Intruder::new(self).expect("a page"));
        loop {
            let held: Vec<Arc<Held>> = self.held().clone();
            held.iter().for_each(|held| self.add(held, rule.look()).expect("the list can be written"));
            if let Some(intruder) = &intruder {
                intruder.add(rule.look()).expect("the list can be written");
            }
            std::thread::sleep(REST);
        }
    }

    fn add(&self, held: &Held, ruling: Ruling) -> io::Result<()> {
        let mut work = held.work();
        if work.is_over {
            return Ok(());
        }
        let next = Entry { token: held.token, number: work.written + 1 };
        let goes_on = || held.lead.holds() || self.is(Plant::GoesOn);
        if !goes_on() {
            return Ok(());
        }
        let list = List::of(&part::lists(&self.part.scene), ruling.round, held.resource, held.ticket);
        let done = match (ruling.checks_tokens, self.is(Plant::NoTokenCheck)) {
            (false, _) => add(&list, next, goes_on, Duration::ZERO),
            (true, true) => add(&list, next, goes_on, HESITATES_LONG),
            (true, false) => add_under(&list, next, goes_on),
        };
        match done {
            Ok(Some(took)) => {
                work.written += 1;
                // Before it counts as written: whoever misses an entry is to see that.
                if took > Duration::from_millis(self.part.ttl_ms / 10) {
                    work.slow += 1;
                    held.page.troubled(work.refused, work.slow)?;
                }
                held.page.written(work.written)
            }
            Ok(None) | Err(Refused::Busy) => Ok(()),
            Err(Refused::Late) => {
                work.refused += 1;
                held.page.troubled(work.refused, work.slow)
            }
            Err(Refused::Broken(error)) => Err(error),
        }
    }
}

/// Reads, thinks, looks whether it still may, and writes. Says how long it took from that look to the end, if it did.
pub(crate) fn add(
    list: &List,
    next: Entry,
    may: impl Fn() -> bool,
    hesitates: Duration,
) -> Result<Option<Duration>, Refused> {
    let mut entries = list.read()?;
    entries.push(next);
    std::thread::sleep(THINKS);
    let looked = boottime();
    if !may() {
        return Ok(None);
    }
    std::thread::sleep(hesitates);
    list.replace(&entries)?;
    Ok(Some(Duration::from_micros(boottime() - looked)))
}

/// The same with a pause between the look and the write, which is safe because the token is checked.
pub(crate) fn add_under(
    list: &List,
    next: Entry,
    may: impl Fn() -> bool,
) -> Result<Option<Duration>, Refused> {
    let mut entries = list.read_under(next.token)?;
    entries.push(next);
    std::thread::sleep(THINKS);
    if !may() {
        return Ok(None);
    }
    std::thread::sleep(HESITATES);
    list.replace_under(next.token, &entries)?;
    // However long it took: it was not too late.
    Ok(Some(Duration::ZERO))
}

impl Held {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Planted: one that adds to every list, whether it owns or not.
struct Intruder {
    folder: PathBuf,
    tickets: Vec<(u32, u32, Page)>,
    token: u64,
    written: Mutex<Vec<u64>>,
}

impl Intruder {
    fn new(shared: &Shared) -> io::Result<Self> {
        let folder: PathBuf = part::lists(&shared.part.scene);
        let mut all = Vec::new();
        let token = 1 << 60 | u64::from(std::process::id());
        for (resource, tickets) in (0u32..).zip(&shared.part.tickets) {
            for ticket in 0..*tickets {
                let record = Record {
                    kind: Kind::Intrusion,
                    resource,
                    ticket,
                    term: 0,
                    token,
                    began: boottime(),
                    last: 0,
                    ended: None,
                    written: 0,
                    refused: 0,
                    slow: 0,
                };
                all.push((resource, ticket, shared.book.enter(&record)?));
            }
        }
        let written = Mutex::new(vec![0; all.len()]);
        Ok(Self { folder, tickets: all, token, written })
    }

    fn add(&self, ruling: Ruling) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        for ((resource, ticket, page), written) in self.tickets.iter().zip(written.iter_mut()) {
            let list = List::of(&self.folder, ruling.round, *resource, *ticket);
            let next = Entry { token: self.token, number: *written + 1 };
            match add(&list, next, || true, Duration::ZERO) {
                Ok(_) => {
                    *written += 1;
                    page.written(*written)?;
                }
                Err(Refused::Broken(error)) => return Err(error),
                Err(Refused::Late | Refused::Busy) => {}
            }
        }
        Ok(())
    }
}
