//! A store that does not answer costs no more than it must, and nothing has to be started again.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tenure::admin::Admin;
use tenure::{Change, EndReason, ErrorKind};
use testkit::{soon, until};

use super::shaky::{Mood, Shaky};
use super::told::Told;

/// Short, because its end is waited for; what matters here are orders and numbers.
const TTL: Duration = Duration::from_millis(900);

// req: T7 E6 H9
#[tokio::test]
async fn errors_of_the_store_are_told_and_retried_with_spread_pauses_and_then_ownership_begins() {
    let told = Told::listen();
    let (store, worker) = Shaky::with_worker(Duration::from_secs(3), "hopeful").await;
    store.is(Mood::Fails);
    store.hints_are(Mood::Fails);

    let campaign = worker.campaign("job").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| store.asked("open").len() >= 14).await;
    assert!(!campaign.is_owner());
    store.is(Mood::Well);
    until(|| campaign.is_owner()).await;

    let asked = store.asked("open");
    let pauses: Vec<Duration> = asked.iter().zip(&asked[1..]).map(|(one, two)| *two - *one).collect();
    // They grow to a third of the ttl; from then on only chance tells them apart.
    let (first, grown) = (pauses[..3].iter().min().expect("some"), &pauses[6..13]);
    let (shortest, longest) = (grown.iter().min().expect("some"), grown.iter().max().expect("some"));
    // Chance alone makes one at most twice as long as another. A busy machine makes the first ones longer, but not all.
    assert!(*first * 4 < *longest, "{pauses:?}");
    assert!(*longest - *shortest > Duration::from_millis(5), "all alike: {grown:?}");
    let line = told.first(&["hopeful", "open", "cannot ask", "the link is cut"]).await;
    assert!(line.contains("WARN"), "{line}");
}

// req: E5 E6 E7 O13
#[tokio::test]
async fn when_the_store_goes_away_nobody_owns_and_when_it_is_back_somebody_does() {
    for mood in [Mood::Fails, Mood::Hangs] {
        let (store, worker) = Shaky::with_worker(TTL, "patient").await;
        let mut campaign = worker.campaign("job");
        let mut changes = campaign.changes();
        let campaign = campaign.obtain(async |_| {}, async |_| {}).expect("it competes");
        let first = soon(changes.next()).await;
        assert!(matches!(first, Some(Change::Acquired(_))), "{first:?}");

        store.is(mood);
        let ended = soon(changes.next()).await;
        assert!(matches!(ended, Some(Change::Ended(_, EndReason::Expired))), "{ended:?}");
        assert!(!campaign.is_owner());
        store.is(Mood::Well);

        loop {
            if let Some(Change::Acquired(grant)) = soon(changes.next()).await {
                assert_eq!(grant.term.0, 2);
                break;
            }
        }
    }
}

// req: H12 A2
#[tokio::test]
async fn whose_work_has_ended_does_not_wait_for_a_store_that_is_away() {
    let (ttl, minute) = (Duration::from_secs(3), Duration::from_secs(60));
    for mood in [Mood::Fails, Mood::Hangs] {
        let (store, worker) = Shaky::with_worker(ttl, "leaving").await;
        let campaign = worker.campaign("job").obtain(async |_| {}, async |_| {}).expect("it competes");
        until(|| campaign.is_owner()).await;
        store.is(mood);

        let began = Instant::now();
        assert!(!worker.shutdown_within(minute).await, "the store was not told");
        assert!(began.elapsed() < ttl, "{:?}", began.elapsed());

        // The store is told when it is back, and then all is done.
        let before = store.asked("close").len();
        store.is(Mood::Well);
        assert!(soon(worker.shutdown_within(minute)).await);
        assert!(store.asked("close").len() > before, "it was told nothing");
    }
}

// req: E6
#[tokio::test]
async fn who_cannot_hear_hints_can_still_own() {
    for mood in [Mood::Fails, Mood::Hangs] {
        let store = Shaky::new();
        store.hints_are(mood);
        let (one, two) = (store.worker(TTL, "one").await, store.worker(TTL, "two").await);

        let own = soon(one.campaign("job").acquire()).await.expect("a ticket");
        let waits = tokio::spawn(async move { two.campaign("job").acquire().await.map(|own| own.term()) });
        until(|| store.asked("claim").len() >= 2).await;
        soon(own.release()).await;

        assert_eq!(soon(waits).await.expect("no panic").expect("a ticket"), 2, "looking again has to do");
    }
}

// req: E2 H4
#[tokio::test]
async fn renewals_never_overlap_and_those_that_were_missed_do_not_pile_up() {
    let ttl = Duration::from_secs(6);
    let (store, worker) = Shaky::with_worker(ttl, "steady").await;
    let own = soon(worker.campaign("job").acquire()).await.expect("a ticket");
    until(|| !store.asked("renew").is_empty()).await;

    store.is(Mood::Hangs);
    let before = store.asked("renew").len();
    // One that hangs is given up and asked again, within the trust.
    until(|| store.asked("renew").len() >= before + 2).await;
    store.is(Mood::Well);
    let (healed_at, healed) = (Instant::now(), store.asked("renew").len());
    until(|| store.asked("renew").len() >= healed + 5).await;

    assert!(own.holds(), "it was silent for less than the trust");
    assert_eq!(store.most_renewing.load(Ordering::SeqCst), 1);
    // The first of the five may come at once, to make up for all that were missed.
    assert!(healed_at.elapsed() > ttl / 3 * 3, "five renewals within {:?}", healed_at.elapsed());
}

// req: H15
#[tokio::test]
async fn one_resource_and_a_hundred_cost_the_same_renewals() {
    let (few, one) = Shaky::with_worker(TTL, "one").await;
    let (many, hundred) = Shaky::with_worker(TTL, "hundred").await;
    let first = soon(one.campaign("job").acquire()).await.expect("a ticket");
    let mut owned = Vec::new();
    for n in 0..100 {
        owned.push(soon(hundred.campaign(format!("job {n}")).acquire()).await.expect("a ticket"));
    }
    let (few_before, many_before) = (few.asked("renew").len(), many.asked("renew").len());

    until(|| few.asked("renew").len() >= few_before + 8).await;

    let renewals = many.asked("renew").len() - many_before;
    assert!((7..=9).contains(&renewals), "{renewals} renewals for a hundred, 8 for one");
    assert!(first.holds() && owned.iter().all(|own| own.holds()));
}

// req: E3 O16
#[tokio::test]
async fn who_owns_is_an_error_and_never_an_old_answer_while_the_store_fails() {
    let (store, worker) = Shaky::with_worker(TTL, "asker").await;
    let campaign = worker.campaign("job").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| campaign.is_owner()).await;
    let tools = Admin::on(store.opened());
    assert_eq!(campaign.owners().await.expect("an answer")[0].worker.as_str(), "asker");
    assert_eq!(tools.read("job").await.expect("an answer").expect("it was claimed").owners.len(), 1);

    for mood in [Mood::Fails, Mood::Hangs] {
        store.is(mood);
        assert_eq!(soon(campaign.owners()).await.expect_err("no answer").kind(), ErrorKind::Unavailable);
        assert_eq!(soon(tools.read("job")).await.expect_err("no answer").kind(), ErrorKind::Unavailable);
    }
}
