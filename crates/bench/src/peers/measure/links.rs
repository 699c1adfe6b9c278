//! The link of the owning process to the server goes bad, the other one's stays good: for how long do both believe that they
//! own? *Hung*: nothing comes through any more, in either direction. *Cut*: connections are reset, and new ones refused.

use std::time::{Duration, Instant};

use testkit::proxy::{Link, Proxy};

use super::{Found, SETTLE, TTL, all_say, only_after, seconds_between};
use crate::peers::cell::{Cell, Column};
use crate::peers::roster::Check;
use crate::peers::stage::Stage;
use crate::players::nanos;
use crate::samples::Samples;
use crate::{Failure, clock};

const PAIRS: usize = 3;
/// How long the link is bad.
const BAD: Duration = Duration::from_secs(8);
/// For the old owner to learn that it is none, once the link is good again.
const LEARNS: Duration = Duration::from_secs(2);
/// For a check that hangs to come back.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn measure(stage: &Stage<'_>) -> Result<Found, Failure> {
    let columns = [Column::Hung, Column::Cut];
    let Some(port) = stage.server.port() else { return Ok(all_say(&columns, "no link: a file")) };
    if stage.peer.check == Check::None {
        return Ok(all_say(&columns, "no check"));
    }
    let mut found = Vec::new();
    for (column, link, name) in [(Column::Hung, Link::Hang, "hung"), (Column::Cut, Link::Refuse, "cut")] {
        found.push((column, overlap(stage, port, link, name)?));
    }
    Ok(found)
}

fn overlap(stage: &Stage<'_>, port: u16, link: Link, name: &str) -> Result<Cell, Failure> {
    let proxy = Proxy::to(port);
    let mut pairs = stage.pairs_named(name, PAIRS, TTL, Some(proxy.port()))?;
    for pair in &mut pairs {
        pair.owner.tell("watch")?;
    }
    std::thread::sleep(SETTLE + TTL / 2);
    let bad_at = nanos(clock::boottime());
    proxy.set(link);
    let until = Instant::now() + BAD;
    let mut successors = Vec::new();
    for pair in &pairs {
        let left = until.saturating_duration_since(Instant::now());
        successors.push(pair.waiter.hear_within("own", left)?.and_then(|numbers| numbers.first().copied()));
    }
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    proxy.set(Link::Pass);
    std::thread::sleep(LEARNS);
    let (mut overlaps, mut is_over) = (Samples::default(), true);
    for (pair, owned_at) in pairs.iter_mut().zip(successors) {
        let Some(owned_at) = owned_at else { continue };
        only_after(bad_at, owned_at)?;
        pair.owner.tell("last")?;
        let last = pair.owner.hear_within("last", PATIENCE)?.ok_or("a check never came back")?;
        let [yes_at, newest] = last.as_slice() else { return Err("`last` has two numbers".into()) };
        overlaps.add_number(seconds_between(owned_at, *yes_at).max(0.0));
        is_over &= *newest == 0;
    }
    Ok(match overlaps.count() {
        0 => Cell::says(format!("nobody else owned within {} s", BAD.as_secs())),
        _ if !is_over => Cell::says(format!("**more than {:.1} s**: it never learns", overlaps.max())),
        _ => Cell::Samples(overlaps),
    })
}
