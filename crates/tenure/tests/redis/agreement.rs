//! More random sequences than the suite has time for, in several namespaces of one server at once.

use tenure::conformance::agreement::the_store_agrees_with_the_ledger_on;
use tenure::conformance::{Fixture, Restarted};
use tokio::task::JoinSet;

use super::*;

/// How many are played at once, and how many each plays.
const AT_ONCE: u64 = 12;
const EACH: u64 = 10;

/// A namespace of its own.
struct Fresh(Arc<RedisStore>);

impl Fixture for Fresh {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn restart(&mut self) -> Restarted {
        unreachable!("the sequences restart nothing")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_agrees_with_the_ledger_on_many_more_seeds() {
    let server = Options::new().start();
    let mut rounds = JoinSet::new();

    for number in 0..AT_ONCE {
        let namespace = format!("agreement-{number}");
        vouch_for_namespace(&server, &namespace);
        let namespace = Namespace::new(&namespace).expect("a namespace");
        let store = RedisStore::open(&server.url(), &namespace).await.expect("a store");
        let first = 1_000 + number * EACH;
        rounds.spawn(the_store_agrees_with_the_ledger_on(first..first + EACH, Fresh(Arc::new(store))));
    }

    while let Some(played) = rounds.join_next().await {
        // The first mistake is the one to look at.
        played.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
}
