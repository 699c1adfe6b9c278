//! The gate for other schedulers.

use super::Stage;

// req: E10
#[tokio::test]
async fn the_gate_is_open_for_the_owner_and_shut_for_the_others() {
    let stage = Stage::new();
    let (one, two) = (stage.worker("one").await, stage.worker("two").await);
    let owner = one.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");
    stage.until(|| owner.is_owner()).await;
    let other = two.campaign("echo").obtain(async |_| {}, async |_| {}).expect("it competes");

    let own = owner.gate().expect("it owns");
    assert!(own.holds() && own.token() > 0);
    assert!(other.gate().is_none());
    // It was a look, and nothing is given up with it.
    drop(own);
    assert!(owner.gate().is_some());

    stage.clock.advance(super::TTL * 2);
    assert!(owner.gate().is_none(), "after a pause the first look says no");
}
