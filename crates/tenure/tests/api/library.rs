//! The library on the memory store, with a clock that is moved by hand wherever time matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::store::{MemoryStore, OpenStore, Pending, Store};
use tenure::testing::ManualClock;
use tenure::{Change, EndReason, ErrorKind, Tickets, Timing, Worker};
use testkit::{soon, until};
use tokio::sync::mpsc;

const TTL: Duration = Duration::from_secs(15);

// req: O1 O7 O10 O11
#[tokio::test]
async fn one_of_three_workers_starts_and_after_it_leaves_another_does() {
    let stage = Stage::new();
    let workers = [stage.worker().await, stage.worker().await, stage.worker().await];
    let (said, mut heard) = mpsc::unbounded_channel();
    let compete = |worker: &Worker| {
        let (said, label) = (said.clone(), worker.label().to_owned());
        let start = move |lead: tenure::Lead| {
            said.send((label.clone(), lead.term())).expect("the test listens");
            async {}
        };
        worker.campaign("echo").obtain(start, async |_| {})
    };
    let campaigns: Vec<_> = workers.iter().map(|worker| compete(worker).expect("it competes")).collect();

    let (first, term) = soon(heard.recv()).await.expect("a start");
    assert_eq!(term, 1);
    let owners: Vec<usize> = (0..3).filter(|n| campaigns[*n].is_owner()).collect();
    assert_eq!(owners.len(), 1);
    assert_eq!(workers[owners[0]].label(), first);
    workers[owners[0]].shutdown().await;

    let (second, term) = soon(heard.recv()).await.expect("another start");
    assert_ne!(first, second);
    assert_eq!(term, 2);
}

#[tokio::test]
async fn a_lease_that_is_closed_from_outside_lets_the_next_one_in() {
    let stage = Stage::new();
    let page = Arc::new(tenure::guard::SharedPage::map().expect("a page"));
    let dead = stage.builder().guarded_by(page.clone()).connect().await.expect("a worker");
    let next = stage.worker().await;
    let own = soon(dead.campaign("echo").acquire()).await.expect("a ticket");
    let waiting = tokio::spawn(async move { next.campaign("echo").acquire().await });

    stage.until_waits("echo", 1).await;
    let tools = tenure::admin::Admin::on(stage.opened.clone());
    let why = tenure::store::Closing::Proved;
    // Of one that nobody knows nothing comes.
    tools.close(tenure::store::LeaseId(7), why).await.expect("an answer");
    assert!(!waiting.is_finished() && own.holds());
    tools.close(page.look().lease(), why).await.expect("an answer");

    assert_eq!(soon(waiting).await.expect("it runs").expect("a ticket").term(), 2);
    let history = tools.history("echo").await.expect("an answer");
    assert_eq!(history[1].what, tenure::admin::HistoryEvent::Died);
}

#[tokio::test]
async fn measuring_a_store_asks_and_renews_and_leaves_nothing_behind() {
    let opened = OpenStore::memory(Arc::new(MemoryStore::default())).expect("a store");
    let (tools, span) = (tenure::admin::Admin::on(opened.clone()), Duration::from_millis(20));

    let fresh = tools.measure("probe", span).await.expect("answers");
    assert!(!fresh.asked.is_empty() && !fresh.renewed.is_empty());
    assert_eq!(fresh.longest, Duration::ZERO);
    let timing = Timing::new(Duration::from_secs(3)).expect("it is sound");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let own = worker.campaign("job").acquire().await.expect("it owns");

    // The lease that it renewed was not longer than any before; nobody was kept waiting, nothing is written down.
    for _ in 0..2 {
        assert_eq!(tools.measure("probe", span).await.expect("answers").longest, Duration::from_secs(3));
    }
    assert!(own.holds());
    let view = tools.read("job").await.expect("an answer").expect("it was claimed");
    assert_eq!((view.owners.len(), view.waiters.len()), (1, 0));
    assert_eq!(tools.history_of_all().await.expect("an answer").len(), 1);
    assert!(tools.measure("", span).await.is_err(), "no label");
}

// req: O8 T6
#[tokio::test]
async fn the_cleanup_runs_once_per_win_and_before_the_ticket_is_free() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let (said, mut heard) = mpsc::unbounded_channel();
    let compete = |worker: &Worker, name: &'static str| {
        let (starts, cleans) = (said.clone(), said.clone());
        worker.campaign("echo").obtain(
            move |_| {
                starts.send(format!("{name} starts")).expect("heard");
                async {}
            },
            move |ending| {
                let cleans = cleans.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    cleans.send(format!("{name} cleans up after {ending:?}")).expect("heard");
                }
            },
        )
    };
    let campaign = compete(&one, "one").expect("it competes");
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("one starts"));
    let _other = compete(&two, "two").expect("it competes");
    stage.until_waits("echo", 1).await;

    campaign.step_down().await;

    assert_eq!(soon(heard.recv()).await.as_deref(), Some("one cleans up after SteppedDown"));
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("two starts"));
    campaign.stop().await;
    campaign.stop().await;
    two.shutdown().await;
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("two cleans up after Left"));
    assert!(heard.try_recv().is_err());
}

// req: H1
#[tokio::test]
async fn a_callback_that_fails_or_panics_frees_the_ticket_and_competes_again_later() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let (tries, cleanups) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));

    let (tried, cleaned) = (tries.clone(), cleanups.clone());
    let campaign = worker.campaign("echo").obtain(
        move |_| {
            let tried = tried.fetch_add(1, Ordering::SeqCst);
            async move {
                match tried {
                    0 => Err("the first fails"),
                    1 => panic!("the second panics"),
                    _ => Ok(()),
                }
            }
        },
        move |_| {
            cleaned.fetch_add(1, Ordering::SeqCst);
            async {}
        },
    );
    let campaign = campaign.expect("it competes");
    for tried in 1..=2 {
        until(|| cleanups.load(Ordering::SeqCst) == tried).await;
        until(|| {
            stage.clock.advance(Duration::from_millis(50));
            tries.load(Ordering::SeqCst) == tried + 1
        })
        .await;
    }

    until(|| campaign.is_owner()).await;
    assert_eq!((tries.load(Ordering::SeqCst), cleanups.load(Ordering::SeqCst)), (3, 2));
}

// req: O7 O13
#[tokio::test]
async fn work_competes_again_after_a_loss_and_its_own_end_is_the_result() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let mut turns = 0;
    let (said, mut heard) = mpsc::unbounded_channel();

    let work = worker.campaign("report").run(async |own| {
        turns += 1;
        said.send(own.term()).expect("heard");
        match turns {
            1 => own.lost().await,
            _ => EndReason::Finished,
        }
    });
    let disturb = async {
        heard.recv().await;
        // Beyond the trust at once: as after a suspend.
        stage.clock.advance(TTL);
        std::future::pending::<()>().await;
    };
    let done = soon(async {
        tokio::select! {
            done = work => done,
            () = disturb => unreachable!(),
        }
    })
    .await;

    assert_eq!(done.expect("a result"), EndReason::Finished);
    assert_eq!(turns, 2);
    let own = soon(worker.campaign("report").acquire()).await.expect("it is free again");
    assert!(own.term() >= 3);
}

// req: E9
#[tokio::test]
async fn by_hand_it_is_a_lock() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);

    let own = soon(one.campaign("migrate").acquire()).await.expect("a ticket");
    assert!(own.holds() && own.ticket() == 0 && own.term() == 1);
    assert!(own.remaining() > TTL / 2);
    assert!(soon(two.campaign("migrate").try_acquire()).await.expect("an answer").is_none());
    let waited = two.campaign("migrate").acquire_within(Duration::from_secs(1));
    let late = async {
        stage.until_waits("migrate", 1).await;
        stage.clock.advance(Duration::from_secs(1));
        std::future::pending::<()>().await;
    };
    stage.until_waits("migrate", 0).await;
    let error = tokio::select! {
        biased;
        own = waited => own.expect_err("it is taken"),
        () = late => unreachable!(),
    };
    assert_eq!(error.to_string(), "`migrate` was not acquired within 1s");
    assert_eq!(own.run(async { 7 }).await, Ok(7));
    let token = own.token();
    soon(own.release()).await;

    let next = soon(two.campaign("migrate").acquire()).await.expect("a ticket");
    assert!(next.token() > token && next.term() == 2);
    drop(next);
    let again = soon(one.campaign("migrate").acquire()).await.expect("dropping it releases, too");
    assert_eq!(again.term(), 3);
}

// req: E8 H17
#[tokio::test]
async fn after_a_pause_longer_than_the_lease_the_first_check_is_false() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let own = soon(worker.campaign("echo").acquire()).await.expect("a ticket");
    assert!(own.holds());

    stage.clock.advance(TTL);

    assert!(!own.holds());
    assert_eq!(soon(own.lost()).await, EndReason::Expired);
    assert_eq!(own.run(std::future::pending::<()>()).await, Err(tenure::Lost(EndReason::Expired)));
}

// req: E8
#[tokio::test]
async fn work_that_is_overtaken_by_a_pause_has_no_result() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let own = soon(worker.campaign("lock").acquire()).await.expect("a ticket");
    let mut turns = 0;

    // Nobody but the clock has noticed anything when the work returns.
    let by_hand = own.run(async { stage.clock.advance(TTL) }).await;
    let by_work = worker.campaign("work").run(async |_| {
        turns += 1;
        if turns == 1 {
            stage.clock.advance(TTL);
        }
        turns
    });

    assert_eq!(by_hand, Err(tenure::Lost(EndReason::Expired)));
    assert_eq!(soon(by_work).await.expect("it competes again"), 2);
}

// req: H13 H2
#[tokio::test]
async fn an_application_that_blocks_its_runtime_keeps_its_lease() {
    let timing = Timing::new(Duration::from_secs(3)).expect("sound");
    let worker = Worker::builder("memory:blocked").timing(timing).connect().await.expect("a worker");
    let own = soon(worker.campaign("echo").acquire()).await.expect("a ticket");

    std::thread::sleep(timing.ttl() * 3 / 2);

    assert!(own.holds());
}

// req: H14
#[tokio::test]
async fn a_wedged_application_loses_its_lease_if_it_has_a_beacon() {
    let timing = Timing::new(Duration::from_millis(300))
        .expect("sound")
        .with_beacon(Duration::from_millis(100))
        .expect("sound");
    let worker = Worker::builder("memory:wedged").timing(timing).connect().await.expect("a worker");
    let own = soon(worker.campaign("echo").acquire()).await.expect("a ticket");
    worker.beat();

    std::thread::sleep(Duration::from_millis(900));

    assert!(!own.holds());
    assert_eq!(soon(own.lost()).await, EndReason::Expired);
}

// req: O2 H16 O16 T9
#[tokio::test]
async fn with_two_tickets_two_own_under_different_numbers_and_all_can_be_listed() {
    let stage = Stage::new();
    let mut campaigns = Vec::new();
    for n in 0..3 {
        let worker =
            stage.builder().label(format!("w{n}")).metadata(format!("{{\"n\":{n}}}")).connect().await;
        let campaign = worker.expect("a worker").campaign("echo").tickets(2);
        campaigns.push(campaign.obtain(async |_| {}, async |_| {}).expect("it competes"));
    }

    until(|| campaigns.iter().filter(|campaign| campaign.is_owner()).count() == 2).await;

    let owners = campaigns[0].owners().await.expect("an answer");
    let tickets: Vec<u32> = owners.iter().map(|owner| owner.grant.ticket.0).collect();
    assert_eq!(tickets, [0, 1]);
    assert!(owners.iter().all(|owner| owner.worker.as_str().starts_with('w')));
    assert!(owners.iter().all(|owner| owner.metadata.as_str().starts_with("{\"n\":") && owner.left <= TTL));
}

// req: O4
#[tokio::test]
async fn with_unlimited_tickets_everybody_runs_and_stops() {
    let stage = Stage::new();
    let (starts, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut campaigns = Vec::new();
    for _ in 0..3 {
        let campaign = stage.worker().await.campaign("echo").tickets(Tickets::All);
        let (started, stopped) = (starts.clone(), stops.clone());
        let campaign = campaign.obtain(
            move |_| {
                started.fetch_add(1, Ordering::SeqCst);
                async {}
            },
            move |_| {
                stopped.fetch_add(1, Ordering::SeqCst);
                async {}
            },
        );
        campaigns.push(campaign.expect("it runs"));
    }
    until(|| starts.load(Ordering::SeqCst) == 3).await;
    assert!(campaigns.iter().all(tenure::Campaign::is_owner));
    assert_eq!(campaigns[0].owners().await.expect("an answer"), []);

    for campaign in &campaigns {
        soon(campaign.stop()).await;
    }

    assert_eq!(stops.load(Ordering::SeqCst), 3);
    assert!(!campaigns.iter().any(tenure::Campaign::is_owner));
}

// req: O15
#[tokio::test]
async fn competing_twice_for_one_resource_is_an_error_that_says_so() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let _first = worker.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");

    let second = worker.campaign("echo").obtain(async |_| {}, async |_| {}).expect_err("refused");

    assert_eq!(second.to_string(), "this worker competes for `echo` already");
    assert_eq!(second.kind(), ErrorKind::Refused);
}

// req: H17
#[tokio::test]
async fn changes_swallow_no_loss() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let campaign = worker.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");
    let mut changes = campaign.changes();
    until(|| campaign.is_owner()).await;

    for _ in 0..3 {
        campaign.step_down().await;
        until(|| campaign.is_owner()).await;
    }

    let mut seen = Vec::new();
    while seen.len() < 6 {
        match soon(changes.next()).await.expect("a change") {
            Change::Acquired(grant) if grant.term.0 == 1 => {}
            Change::Acquired(_) => seen.push("acquired"),
            Change::Ended(_, ending) => {
                assert_eq!(ending, EndReason::SteppedDown);
                seen.push("ended");
            }
            _ => {}
        }
    }
    assert_eq!(seen, ["ended", "acquired", "ended", "acquired", "ended", "acquired"]);
}

#[tokio::test]
async fn a_worker_that_nobody_holds_any_more_leaves_and_its_ticket_is_free() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let own = soon(one.campaign("echo").acquire()).await.expect("a ticket");
    let users = Arc::strong_count(&stage.store);

    drop((one, own));

    let next = soon(two.campaign("echo").acquire()).await.expect("it is free");
    assert_eq!(next.term(), 2);
    until(|| Arc::strong_count(&stage.store) < users).await;
}

#[tokio::test]
async fn who_runs_work_hears_from_the_beginning_what_it_waits_for() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let own = soon(one.campaign("echo").acquire()).await.expect("it is free");
    let mut campaign = two.campaign("echo");
    let mut changes = campaign.changes();

    let listen = async {
        let first = changes.next().await;
        own.release().await;
        (first, changes.next().await)
    };
    let (heard, term) = soon(async { tokio::join!(listen, campaign.run(async |own| own.term())) }).await;

    assert_eq!(term.expect("it ran"), 2);
    assert!(matches!(heard, (Some(Change::Waiting(_)), Some(Change::Acquired(_)))), "{heard:?}");
}

// req: H18 H19
#[tokio::test]
async fn an_operator_sees_who_owns_hands_over_and_evicts() {
    let stage = Stage::new();
    let tools = tenure::admin::Admin::on(stage.opened.clone());
    let campaign =
        |worker: Worker| worker.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");
    let one = campaign(stage.builder().label("one").connect().await.expect("a worker"));
    until(|| one.is_owner()).await;
    let two = campaign(stage.builder().label("two").connect().await.expect("a worker"));
    stage.until_waits("echo", 1).await;
    let owner = tools.read("echo").await.expect("an answer").expect("it was claimed").owners.remove(0);
    assert_eq!(owner.worker.as_str(), "one");

    assert_eq!(
        tools.ask("echo", 7, None).await.expect("an answer"),
        tenure::admin::StepDownReply::OtherOwners(vec![owner.grant.token])
    );
    tools.ask("echo", owner.grant.token.0, Some("two")).await.expect("an answer");
    // An eighth of an interval: it does not wait for the next renewal.
    stage.clock.advance(TTL / 24 + Duration::from_millis(1));
    until(|| two.is_owner()).await;
    let token = tools.read("echo").await.expect("an answer").expect("it was claimed").owners[0].grant.token;
    tools.evict("echo", token.0).await.expect("an answer");
    stage.clock.advance(TTL / 24 + Duration::from_millis(1));
    until(|| one.is_owner()).await;

    let what: Vec<_> =
        tools.history("echo").await.expect("an answer").iter().map(|entry| entry.what).collect();
    use tenure::admin::HistoryEvent::{Evicted, Granted, SteppedDown};
    assert_eq!(what, [Granted, SteppedDown, Granted, Evicted, Granted]);
}

// req: H12 A2
#[tokio::test]
async fn a_shutdown_returns_although_the_store_hangs_and_a_callback_too() {
    let timing = Timing::new(Duration::from_millis(200)).expect("sound");
    let opened = OpenStore::new(Arc::new(Hangs)).expect("a thread");
    let worker = Worker::on(opened).timing(timing).connect().await.expect("a worker");
    let campaign = worker.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");

    assert!(soon(campaign.owners()).await.is_err());
    assert!(soon(worker.campaign("other").try_acquire()).await.is_err());
    soon(campaign.stop()).await;
    soon(worker.shutdown()).await;
}

/// A store that never answers.
#[derive(Debug)]
struct Hangs;

impl Store for Hangs {
    fn call<'a>(&'a self, _: &'a tenure::store::Request) -> Pending<'a, tenure::store::Answer> {
        Box::pin(std::future::pending())
    }

    fn hints(&self, _: tenure::store::LeaseId) -> Pending<'_, tenure::store::Hints> {
        Box::pin(std::future::pending())
    }

    fn condition(&self) -> Pending<'_, tenure::store::Condition> {
        Box::pin(std::future::pending())
    }

    fn read<'a>(
        &'a self,
        _: Option<&'a tenure::types::ResourceName>,
    ) -> Pending<'a, Vec<tenure::admin::ResourceView>> {
        Box::pin(std::future::pending())
    }

    fn history<'a>(
        &'a self,
        _: Option<&'a tenure::types::ResourceName>,
    ) -> Pending<'a, Vec<tenure::store::Entry>> {
        Box::pin(std::future::pending())
    }

    fn ask<'a>(
        &'a self,
        _: &'a tenure::types::ResourceName,
        _: tenure::types::Token,
        _: Option<&'a tenure::types::Label>,
    ) -> Pending<'a, tenure::admin::StepDownReply> {
        Box::pin(std::future::pending())
    }

    fn evict<'a>(
        &'a self,
        _: &'a tenure::types::ResourceName,
        _: tenure::types::Token,
    ) -> Pending<'a, tenure::admin::StepDownReply> {
        Box::pin(std::future::pending())
    }

    fn job<'a>(&'a self, _: &'a tenure::store::JobStep) -> Pending<'a, tenure::store::JobSaid> {
        Box::pin(std::future::pending())
    }

    fn jobs<'a>(
        &'a self,
        _: Option<&'a tenure::types::ResourceName>,
    ) -> Pending<'a, Vec<tenure::jobs::JobView>> {
        Box::pin(std::future::pending())
    }

    fn publish<'a>(
        &'a self,
        _: &'a tenure::store::Holder,
        _: &'a tenure::store::Payload,
    ) -> Pending<'a, tenure::store::Published> {
        Box::pin(std::future::pending())
    }

    fn subscribe<'a>(&'a self, _: &'a tenure::types::ResourceName) -> Pending<'a, tenure::store::Messages> {
        Box::pin(std::future::pending())
    }
}

// req: T10
#[tokio::test]
async fn run_if_owner_gives_nothing_on_those_who_do_not_own() {
    let stage = Stage::new();
    let (one, two) = (stage.worker().await, stage.worker().await);
    let owner = one.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| owner.is_owner()).await;
    let other = two.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");

    assert_eq!(owner.run_if_owner(async |own| own.term()).await, Some(1));
    assert_eq!(other.run_if_owner(async |own| own.term()).await, None);
}

// req: H11 T5
#[tokio::test]
async fn bad_input_is_refused_with_the_value_and_the_limit() {
    let stage = Stage::new();
    let worker = stage.worker().await;
    let refused = [
        Worker::connect("carrier-pigeon:coo").await.map(drop),
        Worker::connect("sqlite::memory:").await.map(drop),
        Worker::connect("sqlite:a.db?mode=rw").await.map(drop),
        Worker::connect("sqlite:/nowhere/at/all/a.db").await.map(drop),
        Worker::builder("memory:").label("").connect().await.map(drop),
        Worker::builder("memory:").namespace("No").connect().await.map(drop),
        Worker::builder("memory:").metadata("{nonsense").connect().await.map(drop),
        Worker::builder("memory:").metadata("1".repeat(5000)).connect().await.map(drop),
        worker.campaign("").acquire().await.map(drop),
        worker.campaign("a\tb").acquire().await.map(drop),
        worker.campaign("r").tickets(0).acquire().await.map(drop),
    ];

    let words = [
        "unknown store URL scheme \"carrier-pigeon\"",
        "sqlite path \":memory:\" is not the path of a file",
        "sqlite URL parameter \"mode=rw\" is not proof=on or proof=off",
        "/nowhere/at/all",
        "label \"\" is not 1 to 100 bytes",
        "namespace \"No\" is not 1 to 40 of a-z",
        "metadata \"{nonsense\" is not JSON",
        "metadata \"1111",
        "resource name \"\" is not 1 to 200 bytes",
        "resource name \"a\\tb\" is not 1 to 200 bytes",
        "number of tickets \"0\" is not 1 to 1000",
    ];
    for (refused, words) in refused.into_iter().zip(words) {
        let error = refused.expect_err(words);
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(words), "{error}");
    }
}

// ---- the stage ---------------------------------------------------------------------------------------------

struct Stage {
    clock: ManualClock,
    opened: OpenStore,
    store: Arc<MemoryStore>,
}

impl Stage {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::by_hand(clock.clone()));
        let opened = OpenStore::memory(store.clone()).expect("a thread");
        Self { clock, opened, store }
    }

    fn builder(&self) -> tenure::WorkerBuilder {
        Worker::on(self.opened.clone()).timing(Timing::new(TTL).expect("sound"))
    }

    async fn worker(&self) -> Worker {
        self.builder().connect().await.expect("a worker")
    }

    /// Until so many wait for the resource, as the store sees it.
    async fn until_waits(&self, resource: &str, waiters: usize) {
        let name = tenure::types::ResourceName::new(resource).expect("a name");
        soon(async {
            loop {
                let views = self.store.read(Some(&name)).await.expect("an answer");
                if views.iter().any(|view| view.waiters.len() == waiters) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}
