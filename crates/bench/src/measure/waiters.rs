//! Two hundred waiters for one resource: how many claims a release causes, and what waiting costs.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::figure::{Figure, Unit};
use crate::ground::Ground;
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
    let claims = claims_per_release(ground)?;
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

fn claims_per_release(ground: &Ground) -> Result<Samples, Failure> {
    let mut crowd = Crowd::gather(ground, "waiters-release", LONG)?;
    let mut samples = Samples::default();
    for _ in 0..RELEASES {
        let before = crowd.counts()?.claims;
        crowd.troupe.tell(crowd.owner, "release")?;
        crowd.owner = crowd.troupe.hear_word("owns")?.by;
        samples.add_number((crowd.quiet()? - before) as f64);
    }
    Ok(samples)
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
    troupe: Troupe,
    processes: usize,
    owner: usize,
}

/// Over all processes.
#[derive(Clone, Copy, Default)]
struct Sum {
    renewals: u64,
    claims: u64,
    most: u64,
}

impl Crowd {
    fn gather(ground: &Ground, name: &str, ttl: Duration) -> Result<Self, Failure> {
        let site = ground.site(name, ttl);
        let mut troupe = Troupe::new();
        let owner = troupe.start(&Part::new(Role::Waiters, &site, ttl, 1))?;
        troupe.hear_of(owner, "owns")?;
        for _ in 0..PROCESSES {
            troupe.start(&Part::new(Role::Waiters, &site, ttl, WORKERS))?;
        }
        let mut crowd = Self { troupe, processes: PROCESSES + 1, owner };
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
            sum.most = sum.most.max(line.number(3)?);
        }
        Ok(sum)
    }

    /// Waits until nobody has claimed for a while, and says how many claims there were in all.
    fn quiet(&mut self) -> Result<u64, Failure> {
        let limit = Instant::now() + ASSEMBLY;
        let (mut claims, mut since) = (self.counts()?.claims, Instant::now());
        while since.elapsed() < QUIET && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.counts()?.claims;
            if now != claims {
                (claims, since) = (now, Instant::now());
            }
        }
        Ok(claims)
    }
}
