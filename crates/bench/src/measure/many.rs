//! One worker that owns many resources: what it writes and computes per interval, how long claiming them takes, and how
//! much memory they need.

use std::time::Duration;

use crate::figure::{Figure, Unit};
use crate::ground::Ground;
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;
use crate::{Failure, clock};

const COUNTS: [usize; 3] = [1, 100, 10_000];
/// The most, for which time and memory count.
const MOST: usize = 10_000;
const TTL: Duration = Duration::from_secs(3);
/// Exactly a third, unless set.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVALS: u64 = 4;
const CLAIM_RUNS: usize = 5;
const CLAIM_TTL: Duration = Duration::from_secs(15);

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let mut of_one: Option<Busy> = None;
    for count in COUNTS {
        let Steady { renewals, commits, claims, others, busy, cleared } = steady(ground, count)?;
        let what = format!("writes per interval, {count} owned");
        figures.push(Figure::new(what, commits, Unit::Times).beside("renewals", renewals).at_most(1.0));
        let what = format!("requests other than renewals in {INTERVALS} intervals, {count} owned");
        figures.push(Figure::new(what, (claims + others) as f64, Unit::Times).at_most(0.0));
        let one = of_one.get_or_insert(busy);
        let what = format!("the worker's time on a core per interval, {count} owned");
        figures.push(cpu(what, busy.worker, one.worker));
        if let (Some(server), Some(one)) = (busy.server, one.server) {
            let what = format!("the server's time on a core per interval, {count} owned");
            figures.push(cpu(what, server, one));
        }
        if let Some(cleared) = cleared {
            let what =
                format!("the server's time on a core to clear up after the claims, once, {count} owned");
            figures.push(Figure::new(what, cleared.as_secs_f64(), Unit::Seconds));
        }
    }
    figures.extend(claiming(ground)?);
    Ok(figures)
}

/// Beside what owning one takes. It does not grow with what is owned; twice is what two runs may differ by.
fn cpu(what: String, measured: f64, one: f64) -> Figure {
    Figure::new(what, measured, Unit::Seconds).beside("with 1 owned", one).at_most_times(2.0)
}

/// Per interval: what the store committed, what was asked of it, and what that cost.
struct Steady {
    renewals: f64,
    commits: f64,
    claims: u64,
    others: u64,
    busy: Busy,
    /// What the server spent on clearing up before, once.
    cleared: Option<Duration>,
}

/// Time on a core per interval, in seconds.
#[derive(Clone, Copy)]
struct Busy {
    worker: f64,
    server: Option<f64>,
}

/// Counts from one renewal to the one some intervals later.
fn steady(ground: &Ground, count: usize) -> Result<Steady, Failure> {
    let site = ground.site(&format!("many-{count}"), TTL)?;
    let mut troupe = Troupe::new();
    let who = troupe.start(&Part::new(Role::ByHand, &site, TTL, count))?;
    troupe.hear_of(who, "owned")?;
    let cleared = ground.clear_up(&site)?;
    // What it said meanwhile is heard before its answer to this.
    counts(&mut troupe, who)?;
    troupe.hear_of(who, "renewed")?;
    let (began_at, before, first) = (clock::boottime(), counts(&mut troupe, who)?, ground.requests(&site)?);
    let cpu_before = (troupe.cpu(who)?, ground.server_cpu()?);
    for _ in 0..INTERVALS {
        troupe.hear_of(who, "renewed")?;
    }
    let cpu_after = (troupe.cpu(who)?, ground.server_cpu()?);
    let spent = clock::boottime().saturating_sub(began_at).as_secs_f64() / INTERVAL.as_secs_f64();
    let (after, last) = (counts(&mut troupe, who)?, ground.requests(&site)?);
    ground.lets_itself_clear_up();
    // Renewals come an interval after the one before, never sooner; a late one makes the span a little longer.
    let intervals = spent.round();
    let per_interval =
        |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / intervals;
    let server = cpu_after.1.zip(cpu_before.1).map(|(after, before)| per_interval(after, before));
    Ok(Steady {
        renewals: (after[0] - before[0]) as f64 / intervals,
        commits: (last - first) as f64 / intervals,
        claims: after[1] - before[1],
        others: after[2] - before[2],
        busy: Busy { worker: per_interval(cpu_after.0, cpu_before.0), server },
        cleared,
    })
}

fn counts(troupe: &mut Troupe, who: usize) -> Result<[u64; 3], Failure> {
    troupe.tell(who, "count")?;
    let line = troupe.hear_of(who, "counts")?;
    Ok([line.number(0)?, line.number(1)?, line.number(2)?])
}

fn claiming(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (role, style) in [(Role::ByHand, "by hand"), (Role::Callbacks, "in callbacks")] {
        let (mut spans, mut live, mut resident) =
            (Samples::default(), Samples::default(), Samples::default());
        let mut commits = Samples::default();
        for run in 0..CLAIM_RUNS {
            let name = format!("claiming-{run}-{}", style.replace(' ', "-"));
            commits.add(commit_of(ground, &name)?);
            let mut troupe = Troupe::new();
            let site = ground.site(&name, CLAIM_TTL)?;
            let who = troupe.start(&Part::new(role, &site, CLAIM_TTL, MOST))?;
            let owned = troupe.hear_of(who, "owned")?;
            spans.add(owned.time(0)?);
            live.add_number(owned.number(1)? as f64 / MOST as f64);
            resident.add_number(owned.number(2)? as f64 / MOST as f64);
        }
        let what = format!("claiming {MOST} {style}, median of {CLAIM_RUNS}");
        figures.push(
            Figure::new(what, spans.median(), Unit::Seconds)
                .beside("raw round trip", commits.median())
                .at_most(ground.limits().claiming),
        );
        let what = format!("memory per resource owned {style}");
        figures.push(Figure::new(what, live.median(), Unit::Bytes).at_most(2048.0));
        let what = format!("the same, resident, with the store's cache, {style}");
        figures.push(Figure::new(what, resident.median(), Unit::Bytes));
    }
    Ok(figures)
}

/// One raw round trip to the store as it is just then.
fn commit_of(ground: &Ground, name: &str) -> Result<Duration, Failure> {
    let mut baseline = ground.baseline(name)?;
    let mut samples = Samples::default();
    for _ in 0..50 {
        samples.add(baseline.once()?);
    }
    Ok(Duration::from_secs_f64(samples.median()))
}
