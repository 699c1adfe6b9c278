//! Whether the store serves this worker, so that a trouble is told when it begins and when it ends, and once each.

use tenure_core::{Call, WaitReason, Waiting};

use crate::runtime::events::StoreChange;

/// What the worker has told of its store.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// A request failed, and no renewal was answered since.
    is_failing: bool,
    /// The store said that it grants nothing.
    is_quarantined: bool,
}

impl Health {
    pub(crate) fn failed(&mut self) {
        self.is_failing = true;
    }

    /// A request was answered. Only these show that leases can be kept again.
    pub(crate) fn answered(&mut self, call: &Call) -> Option<StoreChange> {
        let shows_it = matches!(call, Call::Renew | Call::Open { .. });
        (shows_it && std::mem::take(&mut self.is_failing)).then_some(StoreChange::Recovered)
    }

    /// A claim has to wait.
    pub(crate) fn waits(&mut self, waiting: Waiting) -> Option<StoreChange> {
        if waiting.why != WaitReason::Quarantine {
            return self.is_served();
        }
        let is_news = !std::mem::replace(&mut self.is_quarantined, true);
        is_news.then_some(StoreChange::Quarantine { left: waiting.look_again })
    }

    /// A claim was decided: the store grants tickets.
    pub(crate) fn is_served(&mut self) -> Option<StoreChange> {
        std::mem::take(&mut self.is_quarantined).then_some(StoreChange::QuarantineOver)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn waits(why: WaitReason) -> Waiting {
        Waiting { ahead: 0, look_again: Duration::from_secs(5), why }
    }

    #[test]
    fn a_quarantine_is_told_once_with_its_length_and_so_is_its_end() {
        let mut health = Health::default();

        let began = StoreChange::Quarantine { left: Duration::from_secs(5) };
        assert_eq!(health.waits(waits(WaitReason::Quarantine)), Some(began));
        assert_eq!(health.waits(waits(WaitReason::Quarantine)), None);
        assert_eq!(health.waits(waits(WaitReason::Taken)), Some(StoreChange::QuarantineOver));
        assert_eq!((health.waits(waits(WaitReason::Turn)), health.is_served()), (None, None));
    }

    #[test]
    fn a_store_has_recovered_when_a_renewal_is_answered_after_a_failure() {
        let mut health = Health::default();
        assert_eq!(health.answered(&Call::Renew), None);

        health.failed();

        assert_eq!(health.answered(&Call::Held), None);
        assert_eq!(health.answered(&Call::Renew), Some(StoreChange::Recovered));
        assert_eq!(health.answered(&Call::Renew), None);
    }
}
