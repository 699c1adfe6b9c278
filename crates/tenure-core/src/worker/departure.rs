//! A release that whoever did the work sends by itself, so that nobody else has to run before it leaves.

use alloc::vec;
use core::time::Duration;

use super::{Asked, Worker};
use crate::campaign::{Batch, Event};
use crate::lease::Attempt;
use crate::message::{Call, LeaseId, Leave, Leaving, Request, Seq, Token};
use crate::moment::Moment;
use crate::names::ResourceName;
use crate::output::{Ending, Now};
use crate::watch::Vouch;

/// What is needed to send one release of something that is owned now, in the worker's place. The number is used once, by
/// whoever has this; see [`Worker::reserve`].
#[derive(Debug, PartialEq, Eq)]
pub struct Departure {
    lease: LeaseId,
    seq: Seq,
    vouch: Option<Vouch>,
    longest: Duration,
    limit: Duration,
}

impl Departure {
    /// The release. The work has ended by then, and the ownership is not relied on any more. What becomes of it is the
    /// worker's to know: see [`Input::Departed`](crate::Input::Departed).
    #[must_use]
    pub fn request(self, now: Moment, resource: ResourceName) -> Request {
        let Self { lease, seq, vouch, longest, limit } = self;
        Request {
            lease,
            seq,
            asked_at: now,
            limit,
            judged_by: vouch.map(|vouch| vouch.at(now)),
            longest,
            call: Call::Release(vec![Leave { resource, how: Leaving::Released }]),
        }
    }
}

impl Worker {
    /// Reserves the number of a release that whoever does the work may send by itself. It is good for everything that is
    /// owned now, and once: of what is owned later the claim has a larger number, and the store would take the release for
    /// an old one. As long as something is owned nothing else is asked about it, so nothing of a larger number comes
    /// first. A release that a renewal has overtaken judges nobody, so one is reserved anew with each. Nothing without a
    /// lease.
    pub fn reserve(&mut self) -> Option<Departure> {
        let lease = self.lease()?;
        self.seq = Seq(self.seq.0 + 1);
        Some(Departure {
            lease,
            seq: self.seq,
            vouch: self.watch.vouch(self.longest),
            longest: self.longest,
            limit: self.timing.ttl() / 4,
        })
    }

    /// The campaign ends with its work, and its release is under way already. Where there is nothing to be released any
    /// more, nobody waits for what becomes of it.
    pub(super) fn departed(&mut self, now: Now, request: &Request, token: Token) {
        let Call::Release(leaves) = &request.call else { return };
        let [Leave { resource, .. }] = leaves.as_slice() else { return };
        self.tell(now, resource, Event::End(Ending::Left));
        self.tell(now, resource, Event::Stopped(token));
        // A life of the store that was confirmed since then may not know of it: there it is sent again.
        let is_known = self.live().is_some_and(|live| {
            live.id == request.lease && live.settled_at.is_none_or(|at| request.asked_at.has_reached(at))
        });
        let waits =
            self.campaigns.get(resource).is_some_and(|campaign| campaign.due(Batch::Releases).is_some());
        if is_known && waits {
            self.tell(now, resource, Event::Sent(request.seq));
        }
        let attempt = Attempt { seq: request.seq, due: request.asked_at + request.limit };
        self.under_way.push(Asked { attempt, batch: Batch::Releases });
    }
}
