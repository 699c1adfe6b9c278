//! What is asked next, by chance.

use std::time::Duration;

use tenure_core::{Call, Closing, JobStep, LeaseId, Leave, Leaving, ResourceName, StoreTime, Token, Want};

use super::Round;
use crate::conformance::Fixture;
use crate::conformance::chance::Chance;
use crate::conformance::world::*;

/// How many workers there are at a time, the dead among them.
const MOST_PLAYERS: usize = 5;

/// A worker, and the number of its newest request.
pub(super) struct Player {
    pub(super) lease: LeaseId,
    pub(super) label: String,
    seq: u64,
}

impl Player {
    pub(super) fn new(label: &str) -> Self {
        Self { lease: fresh(), label: label.into(), seq: 1 }
    }

    /// The number of its next request; now and then a renewal comes late.
    fn next_seq(&mut self, call: &Call, chance: &mut Chance) -> u64 {
        if *call == Call::Renew && chance.percent(12) {
            return chance.below(self.seq + 1);
        }
        self.seq += 1;
        self.seq
    }
}

/// What a worker sends.
pub(super) struct Sent {
    pub(super) lease: LeaseId,
    pub(super) seq: u64,
    pub(super) judged_by: Option<StoreTime>,
    pub(super) call: Call,
}

pub(super) enum Move {
    Pass(Duration),
    Send(Sent),
    Ask(ResourceName, Token, Option<String>),
    Evict(ResourceName, Token),
    Job(JobStep),
    Read,
}

impl<F: Fixture> Round<'_, F> {
    pub(super) fn choose(&mut self) -> Move {
        match self.chance.below(100) {
            0..22 => Move::Pass(Duration::from_micros(1_000 + self.chance.below(150_000))),
            22..32 => self.join(),
            32..46 => self.send(Call::Renew),
            46..68 => self.claim(),
            68..82 => self.leave(),
            82..86 => self.send(Call::Held),
            86..89 => {
                let why = self.chance.one_of(&[Closing::Left, Closing::Expired, Closing::Proved]);
                self.send(Call::Close(why))
            }
            89..94 => self.ask(),
            94..97 => match self.known_token() {
                Some((resource, token)) => Move::Evict(resource, token),
                None => Move::Read,
            },
            _ => Move::Read,
        }
    }

    /// A newcomer, in place of one that is dead if there are enough; or an `open` once more.
    pub(super) fn join(&mut self) -> Move {
        let ttl = self.chance.one_of(&[300, 600, 1_000, 15_000]);
        let ttl = Duration::from_millis(ttl);
        if self.players.len() >= MOST_PLAYERS || self.chance.percent(15) {
            let dead = self.players.iter().position(|player| self.ledger.expiry(player.lease).is_none());
            match dead {
                Some(dead) if self.chance.percent(80) => drop(self.players.remove(dead)),
                _ => {
                    return self.send(Call::Open {
                        ttl,
                        label: label("again"),
                        metadata: Default::default(),
                    });
                }
            }
        }
        Move::Send(self.newcomer(ttl))
    }

    pub(super) fn claim(&mut self) -> Move {
        let mut wants = vec![];
        for resource in self.some_resources() {
            // Mostly what the round has settled on; now and then K changes.
            let count = if self.chance.percent(85) { 1 + self.seed % 3 } else { 1 + self.chance.below(4) };
            let count = u32::try_from(count).unwrap_or(1);
            let priority = self.chance.one_of(&[0, 0, 0, 1, -1]);
            wants.push(Want { resource, tickets: tickets(count), priority });
        }
        self.send(Call::Claim(wants))
    }

    pub(super) fn leave(&mut self) -> Move {
        let mut leaves = vec![];
        for resource in self.some_resources() {
            let known = self.ledger.resources().any(|name| *name == resource);
            let how = self.chance.one_of(&[Leaving::Released, Leaving::Failed, Leaving::SteppedDown]);
            // Nobody steps down from what was never claimed by anybody.
            let how = if known { how } else { Leaving::Released };
            leaves.push(Leave { resource, how });
        }
        self.send(Call::Release(leaves))
    }

    fn ask(&mut self) -> Move {
        let Some((resource, token)) = self.known_token() else { return Move::Read };
        let named = self.chance.percent(60);
        let successor = self.chance.one_of(&["a", "b", "c", "twin", "nobody"]);
        Move::Ask(resource, token, named.then(|| successor.to_string()))
    }

    pub(super) fn send(&mut self, call: Call) -> Move {
        let index = usize::try_from(self.chance.below(self.players.len() as u64)).unwrap_or(0);
        let now = self.world.answered_at();
        let expiry = self.ledger.expiry(self.players[index].lease);
        // It may run out while it is asked.
        let runs_out = expiry.is_some_and(|expiry| expiry <= now + TOLERANCE * 4 + self.slack * 4);
        let call = match call {
            Call::Claim(_) if runs_out => Call::Renew,
            Call::Close(Closing::Left) if runs_out => Call::Close(Closing::Expired),
            call => call,
        };
        let player = &mut self.players[index];
        let (lease, seq) = (player.lease, player.next_seq(&call, &mut self.chance));
        if matches!(call, Call::Release(_)) {
            // Whoever gives up ends nobody else; the ledger would. So it vouches for a time by which all live.
            let first = self.players.iter().filter_map(|player| self.ledger.expiry(player.lease)).min();
            let judged_by = first.map(|first| earlier(first, MICRO));
            return Move::Send(Sent { lease, seq, judged_by, call });
        }
        let judged_by = match self.chance.below(10) {
            0..3 => Some(earlier(now, Duration::from_micros(self.chance.below(500_000)))),
            3 => Some(now + Duration::from_millis(self.chance.below(2_000))),
            _ => None,
        };
        Move::Send(Sent { lease, seq, judged_by, call })
    }

    /// At least one of them, in some order.
    fn some_resources(&mut self) -> Vec<ResourceName> {
        let mut some = self.resources.clone();
        let turn = usize::try_from(self.chance.below(some.len() as u64)).unwrap_or(0);
        some.rotate_left(turn);
        let count = usize::try_from(1 + self.chance.below(some.len() as u64)).unwrap_or(1);
        some.truncate(count);
        some
    }

    /// A token that was given: mostly the newest, sometimes one that is over.
    pub(super) fn known_token(&mut self) -> Option<(ResourceName, Token)> {
        let resource = self.some_resources().remove(0);
        let given = self.tokens.of(&resource);
        let newest = given.last()?;
        let token = if self.chance.percent(70) { *newest } else { self.chance.one_of(given) };
        Some((resource, token))
    }
}
