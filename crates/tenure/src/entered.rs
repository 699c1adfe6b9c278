//! One worker's place in one campaign, between the driver that decides and whoever does the work.

use std::sync::Arc;

use tenure_core::{Ending, Grant, Input, ResourceName, Token, Want};
use tokio::sync::mpsc;

use crate::Error;
use crate::driver::Command;
use crate::ownership::Ownership;
use crate::seat::{Listener, Seat, Signal, UNLIMITED};
use crate::worker::Inner;

/// A campaign that was begun. Dropping it ends the work, as far as the driver is concerned, and leaves.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) resource: ResourceName,
    pub(crate) seat: Arc<Seat>,
    worker: Arc<Inner>,
    signals: mpsc::UnboundedReceiver<Signal>,
    /// The token of the work that runs.
    works_under: Option<Token>,
    /// The other end of `signals`, where no driver is concerned: a resource without limit.
    alone: Option<mpsc::UnboundedSender<Signal>>,
}

impl Entered {
    /// Begins to compete.
    pub(crate) fn new(worker: Arc<Inner>, want: Want, listeners: Vec<Listener>) -> Result<Self, Error> {
        let resource = want.resource.clone();
        let seat = Seat::new(worker.page.clone(), worker.clocks.clone(), listeners);
        worker.reserve(&resource)?;
        let (to, signals) = mpsc::unbounded_channel();
        let sent = worker.commands.send(Command::Enter(want, seat.clone(), to));
        let entered = Self { resource, seat, worker, signals, works_under: None, alone: None };
        sent.map_err(|_| Error::refused("the worker has been shut down"))?;
        Ok(entered)
    }

    /// Owns from the beginning, and asks nobody.
    // req: O4
    pub(crate) fn unlimited(
        worker: Arc<Inner>,
        resource: ResourceName,
        listeners: Vec<Listener>,
    ) -> Result<Self, Error> {
        let seat = Seat::unlimited(worker.clocks.clone(), listeners)
            .map_err(|error| Error::unavailable("cannot map a page").because(error))?;
        worker.reserve(&resource)?;
        let (to, signals) = mpsc::unbounded_channel();
        seat.begin(UNLIMITED);
        let _open = to.send(Signal::Start(UNLIMITED));
        Ok(Self { resource, seat, worker, signals, works_under: None, alone: Some(to) })
    }

    /// What the driver says next; nothing when the campaign is over.
    pub(crate) async fn signal(&mut self) -> Option<Signal> {
        let signal = self.signals.recv().await;
        if let Some(Signal::Start(grant)) = signal {
            self.works_under = Some(grant.token);
        }
        signal
    }

    /// The work of this ownership and its cleanup have ended.
    pub(crate) fn stopped(&mut self, token: Token) {
        self.works_under = None;
        self.tell(Input::Stopped { resource: self.resource.clone(), token });
        if self.seat.present().is_none() {
            self.alone = None;
        }
    }

    /// The ownership is to end for a reason of the work's own.
    pub(crate) fn end(&self, token: Token, ending: Ending) {
        self.tell(Input::End { resource: self.resource.clone(), token, ending });
        self.end_alone(ending);
    }

    pub(crate) fn step_down(&self) {
        self.tell(Input::StepDown(self.resource.clone()));
    }

    pub(crate) fn leave(&self) {
        self.tell(Input::Leave(self.resource.clone()));
        self.end_alone(Ending::Left);
    }

    /// The ownership, as the work sees it.
    pub(crate) fn view(&self, grant: Grant) -> Ownership {
        Ownership::view(self.resource.clone(), grant, self.seat.clone(), self.worker.commands.clone())
    }

    pub(crate) fn worker(&self) -> &Arc<Inner> {
        &self.worker
    }

    fn end_alone(&self, ending: Ending) {
        if let (Some(to), Some(grant)) = (&self.alone, self.seat.present()) {
            self.seat.end(grant.token, ending);
            let _open = to.send(Signal::Stop(ending));
        }
    }

    fn tell(&self, input: Input) {
        if self.alone.is_none() {
            // The driver has ended, and everything with it.
            let _gone = self.worker.commands.send(Command::Do(input));
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.leave();
        // A start that nobody looked at counts as work, too: it has ended here.
        while let Ok(signal) = self.signals.try_recv() {
            if let Signal::Start(grant) = signal {
                self.works_under = Some(grant.token);
            }
        }
        if let Some(token) = self.works_under {
            self.stopped(token);
        }
        self.worker.free(&self.resource);
    }
}
