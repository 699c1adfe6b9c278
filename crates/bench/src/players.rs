//! What the worker processes do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::store::{Answer, Claimed, OpenStore, Request, Said};
use tenure::{Ownership, Worker};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::counted::{Counted, Counts};
use crate::process::{Part, Role, Told, say};
use crate::{Failure, allocations, clock, rivals, usage, workers};

/// What one resource is called where there is only one.
pub(crate) const RESOURCE: &str = "bench";

pub(crate) async fn play(part: Part, told: Told) -> Result<(), Failure> {
    match part.role {
        Role::Owner => own_and_release(&part, told).await,
        Role::Callbacks | Role::ByHand => own_many(&part, told).await,
        Role::Waiters => wait_in_numbers(&part, told).await,
        Role::Workers => workers::own_one_each(&part, told).await,
        Role::Rivals | Role::Throng => rivals::claim_the_same(&part, told).await,
    }
}

/// Says `waiting` when it is queued, and `owns` when its work has started. Releases when it is told to; told again, it
/// says when it `released`, and competes anew.
async fn own_and_release(part: &Part, mut told: Told) -> Result<(), Failure> {
    let store = Counted::new(part.site.store().await?, |_, answer| {
        if let Said::Claimed(claimed) = &answer.said
            && claimed.iter().all(|claimed| matches!(claimed, Claimed::Waiting(_)))
        {
            say("waiting", &[]);
        }
    });
    let worker = Worker::on(OpenStore::new(store)?).timing(part.timing()?).connect().await?;
    loop {
        let own = worker.campaign(RESOURCE).acquire().await?;
        say("owns", &[nanos(clock::boottime())]);
        if told.recv().await.is_none() {
            return Ok(());
        }
        let released_at = clock::boottime();
        own.release().await;
        if told.recv().await.is_none() {
            return Ok(());
        }
        say("released", &[nanos(released_at)]);
    }
}

/// Claims all at once; says `owned` with how long that took and what it cost, then `renewed` with every renewal.
async fn own_many(part: &Part, mut told: Told) -> Result<(), Failure> {
    let heard = |_: &Request, answer: &Answer| {
        if let Said::Kept { .. } = answer.said {
            say("renewed", &[]);
        }
    };
    let store = Counted::new(part.site.store().await?, heard);
    let worker = Worker::on(OpenStore::new(store.clone())?).timing(part.timing()?).connect().await?;
    // What is there once, whatever is owned, is not counted: the lease, threads, connections.
    let first = worker.campaign("first").acquire().await?;
    let (live, resident) = (allocations::live_bytes(), usage::resident_bytes()?);
    let began_at = clock::boottime();
    let kept = match part.role {
        Role::Callbacks => Kept::InCallbacks(obtain_all(&worker, part.count).await?),
        _ => Kept::ByHand(acquire_all(&worker, part.count).await?),
    };
    let took = clock::boottime().saturating_sub(began_at);
    // What the claims themselves needed is given back by now.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (live_then, resident_then) = (allocations::live_bytes(), usage::resident_bytes()?);
    let more = |then: usize, before: usize| u64::try_from(then.saturating_sub(before)).unwrap_or(u64::MAX);
    say("owned", &[nanos(took), more(live_then, live), more(resident_then, resident)]);
    while told.recv().await.is_some() {
        say_counts(store.counts());
    }
    drop((kept, first));
    Ok(())
}

/// What is owned, to be kept.
#[expect(dead_code, reason = "held, not looked at")]
enum Kept {
    InCallbacks(Vec<tenure::Campaign>),
    ByHand(Vec<Ownership>),
}

async fn obtain_all(worker: &Worker, count: usize) -> Result<Vec<tenure::Campaign>, Failure> {
    let started = Arc::new((AtomicUsize::new(0), tokio::sync::Notify::new()));
    let mut campaigns = Vec::with_capacity(count);
    for number in 0..count {
        let started = started.clone();
        let start = move |_| {
            if started.0.fetch_add(1, Ordering::Relaxed) + 1 == count {
                started.1.notify_one();
            }
            async {}
        };
        campaigns.push(worker.campaign(format!("many.{number}")).obtain(start, async |_| {})?);
    }
    started.1.notified().await;
    Ok(campaigns)
}

async fn acquire_all(worker: &Worker, count: usize) -> Result<Vec<Ownership>, Failure> {
    let mut tasks = Vec::with_capacity(count);
    for number in 0..count {
        tasks.push(tokio::spawn(worker.campaign(format!("many.{number}")).acquire()));
    }
    let mut owned = Vec::with_capacity(count);
    for task in tasks {
        owned.push(task.await??);
    }
    Ok(owned)
}

/// Says `queued` when all workers wait, `owns` when one of them has it; `counts` when told to, and releases.
async fn wait_in_numbers(part: &Part, mut told: Told) -> Result<(), Failure> {
    let store = Counted::new(part.site.store().await?, |_, _| {});
    let opened = OpenStore::new(store.clone())?;
    let (won, mut owned) = unbounded_channel::<Ownership>();
    for _ in 0..part.count {
        let worker = Worker::on(opened.clone()).timing(part.timing()?).connect().await?;
        tokio::spawn(pursue(worker, won.clone()));
    }
    let mut own: Option<Ownership> = None;
    loop {
        tokio::select! {
            Some(won) = owned.recv() => {
                say("owns", &[nanos(clock::boottime())]);
                own = Some(won);
            }
            word = told.recv() => match word.as_deref() {
                Some("release") => {
                    let own = own.take().ok_or("told to release, but owns nothing")?;
                    own.release().await;
                }
                Some("forget") => store.forget_looks(),
                Some(_) => say_counts(store.counts()),
                None => return Ok(()),
            },
        }
    }
}

/// Waits for the resource once. The worker stays, so that its lease does.
async fn pursue(worker: Worker, won: UnboundedSender<Ownership>) {
    match worker.campaign(RESOURCE).acquire().await {
        // Nobody wants it when the process ends.
        Ok(own) => drop(won.send(own)),
        Err(error) => eprintln!("bench: a waiter gave up: {error}"),
    }
    std::future::pending::<()>().await;
}

fn say_counts(counts: Counts) {
    say("counts", &[counts.renewals, counts.claims, counts.others, counts.most]);
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
