//! What work is given: the check, the numbers to fence writes with, and the ways to end the ownership.

use std::fmt;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::{EndReason, Grant, Holder, Input, Payload, Published, ResourceName};
use tokio::sync::oneshot;

use crate::Error;
use crate::campaign::state::CampaignState;
use crate::ownership::Lost;
use crate::runtime::engine::{Command, Commands, WeakCommands};

/// One ownership, as its work sees it. Clone it freely: a clone neither keeps nor releases the ticket, and once the
/// ownership has ended every clone says so.
#[derive(Clone)]
pub struct Lead {
    resource: ResourceName,
    grant: Grant,
    state: Arc<CampaignState>,
    /// Weak: a clone that outlives the ownership keeps no worker alive.
    commands: WeakCommands,
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("resource", &self.resource.as_str())
            .field("ticket", &self.ticket())
            .field("term", &self.term())
            .field("token", &self.token())
            .field("holds", &self.holds())
            .finish()
    }
}

impl Lead {
    /// Whether the ownership is valid right now. It is evaluated when you call it: after a pause that outlasts the
    /// trust, the first call returns false. It takes no lock, allocates nothing and does no I/O.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.state.holds(self.grant.token)
    }

    /// The resource that is owned.
    #[must_use]
    pub fn resource(&self) -> &ResourceName {
        &self.resource
    }

    /// The number of the ticket: 0 to K-1.
    #[must_use]
    pub fn ticket(&self) -> u32 {
        self.grant.ticket.0
    }

    /// The ownership's number: 1 for the first owner of the resource, then 2, 3, ...
    #[must_use]
    pub fn term(&self) -> u64 {
        self.grant.term.0
    }

    /// The number that fences writes. Each owner has a larger one than all owners before it.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.grant.token.0
    }

    /// How long the ticket stays protected if no further renewal succeeds: the time that a cleanup has. It outlasts
    /// [`holds`](Self::holds) by the margin.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.state.remaining(self.grant.token)
    }

    /// The lock by which the store proves the death of a worker, for work that runs in a child process. Let the child
    /// inherit it before the work starts: as long as the child lives, the store does not take the owner for dead, even
    /// if this process is killed. It is a descriptor with CLOEXEC; keep no copy of it here. `None` on a store that
    /// proves no deaths, and for a resource without limit.
    ///
    /// # Errors
    /// When the ownership has ended, or the lock is not available. Do not start the work then.
    // req: O12
    pub async fn lock(&self) -> Result<Option<OwnedFd>, Error> {
        if self.state.is_unlimited() {
            return Ok(None);
        }
        let locked = self.ask(|answer| Command::ShareLock(self.resource.clone(), self.grant.token, answer));
        let ended = || Error::refused(format!("the ownership of `{}` has ended", self.resource));
        locked.await.unwrap_or_else(|| Err(ended()))
    }

    /// Sends a message to all workers of the namespace that have subscribed to the resource. It carries the token, so that
    /// receivers drop what an earlier owner sends later. The store delivers it at most once, and checks in the same step
    /// that this worker is still the owner.
    ///
    /// # Errors
    /// When there are more than 4096 bytes, the store does not answer while the ownership lasts, or the resource is
    /// without limit.
    // req: E15
    pub async fn publish(&self, bytes: &[u8]) -> Result<Published, Error> {
        let payload = Payload::new(bytes)?;
        if self.state.is_unlimited() {
            let what = format!("`{}` has no limit, and so no owner that could publish", self.resource);
            return Err(Error::refused(what));
        }
        let holder = if self.holds() { self.holder().await } else { None };
        let Some(holder) = holder else { return Ok(Published::NotOwner) };
        let sent = self.ask(|answer| {
            Command::Ask(Box::new(move |store| {
                Box::pin(async move {
                    // The caller may have given up.
                    let _gone = answer.send(store.publish(&holder, &payload).await);
                })
            }))
        });
        let unknown =
            || Error::unavailable(format!("cannot tell whether the message of `{}` was sent", self.resource));
        self.run(sent).await.ok().flatten().unwrap_or_else(|| Err(unknown()))
    }

    /// How the store knows this owner; `None` when the ownership has ended.
    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.ask(|answer| Command::Holder(self.resource.clone(), self.grant.token, answer)).await.flatten()
    }

    /// Waits for the end of the ownership, and returns why it ended. Returns at once if it has ended.
    pub async fn lost(&self) -> EndReason {
        self.state.lost(self.grant.token).await
    }

    /// Runs `work` while the ownership lasts, and drops it when the ownership ends first. The ownership is checked before
    /// every step of the work: after a pause that outlasts the trust, the work does not go on.
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

    /// Gives the ownership up. The worker stays a candidate. When this returns the ownership does not hold any more; others
    /// can have the ticket once the work and its cleanup have ended, and one that was
    /// [acquired](crate::CampaignBuilder::acquire) once its [`Ownership`](crate::Ownership) was dropped.
    // req: O9
    pub async fn step_down(&self) {
        // If the worker is gone, its ownerships have ended. Another campaign may own under the same token by now, if the
        // resource is without limit.
        if self.state.is_present(self.grant.token)
            && let Some(commands) = self.commands.upgrade()
        {
            let (resource, token) = (self.resource.clone(), self.grant.token);
            let _gone =
                commands.send(Command::Do(Input::End { resource, token, ending: EndReason::SteppedDown }));
        }
        self.lost().await;
    }

    /// Asks the driver; `None` when the worker is gone.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.upgrade()?.send(command(answer)).ok()?;
        answered.await.ok()
    }

    pub(crate) fn new(
        resource: ResourceName,
        grant: Grant,
        state: Arc<CampaignState>,
        commands: &Commands,
    ) -> Self {
        Self { resource, grant, state, commands: commands.downgrade() }
    }

    pub(crate) fn grant(&self) -> Grant {
        self.grant
    }
}
