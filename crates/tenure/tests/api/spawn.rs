//! `spawn`, and what its work is given: a `Lead`. On the memory store, with a clock that is moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tenure::store::{MemoryStore, OpenStore, Published};
use tenure::testing::ManualClock;
use tenure::{Campaign, Change, EndReason, Lead, Timing, Worker};
use tokio::sync::mpsc;

const TTL: Duration = Duration::from_secs(15);
/// How long a condition may take to come true, in real time: nothing here waits for a lease to run out for real.
const SOON: Duration = Duration::from_secs(20);

struct Stage {
    clock: ManualClock,
    opened: OpenStore,
}

impl Stage {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::by_hand(clock.clone()));
        Self { clock, opened: OpenStore::memory(store).expect("a thread") }
    }

    async fn worker(&self) -> Worker {
        let timing = Timing::new(TTL).expect("sound");
        Worker::on(self.opened.clone()).timing(timing).connect().await.expect("a worker")
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it comes to pass soon")
}

async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

type Words = mpsc::UnboundedSender<String>;

/// Reports its start and that it was dropped, and never ends by itself.
async fn tick(lead: Lead, said: Words) {
    struct Dropped(Words, u64);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(format!("dropped {}", self.1)).ok();
        }
    }
    let _dropped = Dropped(said.clone(), lead.term());
    said.send(format!("started {}", lead.term())).ok();
    let mut has_ended = false;
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // The ownership may end during a step, but no step begins after that.
        if has_ended {
            said.send("went on after the end".to_owned()).ok();
        }
        has_ended = !lead.holds();
    }
}

fn spawn_tick(worker: &Worker) -> (Campaign, mpsc::UnboundedReceiver<String>) {
    let (said, heard) = mpsc::unbounded_channel();
    let campaign = worker.campaign("tick").spawn(move |lead| tick(lead, said.clone()));
    (campaign.expect("it competes"), heard)
}

// req: O7 O9
#[tokio::test]
async fn spawned_work_is_dropped_at_once_when_the_worker_steps_down_and_starts_again_later() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let (campaign, mut heard) = spawn_tick(&worker);
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 1"));

    // The clock stands still: no grace runs out.
    soon(campaign.step_down()).await;

    assert_eq!(soon(heard.recv()).await.as_deref(), Some("dropped 1"));
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 2"));
    assert!(campaign.is_owner());
}

// req: E8 O13
#[tokio::test]
async fn spawned_work_is_dropped_when_its_ownership_is_lost_and_starts_again_later() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let (campaign, mut heard) = spawn_tick(&worker);
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 1"));

    stage.clock.advance(TTL * 2);

    assert_eq!(soon(heard.recv()).await.as_deref(), Some("dropped 1"));
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 2"));
    until(|| campaign.is_owner()).await;
}

// req: A2 A3
#[tokio::test]
async fn stopping_a_campaign_and_shutting_down_drop_spawned_work_at_once() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let (campaign, mut heard) = spawn_tick(&worker);
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 1"));
    soon(campaign.stop()).await;
    assert_eq!(heard.recv().await.as_deref(), Some("dropped 1"));
    assert!(heard.recv().await.is_none(), "nothing runs any more");

    let (campaign, mut heard) = spawn_tick(&worker);
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 2"));
    soon(worker.shutdown()).await;
    assert_eq!(heard.recv().await.as_deref(), Some("dropped 2"));
    assert!(!campaign.is_owner());
}

// req: O7
#[tokio::test]
async fn spawned_work_that_returns_releases_the_ticket_and_leaves() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let mut builder = one.campaign("tick");
    let mut changes = builder.changes();
    let campaign = builder.spawn(move |lead| {
        let count = count.clone();
        async move {
            assert!(lead.holds());
            count.fetch_add(1, SeqCst);
            Ok::<(), std::io::Error>(())
        }
    });
    let campaign = campaign.expect("it competes");

    assert!(matches!(soon(changes.next()).await, Some(Change::Acquired(_))));
    assert!(matches!(soon(changes.next()).await, Some(Change::Ended(_, EndReason::Finished))));
    assert!(soon(changes.next()).await.is_none(), "the campaign is over");
    let own = soon(two.campaign("tick").acquire()).await.expect("a ticket");
    assert_eq!((own.term(), runs.load(SeqCst), campaign.is_owner()), (2, 1, false));
    soon(campaign.stop()).await;
    // The resource is free for another campaign of this worker.
    drop(soon(one.campaign("tick").try_acquire()).await.expect("an answer"));
}

// req: H1 H7
#[tokio::test]
async fn spawned_work_that_fails_or_panics_competes_again_after_a_while() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let tries = Arc::new(AtomicU32::new(0));
    let count = tries.clone();
    let mut builder = worker.campaign("tick");
    let mut changes = builder.changes();
    let campaign = builder.spawn(move |_| {
        let attempt = count.fetch_add(1, SeqCst);
        // Before there is a future.
        assert_ne!(attempt, 2, "the third panics at once");
        async move {
            match attempt {
                0 => return Err("the first fails"),
                1 => panic!("the second panics"),
                _ => std::future::pending::<()>().await,
            }
            Ok(())
        }
    });
    let campaign = campaign.expect("it competes");

    let mut said = Vec::new();
    while said.len() < 3 {
        stage.clock.advance(Duration::from_millis(50));
        tokio::select! {
            Some(change) = changes.next() => match change {
                Change::WorkFailed { what, .. } => said.push(what),
                Change::Ended(_, why) => assert_eq!(why, EndReason::Failed),
                _ => {}
            },
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    assert_eq!(said[..2], ["the first fails", "it panicked: the second panics"]);
    assert!(said[2].contains("the third panics at once"), "{}", said[2]);
    until(|| {
        stage.clock.advance(Duration::from_millis(50));
        // The third ownership holds until the driver has heard of the panic.
        tries.load(SeqCst) == 4 && campaign.is_owner()
    })
    .await;
    assert_eq!(tries.load(SeqCst), 4);
}

// req: A3
#[tokio::test]
async fn dropping_the_handle_of_a_campaign_does_not_stop_its_work() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let (campaign, mut heard) = spawn_tick(&one);
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("started 1"));

    drop(campaign);
    drop(one);

    assert!(soon(two.campaign("tick").try_acquire()).await.expect("an answer").is_none(), "it is taken");
    assert!(heard.try_recv().is_err());
}

// req: E8 S7
#[tokio::test]
async fn a_clone_that_outlives_its_ownership_says_so_and_keeps_nothing_alive() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let (to, mut leads) = mpsc::unbounded_channel();
    let campaign = one.campaign("tick").spawn(move |lead| {
        to.send(lead.clone()).ok();
        async move {
            lead.lost().await;
        }
    });
    let campaign = campaign.expect("it competes");
    let lead = soon(leads.recv()).await.expect("it owns");
    let same = lead.clone();
    assert!(lead.holds() && same.holds() && lead.fence() == same.fence());

    // Any clone may give it up.
    soon(same.step_down()).await;
    assert!(!lead.holds() && !same.holds());
    assert_eq!((soon(lead.lost()).await, lead.term()), (EndReason::SteppedDown, 1));
    let next = soon(leads.recv()).await.expect("it owns again");
    assert!(next.holds() && !lead.holds(), "a later ownership is another one");
    soon(lead.step_down()).await;
    assert!(next.holds(), "an old clone ends no later ownership");
    assert_eq!(soon(lead.publish(b"late")).await.expect("an answer"), Published::NotOwner);
    assert!(soon(lead.run(async {})).await.is_err());
    assert!(soon(lead.lock()).await.is_err());

    soon(campaign.stop()).await;
    drop((campaign, one));
    assert_eq!(soon(next.lost()).await, EndReason::Left);
    soon(next.step_down()).await;
    assert_eq!(soon(next.publish(b"late")).await.expect("an answer"), Published::NotOwner);
    assert!(next.remaining().is_zero() && soon(next.lock()).await.is_err());
    assert_eq!(soon(two.campaign("tick").acquire()).await.expect("a ticket").term(), 3);
}

// req: E9
#[tokio::test]
async fn an_acquired_ticket_is_released_by_its_guard_alone() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let own = soon(one.campaign("lock").acquire()).await.expect("a ticket");
    let lead = own.lead();
    assert_eq!((own.token(), own.fence()), (lead.token(), lead.fence()));

    drop(lead.clone());
    assert!(own.holds(), "a clone releases nothing");
    soon(lead.step_down()).await;
    assert!(!own.holds() && !lead.holds());
    let waiting = tokio::spawn(async move { two.campaign("lock").acquire().await });
    // As long as the guard is there, what it guards may be in use.
    let tools = tenure::admin::Admin::on(stage.opened.clone());
    let view = soon(async {
        loop {
            let view = tools.read("lock").await.expect("an answer").expect("it is known");
            if view.waiters.len() == 1 {
                return view;
            }
        }
    });
    assert_eq!(view.await.owners[0].grant.term.0, 1);

    drop(own);

    assert_eq!(soon(waiting).await.expect("no panic").expect("a ticket").term(), 2);
    assert_eq!(soon(lead.lost()).await, EndReason::SteppedDown);
}
