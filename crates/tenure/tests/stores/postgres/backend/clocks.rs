//! A server whose clock is stepped: what it stamps and which windows it lets pass follow that clock at once.

use std::time::Duration;

use tenure::store::backend::Committed;
use tenure_core::{StoreTime, Window};
use testkit::postgres::Options;
use testkit::shim::Step;

use super::fixture::{Fresh, Words, apply, commit, is_done, lease, read, set, snapshot, write};

#[tokio::test]
async fn a_step_back_moves_stamps_and_windows_and_makes_no_commit_fail() {
    let fresh = Fresh::with(Options::new().own_clock()).await;
    for back in [Duration::from_secs(20), Duration::from_secs(15 * 60)] {
        set(&fresh.backend, &lease(1), "before").await;
        let before = read(&fresh.backend, &lease(1)).await;
        let then = before.stamp.expect("a stamp");

        fresh.server().clock().step(Step::Back(back));

        // The record keeps its stamp, which now lies in the future.
        let shown = snapshot(&fresh.backend, &[lease(1)]).await;
        assert_eq!(shown.records[0], before);
        let now = shown.now.expect("a clock");
        assert!(now < then && then.since(now) > back - Duration::from_secs(5), "{now:?} {then:?}");
        // What may happen from `then` on waits until the clock is there again.
        let early =
            write(&lease(1), before.version, "early").within(Window { from: Some(then), until: None });
        assert_eq!(commit(&fresh.backend, &[early]).await.done, [Committed::Conflict(Vec::new())]);
        let inside = Window { from: Some(now), until: Some(then) };
        let stamp = apply(&fresh.backend, write(&lease(1), before.version, "after").within(inside)).await;
        assert!(StoreTime::from_micros(stamp) < then);
    }
}

#[tokio::test]
async fn a_step_forward_closes_windows() {
    let fresh = Fresh::with(Options::new().own_clock()).await;
    let version = set(&fresh.backend, &lease(1), "before").await;
    let now = snapshot(&fresh.backend, &[]).await.now.expect("a clock");
    let within = Window { from: None, until: Some(now + Duration::from_secs(15)) };

    fresh.server().clock().step(Step::Forward(Duration::from_secs(20)));

    let late = write(&lease(1), version, "late").within(within);
    assert!(!is_done(&commit(&fresh.backend, &[late]).await.done[0]));
}
