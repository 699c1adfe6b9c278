//! What workers say in the log.

use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tenure::types::FlapLimit;
use tenure::{Change, Timing, Worker};
use testkit::{soon, until};

use super::shaky::{Mood, Shaky};

/// All lines of this process. The driver has a thread of its own, so that only a listener for all of them hears it.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LISTENING: LazyLock<()> = LazyLock::new(|| {
    let log = tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(|| Told);
    log.init();
});

/// The lines so far.
pub(crate) struct Told;

impl Told {
    pub(crate) fn listen() -> Self {
        LazyLock::force(&LISTENING);
        Self
    }

    /// The first line with all these words in it.
    pub(crate) async fn first(&self, words: &[&str]) -> String {
        let found = || {
            let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            lines.iter().find(|line| words.iter().all(|word| line.contains(word))).cloned()
        };
        until(|| found().is_some()).await;
        found().expect("it was there")
    }
}

impl Write for Told {
    /// One line: the log writes each with one call.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(String::from_utf8_lossy(line).trim_end().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// req: T8 H17
#[tokio::test]
async fn the_log_tells_who_became_owner_who_stepped_down_and_who_lost_with_term_and_reason() {
    let told = Told::listen();
    let (store, worker) = Shaky::with_worker(Duration::from_secs(3), "teller").await;
    let campaign =
        worker.campaign("billing.invoices").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| campaign.is_owner()).await;
    soon(campaign.step_down()).await;
    until(|| campaign.is_owner()).await;
    store.is(Mood::Fails);

    let own = "worker=\"teller\" resource=billing.invoices";
    told.first(&["INFO", "became owner", own, "ticket=0", "term=1"]).await;
    told.first(&["INFO", "gives up the ownership", own, "term=1", "reason=\"stepped_down\""]).await;
    told.first(&["INFO", "became owner", own, "term=2"]).await;
    told.first(&["WARN", "lost the ownership", own, "term=2", "reason=\"expired\""]).await;
    told.first(&["WARN", "worker=\"teller\"", "call=\"renew\"", "the link is cut"]).await;
}

// req: T7
#[tokio::test]
async fn the_log_tells_that_the_store_hangs() {
    let told = Told::listen();
    let (store, _worker) = Shaky::with_worker(Duration::from_millis(300), "hung up").await;
    store.is(Mood::Hangs);

    let _campaign = _worker.campaign("job").obtain(async |_| {}, async |_| {}).expect("it competes");

    told.first(&["WARN", "worker=\"hung up\"", "call=\"open\"", "no reply from the store in time"]).await;
}

// req: T11
#[tokio::test]
async fn default_labels_are_of_host_and_pid_and_unique() {
    let (one, two) = (Worker::connect("memory:").await, Worker::connect("memory:").await);
    let (one, two) = (one.expect("a worker"), two.expect("a worker"));

    let pid = format!("-{}-", std::process::id());
    assert!(one.label().contains(&pid) && two.label().contains(&pid), "{} {}", one.label(), two.label());
    assert_ne!(one.label(), two.label());
}

#[tokio::test]
async fn the_changes_of_a_campaign_end_with_it_also_for_who_listens_only_then() {
    let worker = Worker::connect("memory:").await.expect("a worker");
    let limited = || worker.campaign("limited");
    let unlimited = || worker.campaign("unlimited").tickets(tenure::Tickets::All);
    for builder in [limited(), unlimited()] {
        let campaign = builder.obtain(async |_| {}, async |_| {}).expect("it competes");
        let mut changes = campaign.changes();
        until(|| campaign.is_owner()).await;

        soon(campaign.stop()).await;

        soon(async { while changes.next().await.is_some() {} }).await;
        assert_eq!(soon(campaign.changes().next()).await, None);
    }
    worker.shutdown().await;
}

// req: T8
#[tokio::test]
async fn a_resource_that_changes_its_owner_too_often_is_told_in_the_log_and_among_the_changes() {
    let told = Told::listen();
    let limit = FlapLimit::new(2, Duration::from_secs(60)).expect("a limit");
    let worker =
        Worker::builder("memory:").label("flapper").flapping(limit).connect().await.expect("a worker");
    let mut campaign = worker.campaign("flaps");
    let mut changes = campaign.changes();
    let campaign = campaign.obtain(async |_| {}, async |_| {}).expect("it competes");

    for _ in 0..3 {
        until(|| campaign.is_owner()).await;
        soon(campaign.step_down()).await;
    }

    let flaps = soon(async {
        loop {
            if let Some(Change::Flapping { changes, within }) = changes.next().await {
                return (changes, within);
            }
        }
    });
    assert_eq!(flaps.await, (3, Duration::from_secs(60)));
    told.first(&["WARN", "changes its owner too often", "worker=\"flapper\"", "resource=flaps", "changes=3"])
        .await;
    worker.shutdown().await;
}

// req: T11
#[tokio::test]
async fn a_waiting_worker_reports_another_one_with_its_label_and_another_number_of_tickets() {
    let told = Told::listen();
    let timing = Timing::new(Duration::from_secs(1)).expect("sound");
    let connect = async |label: &str| {
        let builder = Worker::builder("memory:peers").label(label).timing(timing);
        builder.connect().await.expect("a worker")
    };
    let (owner, waiter) = (connect("twin").await, connect("twin").await);
    let own = soon(owner.campaign("peers").acquire()).await.expect("a ticket");

    let news = async |worker: &Worker, tickets: u32| {
        let mut campaign = worker.campaign("peers").tickets(tickets);
        let mut changes = campaign.changes();
        let campaign = campaign.obtain(async |_| {}, async |_| {}).expect("it competes");
        let news = soon(async {
            loop {
                let change = changes.next().await.expect("it goes on");
                if matches!(change, Change::DuplicateLabel | Change::TicketsChanged { .. }) {
                    return change;
                }
            }
        });
        let news = news.await;
        soon(campaign.stop()).await;
        news
    };

    assert_eq!(news(&waiter, 1).await, Change::DuplicateLabel);
    told.first(&["WARN", "another live worker has the same label", "worker=\"twin\"", "resource=peers"])
        .await;
    let (other, later) = (connect("other").await, connect("later").await);
    // The worker whose lease is opened last decides how many tickets there are.
    let elsewhere = soon(other.campaign("elsewhere").acquire()).await.expect("a ticket");
    let later_own = soon(later.campaign("peers").tickets(2).acquire()).await.expect("a ticket");
    assert_eq!(news(&other, 1).await, Change::TicketsChanged { tickets: 2, asked: 1 });
    told.first(&["INFO", "tickets=2", "asked=1", "resource=peers"]).await;

    for own in [own, later_own, elsewhere] {
        own.release().await;
    }
    for worker in [owner, waiter, other, later] {
        worker.shutdown().await;
    }
}
