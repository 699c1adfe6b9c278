//! One worker's place in one campaign, between the driver that decides and whoever does the work.

use std::sync::Arc;

use tenure_core::{EndReason, Grant, Input, ResourceName, Token};

use crate::Error;
use crate::campaign::changes::Listeners;
use crate::campaign::state::{Announcer, Seat, Seen, Signal};
use crate::lead::Lead;
use crate::runtime::engine::{Command, Wanted};
use crate::worker::Inner;

/// A campaign that was begun. Dropping it leaves; the ticket is free when the work has ended, too.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) resource: ResourceName,
    pub(crate) seat: Arc<Seat>,
    worker: Arc<Inner>,
    seen: Seen,
    has_left: bool,
}

impl Entered {
    /// Begins to compete.
    pub(crate) fn new(worker: Arc<Inner>, wanted: Wanted, listeners: Listeners) -> Result<Self, Error> {
        let resource = wanted.resource().clone();
        let announcer = Announcer { worker: worker.label.clone(), resource: resource.clone(), listeners };
        let seat = match &wanted {
            Wanted::Tickets(_) => Seat::new(worker.page.clone(), worker.clocks.clone(), announcer),
            Wanted::All(_) => Seat::unlimited(worker.clocks.clone(), announcer)
                .map_err(|error| Error::unavailable("cannot map a page").because(error))?,
        };
        worker.reserve(&resource)?;
        let sent = worker.commands.send(Command::Enter(wanted, seat.clone()));
        let entered = Self { resource, seat, worker, seen: Seen::default(), has_left: false };
        sent.map(|()| entered)
    }

    /// What the driver says next; nothing when the campaign is over.
    pub(crate) async fn signal(&mut self) -> Option<Signal> {
        let signal = self.seat.signal(&mut self.seen).await;
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

    /// Waits until the campaign has left. The driver does not let a store that does not answer prolong this.
    pub(crate) async fn left(&mut self) {
        while self.signal().await.is_some() {}
    }

    /// The ownership, as the work sees it.
    pub(crate) fn lead(&self, grant: Grant) -> Lead {
        Lead::new(self.resource.clone(), grant, self.seat.clone(), &self.worker.commands)
    }

    pub(crate) fn worker(&self) -> &Arc<Inner> {
        &self.worker
    }

    fn tell(&self, input: Input) {
        // The driver may have ended, and everything with it.
        let _gone = self.worker.commands.send(Command::Do(input));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.has_left {
            self.leave();
        }
        self.seat.leave();
        self.worker.free(&self.resource);
    }
}
