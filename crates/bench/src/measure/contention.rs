//! Many who want the same at once: how long until all are answered, what it costs the owner, and whether leases are lost.

use std::time::{Duration, Instant};

use crate::figure::{Figure, Unit};
use crate::ground::{Ground, Site};
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;
use crate::{Failure, clock};

const PROCESSES: usize = 4;
/// In each process, each with a store of its own, as if it were a process of its own.
const RIVALS: usize = 16;
const ALL: usize = PROCESSES * RIVALS;
const RESOURCES: usize = 250;
/// How often the owner leaves while all others join.
const RELEASES: usize = 20;
/// In each process, on one store.
const THRONG: usize = 250;
const TTL: Duration = Duration::from_secs(15);
/// Longer than any of it takes.
const LIMIT: Duration = Duration::from_secs(50);

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let limits = ground.limits();
    let (joining, mut lost) = joins(ground)?;
    let (releases, lost_more) = releases(ground)?;
    lost += lost_more;
    let (settling, lost_more) = claims_of_many(ground)?;
    lost += lost_more;
    let (throng, lost_more) = throng(ground)?;
    lost += lost_more;
    let demanded = |figure: Figure, limit: Option<f64>| match limit {
        Some(limit) => figure.at_most(limit),
        None => figure,
    };
    let release = Figure::new(
        format!("the owner's release among {ALL} who join, p99 of {RELEASES}"),
        releases.p99(),
        Unit::Seconds,
    );
    let settled = format!("{ALL} claim the same {RESOURCES} resources at once: until all are answered");
    Ok(vec![
        Figure::new(
            format!("{ALL} join one resource at once: until all are queued"),
            joining.as_secs_f64(),
            Unit::Seconds,
        )
        .at_most(limits.joining),
        demanded(release, limits.release_among_many),
        demanded(Figure::new(settled, settling.as_secs_f64(), Unit::Seconds), limits.settling),
        Figure::new(
            format!("{} join one resource at once: until all are answered", PROCESSES * THRONG),
            throng.as_secs_f64(),
            Unit::Seconds,
        ),
        Figure::new("leases lost in all of these", lost as f64, Unit::Times).at_most(0.0),
    ])
}

/// Those who compete, connected and waiting for a word.
struct Rivals {
    troupe: Troupe,
    processes: usize,
}

impl Rivals {
    fn gather(site: &Site, role: Role, count: usize) -> Result<Self, Failure> {
        let mut troupe = Troupe::new();
        for _ in 0..PROCESSES {
            troupe.start(&Part::new(role, site, TTL, count))?;
        }
        for _ in 0..PROCESSES {
            troupe.hear_word("ready")?;
        }
        Ok(Self { troupe, processes: PROCESSES })
    }

    /// Tells all, and waits until there were so many answers. Says how long that took, and how many leases were lost.
    fn all(&mut self, word: &str, answers: u64) -> Result<(Duration, u64), Failure> {
        let began = clock::boottime();
        (0..self.processes).try_for_each(|who| self.troupe.tell(who, word))?;
        let limit = Instant::now() + LIMIT;
        loop {
            let (answered, last_at, gone) = self.look()?;
            if answered >= answers {
                return Ok((last_at.saturating_sub(began), gone));
            }
            if Instant::now() > limit {
                return Err(format!("{answered} of {answers} were answered within {LIMIT:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn look(&mut self) -> Result<(u64, Duration, u64), Failure> {
        let (mut answered, mut last_at, mut gone) = (0, Duration::ZERO, 0);
        for who in 0..self.processes {
            self.troupe.tell(who, "look")?;
            let line = self.troupe.hear_of(who, "answered")?;
            answered += line.number(0)?;
            last_at = last_at.max(line.time(1)?);
            gone += line.number(2)?;
        }
        Ok((answered, last_at, gone))
    }
}

/// One owner, and all others at once.
fn joins(ground: &Ground) -> Result<(Duration, u64), Failure> {
    let site = ground.site("contention-join", TTL)?;
    let mut owner = Troupe::new();
    owner.start(&Part::new(Role::Rivals, &site, TTL, 1))?;
    owner.hear_word("ready")?;
    owner.tell(0, "join")?;
    owner.hear_word("owns")?;
    let mut rivals = Rivals::gather(&site, Role::Rivals, RIVALS)?;
    rivals.all("join", ALL as u64)
}

/// The owner leaves while all others join, again and again.
fn releases(ground: &Ground) -> Result<(Samples, u64), Failure> {
    let (mut samples, mut lost) = (Samples::default(), 0);
    for round in 0..RELEASES {
        let site = ground.site(&format!("contention-{round}"), TTL)?;
        let mut rivals = Rivals::gather(&site, Role::Rivals, RIVALS)?;
        let who = rivals.troupe.start(&Part::new(Role::Rivals, &site, TTL, 1))?;
        rivals.troupe.hear_of(who, "ready")?;
        rivals.troupe.tell(who, "join")?;
        rivals.troupe.hear_of(who, "owns")?;
        (0..PROCESSES).try_for_each(|who| rivals.troupe.tell(who, "join"))?;
        // In the midst of it: another moment in each round.
        std::thread::sleep(Duration::from_millis(5 * round as u64));
        rivals.troupe.tell(who, "release")?;
        samples.add(rivals.troupe.hear_of(who, "took")?.time(0)?);
        lost += rivals.look()?.2;
    }
    Ok((samples, lost))
}

fn claims_of_many(ground: &Ground) -> Result<(Duration, u64), Failure> {
    let site = ground.site("contention-many", TTL)?;
    let mut rivals = Rivals::gather(&site, Role::Rivals, RIVALS)?;
    rivals.all(&RESOURCES.to_string(), (ALL * RESOURCES) as u64)
}

/// Many more, who share stores. They go on for two ttl: nobody may lose its lease.
fn throng(ground: &Ground) -> Result<(Duration, u64), Failure> {
    let site = ground.site("contention-throng", TTL)?;
    let mut rivals = Rivals::gather(&site, Role::Throng, THRONG)?;
    let (took, _) = rivals.all("join", (PROCESSES * THRONG) as u64)?;
    std::thread::sleep(TTL * 2);
    Ok((took, rivals.look()?.2))
}
