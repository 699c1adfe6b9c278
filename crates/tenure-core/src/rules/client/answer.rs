//! The reply to a request, made of the answers of its parts, and what the client remembers of it for later requests.
//!
//! What was answered is decided by the rules, not here.

use alloc::vec::Vec;
use core::time::Duration;

use super::Client;
use super::operation::{Operation, Part};
use super::protocol::{Act, Env, Reply};
use crate::fanout::Published;
use crate::job::JobSaid;
use crate::message::{
    Answer, Call, Claimed, Incarnation, LeaseId, NOTICES, Released, Request, Said, Stamp, StepDownReply,
    Token, Waiting,
};
use crate::moment::StoreTime;
use crate::names::ResourceName;
use crate::rules::keys::Key;
use crate::rules::records::Record;
use crate::rules::tickets;

/// The answer of one part of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PartAnswer {
    Claimed(Claimed),
    Released(Released),
    Said(Said),
    Asked(StepDownReply),
    Job(JobSaid),
    Published(Published),
    /// There is nothing to tell.
    Done,
}

impl PartAnswer {
    /// The same answer, with the next look so much sooner.
    fn sooner(self, by: Duration) -> Self {
        let claimed = |claimed| match claimed {
            Claimed::Waiting(waiting) => {
                let look_again = waiting.look_again.saturating_sub(by).max(tickets::SOONEST);
                Claimed::Waiting(Waiting { look_again, ..waiting })
            }
            other => other,
        };
        match self {
            Self::Claimed(said) => Self::Claimed(claimed(said)),
            Self::Released(Released::Again(said)) => Self::Released(Released::Again(claimed(said))),
            other => other,
        }
    }

    fn claimed(self) -> Option<Claimed> {
        if let Self::Claimed(claimed) = self { Some(claimed) } else { None }
    }

    fn released(self) -> Option<Released> {
        if let Self::Released(released) = self { Some(released) } else { None }
    }
}

impl Client {
    /// The reply, once all parts are settled.
    pub(super) fn reply(&mut self, env: &Env, op: &mut Operation) -> Reply {
        // `look_again` counts from the reply, but the rule counted it from its decision.
        let since = env.at.shortest_since(op.decided_at);
        let said: Vec<PartAnswer> = op
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Settled(said) => Some(said.clone().sooner(since)),
                Part::Open => None,
            })
            .collect();
        let Act::Call(request, _) = &op.act else {
            return match said.into_iter().next() {
                Some(PartAnswer::Asked(asked)) => Reply::Asked(asked),
                Some(PartAnswer::Job(said)) => Reply::Job(said),
                Some(PartAnswer::Published(published)) => Reply::Published(published),
                _ => Reply::Done,
            };
        };
        let gone = said.iter().any(|said| matches!(said, PartAnswer::Said(Said::Gone)));
        let answer = match &request.call {
            _ if gone => Said::Gone,
            Call::Claim(_) => Said::Claimed(said.into_iter().filter_map(PartAnswer::claimed).collect()),
            Call::Release(_) => Said::Released(said.into_iter().filter_map(PartAnswer::released).collect()),
            _ => match said.into_iter().next() {
                Some(PartAnswer::Said(said)) => said,
                _ => Said::Gone,
            },
        };
        let lease = request.lease;
        let request = request.clone();
        let answer = self.note_answer(&request, answer);
        // A reply without a look at the store tells at least the time that was known before.
        let known = self.life.and_then(|heard| Some(heard.now? + env.at.shortest_since(heard.at)));
        let own = StoreTime::from_micros(env.at.boot_micros());
        let shown = op.shown.or(known).unwrap_or(own);
        let now = op.stamp.unwrap_or(shown).min(shown);
        let incarnation = self.life.map_or(Incarnation(0), |heard| heard.life);
        let longest = self.longest;
        if matches!(answer, Said::Closed | Said::Gone) {
            self.own_leases.remove(&lease);
        }
        Reply::Answer(Answer { stamp: Stamp { now, shown, incarnation, longest }, said: answer })
    }

    /// Notes what later requests have to know of this answer.
    fn note_answer(&mut self, request: &Request, answer: Said) -> Said {
        let lease = request.lease;
        match (&request.call, answer) {
            (_, Said::Opened) => {
                // From here on the client knows everything that is done under the lease.
                self.own_leases.entry(lease).or_default();
                Said::Opened
            }
            (Call::Release(leaves), answer @ Said::Released(_)) => {
                for leave in leaves {
                    let key = Key::Resource(leave.resource.clone());
                    let token =
                        self.records.get(&key).and_then(Record::resource).map(|resource| resource.token);
                    let own_lease = self.own_leases.entry(lease).or_default();
                    own_lease.settled.insert(leave.resource.clone(), token.unwrap_or_default());
                    own_lease.found_notices.retain(|notice| notice.resource != leave.resource);
                }
                if let Said::Released(released) = &answer {
                    for (leave, released) in leaves.iter().zip(released) {
                        if let Released::Again(claimed) = released {
                            self.note_grant(lease, &leave.resource, *claimed);
                        }
                    }
                }
                answer
            }
            (Call::Renew, Said::Kept { mut notices, more }) => {
                let standing = self.records.get(&Key::Lease(lease)).and_then(Record::lease);
                let stands = |name: &ResourceName| {
                    standing.is_some_and(|lease| lease.notices.iter().any(|notice| notice.resource == *name))
                };
                let own_lease = self.own_leases.entry(lease).or_default();
                own_lease.settled.retain(|name, _| stands(name));
                own_lease.must_look |= more;
                own_lease
                    .found_notices
                    .retain(|found| !notices.iter().any(|known| known.resource == found.resource));
                // Notices that do not fit into this answer come with the next.
                let room = NOTICES.saturating_sub(notices.len()).min(own_lease.found_notices.len());
                notices.extend(own_lease.found_notices.drain(..room));
                Said::Kept { notices, more: own_lease.must_look || !own_lease.found_notices.is_empty() }
            }
            (Call::Claim(wants), Said::Claimed(claimed)) => {
                for (want, claimed) in wants.iter().zip(&claimed) {
                    self.note_grant(lease, &want.resource, *claimed);
                }
                Said::Claimed(claimed)
            }
            (_, answer) => answer,
        }
    }

    /// A new ownership starts without the notices of earlier ones.
    fn note_grant(&mut self, lease: LeaseId, resource: &ResourceName, claimed: Claimed) {
        let Claimed::Granted(grant) = claimed else { return };
        self.own_leases.entry(lease).or_default().unreleased.remove(resource);
        let known = self.records.get(&Key::Lease(lease)).and_then(Record::lease);
        let stands =
            known.is_none_or(|lease| lease.notices.iter().any(|notice| notice.resource == *resource));
        let settled = &mut self.own_leases.entry(lease).or_default().settled;
        if stands {
            settled.insert(resource.clone(), Token(grant.token.0.saturating_sub(1)));
        } else {
            settled.remove(resource);
        }
    }
}
