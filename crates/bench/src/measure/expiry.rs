//! `kill -9` of the owning process where only time can tell: from the end of its lease in the store until the next
//! owner's work has started.

use std::time::Duration;

use tenure::admin::Admin;
use tenure::store::OpenStore;

use crate::figure::{Figure, Unit};
use crate::ground::{Ground, Length};
use crate::players::RESOURCE;
use crate::process::{Part, Role, Troupe};
use crate::samples::Samples;
use crate::{Failure, clock};

const TTL: Duration = Duration::from_secs(2);
/// How often the store is asked when the lease ends.
const LOOKS: usize = 5;

pub(crate) fn measure(ground: &Ground) -> Result<Vec<Figure>, Failure> {
    let rounds = match ground.length {
        Length::Usual => 15,
        Length::Long => 50,
    };
    let site = ground.site("crash", TTL)?;
    let part = Part::new(Role::Owner, &site, TTL, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let onlooker = Admin::on(OpenStore::new(runtime.block_on(site.store())?)?);
    let mut troupe = Troupe::new();
    let (mut late, mut waited) = (Samples::default(), Samples::default());
    let mut owner = troupe.start(&part)?;
    troupe.hear_of(owner, "owns")?;
    for round in 0..rounds {
        let next = troupe.start(&part)?;
        troupe.hear_of(next, "waiting")?;
        // At every phase between two renewals.
        std::thread::sleep(TTL / 3 * round / rounds);
        let killed_at = clock::boottime();
        troupe.kill(owner)?;
        // Nobody extends it any more. What is left is counted from before it was asked, so the lease ends later than
        // this by up to a round trip: of several looks the latest end is the nearest.
        let mut ends_at = Duration::ZERO;
        for _ in 0..LOOKS {
            let asked_at = clock::boottime();
            let view = runtime.block_on(onlooker.read(RESOURCE))?.ok_or("the resource is not there")?;
            ends_at = ends_at.max(asked_at + view.owners.first().ok_or("nobody owns it")?.left);
        }
        let started_at = troupe.hear_of(next, "owns")?.time(0)?;
        if started_at < ends_at {
            return Err("the next owner started before the lease had ended".into());
        }
        late.add(started_at - ends_at);
        waited.add(started_at - killed_at);
        owner = next;
    }
    let after = "after the end of the lease";
    Ok(vec![
        Figure::new(format!("ttl {TTL:?}, {after}, median of {rounds}"), late.median(), Unit::Seconds)
            .at_most(0.010),
        Figure::new(format!("ttl {TTL:?}, {after}, maximum of {rounds}"), late.max(), Unit::Seconds)
            .at_most(0.050),
        Figure::new(format!("ttl {TTL:?}, after the kill, median"), waited.median(), Unit::Seconds),
    ])
}
