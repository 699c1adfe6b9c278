//! What the worker makes of the store's answers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::{SOONEST, Worker, spread};
use crate::campaign::{Campaign, Event, Own};
use crate::lease::{Lease, Live, Opening, Tries, Unsettled};
use crate::message::{
    Answer, Call, Claimed, Closing, Grant, Holding, Notice, Released, Request, Said, Seq, Stamp, Waiting,
    Want, Wish,
};
use crate::moment::Moment;
use crate::names::{ResourceName, Tickets};
use crate::output::{EndReason, HeldBack, Now, Output, Report};
use crate::planted::Bug;
use crate::watch::slow;

impl Worker {
    pub(super) fn answered(&mut self, now: Now, request: &Request, answer: Answer) {
        let Answer { stamp, said } = answer;
        self.misses = 0;
        self.observe(now, request, stamp);
        if matches!(request.call, Call::Close(_)) {
            self.closes.retain(|close| close.id != request.lease);
            return;
        }
        self.under_way.retain(|asked| asked.attempt.seq != request.seq);
        match &mut self.lease {
            Lease::Opening(opening) if opening.id == request.lease => match said {
                Said::Opened => self.opened(now, stamp),
                _ => {
                    // An attempt that was not answered may have opened it: what that left behind goes, too.
                    self.lease = Lease::Absent { open_at: now.at + self.backoff(now) };
                    self.close_later(now, request.lease, Closing::Expired);
                }
            },
            Lease::Live(live) if live.id == request.lease => match said {
                Said::Kept { notices, .. } if live.renewal.awaits(request.seq) => {
                    self.kept(now, request.asked_at, stamp, notices);
                }
                Said::Claimed(answers) => self.claimed(now, request, stamp, answers),
                Said::Released(answers) => self.released(now, request, stamp, answers),
                Said::Held(holdings) => self.settle(now, request.seq, stamp, &holdings),
                Said::Gone => self.gone(now),
                Said::Stale if live.renewal.awaits(request.seq) => self.lose(now, EndReason::Cloned),
                Said::Kept { .. } | Said::Stale | Said::Opened | Said::Closed => {}
            },
            _ => {}
        }
    }

    /// Watches the store's clock. Who could vouch for little was told to look again as much too late: once it can vouch for
    /// more, by what counts as slow, all look as much sooner.
    fn observe(&mut self, now: Now, request: &Request, stamp: Stamp) {
        self.longest = self.timing.ttl().max(stamp.longest);
        self.watch.note(now.at, request.asked_at, stamp.shown, self.timing.ttl(), self.longest);
        let (Some(vouch), Some(before)) = (self.watch.vouch(self.longest), self.looks_by) else { return };
        let gained = vouch.at(now.at).since(before.at(now.at));
        if gained > slow(self.timing.ttl()) {
            self.looks_by = Some(vouch);
            self.tell_all(now, |_| Event::Sooner(gained));
        }
    }

    /// When to look again, of an answer to this request. The store has counted from what the worker vouched for when it asked.
    fn look_again(&mut self, now: Now, request: &Request, waiting: Waiting) -> Moment {
        let vouch = self.watch.vouch(self.longest);
        self.looks_by = self.looks_by.map_or(vouch, |before| vouch.map(|vouch| vouch.least(before)));
        let gained = match (vouch, request.judged_by) {
            (Some(vouch), Some(judged_by)) => vouch.at(request.asked_at).since(judged_by),
            _ => Duration::ZERO,
        };
        let look_again = waiting.look_again.saturating_sub(gained).max(SOONEST);
        now.at + spread(now, Waiting { look_again, ..waiting })
    }

    fn opened(&mut self, now: Now, stamp: Stamp) {
        let Lease::Opening(Opening { id, first_asked_at, .. }) = self.lease else { return };
        let trusted_until = first_asked_at + self.trust();
        let renewal = Tries::Next(first_asked_at + self.timing.renew());
        self.lease =
            Lease::Live(Live { id, trusted_until, renewal, confirmed: stamp.incarnation, unsettled: None });
        self.out.push_back(Output::Trust(trusted_until));
        if let Some(left) = self.still_to_watch(now.at) {
            self.out.push_back(Output::Report(Report::HeldBack(HeldBack::Watching, left)));
        }
        self.expire(now);
    }

    fn kept(&mut self, now: Now, asked_at: Moment, stamp: Stamp, notices: Vec<Notice>) {
        let confirmation_off = self.planted.has(Bug::ConfirmationOff);
        let Lease::Live(live) = &mut self.lease else { return };
        live.renewal = Tries::Next(asked_at + self.timing.renew());
        if live.confirmed == stamp.incarnation || confirmation_off {
            live.unsettled = None;
            self.extend(now, if self.planted.has(Bug::TrustFromTheReply) { now.at } else { asked_at });
        } else {
            match &mut live.unsettled {
                Some(unsettled) if unsettled.incarnation == stamp.incarnation => {
                    unsettled.asked_at = asked_at;
                }
                unsettled => {
                    let held = Tries::Next(now.at);
                    *unsettled = Some(Unsettled { incarnation: stamp.incarnation, asked_at, held });
                    self.out.push_back(Output::Report(Report::NewIncarnation));
                }
            }
        }
        for Notice { resource, token, wish } in notices {
            if self.works_under(&resource, token) {
                let ending = match wish {
                    Wish::Asked => EndReason::Asked,
                    Wish::Lowered => EndReason::Lowered,
                    Wish::Evicted => EndReason::Evicted,
                };
                self.tell(now, &resource, Event::End(ending));
            }
        }
    }

    fn extend(&mut self, now: Now, asked_at: Moment) {
        let trusted_until = asked_at + self.trust();
        let Lease::Live(live) = &mut self.lease else { return };
        live.trusted_until = trusted_until;
        self.out.push_back(Output::Trust(trusted_until));
        self.expire(now);
    }

    /// `held` has answered: what agrees goes on, what is missing ends, what is not known is released.
    fn settle(&mut self, now: Now, seq: Seq, stamp: Stamp, holdings: &[Holding]) {
        let Lease::Live(live) = &mut self.lease else { return };
        let id = live.id;
        let Some(unsettled) = live.unsettled.take_if(|unsettled| unsettled.held.awaits(seq)) else { return };
        if unsettled.incarnation != stamp.incarnation {
            // Yet another life: the next renewal will tell which, and ask again.
            return;
        }
        live.confirmed = stamp.incarnation;
        let held: BTreeMap<&ResourceName, &Holding> =
            holdings.iter().map(|held| (&held.resource, held)).collect();
        self.tell_all(now, |campaign| {
            let mine = campaign.working().filter(|own| own.lease == Some(id)).map(|own| own.grant);
            let agreed = held.get(campaign.resource()).map(|held| match mine {
                Some(grant) if (grant.ticket, grant.token) == (held.ticket, held.token) => grant,
                _ => Grant { ticket: held.ticket, token: held.token, term: Default::default() },
            });
            Event::Holds(agreed)
        });
        for Holding { resource, .. } in holdings {
            if !self.campaigns.contains_key(resource) {
                let want = Want { resource: resource.clone(), tickets: Tickets::ONE, priority: 0 };
                self.add(Campaign::unknown(want, now.at));
            }
        }
        self.extend(now, unsettled.asked_at);
    }

    fn claimed(&mut self, now: Now, request: &Request, stamp: Stamp, answers: Vec<Claimed>) {
        let Call::Claim(wants) = &request.call else { return };
        for (want, claimed) in wants.iter().zip(answers) {
            self.claim_answered(now, request, stamp, &want.resource, claimed);
        }
        self.unsaid(now, request.seq, wants.iter().map(|want| &want.resource));
    }

    fn claim_answered(
        &mut self,
        now: Now,
        request: &Request,
        stamp: Stamp,
        resource: &ResourceName,
        claimed: Claimed,
    ) {
        let Lease::Live(live) = &self.lease else { return };
        let own = |grant| Own { lease: Some(live.id), grant };
        let event = match claimed {
            Claimed::Granted(grant)
                if live.confirmed == stamp.incarnation || self.planted.has(Bug::ConfirmationOff) =>
            {
                Event::Granted(request.seq, own(grant))
            }
            // Another life of the store granted it: not taken up, and asked for again when that is confirmed.
            Claimed::Granted(_) => Event::Waiting(request.seq, now.at + self.backoff(now)),
            Claimed::Waiting(waiting) => {
                // Not if an earlier campaign asked.
                if self.campaigns.get(resource).is_some_and(|campaign| campaign.awaits(request.seq)) {
                    self.out.push_back(Output::Report(Report::Queued(resource.clone(), waiting)));
                }
                Event::Waiting(request.seq, self.look_again(now, request, waiting))
            }
        };
        self.tell(now, resource, event);
    }

    fn released(&mut self, now: Now, request: &Request, stamp: Stamp, answers: Vec<Released>) {
        let Call::Release(leaves) = &request.call else { return };
        for (leave, released) in leaves.iter().zip(answers) {
            match released {
                Released::Free => self.tell(now, &leave.resource, Event::Released(request.seq)),
                Released::Again(claimed) => {
                    self.claim_answered(now, request, stamp, &leave.resource, claimed);
                }
            }
        }
        self.unsaid(now, request.seq, leaves.iter().map(|leave| &leave.resource));
    }

    /// What an answer said nothing about is asked again: a store that answers too little wedges nobody.
    fn unsaid<'a>(&mut self, now: Now, seq: Seq, resources: impl Iterator<Item = &'a ResourceName>) {
        let retry_at = now.at + self.backoff(now);
        for resource in resources {
            self.tell(now, resource, Event::Unanswered(seq, retry_at));
        }
    }

    /// The store does not know a lease that should live: it forgot, and may have forgotten others, too.
    fn gone(&mut self, now: Now) {
        self.held_back_until = Some(now.at + self.longest);
        self.out.push_back(Output::Report(Report::HeldBack(HeldBack::StoreForgot, self.longest)));
        self.lose(now, EndReason::Gone);
    }
}
