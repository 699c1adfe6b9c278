//! What users hold in their hands: names, the check, and handles that can be used twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use testkit::{soon, until};

use super::shaky::{Mood, Shaky};

mod student {
    tenure::resources! {
        /// What students need.
        pub enum Job in "student" { Echo = "echo", Report = "report" (tickets: 2) }
    }
}

mod teacher {
    tenure::resources! { pub enum Job in "teacher" { Echo = "echo" } }
}

// req: O6 O3 O5
#[tokio::test]
async fn names_of_two_modules_never_collide_and_bring_their_tickets() {
    let (_store, worker) = Shaky::with_worker(Duration::from_secs(15), "one").await;

    let student = soon(worker.campaign(student::Job::Echo).acquire()).await.expect("a ticket");
    let teacher = soon(worker.campaign(teacher::Job::Echo).acquire()).await.expect("another one");

    assert_eq!((student.resource().as_str(), teacher.resource().as_str()), ("student.echo", "teacher.echo"));
    assert_eq!((student::Job::Echo.tickets(), student::Job::Report.tickets()), (1, 2));
    assert!(student.holds() && teacher.holds());
}

// req: E1
#[tokio::test]
async fn the_check_takes_far_less_than_a_microsecond_whether_it_says_yes_or_no() {
    let (_store, worker) = Shaky::with_worker(Duration::from_secs(15), "quick").await;
    let owner = worker.campaign("job").obtain(async |_| {}, async |_| {}).expect("it competes");
    until(|| owner.is_owner()).await;
    let stopped = worker.campaign("other").obtain(async |_| {}, async |_| {}).expect("it competes");
    soon(stopped.stop()).await;

    for (campaign, says) in [(&owner, true), (&stopped, false)] {
        // The best of many, because others may be on the processor, too.
        let quickest = (0..200).map(|_| {
            let began = Instant::now();
            (0..1000).for_each(|_| assert_eq!(std::hint::black_box(campaign).is_owner(), says));
            began.elapsed() / 1000
        });
        let quickest = quickest.min().expect("some");
        // Without optimisation it takes about ten times as long.
        let limit = Duration::from_nanos(if cfg!(debug_assertions) { 2000 } else { 200 });
        assert!(quickest < limit, "{quickest:?}");
    }
}

// req: A3 O8 O10
#[tokio::test]
async fn stopping_again_and_again_is_harmless_in_every_state_and_nothing_runs_afterwards() {
    for mood in [Mood::Well, Mood::Fails, Mood::Hangs] {
        let (store, worker) = Shaky::with_worker(Duration::from_millis(300), "twice").await;
        let (starts, cleanups) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        store.is(mood);
        let (started, cleaned) = (starts.clone(), cleanups.clone());
        let campaign = worker.campaign("job").obtain(
            move |_| {
                started.fetch_add(1, Ordering::SeqCst);
                // Also while it starts.
                tokio::time::sleep(Duration::from_millis(20))
            },
            move |_| {
                cleaned.fetch_add(1, Ordering::SeqCst);
                async {}
            },
        );
        let campaign = campaign.expect("it returns at once, whatever the store does");
        // In the middle of the first attempt, or of the start.
        until(|| {
            !store.asked("open").is_empty() && (mood != Mood::Well || starts.load(Ordering::SeqCst) == 1)
        })
        .await;

        soon(async { tokio::join!(campaign.step_down(), campaign.stop(), campaign.stop()) }).await;
        let seen = (starts.load(Ordering::SeqCst), cleanups.load(Ordering::SeqCst));
        store.is(Mood::Well);
        soon(campaign.stop()).await;
        soon(campaign.step_down()).await;
        soon(async { tokio::join!(worker.shutdown(), worker.shutdown()) }).await;
        soon(worker.shutdown()).await;

        assert_eq!(seen.0, seen.1, "a cleanup for every start");
        assert_eq!(
            (starts.load(Ordering::SeqCst), cleanups.load(Ordering::SeqCst)),
            seen,
            "nothing ran any more"
        );
        assert!(!campaign.is_owner());
    }
}
