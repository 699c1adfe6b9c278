//! Two hundred waiters for one resource: how many requests a release causes, and what waiting costs.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::figure::{Figure, Unit};
use crate::ground::{Ground, Site};
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;

const PROCESSES: usize = 4;
const WORKERS: usize = 50;
const WAITERS: usize = PROCESSES * WORKERS;
const RELEASES: usize = 10;
/// So long that nobody looks by himself between two releases.
const LONG: Duration = Duration::from_secs(60);
/// Beyond three steps of such a lease nobody is still to be heard of.
const QUIET: Duration = Duration::from_millis(1500);
/// So short that many looks fall into the time watched.
const SHORT: Duration = Duration::from_secs(6);
const LEASES_WATCHED: u32 = 3;
/// How long until all wait.
const ASSEMBLY: Duration = Duration::from_secs(60);

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let PerRelease { claims, requests, by_store } = per_release(ground)?;
    let (looks, most, renewals) = looks_per_lease(ground)?;
    let per_waiter = |number: u64| number as f64 / WAITERS as f64 / f64::from(LEASES_WATCHED);
    Ok(vec![
        Figure::new(
            format!("claims per release, {WAITERS} waiting, most of {RELEASES}"),
            claims.max(),
            Unit::Times,
        )
        .at_most(3.0),
        Figure::new("claims per release, median", claims.median(), Unit::Times),
        Figure::new("requests per release, the release with them, most", requests.max(), Unit::Times)
            .at_most(ground.limits().requests_per_release),
        Figure::new("the same by the store's own count, mean", by_store, Unit::Times)
            .at_most(ground.limits().requests_per_release),
        Figure::new(format!("looks per waiter and ttl, {WAITERS} waiting"), per_waiter(looks), Unit::Times)
            .beside("renewals", per_waiter(renewals))
            .at_most(1.0),
        Figure::new(
            format!("the most eager waiter, looks in {LEASES_WATCHED} ttl"),
            most as f64,
            Unit::Times,
        ),
    ])
}

/// What releases cause, renewals left out.
struct PerRelease {
    claims: Samples,
    /// Claims, and the releases themselves.
    requests: Samples,
    /// What the store has seen for each release.
    by_store: f64,
}

fn per_release(ground: &Ground) -> Result<PerRelease, Failure> {
    let mut crowd = Crowd::gather(ground, "waiters-release", LONG)?;
    let (mut claims, mut requests) = (Samples::default(), Samples::default());
    let (first, seen_first) = (crowd.counts()?, ground.requests(&crowd.site)?);
    for _ in 0..RELEASES {
        let before = crowd.counts()?;
        crowd.troupe.tell(crowd.owner, "release")?;
        crowd.owner = crowd.troupe.hear_word("owns")?.by;
        crowd.quiet()?;
        let after = crowd.counts()?;
        claims.add_number((after.claims - before.claims) as f64);
        requests.add_number((after.claims + after.others - before.claims - before.others) as f64);
    }
    let (last, seen_last) = (crowd.counts()?, ground.requests(&crowd.site)?);
    // Renewals go on while they are counted: this may be off by a few over all releases.
    let seen = (seen_last - seen_first).saturating_sub(last.renewals - first.renewals);
    Ok(PerRelease { claims, requests, by_store: seen as f64 / RELEASES as f64 })
}

/// Looks of all, of the most eager, and renewals of all, over some ttl in which nothing happens.
fn looks_per_lease(ground: &Ground) -> Result<(u64, u64, u64), Failure> {
    let mut crowd = Crowd::gather(ground, "waiters-look", SHORT)?;
    // The first look of all is behind them; from here on the pace is their own.
    for who in 0..crowd.processes {
        crowd.troupe.tell(who, "forget")?;
    }
    let before = crowd.counts()?;
    std::thread::sleep(SHORT * LEASES_WATCHED);
    let after = crowd.counts()?;
    Ok((after.claims - before.claims, after.most, after.renewals - before.renewals))
}

/// One owner, and those who wait for it to go.
struct Crowd {
    site: Site,
    troupe: Troupe,
    processes: usize,
    owner: usize,
}

/// Over all processes.
#[derive(Clone, Copy, Default)]
struct Sum {
    renewals: u64,
    claims: u64,
    others: u64,
    most: u64,
}

impl Crowd {
    fn gather(ground: &Ground, name: &str, ttl: Duration) -> Result<Self, Failure> {
        let site = ground.site(name, ttl)?;
        let mut troupe = Troupe::new();
        let owner = troupe.start(&Part::new(Role::Waiters, &site, ttl, 1))?;
        troupe.hear_of(owner, "owns")?;
        for _ in 0..PROCESSES {
            troupe.start(&Part::new(Role::Waiters, &site, ttl, WORKERS))?;
        }
        let mut crowd = Self { site, troupe, processes: PROCESSES + 1, owner };
        let limit = Instant::now() + ASSEMBLY;
        // The owner has claimed once, too.
        while crowd.counts()?.claims <= WAITERS as u64 {
            if Instant::now() > limit {
                return Err(format!("after {ASSEMBLY:?} not all of them wait").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        crowd.quiet()?;
        Ok(crowd)
    }

    fn counts(&mut self) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        for who in 0..self.processes {
            self.troupe.tell(who, "count")?;
            let line = self.troupe.hear_of(who, "counts")?;
            sum.renewals += line.number(0)?;
            sum.claims += line.number(1)?;
            sum.others += line.number(2)?;
            sum.most = sum.most.max(line.number(3)?);
        }
        Ok(sum)
    }

    /// Waits until nobody has claimed for a while.
    fn quiet(&mut self) -> Result<(), Failure> {
        let limit = Instant::now() + ASSEMBLY;
        let (mut claims, mut since) = (self.counts()?.claims, Instant::now());
        while since.elapsed() < QUIET && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.counts()?.claims;
            if now != claims {
                (claims, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}
