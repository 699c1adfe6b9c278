//! The backend in memory, on a clock that is moved by hand, keeps what [`Backend`] promises, whatever it can do.

use std::sync::Arc;
use std::time::Duration;

use tenure::conformance::Restarted;
use tenure::conformance::backend::BackendFixture;
use tenure::store::MemoryBackend;
use tenure::store::backend::Backend;
use tenure::testing::ManualClock;
use tenure_core::Capabilities;

struct Memory {
    clock: ManualClock,
    backend: Arc<MemoryBackend>,
    restarts: fn(&MemoryBackend) -> Restarted,
}

impl Memory {
    fn fresh(clock: bool, together: bool, restarts: fn(&MemoryBackend) -> Restarted) -> Self {
        let by_hand = ManualClock::new();
        let capabilities = Capabilities { clock, together, ..MemoryBackend::CAPABILITIES };
        let backend = MemoryBackend::by_hand(by_hand.clone()).with(capabilities);
        Self { clock: by_hand, backend: Arc::new(backend), restarts }
    }
}

impl BackendFixture for Memory {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn restart(&mut self) -> Restarted {
        (self.restarts)(&self.backend)
    }
}

fn same_life(_: &MemoryBackend) -> Restarted {
    Restarted::SameLife
}

fn new_life(backend: &MemoryBackend) -> Restarted {
    backend.new_life();
    Restarted::NewLife
}

fn all_lost(backend: &MemoryBackend) -> Restarted {
    backend.lose_all();
    Restarted::NewLife
}

mod with_all_it_can_do {
    use super::*;

    tenure::backend_conformance!(Memory::fresh(true, true, same_life));
}

mod without_a_clock {
    use super::*;

    tenure::backend_conformance!(Memory::fresh(false, true, new_life));
}

mod one_record_at_a_time {
    use super::*;

    tenure::backend_conformance!(Memory::fresh(true, false, all_lost));
}

mod without_a_clock_and_one_record_at_a_time {
    use super::*;

    tenure::backend_conformance!(Memory::fresh(false, false, same_life));
}

/// On the clock of the system, which runs by itself.
mod on_the_clock_of_the_system {
    use super::*;

    struct System(Arc<MemoryBackend>);

    impl BackendFixture for System {
        fn backend(&self) -> Arc<dyn Backend> {
            self.0.clone()
        }

        async fn restart(&mut self) -> Restarted {
            same_life(&self.0)
        }
    }

    tenure::backend_conformance!(System(Arc::new(MemoryBackend::new())));
}
