//! One round: a fault, and what follows from it.

use std::fmt;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use testkit::metronome::{Lateness, Metronome};
use testkit::{Micros, boottime};

use super::arena::{Arena, GRACE, Owner, TTL, is_alive};
use super::fault::{Fault, Victim, inflict};
use super::tree::Life;

/// How soon the next command starts where a death is seen at once.
const SOON: Duration = Duration::from_millis(100);
/// A waiter follows a new owner from its next look: at most a step of 100 ms and a spread after the ticket was free.
const LOOKS: Duration = SOON.saturating_add(TTL.checked_div(16).expect("not by zero"));
/// How much later than the end of the lease it may start otherwise.
const EXCESS: Duration = Duration::from_millis(50);

/// At most this much of a stall is added to a limit. Without a cap nothing could be late on a machine that never rests.
const LONGEST_STALL: Duration = Duration::from_secs(1);

/// The guard sends SIGKILL half a margin before the lease ends. If it gets no processor for longer than that half, the next
/// command can start beside the old one: docs/cli.md names this limit.
const SLACK: Duration = TTL.checked_div(20).expect("not by zero");

/// How often the rounds of one fault may be inconclusive. A real bug overlaps again and again, and fails.
const MOST_INCONCLUSIVE: usize = 10;

/// How long it took until the next command started, and how long it might have taken.
pub(crate) struct Took {
    span: Duration,
    limit: Duration,
    /// For how long tasks waited for a processor meanwhile, by the kernel's count.
    stall: Duration,
}

/// A round that failed.
pub(crate) struct Failed {
    why: String,
    /// Whether the machine itself stalled: then the round proves nothing about `tenure`.
    stalled: bool,
}

/// Plays the rounds of one fault.
pub(crate) fn contest(arena: &mut Arena, rounds: usize) -> Scores {
    let mut scores = Scores::new(arena.victim, arena.fault);
    while scores.played() < rounds {
        let round = play(arena);
        scores.note(round);
    }
    scores
}

/// Plays one round.
fn play(arena: &mut Arena) -> Result<Took, Failed> {
    let lives = arena.lives(0);
    let latest = lives.iter().map(|life| life.term).max().unwrap_or(0);
    // The one that runs since the last round stays.
    let is_running = lives.iter().any(|life| life.term == latest && is_alive(life.pid));
    let after = if is_running { latest - 1 } else { latest };
    let owner = arena.set_up(after).map_err(|why| Failed { why, stalled: false })?;

    let metronome = Metronome::start();
    let struck = strike(arena, &owner);
    let late = metronome.stop();
    let next = arena.lives(owner.term).into_iter().map(|life| life.first_us).min().unwrap_or_else(boottime);
    let judged = struck.and_then(|Struck { began, next, limit }| {
        let span = Duration::from_micros(next.saturating_sub(began));
        let stall = late.stalled(began, next).min(span).min(LONGEST_STALL);
        match span > limit + stall {
            true => Err(format!(
                "the next command started {span:?} later, not within {limit:?} and {stall:?} of stall"
            )),
            false => Ok(Took { span, limit, stall }),
        }
    });
    judged.map_err(|why| Failed { why, stalled: stalled(&late, next) })
}

/// Whether the machine kept processes waiting for longer than [`SLACK`] in the time before the next command started: a thread
/// like the guard, or some task by the kernel's count. What was killed needs a processor once more to die.
fn stalled(late: &Lateness, next: Micros) -> bool {
    let from = next.saturating_sub(u64::try_from((TTL / 4).as_micros()).expect("short"));
    late.total(from, next).max(late.stalled(from, next)) > SLACK
}

/// When the next command had to begin, and when it did.
struct Struck {
    began: Micros,
    next: Micros,
    limit: Duration,
}

/// Does it to the owner, and waits for the next command and for the end of the old one.
fn strike(arena: &Arena, owner: &Owner) -> Result<Struck, String> {
    let left = arena.lease_left();
    let mut began = boottime();
    let done = inflict(arena.fault, owner.pid(arena.victim));
    let limit = if arena.victim == Victim::Command && !arena.fault.is_deadly() {
        // Nobody can tell that from a command that does its work.
        still_owns(arena, owner)?;
        let told = kill_process(owner.main, Signal::TERM);
        told.map_err(|error| format!("main is gone: {error}"))?;
        began = boottime();
        GRACE + SOON
    } else if arena.fault == Fault::Kill && arena.victim != Victim::Guard {
        let owned_us = owner.family.iter().map(|life| life.first_us).min().unwrap_or(began);
        let is_followed = Duration::from_micros(began.saturating_sub(owned_us)) > LOOKS;
        if is_followed { SOON } else { SOON + LOOKS }
    } else {
        left + EXCESS
    };
    let next = arena
        .until("the next command", || arena.lives(owner.term).into_iter().find(|life| life.part == "root"));
    done.undo();
    let next = next?;

    alone(arena, &next)?;
    arena.until("the end of all that the one before had started", || {
        (!owner.family.iter().any(|life| is_alive(life.pid))).then_some(())
    })?;
    if arena.victim != Victim::Main || arena.fault.is_deadly() {
        let guard = owner.guard.as_raw_nonzero().get();
        arena.until("the end of its guard", || (!is_alive(guard)).then_some(()))?;
    }
    Ok(Struck { began, next: next.first_us, limit })
}

/// For longer than a lease nobody else starts a command.
fn still_owns(arena: &Arena, owner: &Owner) -> Result<(), String> {
    let until_us = boottime() + u64::try_from((TTL * 5 / 4).as_micros()).unwrap_or(u64::MAX);
    arena.until("a lease's length", || (boottime() > until_us).then_some(()))?;
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
    /// Rounds that failed while the machine stalled.
    inconclusive: Vec<String>,
}

impl Scores {
    fn new(victim: Victim, fault: Fault) -> Self {
        Self { victim, fault, took: Vec::new(), failed: Vec::new(), inconclusive: Vec::new() }
    }

    /// How many rounds proved something.
    fn played(&self) -> usize {
        self.took.len() + self.failed.len()
    }

    fn note(&mut self, round: Result<Took, Failed>) {
        match round {
            Ok(took) => self.took.push(took),
            Err(Failed { why, stalled: true }) if self.inconclusive.len() < MOST_INCONCLUSIVE => {
                self.inconclusive.push(why);
            }
            Err(Failed { why, .. }) => self.failed.push(why),
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
        let inconclusive = self.inconclusive.len();
        write!(
            f,
            "{name:<19} {rounds:>2} rounds, {failed} failed, {inconclusive} inconclusive; the next after {median:>6.1} ms (median), {most:>6.1} ms \
             (most); limit up to {limit:.0} ms; stall up to {stall:.0} ms",
        )
    }
}

#[test]
fn a_round_that_fails_while_the_machine_stalls_is_inconclusive_but_not_for_ever() {
    let fails = |stalled| Err(Failed { why: "two commands were alive at once".to_owned(), stalled });

    let mut scores = Scores::new(Victim::Main, Fault::Stop);
    scores.note(fails(true));
    assert_eq!((scores.played(), scores.failures().count()), (0, 0), "it is played again");

    scores.note(fails(false));
    assert_eq!((scores.played(), scores.failures().count()), (1, 1), "at rest it is a failure");

    (0..MOST_INCONCLUSIVE).for_each(|_| scores.note(fails(true)));
    assert_eq!((scores.played(), scores.failures().count()), (2, 2), "what always fails is a failure");
}
