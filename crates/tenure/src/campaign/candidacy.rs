//! One worker's place in one campaign, between the driver that decides and whoever does the work.

use std::sync::Arc;

use tenure_core::{EndReason, Grant, Input, ResourceName, Token};

use crate::Error;
use crate::campaign::changes::Listeners;
use crate::campaign::state::{Announcer, CampaignState, Seen, Signal};
use crate::lead::Lead;
use crate::runtime::engine::{Command, Wanted};
use crate::worker::Inner;

/// A campaign that was begun. Dropping it leaves; the ticket is free when the work has ended, too.
#[derive(Debug)]
pub(crate) struct Candidacy {
    pub(crate) resource: ResourceName,
    pub(crate) state: Arc<CampaignState>,
    worker: Arc<Inner>,
    seen: Seen,
    has_left: bool,
}

impl Candidacy {
    /// Begins to compete.
    pub(crate) fn new(worker: Arc<Inner>, wanted: Wanted, listeners: Listeners) -> Result<Self, Error> {
        let resource = wanted.resource().clone();
        let announcer = Announcer { worker: worker.label.clone(), resource: resource.clone(), listeners };
        let state = match &wanted {
            Wanted::Tickets(_) => CampaignState::new(worker.page.clone(), worker.clocks.clone(), announcer),
            Wanted::All(_) => CampaignState::unlimited(worker.clocks.clone(), announcer)
                .map_err(|error| Error::unavailable("cannot map a page").because(error))?,
        };
        worker.reserve(&resource)?;
        let sent = worker.commands.send(Command::Enter(wanted, state.clone()));
        let candidacy = Self { resource, state, worker, seen: Seen::default(), has_left: false };
        sent.map(|()| candidacy)
    }

    /// What the driver says next; nothing when the campaign is over.
    pub(crate) async fn signal(&mut self) -> Option<Signal> {
        let signal = self.state.signal(&mut self.seen).await;
        self.has_left = signal.is_none();
        signal
    }

    /// The ownership is to end for a reason of the work's own.
    pub(crate) fn end(&self, token: Token, ending: EndReason) {
        self.tell(Input::End { resource: self.resource.clone(), token, ending });
    }

    pub(crate) fn leave(&self) {
        self.tell(Input::Leave(self.resource.clone()));
    }

    /// Waits until the campaign has left, but not for work that blocks its thread. The driver does not let a store that does
    /// not answer prolong this.
    pub(crate) async fn left(&mut self) {
        let worker = self.worker.clone();
        let left = async { while self.signal().await.is_some() {} };
        // Boxed, as what is rare: what a task may ever need it takes for as long as it lives.
        let blocked = Box::pin(worker.doze(worker.timing.ttl() / 3));
        tokio::select! {
            () = left => {}
            () = blocked => {}
        }
    }

    /// The ownership, as the work sees it.
    pub(crate) fn lead(&self, grant: Grant) -> Lead {
        Lead::new(self.resource.clone(), grant, self.state.clone(), &self.worker.commands)
    }

    pub(crate) fn worker(&self) -> &Arc<Inner> {
        &self.worker
    }

    fn tell(&self, input: Input) {
        // The driver may have ended, and everything with it.
        let _gone = self.worker.commands.send(Command::Do(input));
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        if !self.has_left {
            self.leave();
        }
        self.state.leave();
        self.worker.free(&self.resource);
    }
}
