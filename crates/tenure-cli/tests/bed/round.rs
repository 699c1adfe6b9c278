//! One round: a fault, and what follows from it.

use std::fmt;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::arena::{Arena, GRACE, Owner, TTL, is_alive};
use super::fault::{Fault, Victim, inflict};
use super::tree::{Life, now_us};

/// How soon the next command starts where a death is seen at once.
const SOON: Duration = Duration::from_millis(100);
/// How much later than the end of the lease it may start otherwise.
const EXCESS: Duration = Duration::from_millis(50);

/// No more of a stall is forgiven: on a machine that never rests nothing could be late otherwise.
const LONGEST_STALL: Duration = Duration::from_secs(1);

/// How long it took until the next command started, and how long it might have taken.
pub(crate) struct Took {
    span: Duration,
    limit: Duration,
    /// For how long meanwhile somebody waited for a processor, by the kernel's count: nobody is in time then.
    stall: Duration,
}

/// Lets it happen once.
pub(crate) fn play(arena: &mut Arena) -> Result<Took, String> {
    let lives = arena.lives(0);
    let latest = lives.iter().map(|life| life.term).max().unwrap_or(0);
    // The one that runs since the last round stays.
    let is_running = lives.iter().any(|life| life.term == latest && is_alive(life.pid));
    let after = if is_running { latest - 1 } else { latest };
    let owner = arena.set_up(after)?;

    let left = arena.lease_left();
    let (mut began_us, mut stalled) = (now_us(), stalled_us());
    let done = inflict(arena.fault, owner.pid(arena.victim));
    let limit = if arena.victim == Victim::Command && !arena.fault.is_deadly() {
        // Nobody can tell that from a command that does its work.
        still_owns(arena, &owner)?;
        let told = kill_process(owner.main, Signal::TERM);
        told.map_err(|error| format!("main is gone: {error}"))?;
        (began_us, stalled) = (now_us(), stalled_us());
        GRACE + SOON
    } else if arena.fault == Fault::Kill && arena.victim != Victim::Guard {
        SOON
    } else {
        left + EXCESS
    };
    let next = arena
        .until("the next command", || arena.lives(owner.term).into_iter().find(|life| life.part == "root"));
    done.undo();
    let next = next?;

    let span = Duration::from_micros(next.first_us.saturating_sub(began_us));
    let stall = Duration::from_micros(stalled_us() - stalled).min(span).min(LONGEST_STALL);
    alone(arena, &next)?;
    arena.until("the end of all that the one before had started", || {
        (!owner.family.iter().any(|life| is_alive(life.pid))).then_some(())
    })?;
    if arena.victim != Victim::Main || arena.fault.is_deadly() {
        let guard = owner.guard.as_raw_nonzero().get();
        arena.until("the end of its guard", || (!is_alive(guard)).then_some(()))?;
    }
    match span > limit + stall {
        true => Err(format!(
            "the next command started {span:?} later, not within {limit:?} and {stall:?} of stall"
        )),
        false => Ok(Took { span, limit, stall }),
    }
}

/// For how long tasks of this machine have waited for a processor since it booted; nothing where the kernel does not say.
fn stalled_us() -> u64 {
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = pressure.lines().next().and_then(|some| some.rsplit_once("total="));
    total.and_then(|(_, micros)| micros.parse().ok()).unwrap_or(0)
}

/// For longer than a lease nobody else starts a command.
fn still_owns(arena: &Arena, owner: &Owner) -> Result<(), String> {
    let until_us = now_us() + u64::try_from((TTL * 5 / 4).as_micros()).unwrap_or(u64::MAX);
    arena.until("a lease's length", || (now_us() > until_us).then_some(()))?;
    match arena.lives(owner.term).first() {
        Some(other) => Err(format!("a command that only hung was taken for dead: {other:?}")),
        None => Ok(()),
    }
}

/// Nothing of another command was alive when this one started, by the lock and by what they wrote down.
fn alone(arena: &Arena, next: &Life) -> Result<(), String> {
    if next.overlaps {
        let before: Vec<Life> = arena.lives(0).into_iter().filter(|life| life.term < next.term).collect();
        let alive: Vec<&Life> = before.iter().filter(|life| is_alive(life.pid)).collect();
        let latest = before.iter().max_by_key(|life| life.last_us);
        let said = arena.said();
        return Err(format!(
            "two commands were alive at once, by their lock: {next:?}; of those before {alive:?} still are, and {latest:?} \
             was the last to write; they said:\n{said}"
        ));
    }
    let lives = arena.lives(0);
    match lives.iter().find(|life| life.term < next.term && life.last_us >= next.first_us) {
        Some(before) => Err(format!("two commands were alive at once: {before:?} and {next:?}")),
        None => Ok(()),
    }
}

/// What came of the rounds with one fault.
pub(crate) struct Scores {
    victim: Victim,
    fault: Fault,
    took: Vec<Took>,
    failed: Vec<String>,
}

impl Scores {
    pub(crate) fn new(victim: Victim, fault: Fault) -> Self {
        Self { victim, fault, took: Vec::new(), failed: Vec::new() }
    }

    pub(crate) fn note(&mut self, round: Result<Took, String>) {
        match round {
            Ok(took) => self.took.push(took),
            Err(why) => self.failed.push(why),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{} of {}", self.fault, self.victim)
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        self.failed.iter().map(|why| format!("{}: {why}", self.name()))
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |span: &Duration| span.as_secs_f64() * 1e3;
        let mut spans: Vec<f64> = self.took.iter().map(|took| millis(&took.span)).collect();
        spans.sort_by(f64::total_cmp);
        let of = |part: fn(&Took) -> Duration| millis(&self.took.iter().map(part).max().unwrap_or_default());
        let (median, most) =
            (spans.get(spans.len() / 2).copied().unwrap_or(0.0), spans.last().copied().unwrap_or(0.0));
        let (name, rounds, failed) = (self.name(), spans.len(), self.failed.len());
        let (limit, stall) = (of(|took| took.limit), of(|took| took.stall));
        write!(
            f,
            "{name:<19} {rounds:>2} rounds, {failed} failed; the next after {median:>6.1} ms (median), {most:>6.1} ms \
             (most); limit up to {limit:.0} ms; stall up to {stall:.0} ms",
        )
    }
}
