//! When two answers are the same: tokens by their terms, spans as far as clocks can tell, lists without order where
//! the rules give none.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::oracle::Record;
use tenure_core::{
    Call, Claimed, Grant, HistoryEvent, Released, ResourceName, ResourceView, Said, StoreTime, Token, Waiting,
};

use crate::conformance::world::TOLERANCE;
use crate::store::Entry;

/// Stands for a token that the store made up.
const NEVER_GIVEN: Token = Token(u64::MAX);

/// The tokens that the store has given, by resource and term.
#[derive(Default)]
pub(super) struct Tokens(BTreeMap<ResourceName, Vec<Token>>);

impl Tokens {
    /// All that were given of this resource, the oldest first.
    pub(super) fn of(&self, resource: &ResourceName) -> &[Token] {
        self.0.get(resource).map_or(&[], Vec::as_slice)
    }

    /// The term that the token belongs to, as the ledger, whose wall clock stands still, has it for a token.
    pub(super) fn term(&self, resource: &ResourceName, token: Token) -> Token {
        let index = self.of(resource).iter().position(|given| *given == token);
        index.map_or(NEVER_GIVEN, |index| Token(index as u64 + 1))
    }

    /// The same answer with terms for tokens. What is granted for the first time is noted down.
    pub(super) fn in_terms(&mut self, call: &Call, said: Said) -> Said {
        match (call, said) {
            (Call::Claim(wants), Said::Claimed(answers)) => {
                let named = wants.iter().map(|want| &want.resource).zip(answers);
                Said::Claimed(named.map(|(resource, answer)| self.claimed(resource, answer)).collect())
            }
            (Call::Release(leaves), Said::Released(answers)) => {
                let named = leaves.iter().map(|leave| &leave.resource).zip(answers);
                let released = named.map(|(resource, answer)| match answer {
                    Released::Again(claimed) => Released::Again(self.claimed(resource, claimed)),
                    answer => answer,
                });
                Said::Released(released.collect())
            }
            (_, Said::Held(mut holdings)) => {
                for holding in &mut holdings {
                    holding.token = self.term(&holding.resource, holding.token);
                }
                Said::Held(holdings)
            }
            (_, Said::Kept { mut notices, more }) => {
                for notice in &mut notices {
                    notice.token = self.term(&notice.resource, notice.token);
                }
                Said::Kept { notices, more }
            }
            (_, said) => said,
        }
    }

    pub(super) fn view_in_terms(&self, mut view: ResourceView) -> ResourceView {
        for owner in &mut view.owners {
            owner.grant.token = self.term(&view.resource, owner.grant.token);
        }
        view
    }

    pub(super) fn entry_in_terms(&self, mut entry: Entry) -> Entry {
        entry.grant.token = self.term(&entry.resource, entry.grant.token);
        entry
    }

    fn claimed(&mut self, resource: &ResourceName, claimed: Claimed) -> Claimed {
        let Claimed::Granted(grant) = claimed else { return claimed };
        let given = self.0.entry(resource.clone()).or_default();
        if grant.term.0 == given.len() as u64 + 1 {
            let last = given.last().copied().unwrap_or_default();
            assert!(grant.token > last, "the token of {resource} does not grow: {grant:?} after {last:?}");
            given.push(grant.token);
        }
        Claimed::Granted(Grant { token: self.term(resource, grant.token), ..grant })
    }
}

pub(super) fn same_said(store: &Said, ledger: &Said, slack: Duration) -> bool {
    match (store, ledger) {
        (Said::Claimed(a), Said::Claimed(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_claimed(a, b, slack))
        }
        (Said::Released(a), Said::Released(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| match (a, b) {
                    (Released::Again(a), Released::Again(b)) => same_claimed(a, b, slack),
                    (a, b) => a == b,
                })
        }
        // Who is dead holds nothing, and needs not be told.
        (Said::Released(a), Said::Gone) => a.iter().all(|released| *released == Released::Free),
        (Said::Held(a), Said::Held(b)) => a.len() == b.len() && a.iter().all(|holding| b.contains(holding)),
        (Said::Kept { notices: a, more }, Said::Kept { notices: b, more: more_too }) => {
            more == more_too && a.len() == b.len() && a.iter().all(|notice| b.contains(notice))
        }
        (a, b) => a == b,
    }
}

fn same_claimed(store: &Claimed, ledger: &Claimed, slack: Duration) -> bool {
    match (store, ledger) {
        (Claimed::Waiting(a), Claimed::Waiting(b)) => {
            let Waiting { ahead, look_again, why } = *b;
            (a.ahead, a.why) == (ahead, why) && close(a.look_again, look_again, slack)
        }
        (a, b) => a == b,
    }
}

pub(super) fn same_view(store: &ResourceView, ledger: &ResourceView, slack: Duration) -> bool {
    let (a, b) = (store, ledger);
    let owners = a.owners.iter().zip(&b.owners).all(|(a, b)| {
        (&a.worker, &a.metadata, a.grant) == (&b.worker, &b.metadata, b.grant)
            && close(a.left, b.left, slack)
            && close(a.owned_for, b.owned_for, slack)
    });
    let waiters =
        a.waiters.iter().zip(&b.waiters).all(|(a, b)| {
            (&a.worker, &a.metadata) == (&b.worker, &b.metadata) && close(a.left, b.left, slack)
        });
    let [ours, theirs] = [a, b].map(|view| view.withheld.unwrap_or_default());
    (&a.resource, a.tickets) == (&b.resource, b.tickets)
        && close(ours, theirs, slack)
        && (a.owners.len(), a.waiters.len()) == (b.owners.len(), b.waiters.len())
        && owners
        && waiters
}

/// What happened to one resource. Of two things at the same instant either may come first, but an
/// ownership begins before it ends.
pub(super) fn same_entries(store: &[Entry], ledger: &[Record], now: StoreTime, slack: Duration) -> bool {
    let oldest_first = store.is_sorted_by(|a, b| a.ago >= b.ago || close(a.ago, b.ago, Duration::ZERO));
    let order = |what: HistoryEvent, grant: Grant| (grant.term, what != HistoryEvent::Granted);
    let mut theirs: Vec<&Entry> = store.iter().collect();
    theirs.sort_by_key(|entry| order(entry.what, entry.grant));
    let mut ours: Vec<&Record> = ledger.iter().collect();
    ours.sort_by_key(|record| order(record.what, record.grant));
    // A grant under a lease that only the caller's own clock kept alive may be younger than its ending.
    let begins_first = store.iter().enumerate().all(|(index, entry)| {
        let begins = |other: &&Entry| other.grant == entry.grant && other.what == HistoryEvent::Granted;
        store[index..].iter().skip(1).find(begins).is_none_or(|begun| begun.ago < entry.ago)
    });
    oldest_first
        && begins_first
        && theirs.len() == ours.len()
        && theirs.iter().zip(ours).all(|(entry, record)| {
            (&entry.resource, &entry.worker, entry.grant, entry.what)
                == (&record.resource, &record.worker, record.grant, record.what)
                && close(entry.ago, now.since(record.at), slack)
        })
}

pub(super) fn close(a: Duration, b: Duration, slack: Duration) -> bool {
    a.abs_diff(b) <= TOLERANCE + slack
}
