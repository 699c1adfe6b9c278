//! The memory store, on a clock that is moved by hand, obeys the rules.

use std::sync::Arc;
use std::time::Duration;

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{MemoryStore, Store};
use tenure::testing::ManualClock;

struct Memory {
    clock: ManualClock,
    store: Arc<MemoryStore>,
}

impl Memory {
    fn fresh() -> Self {
        let clock = ManualClock::new();
        Self { clock: clock.clone(), store: Arc::new(MemoryStore::by_hand(clock)) }
    }
}

impl Fixture for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn restart(&mut self) -> Restarted {
        Restarted::SameLife
    }
}

tenure::conformance!(Memory::fresh());

/// On a clock that is moved by hand a request is one instant, so whatever differs differs in the rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_agrees_with_the_ledger_on_many_more_seeds() {
    tenure::conformance::agreement::the_store_agrees_with_the_ledger_on(1_000..1_200, Memory::fresh()).await;
}
