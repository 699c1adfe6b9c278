//! Many workers of one process, which share its driver and connections, and own a resource each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::Worker;
use tenure::store::{Answer, Call, LeaseId, OpenStore, Request, Said};

use crate::counted::Counted;
use crate::players::nanos;
use crate::process::{Part, Told, say};
use crate::{Failure, clock};

/// What became of the renewals, as seen between the driver and the store.
#[derive(Default)]
struct Renewals {
    /// When each lease was kept the last time.
    kept: HashMap<LeaseId, Duration>,
    /// By how much each was kept later than an interval after the time before.
    late: Vec<Duration>,
    /// How often a lease was gone.
    gone: u64,
    /// When the last answer to any of the workers came, and the longest time without one.
    heard_at: Option<Duration>,
    silence: Duration,
}

/// Says `owned` when all own. Told to `begin` it begins to count; told to `end` it says `late` for each renewal, then
/// `done` with how many ownerships ended, how many leases were gone, and the longest time in which nobody was answered.
pub(crate) async fn own_one_each(part: &Part, mut told: Told) -> Result<(), Failure> {
    let renewals = Arc::new(Mutex::new(Renewals::default()));
    let interval = part.timing()?.renew();
    let heard = {
        let renewals = renewals.clone();
        move |request: &Request, answer: &Answer| {
            let now = clock::boottime();
            let mut renewals = renewals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = renewals.heard_at.replace(now) {
                renewals.silence = renewals.silence.max(now.saturating_sub(before));
            }
            match answer.said {
                Said::Kept { .. } => {
                    if let Some(before) = renewals.kept.insert(request.lease, now) {
                        renewals.late.push(now.saturating_sub(before + interval));
                    }
                }
                Said::Gone if matches!(request.call, Call::Renew) => renewals.gone += 1,
                _ => {}
            }
        }
    };
    let opened = OpenStore::new(Counted::new(part.site.store().await?, heard))?;
    let mut all = Vec::with_capacity(part.count);
    for number in 0..part.count {
        let worker = Worker::on(opened.clone()).timing(part.timing()?).connect().await?;
        let resource = format!("workers.{}.{number}", std::process::id());
        let own = worker.campaign(resource).acquire().await?;
        all.push((worker, own));
        // Spread over an interval, as workers of a service are that start when they like.
        tokio::time::sleep(interval / u32::try_from(part.count)?).await;
    }
    say("owned", &[]);
    while let Some(word) = told.recv().await {
        let mut renewals = renewals.lock().unwrap_or_else(PoisonError::into_inner);
        if word == "begin" {
            renewals.late.clear();
            renewals.silence = Duration::ZERO;
            continue;
        }
        for late in renewals.late.drain(..) {
            say("late", &[nanos(late)]);
        }
        let ended = all.iter().filter(|(_, own)| !own.holds()).count();
        say("done", &[u64::try_from(ended)?, renewals.gone, nanos(renewals.silence)]);
    }
    Ok(())
}
