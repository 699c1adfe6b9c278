//! `kill -9` of the owning process: from the signal until the next owner's work has started.

use std::time::Duration;

use crate::figure::{Figure, Unit};
use crate::ground::Ground;
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;
use crate::{Failure, clock};

const ROUNDS: usize = 50;
/// Whatever the lease: nobody waits for its end.
const LEASES: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(60)];
/// The machine is at rest when the signal is sent.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for ttl in LEASES {
        let (failovers, deaths) = kill_owners(ground, ttl)?;
        let name = "kill until the kernel reaps it";
        figures.push(
            Figure::new(format!("ttl {ttl:?}, median of {ROUNDS}"), failovers.median(), Unit::Seconds)
                .beside(name, deaths.median())
                .at_most(0.010),
        );
        figures.push(
            Figure::new(format!("ttl {ttl:?}, maximum of {ROUNDS}"), failovers.max(), Unit::Seconds)
                .beside(name, deaths.max())
                .at_most(0.100),
        );
    }
    Ok(figures)
}

/// How long the failovers took, and the deaths themselves.
fn kill_owners(ground: &Ground, ttl: Duration) -> Result<(Samples, Samples), Failure> {
    let site = ground.site(&format!("crash-{}", ttl.as_secs()), ttl)?;
    let part = Part::new(Role::Owner, &site, ttl, 1);
    let mut troupe = Troupe::new();
    let (mut failovers, mut deaths) = (Samples::default(), Samples::default());
    let mut owner = troupe.start(&part)?;
    troupe.hear_of(owner, "owns")?;
    for _ in 0..ROUNDS {
        let next = troupe.start(&part)?;
        troupe.hear_of(next, "waiting")?;
        std::thread::sleep(PAUSE);
        let killed_at = clock::boottime();
        troupe.kill(owner)?;
        deaths.add(clock::boottime().saturating_sub(killed_at));
        let started_at = troupe.hear_of(next, "owns")?.time(0)?;
        failovers.add(started_at.saturating_sub(killed_at));
        owner = next;
    }
    Ok((failovers, deaths))
}
