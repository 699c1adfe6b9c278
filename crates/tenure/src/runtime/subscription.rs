//! Keeps the hints of a lease coming: whenever the subscription ends it is made again.

use std::time::Duration;

use tenure_core::{Hint, Label, LeaseId};
use tokio::sync::oneshot;

use crate::runtime::clock::Clocks;
use crate::runtime::engine::random;
use crate::runtime::events::{self, Event, StoreChange};
use crate::store::Store;

/// Before the first new try of a subscription that ended; each further one waits twice as long.
pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// What comes over a subscription.
pub(crate) enum Heard {
    Hint(Hint),
    /// It was interrupted: hints may have been missed.
    Missed,
}

/// Subscribes, and subscribes again, until `tell` says that nobody wants to hear any more. `first` learns when the
/// first try has succeeded or failed.
pub(crate) async fn keep(
    store: &dyn Store,
    clocks: &Clocks,
    lease: LeaseId,
    worker: Label,
    longest_pause: Duration,
    first: oneshot::Sender<()>,
    tell: impl Fn(Heard) -> bool,
) {
    let (mut first, mut pause, mut is_lost) = (Some(first), SHORTEST_PAUSE, false);
    let tell_of_store =
        |change| events::tell(Event::Store { worker: Some(worker.clone()), resource: None, change });
    loop {
        let hints = store.hints(lease).await;
        // Whoever waited for it may have been given up.
        let again = first.take().map(|first| first.send(())).is_none();
        match hints {
            Ok(mut hints) => {
                pause = SHORTEST_PAUSE;
                if std::mem::take(&mut is_lost) {
                    tell_of_store(StoreChange::HintsRestored);
                }
                if again && !tell(Heard::Missed) {
                    return;
                }
                while let Some(hint) = hints.recv().await {
                    if !tell(Heard::Hint(hint)) {
                        return;
                    }
                }
            }
            Err(error) if !is_lost => {
                is_lost = true;
                tell_of_store(StoreChange::hints_lost(&error));
            }
            Err(_) => {}
        }
        clocks.sleep(jittered(pause)).await;
        pause = (pause * 2).min(longest_pause).max(SHORTEST_PAUSE);
    }
}

/// Between a half and the whole of it: those who lost their link at the same moment come back one by one.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause / 2 + (pause / 2) * random::<1>() as u32 / 255
}
