//! The memory store, on a clock that is moved by hand, obeys the rules.

use std::sync::Arc;
use std::time::Duration;

use tenure::ClockByHand;
use tenure::conformance::{Fixture, Restarted};
use tenure::store::{MemoryStore, Store};

struct Memory {
    clock: ClockByHand,
    store: Arc<MemoryStore>,
}

impl Memory {
    fn fresh() -> Self {
        let clock = ClockByHand::new();
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
