//! The worker process: competes, and while it owns writes so into its book.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::{Campaign, CampaignBuilder, Lead, Timing, Worker};
use testkit::book::{Book, Line};
use testkit::boottime;
use testkit::child::say;
use testkit::part::Part;
use tokio::signal::unix::{SignalKind, signal};

/// How often an owner looks and writes.
const BEAT: Duration = Duration::from_millis(1);

/// How long a store may be away when a worker starts.
const AT_LAST: Duration = Duration::from_secs(60);

/// How long a cleanup takes.
pub(crate) const CLEANUP: Duration = Duration::from_millis(50);

/// As an application does it: competes from its start on, and on SIGTERM or SIGINT leaves and ends.
pub(crate) async fn works(part: &Part) {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate()).expect("a signal"),
        signal(SignalKind::interrupt()).expect("a signal"),
    );
    let (worker, book) = (connect(part).await, Arc::new(Book::begin(&part.folder, &part.name)));
    let _campaign = compete(worker.campaign("job").tickets(part.tickets), book);
    say("competes");

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    worker.shutdown().await;
}

/// What must never be: one that does not ask whether it holds, and goes on after it has lost.
pub(crate) async fn works_for_ever(part: &Part) {
    let (worker, book) = (connect(part).await, Arc::new(Book::begin(&part.folder, &part.name)));
    let cleaned = book.clone();
    let campaign = worker.campaign("job").tickets(part.tickets);
    let start = move |lead| claim_for_ever(lead, book.clone());
    let _campaign = campaign.obtain(start, move |_| clean_up(cleaned.clone())).expect("it competes");
    say("competes");
    std::future::pending::<()>().await;
}

pub(crate) async fn connect(part: &Part) -> Worker {
    let timing = Timing::new(part.ttl).expect("sound");
    let until = Instant::now() + AT_LAST;
    loop {
        match Worker::builder(&part.url).label(&part.name).timing(timing).connect().await {
            Ok(worker) => return worker,
            // The store may be away for a while.
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Owners write so into the book, and clean up.
pub(crate) fn compete(campaign: CampaignBuilder, book: Arc<Book>) -> Campaign {
    let cleaned = book.clone();
    let start = move |lead| write_down(lead, book.clone());
    campaign.obtain(start, move |_| clean_up(cleaned.clone())).expect("it competes")
}

async fn write_down(lead: Lead, book: Arc<Book>) {
    let (at, token) = (boottime(), lead.token());
    if !lead.holds() {
        // Won, and lost before it was started.
        book.write(Line::End { at, token });
        return;
    }
    book.write(Line::Begin { at, ticket: lead.ticket(), term: lead.term(), token });
    loop {
        let at = boottime();
        if !lead.holds() {
            book.write(Line::End { at, token });
            return;
        }
        book.write(Line::Held { at, token });
        tokio::time::sleep(BEAT).await;
    }
}

async fn claim_for_ever(lead: Lead, book: Arc<Book>) {
    let token = lead.token();
    book.write(Line::Begin { at: boottime(), ticket: lead.ticket(), term: lead.term(), token });
    std::thread::spawn(move || {
        loop {
            book.write(Line::Held { at: boottime(), token });
            std::thread::sleep(BEAT);
        }
    });
}

async fn clean_up(book: Arc<Book>) {
    // Long enough for others to come in if they could.
    tokio::time::sleep(CLEANUP).await;
    book.write(Line::Cleanup { at: boottime() });
}
