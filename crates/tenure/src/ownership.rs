//! A ticket in one's hands: the check, the numbers to fence writes with, and the ways to give it up.

use std::fmt;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::{EndReason, Grant, Holder, Input, Payload, Published, ResourceName};
use tokio::sync::{mpsc, oneshot};

use crate::Error;
use crate::campaign::candidacy::Entered;
use crate::campaign::state::Seat;
use crate::campaign::work_guard::Stint;
use crate::runtime::engine::Command;
use crate::runtime::telemetry;

/// The right to do the work of a resource, for as long as [`holds`](Self::holds) says so.
///
/// The one that [`acquire`](crate::CampaignBuilder::acquire) returns is given up when it is dropped. The one that
/// is handed to a callback or to work is a view: the ticket stays until the ownership ends.
#[must_use = "a ticket that was acquired is given up when this is dropped"]
pub struct Ownership {
    resource: ResourceName,
    grant: Grant,
    seat: Arc<Seat>,
    commands: mpsc::UnboundedSender<Command>,
    /// The place in the campaign and the work, if this value is all that there is to it: they go with it.
    held: Option<Held>,
}

/// In the order in which they are dropped: it leaves, and then the work has ended.
#[derive(Debug)]
struct Held {
    entered: Entered,
    stint: Arc<Stint>,
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

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ownership")
            .field("resource", &self.resource.as_str())
            .field("ticket", &self.ticket())
            .field("term", &self.term())
            .field("token", &self.token())
            .field("holds", &self.holds())
            .finish()
    }
}

impl Ownership {
    /// Whether the ownership is good right now. Evaluated when it is called: after a pause that outlasts the
    /// trust the first call says no. No lock, no allocation, no I/O.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.seat.holds(self.grant.token)
    }

    /// The resource that is owned.
    #[must_use]
    pub fn resource(&self) -> &ResourceName {
        &self.resource
    }

    /// Which of the K seats: 0 to K-1.
    #[must_use]
    pub fn ticket(&self) -> u32 {
        self.grant.ticket.0
    }

    /// The how-manieth ownership of the resource this is.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.grant.term.0
    }

    /// The number that fences writes: larger than that of every ownership before.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token.0
    }

    /// For how long nobody else can own this ticket, if nothing is renewed from here on: the time that a cleanup
    /// has. It outlasts [`holds`](Self::holds) by the margin.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.seat.remaining(self.grant.token)
    }

    /// The lock by which the store proves the death of a worker, for work that lives in another process: let that
    /// process inherit it before it begins, and nobody takes the ticket for free as long as it runs, also when
    /// this process is killed. It is a descriptor with CLOEXEC and of no other use; keep no copy of it here.
    /// Nothing on a store that proves no deaths, and for a resource without limit.
    ///
    /// # Errors
    /// When the ownership has ended, or the lock cannot be had. Do not begin the work then.
    // req: O12
    pub async fn lock(&self) -> Result<Option<OwnedFd>, Error> {
        if self.seat.is_unlimited() {
            return Ok(None);
        }
        let ended = || Error::refused(format!("the ownership of `{}` has ended", self.resource));
        let (answer, answered) = oneshot::channel();
        let ask = Command::ShareLock(self.resource.clone(), self.grant.token, answer);
        self.commands.send(ask).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    /// Sends to all workers of the namespace that have subscribed to the resource, with the token: whoever gets it drops
    /// what an earlier owner sends later. At most once: it may be lost, and is never doubled. Whether this is still the
    /// owner is looked at by the store, in the same step.
    ///
    /// # Errors
    /// When there are more than 4096 bytes, the store does not answer as long as the ownership lasts, or the resource is
    /// without limit.
    // req: E15
    pub async fn publish(&self, bytes: &[u8]) -> Result<Published, Error> {
        let payload = Payload::new(bytes)?;
        if self.seat.is_unlimited() {
            return Err(Error::refused(format!(
                "`{}` is without limit, and has no owner to speak",
                self.resource
            )));
        }
        let holder = if self.holds() { self.holder().await } else { None };
        let Some(holder) = holder else { return Ok(Published::NotOwner) };
        let (answer, answered) = oneshot::channel();
        let ask = Command::Ask(Box::new(move |store| {
            Box::pin(async move {
                // Whoever asked may have given up.
                let _gone = answer.send(store.publish(&holder, &payload).await);
            })
        }));
        let unknown =
            || Error::unavailable(format!("cannot tell whether the message of `{}` was sent", self.resource));
        self.commands.send(ask).map_err(|_| unknown())?;
        match self.run(answered).await {
            Ok(Ok(said)) => said,
            Ok(Err(_)) | Err(Lost(_)) => Err(unknown()),
        }
    }

    /// As whom the store knows this owner; nothing when the ownership has ended.
    pub(crate) async fn holder(&self) -> Option<Holder> {
        let (answer, answered) = oneshot::channel();
        let ask = Command::Holder(self.resource.clone(), self.grant.token, answer);
        // The driver may have ended, and the ownership with it.
        self.commands.send(ask).ok()?;
        answered.await.ok().flatten()
    }

    /// Waits for the end of the ownership, and says why it ended. Returns at once if it has.
    pub async fn lost(&self) -> EndReason {
        self.seat.lost(self.grant.token).await
    }

    /// Runs `work` while the ownership lasts; when it ends first, the work is dropped where it stands. It is looked
    /// at before every step of the work: after a pause that outlasts the trust, no more of it is done.
    ///
    /// # Errors
    /// [`Lost`] when the ownership ended first.
    // req: E8
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        poll_fn(|cx| {
            if let Poll::Ready(ending) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(Lost(ending)));
            }
            // The driver may not have noticed yet that the trust is over; the clock says so already.
            if !self.holds() {
                return Poll::Ready(Err(Lost(EndReason::Expired)));
            }
            let done = work.as_mut().poll(cx);
            done.map(|done| if self.holds() { Ok(done) } else { Err(Lost(EndReason::Expired)) })
        })
        .await
    }

    /// Gives the ownership up. From the hand of a callback the worker stays a candidate, and others compete once the
    /// work and its cleanup have ended. One that was acquired leaves: when this returns others can have the ticket,
    /// unless the store did not answer for a third of the ttl.
    // req: O9
    pub async fn release(self) {
        let Self { resource, grant, seat, commands, held } = self;
        match held {
            Some(Held { mut entered, stint }) => {
                match Arc::into_inner(stint) {
                    Some(stint) => {
                        entered.release(grant.token);
                        stint.depart();
                        entered.has_departed().await;
                    }
                    // Somebody else still does a part of the work.
                    None => {
                        entered.leave();
                        entered.is_over().await;
                    }
                }
            }
            None => {
                let end = Input::End { resource, token: grant.token, ending: EndReason::SteppedDown };
                // The driver may have ended, and the ownership with it.
                let _gone = commands.send(Command::Do(end));
                seat.lost(grant.token).await;
            }
        }
    }

    pub(crate) fn view(
        resource: ResourceName,
        grant: Grant,
        seat: Arc<Seat>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self { resource, grant, seat, commands, held: None }
    }

    pub(crate) fn by_hand(entered: Entered, stint: Arc<Stint>) -> Self {
        let view = entered.view(stint.grant);
        Self { held: Some(Held { entered, stint }), ..view }
    }
}
