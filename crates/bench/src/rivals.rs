//! Many workers that claim the same at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::store::{Answer, Call, LeaseId, OpenStore, Request, Said};
use tenure::types::ResourceName;
use tenure::{Ownership, Worker};
use tokio::sync::mpsc::unbounded_channel;

use crate::counted::Counted;
use crate::players::{RESOURCE, nanos};
use crate::process::{Part, Role, Told, say};
use crate::{Failure, clock};

/// What the workers of this process were told.
#[derive(Default)]
struct Heard {
    /// Who got an answer about what.
    answered: HashSet<(LeaseId, ResourceName)>,
    last_at: Duration,
    /// How many leases were gone.
    gone: u64,
}

/// Says `ready` when all its workers are connected. Told `join` they compete for one resource, told a number for so many;
/// told `look` it says `answered` with how many answers there were about a resource for the first time, when the last of
/// them came, and how many leases were lost. Whoever gets the one resource releases it when told to, and says how long that
/// `took`.
pub(crate) async fn claim_the_same(part: &Part, mut told: Told) -> Result<(), Failure> {
    let heard = Arc::new(Mutex::new(Heard::default()));
    let hear = |heard: &Arc<Mutex<Heard>>| {
        let heard = heard.clone();
        move |request: &Request, answer: &Answer| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            match (&request.call, &answer.said) {
                (Call::Claim(wants), Said::Claimed(_)) => {
                    for want in wants {
                        if heard.answered.insert((request.lease, want.resource.clone())) {
                            heard.last_at = clock::boottime();
                        }
                    }
                }
                (Call::Renew, Said::Gone) => heard.gone += 1,
                _ => {}
            }
        }
    };
    let mut opened = Vec::new();
    for _ in 0..if part.role == Role::Throng { 1 } else { part.count } {
        opened.push(OpenStore::new(Counted::new(part.site.store().await?, hear(&heard)))?);
    }
    let mut workers = Vec::with_capacity(part.count);
    for number in 0..part.count {
        let opened = opened[number % opened.len()].clone();
        workers.push(Worker::on(opened).timing(part.timing()?).connect().await?);
    }
    say("ready", &[]);
    let (won, mut owned) = unbounded_channel::<Ownership>();
    let (mut own, mut kept) = (None, Vec::new());
    loop {
        tokio::select! {
            Some(won) = owned.recv() => {
                say("owns", &[]);
                own = Some(won);
            }
            word = told.recv() => match word.as_deref() {
                Some("join") => for worker in &workers {
                    let (campaign, won) = (worker.campaign(RESOURCE).acquire(), won.clone());
                    tokio::spawn(async move {
                        match campaign.await {
                            // Nobody wants it when the process ends.
                            Ok(own) => drop(won.send(own)),
                            Err(error) => eprintln!("bench: a rival gave up: {error}"),
                        }
                    });
                },
                Some("release") => {
                    let own: Ownership = own.take().ok_or("told to release, but owns nothing")?;
                    let began = clock::boottime();
                    own.release().await;
                    say("took", &[nanos(clock::boottime().saturating_sub(began))]);
                }
                Some("look") => {
                    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                    say("answered", &[u64::try_from(heard.answered.len())?, nanos(heard.last_at), heard.gone]);
                }
                Some(many) => {
                    let many: usize = many.parse()?;
                    for worker in &workers {
                        for number in 0..many {
                            let campaign = worker.campaign(format!("contended.{number}"));
                            kept.push(campaign.obtain(async |_| {}, async |_| {})?);
                        }
                    }
                }
                None => return Ok(()),
            },
        }
    }
}
