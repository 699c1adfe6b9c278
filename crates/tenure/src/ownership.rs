//! The guard that `acquire` returns: dropping it releases the ticket.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tenure_core::EndReason;

use crate::campaign::candidacy::Candidacy;
use crate::campaign::work_guard::WorkGuard;
use crate::lead::Lead;
use crate::runtime::telemetry;

/// A ticket that was [acquired](crate::CampaignBuilder::acquire): a distributed lock. Dropping it releases the ticket. It
/// derefs to its [`Lead`], which has the check, the token and the rest.
#[must_use = "a ticket that was acquired is given up when this is dropped"]
pub struct Ownership {
    lead: Lead,
    // In the order in which they are dropped: the campaign leaves, and then the work has ended.
    candidacy: Candidacy,
    guard: Arc<WorkGuard>,
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ownership").field(&self.lead).finish()
    }
}

impl Deref for Ownership {
    type Target = Lead;

    fn deref(&self) -> &Lead {
        &self.lead
    }
}

impl Ownership {
    pub(crate) fn new(candidacy: Candidacy, guard: Arc<WorkGuard>) -> Self {
        Self { lead: candidacy.lead(guard.grant), candidacy, guard }
    }

    /// The same ownership without the guard, for tasks that check it. It does not keep the ticket.
    #[must_use]
    pub fn lead(&self) -> Lead {
        self.lead.clone()
    }

    /// Releases the ticket. When this returns others can have it, unless the store did not answer for a third of the ttl.
    // req: O9
    pub async fn release(self) {
        let Self { lead, mut candidacy, guard } = self;
        // From here on it does not hold, before anybody else can have the ticket.
        candidacy.state.give_up(lead.grant().token);
        candidacy.leave();
        drop(guard);
        candidacy.left().await;
    }
}

/// The ownership ended before the work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost(
    /// Why.
    pub EndReason,
);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ownership ended first: {}", telemetry::reason(self.0))
    }
}

impl std::error::Error for Lost {}
