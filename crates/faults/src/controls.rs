//! The controls: workers that are wrong on purpose, one way at a time, and how often the judge says so. Where it says nothing,
//! its silence about the others is worth nothing either.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use testkit::boottime;
use testkit::metronome::Lateness;
use testkit::proxy::Link;

use crate::Failure;
use crate::fleet::{Cast, Fleet, Owner};
use crate::ground::Ground;
use crate::judge::{Auditor, Evidence, Verdict, Window, judge};
use crate::part::{Order, Plant, Ruling};
use crate::stage::merge;

/// How long everything may take to be owned.
const LIMIT: Duration = Duration::from_secs(60);
/// A pause may fall beside the write that it was meant for, and on a busy machine others may come late: then once more.
const TRIES: u64 = 6;

/// What was planted, what it breaks, and how often that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) plant: &'static str,
    pub(crate) breaks: &'static str,
    pub(crate) seen: usize,
}

/// All of them, at the same time, each in a namespace of its own.
pub(crate) fn run(ground: &Ground, ttl: Duration) -> Result<Vec<Control>, Failure> {
    let plants = [
        Plant::GoesOn,
        Plant::BelievesTooLong,
        Plant::Intrudes,
        Plant::NoTokenCheck,
        Plant::OwnNumbers,
        Plant::BeginsLate,
    ];
    std::thread::scope(|scope| {
        let running = plants.map(|plant| scope.spawn(move || play(ground, plant, ttl)));
        running.into_iter().map(|control| control.join().map_err(|_| "a control panicked")?).collect()
    })
}

fn play(ground: &Ground, plant: Plant, ttl: Duration) -> Result<Control, Failure> {
    let cast = Cast {
        namespace: format!("control-{}", plant as u8),
        ttl,
        tickets: vec![1, 1, 2],
        library: 4,
        beacons: 1,
        run: Vec::new(),
        plant: Some(plant),
    };
    let mut fleet = Fleet::start(ground, cast)?;
    let mut auditor = Auditor::default();
    let mut seen = 0;
    for round in (1..=TRIES).map(|attempt| attempt * 2) {
        let owners = until_full(&fleet)?;
        let from = boottime();
        fleet.rule(Ruling { round, checks_tokens: plant == Plant::NoTokenCheck })?;
        std::thread::sleep(ttl / 5);
        provoke(&mut fleet, ground, plant, &owners, ttl)?;
        let verdict = judged(&fleet, from, ttl)?;
        seen = match plant {
            Plant::GoesOn | Plant::BelievesTooLong => verdict.overlaps.len(),
            Plant::Intrudes | Plant::NoTokenCheck => missing(&fleet, &mut auditor, round)?,
            Plant::OwnNumbers => verdict.regressions.len(),
            Plant::BeginsLate => verdict.late.len(),
        };
        if seen > 0 {
            break;
        }
    }
    let (plant, breaks) = match plant {
        Plant::GoesOn => ("goes on after the loss", "overlaps"),
        Plant::BelievesTooLong => ("believes for 1.5 ttl", "overlaps"),
        Plant::Intrudes => ("writes without owning", "lost entries"),
        Plant::NoTokenCheck => ("no token check, paused", "lost entries"),
        Plant::OwnNumbers => ("numbers by itself", "token regressions"),
        Plant::BeginsLate => ("begins late", "vacancies beyond the bound"),
    };
    Ok(Control { plant, breaks, seen })
}

/// Does what shows the mistake.
fn provoke(
    fleet: &mut Fleet,
    ground: &Ground,
    plant: Plant,
    owners: &HashMap<u32, Owner>,
    ttl: Duration,
) -> Result<(), Failure> {
    let slots: BTreeSet<usize> =
        [0, 1].iter().filter_map(|resource| Some(owners.get(resource)?.slot)).collect();
    match plant {
        Plant::GoesOn | Plant::NoTokenCheck => {
            for slot in &slots {
                fleet.stop(*slot);
            }
            std::thread::sleep(ttl * 3 / 2);
            for slot in &slots {
                fleet.go_on(*slot);
            }
            std::thread::sleep(ttl / 3);
        }
        Plant::BelievesTooLong if ground.kind().is_served() => {
            slots.iter().for_each(|slot| fleet.set_link(*slot, Link::Hang));
            std::thread::sleep(ttl * 3 / 2);
            slots.iter().for_each(|slot| fleet.set_link(*slot, Link::Pass));
        }
        // Without a beat there are no renewals, as over a link that hangs.
        Plant::BelievesTooLong => {
            let millis = u64::try_from((ttl * 2).as_millis())?;
            slots.iter().try_for_each(|slot| fleet.order(*slot, Order::Block(millis)))?;
            std::thread::sleep(ttl * 5 / 2);
        }
        Plant::Intrudes => std::thread::sleep(ttl),
        Plant::OwnNumbers | Plant::BeginsLate => {
            for slot in &slots {
                fleet.kill(*slot, ground, false)?;
            }
            std::thread::sleep(ttl * 3 / 2);
            until_full(fleet)?;
        }
    }
    Ok(())
}

/// Waits until every ticket is owned; says by whom the first of each resource is.
fn until_full(fleet: &Fleet) -> Result<HashMap<u32, Owner>, Failure> {
    let began = Instant::now();
    loop {
        let owners = fleet.owners();
        if owners.len() == fleet.all_tickets().len() {
            return Ok(owners.into_iter().rev().map(|((resource, _), owner)| (resource, owner)).collect());
        }
        if began.elapsed() > LIMIT {
            let (count, said) = (owners.len(), fleet.said_by_all());
            return Err(format!(
                "control: only {count} tickets are owned after {LIMIT:?}; they said:\n{said}"
            )
            .into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn judged(fleet: &Fleet, from: u64, ttl: Duration) -> Result<Verdict, Failure> {
    let window = Window {
        from,
        to: u64::MAX,
        healed: None,
        bound: ttl + Duration::from_millis(250),
        free: BTreeSet::new(),
    };
    let (written, windows, late) = (fleet.written()?, [window], Lateness::default());
    let tickets = &fleet.cast.tickets;
    Ok(judge(&Evidence { written: &written, tickets, windows: &windows, late: &late, longer: ttl }))
}

fn missing(fleet: &Fleet, auditor: &mut Auditor, round: u64) -> Result<usize, Failure> {
    fleet.rule(Ruling { round: round + 1, checks_tokens: false })?;
    std::thread::sleep(Duration::from_millis(100));
    let written = fleet.written()?;
    let mut settled = fleet.lists(round - 1)?;
    merge(&mut settled, fleet.lists(round)?);
    let mut lists = settled.clone();
    merge(&mut lists, fleet.lists(round + 1)?);
    Ok(auditor.missing(&written, &lists, &settled).len())
}
