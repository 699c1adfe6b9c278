//! What the worker does by itself as time goes by: renew, claim, release, give up, say close.

use alloc::vec::Vec;
use core::time::Duration;

use super::{AT_ONCE, Agenda, Asked, Mode, Worker};
use crate::campaign::{Batch, Campaign, Event};
use crate::lease::{Lease, Live, Opening, PendingClose, Tries};
use crate::message::BATCH;
use crate::message::{Call, Closing, LeaseId, Seq};
use crate::moment::Moment;
use crate::names::ResourceName;
use crate::output::{EndReason, Now, Output, Report};

impl Worker {
    /// Once the trust has run out the lease is over, whatever the store may still say.
    pub(super) fn expire(&mut self, now: Now) {
        if self.live().is_some_and(|live| now.at.has_reached(live.trusted_until)) {
            self.lose(now, EndReason::Expired);
        }
    }

    /// Does what is due.
    pub(super) fn advance(&mut self, now: Now) {
        self.give_up_overdue(now);
        if self.agenda.ticks.is_some_and(|tick_at| now.at.has_reached(tick_at)) {
            self.tell_all(now, |_| Event::Tick);
        }
        self.tend_lease(now);
        self.send_due(now, Batch::Claims);
        self.send_due(now, Batch::Releases);
        self.closes.retain(|close| !close.until.is_some_and(|until| now.at.has_surely_reached(until)));
        self.finish_leaving(now);
        self.send_closes(now);
    }

    fn give_up_overdue(&mut self, now: Now) {
        if let Lease::Live(live) = &mut self.lease
            && let Some(seq) = live.renewal.overdue(now.at)
        {
            // It has waited long enough already: the next attempt at once, on another connection.
            live.renewal = Tries::Next(now.at);
            self.out.extend([Output::Abandon(seq), Output::Report(Report::Unanswered(seq))]);
        }
        let tries = match &self.lease {
            Lease::Opening(opening) => Some(&opening.tries),
            Lease::Live(live) => live.unsettled.as_ref().map(|unsettled| &unsettled.held),
            Lease::Absent { .. } => None,
        };
        let closes = self.closes.iter().map(|close| &close.tries);
        let single = tries.into_iter().chain(closes).filter_map(|tries| tries.overdue(now.at));
        let batches = self.under_way.iter().map(|asked| asked.attempt);
        let batches = batches.filter(|attempt| now.at.has_reached(attempt.due)).map(|attempt| attempt.seq);
        for seq in single.chain(batches).collect::<Vec<Seq>>() {
            self.out.push_back(Output::Abandon(seq));
            self.unanswered(now, seq);
        }
    }

    fn tend_lease(&mut self, now: Now) {
        let lease = core::mem::replace(&mut self.lease, Lease::Absent { open_at: now.at });
        self.lease = match lease {
            Lease::Absent { open_at } if now.at.has_reached(open_at) && self.wants_lease(now.at) => {
                let tries = self.try_open(now, now.fresh);
                Lease::Opening(Opening { id: now.fresh, first_asked_at: now.at, tries })
            }
            // Whatever the store may say to it now, nothing is left of it.
            Lease::Opening(opening) if now.at.has_reached(opening.first_asked_at + self.timing.trust()) => {
                self.out.extend(opening.tries.under_way().map(Output::Abandon));
                // It may stand there all the same, and with it what proves that we live.
                self.close_later(now, opening.id, Closing::Expired);
                Lease::Absent { open_at: now.at + self.backoff(now) }
            }
            Lease::Opening(opening) if opening.tries.is_next(now.at) => {
                Lease::Opening(Opening { tries: self.try_open(now, opening.id), ..opening })
            }
            Lease::Live(live) => Lease::Live(self.tend_live(now, live)),
            unchanged => unchanged,
        };
    }

    fn try_open(&mut self, now: Now, id: LeaseId) -> Tries {
        let (label, metadata, ttl) = (self.label.clone(), self.metadata.clone(), self.timing.ttl());
        Tries::Out(self.send(now, id, self.timing.trust() / 4, Call::Open { ttl, label, metadata }))
    }

    fn tend_live(&mut self, now: Now, mut live: Live) -> Live {
        let patience = live.patience(now.at);
        if live.renewal.is_next(now.at) && self.has_beaten(now.at) {
            live.renewal = Tries::Out(self.send(now, live.id, patience, Call::Renew));
        }
        if let Some(unsettled) = live.unsettled.as_mut().filter(|unsettled| unsettled.held.is_next(now.at)) {
            unsettled.held = Tries::Out(self.send(now, live.id, patience, Call::Held));
        }
        live
    }

    /// Sends the claims or releases that are due, many at a time.
    fn send_due(&mut self, now: Now, batch: Batch) {
        let is_due = |at: Moment| now.at.has_reached(at);
        if !self.agenda.at(batch).is_some_and(is_due)
            || self.may_send_in(now.at, batch) != Some(Duration::ZERO)
        {
            return;
        }
        while self.count_under_way(batch) < AT_ONCE {
            let due_at = |campaign: &Campaign| campaign.due(batch).filter(|at| is_due(*at));
            let mut due: Vec<&Campaign> =
                self.campaigns.values().filter(|campaign| due_at(campaign).is_some()).collect();
            if due.len() > BATCH {
                // Those who are due the longest: others may come before them again and again by their names.
                due.sort_by_key(|campaign| due_at(campaign).map(Moment::boot_micros));
                due.truncate(BATCH);
            }
            let Some(id) = self.lease().filter(|_| !due.is_empty()) else {
                let later = self.campaigns.values().filter_map(|campaign| campaign.due(batch));
                self.agenda.set(batch, later.reduce(Moment::or));
                return;
            };
            let names: Vec<ResourceName> = due.iter().map(|campaign| campaign.resource().clone()).collect();
            let call = match batch {
                Batch::Claims => Call::Claim(due.iter().map(|campaign| campaign.want.clone()).collect()),
                Batch::Releases => Call::Release(due.iter().map(|campaign| campaign.leave()).collect()),
            };
            let attempt = self.send(now, id, self.timing.ttl() / 4, call);
            self.under_way.push(Asked { attempt, batch });
            for name in names {
                self.tell(now, &name, Event::Sent(attempt.seq));
            }
        }
    }

    /// Once nothing is owned any more, the lease goes with all that is still queued.
    fn finish_leaving(&mut self, now: Now) {
        if !matches!(self.mode, Mode::Leaving | Mode::Closing { .. }) || self.works() {
            return;
        }
        let Self { campaigns, agenda, out, .. } = self;
        *agenda = Agenda::default();
        campaigns.retain(|resource, campaign| {
            let works = campaign.working().is_some();
            if works {
                agenda.note(campaign);
            } else {
                out.push_back(Output::Left(resource.clone()));
            }
            works
        });
        match core::mem::replace(&mut self.lease, Lease::Absent { open_at: now.at }) {
            Lease::Live(live) => {
                self.out.push_back(Output::Distrust { protected_until: None });
                self.abandon(live.under_way());
                self.close_later(now, live.id, Closing::Left);
            }
            Lease::Opening(opening) => {
                self.abandon(opening.tries.under_way().into_iter());
                self.close_later(now, opening.id, Closing::Left);
            }
            Lease::Absent { .. } => {}
        }
        self.mode = match self.mode {
            _ if !self.campaigns.is_empty() => Mode::Leaving,
            _ if self.closes.is_empty() => {
                self.out.push_back(Output::Done);
                Mode::Done
            }
            Mode::Closing { unheard_at: Some(at) } if now.at.has_reached(at) => {
                self.out.push_back(Output::Unheard);
                Mode::Closing { unheard_at: None }
            }
            Mode::Closing { unheard_at } => Mode::Closing { unheard_at },
            _ => Mode::Closing { unheard_at: Some(now.at + self.timing.ttl() / 3) },
        };
    }

    fn send_closes(&mut self, now: Now) {
        for index in 0..self.closes.len() {
            let PendingClose { id, why, ref tries, .. } = self.closes[index];
            if tries.is_next(now.at) && self.may_close(id) {
                let attempt = self.send(now, id, self.timing.ttl() / 4, Call::Close(why));
                let until = now.at + self.timing.ttl() * 2;
                let close = &mut self.closes[index];
                close.tries = Tries::Out(attempt);
                close.until.get_or_insert(until);
            }
        }
    }

    /// The lease is over for this worker, for ever.
    pub(super) fn lose(&mut self, now: Now, ending: EndReason) {
        let lease = core::mem::replace(&mut self.lease, Lease::Absent { open_at: now.at });
        let Lease::Live(live) = lease else { return };
        let ran_out = now.at.has_reached(live.trusted_until);
        let protected_until = ran_out.then(|| live.trusted_until + self.timing.margin());
        self.out.push_back(Output::Distrust { protected_until });
        self.abandon(live.under_way());
        // One that a guard has ended may have been extended just now.
        let over_at = if ending == EndReason::Expired { live.trusted_until.or(now.at) } else { now.at };
        let hard_at = over_at + self.timing.margin() / 2;
        self.tell_all(now, |_| Event::LeaseOver { ending, hard_at });
        // Gone: nobody waits for the lease, but perhaps for what proves that we live, which goes with it. Cloned: the
        // clone may trust the lease still.
        if ending != EndReason::Cloned {
            self.close_later(now, live.id, Closing::Expired);
        }
    }

    /// Gives up everything that is under way.
    fn abandon(&mut self, single: impl Iterator<Item = Seq>) {
        let batches = core::mem::take(&mut self.under_way).into_iter().map(|asked| asked.attempt.seq);
        self.out.extend(single.chain(batches).map(Output::Abandon));
    }

    pub(super) fn close_later(&mut self, now: Now, id: LeaseId, why: Closing) {
        self.closes.push(PendingClose { id, why, tries: Tries::Next(now.at), until: None });
    }

    /// A lease is closed only when the last work under it has ended.
    pub(super) fn may_close(&self, id: LeaseId) -> bool {
        !self.campaigns.values().any(|campaign| campaign.working().is_some_and(|own| own.lease == Some(id)))
    }
}
