//! More random sequences than the suite has time for, in several namespaces at once.

use tenure::conformance::agreement::the_store_agrees_with_the_ledger_on;
use tokio::task::JoinSet;

use crate::fixture::{Fresh, shared};

/// How many are played at once, and how many each plays.
const AT_ONCE: u64 = 8;
const EACH: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_agrees_with_the_ledger_on_many_more_seeds() {
    let server = shared();
    let mut rounds = JoinSet::new();

    for number in 0..AT_ONCE {
        let fresh = Fresh::on(server.clone()).await;
        let first = 1_000 + number * EACH;
        rounds.spawn(the_store_agrees_with_the_ledger_on(first..first + EACH, fresh));
    }

    while let Some(played) = rounds.join_next().await {
        // The first mistake is the one to look at.
        played.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
}
