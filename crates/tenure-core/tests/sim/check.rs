//! What must hold, judged from outside: it believes neither the store nor the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tenure_core::{Grant, LeaseId, ResourceName, Term, Ticket, Token};

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
    pub(crate) at: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.promise, self.at / 1000, self.what)
    }
}

/// An ownership as an outsider sees it: somebody who believes, or whose work runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) actor: usize,
    pub(crate) grant: Grant,
}

/// The latest term and token of each resource.
pub(crate) type Marks = BTreeMap<ResourceName, (Term, Token)>;

/// What was seen so far of one resource.
#[derive(Clone, Debug, Default)]
struct Track {
    highest: Token,
    term: Term,
    /// To which lease each token went, with which ticket and term.
    granted: BTreeMap<Token, (LeaseId, Grant)>,
    started: BTreeSet<Token>,
    /// The last ownership of each ticket, and whether it was given up by its worker.
    last: BTreeMap<Ticket, (Token, bool)>,
    evicted: BTreeSet<Token>,
    /// Data was lost and the store's clock was not sane: a token may come again.
    tokens_repeat: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Checker {
    tracks: BTreeMap<ResourceName, Track>,
    /// The store may write down grants that never count: terms may be left out, and grants be seen late.
    ghosts: bool,
    /// A life of the store may come back: whoever gave up an ownership because another life did not know it may take it
    /// up again.
    pub(crate) lives_return: bool,
    pub(crate) violation: Option<Violation>,
    pub(crate) grants: u64,
    pub(crate) takeovers: u64,
}

impl Checker {
    pub(crate) fn new(ghosts: bool) -> Self {
        Self { ghosts, ..Self::default() }
    }

    pub(crate) fn fail(&mut self, promise: &'static str, at: u64, what: String) {
        self.violation.get_or_insert(Violation { promise, what, at });
    }

    pub(crate) fn is_evicted(&self, resource: &ResourceName, token: Token) -> bool {
        self.tracks.get(resource).is_some_and(|track| track.evicted.contains(&token))
    }

    /// The store answered a claim with this grant. `others` believe in, or work for, the same resource now.
    pub(crate) fn granted(
        &mut self,
        at: u64,
        resource: &ResourceName,
        tickets: u32,
        (lease, own): (LeaseId, Sight),
        believing: &[Sight],
        working: &[Sight],
    ) {
        let grant = own.grant;
        let track = self.tracks.entry(resource.clone()).or_default();
        match track.granted.insert(grant.token, (lease, grant)) {
            None => {}
            Some(before) if before == (lease, grant) => return,
            Some(_) if track.tokens_repeat => {}
            Some(_) => {
                return self.fail("S2", at, format!("{resource}: token {} goes to two", grant.token.0));
            }
        }
        self.grants += 1;
        if let Some((_, given_up)) = track.last.insert(grant.ticket, (grant.token, false))
            && !given_up
        {
            self.takeovers += 1;
        }
        let (highest, term, repeat) = (track.highest, track.term, track.tokens_repeat);
        (track.highest, track.term) = (grant.token, grant.term);
        if self.ghosts {
            // Of two grants that were made one after the other, the second may be seen first.
            let track = self.tracks.entry(resource.clone()).or_default();
            (track.highest, track.term) = (highest.max(grant.token), term.max(grant.term));
        } else if grant.token <= highest {
            self.fail("S2", at, format!("{resource}: token {} after {}", grant.token.0, highest.0));
        }
        if grant.term.0 != term.0 + 1 && !repeat && !self.ghosts {
            self.fail("S2", at, format!("{resource}: term {} after {}", grant.term.0, term.0));
        }
        self.apart("S1", at, resource, tickets, own, believing);
        self.apart("S3", at, resource, tickets, own, working);
    }

    /// Nobody else has this ticket, and at most K have any.
    fn apart(
        &mut self,
        promise: &'static str,
        at: u64,
        resource: &ResourceName,
        tickets: u32,
        own: Sight,
        others: &[Sight],
    ) {
        let others: Vec<&Sight> =
            others.iter().filter(|sight| !self.is_evicted(resource, sight.grant.token)).collect();
        let same = others
            .iter()
            .find(|sight| sight.grant.ticket == own.grant.ticket && sight.grant.token != own.grant.token);
        if let Some(other) = same {
            let (ticket, new, old) = (own.grant.ticket.0, own.grant.token.0, other.grant.token.0);
            self.fail(
                promise,
                at,
                format!(
                    "{resource}: ticket {ticket} goes to {} under {new} while {} has it under {old}",
                    own.actor, other.actor
                ),
            );
        } else if others.iter().filter(|sight| sight.grant.token != own.grant.token).count()
            >= tickets as usize
        {
            self.fail(
                promise,
                at,
                format!("{resource}: {} gets one of {tickets} tickets while {others:?} hold", own.actor),
            );
        }
    }

    /// A worker relies on an ownership from now, or for longer.
    pub(crate) fn believes(&mut self, at: u64, resource: &ResourceName, own: Sight, others: &[Sight]) {
        if !self.is_evicted(resource, own.grant.token) {
            self.apart("S1", at, resource, u32::MAX, own, others);
        }
    }

    /// A worker starts the work.
    pub(crate) fn started(&mut self, at: u64, resource: &ResourceName, own: Sight) {
        let track = self.tracks.entry(resource.clone()).or_default();
        if !track.granted.contains_key(&own.grant.token) {
            self.fail("S6", at, format!("{resource}: {} starts what was never granted", own.actor));
        } else if !track.started.insert(own.grant.token) && !track.tokens_repeat && !self.lives_return {
            self.fail("S6", at, format!("{resource}: token {} is taken up twice", own.grant.token.0));
        }
    }

    /// The worker gave the ownership up by itself, or the operator took it.
    pub(crate) fn given_up(&mut self, resource: &ResourceName, token: Token) {
        let track = self.tracks.entry(resource.clone()).or_default();
        for last in track.last.values_mut().filter(|last| last.0 == token) {
            last.1 = true;
        }
    }

    pub(crate) fn evicted(&mut self, resource: &ResourceName, token: Token) {
        self.given_up(resource, token);
        self.tracks.entry(resource.clone()).or_default().evicted.insert(token);
    }

    /// Terms and tokens as they stand, for a store that may fall back to now.
    pub(crate) fn marks(&self) -> Marks {
        self.tracks.iter().map(|(resource, track)| (resource.clone(), (track.term, track.highest))).collect()
    }

    /// The store lost data: terms may start again, and tokens too where its clock is not sane.
    pub(crate) fn data_lost(&mut self, marks: &Marks, sane_clock: bool) {
        for (resource, track) in &mut self.tracks {
            let (term, token) = marks.get(resource).copied().unwrap_or_default();
            track.term = term;
            if !sane_clock {
                track.highest = token;
                track.tokens_repeat = true;
            }
        }
    }
}
