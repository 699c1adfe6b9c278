//! One random sequence, played against the store and the ledger at once.
//!
//! The ledger goes by the store's own time, as the stamps tell it. Where the store's clock moved while it was
//! asked, either end is good enough: a lease that runs out in between may be judged both ways. Tokens follow the
//! store's wall clock; so they have to grow, and are compared by the terms that they belong to.
//!
//! The ledger's rules are older than those of the stores. Where they differ on purpose, what is asked of the ledger is
//! translated (`Round::to_the_ledger`, `Round::catch_up`), so that everything is compared all the same:
//!
//! - Numbers order renewals only. So only renewals come late.
//! - Only a lease that was ended is dead. So the ledger does not judge who opens again, renews or releases.
//! - A worker whose lease has run out is granted nothing until it renews. So it does not claim.
//! - A claim ends owners that ran out, but no waiters. Those that the ledger ends are closed in the store.
//! - A worker that leaves in order releases first, at that time. So it leaves before its lease has run out.
//! - A release of what is not held is `Free` also under a dead lease.
//! - The steps to a free ticket count from when the last ticket of the resource was freed, whichever that was.

mod compare;
mod jobs;
mod moves;

use std::time::{Duration, Instant};

use std::collections::BTreeMap;

use tenure_core::oracle::{Here, Ledger};
use tenure_core::{
    Call, Closing, HistoryEvent, LeaseId, Request, ResourceName, Said, StepDownReply, StoreTime, Token,
};

use self::compare::{Tokens, same_entries, same_said, same_view};
use self::moves::{Move, Player, Sent};
use super::Fixture;
use super::chance::Chance;
use super::world::*;

/// Rounds with a seed each, unless time is up before.
const ROUNDS: u64 = 100;
/// For stores that really wait.
const BUDGET: Duration = Duration::from_secs(5);
/// How many moves there are in a round.
const MOVES: u64 = 80;
/// Set to a seed, it plays that round only.
const SEED: &str = "TENURE_CONFORMANCE_SEED";

/// Whatever is asked, in whichever order, the store says what the ledger says.
pub async fn the_store_says_what_the_ledger_says(fixture: impl Fixture) {
    play(fixture, Theme::Tickets).await;
}

/// Whatever steps of a job are asked for, by whomever, the store says what the ledger says.
pub async fn the_store_keeps_jobs_as_the_ledger_does(fixture: impl Fixture) {
    play(fixture, Theme::Jobs).await;
}

/// What a round is mostly about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    Tickets,
    Jobs,
}

async fn play(fixture: impl Fixture, theme: Theme) {
    let mut world = World::of(fixture);
    let chosen = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seeds = chosen.map_or(1..=ROUNDS, |seed| seed..=seed);
    let begun = Instant::now();

    let mut played = 0;
    for seed in seeds {
        Round::new(&mut world, seed, theme).await.play().await;
        played += 1;
        if begun.elapsed() > BUDGET {
            break;
        }
    }
    println!("{played} rounds, {:?}", begun.elapsed());
}

/// The same for seeds that the case above does not come to on a store that really waits: all of these, however long
/// it takes.
pub async fn the_store_agrees_with_the_ledger_on(seeds: std::ops::Range<u64>, fixture: impl Fixture) {
    let mut world = World::of(fixture);
    for seed in seeds {
        Round::new(&mut world, seed, Theme::Tickets).await.play().await;
    }
}

/// One sequence, on resources and leases of its own.
struct Round<'a, F> {
    world: &'a mut World<F>,
    ledger: Ledger,
    chance: Chance,
    theme: Theme,
    seed: u64,
    step: u64,
    resources: Vec<ResourceName>,
    players: Vec<Player>,
    tokens: Tokens,
    /// When a ticket of each resource was freed last, or added: the store keeps no more of it.
    freed: BTreeMap<ResourceName, StoreTime>,
    /// The most by which the store's clock moved while it was asked something.
    slack: Duration,
}

impl<'a, F: Fixture> Round<'a, F> {
    async fn new(world: &'a mut World<F>, seed: u64, theme: Theme) -> Self {
        world.now().await;
        let ledger = Ledger::new(world.stamp().incarnation);
        let mut chance = Chance::new(seed);
        let resources = (0..=chance.below(3)).map(|number| name(&format!("job-{seed}-{number}"))).collect();
        let (players, tokens, freed) = (vec![], Tokens::default(), BTreeMap::new());
        Self { world, ledger, chance, theme, seed, step: 0, resources, players, tokens, freed, slack: ZERO }
    }

    async fn play(mut self) {
        // The first lease is as long as any: so the longest ttl is the same for both from the beginning.
        let first = self.newcomer(LONG);
        self.call(first).await;
        for step in 1..=MOVES {
            self.step = step;
            let next = match self.theme {
                Theme::Tickets => self.choose(),
                Theme::Jobs => self.choose_for_jobs(),
            };
            match next {
                Move::Pass(span) => self.world.pass(span).await,
                Move::Send(sent) => self.call(sent).await,
                Move::Ask(resource, token, successor) => self.wish(&resource, token, Some(successor)).await,
                Move::Evict(resource, token) => self.wish(&resource, token, None).await,
                Move::Job(step) => self.step_job(step).await,
                Move::Read => self.read().await,
            }
        }
        self.read().await;
    }

    /// Asks both, and adopts what the ledger makes of it.
    async fn call(&mut self, sent: Sent) {
        let Sent { lease, seq, judged_by, call } = sent;
        let before = self.world.now().await;
        self.world.judged_by = judged_by;
        let answer = self.world.answer(lease, seq, call.clone()).await;
        self.world.judged_by = None;
        let after = self.world.now().await;
        self.slack = self.slack.max(after.since(before));

        let said = self.tokens.in_terms(&call, answer.said.clone());
        let request = self.to_the_ledger(request(lease, seq, judged_by, call));
        let now = answer.stamp.now;
        let mut expected = vec![];
        for at in [now, before, after, earlier(now, self.slack), now + self.slack] {
            let mut ledger = self.ledger.clone();
            for (resource, freed_at) in &self.freed {
                ledger.count_steps_from(resource.as_str(), *freed_at);
            }
            self.raise_first(&mut ledger, &request, at);
            let ours = ledger.apply(self.here(at), &request);
            if same_said(&said, &ours.said, self.slack) && ours.stamp.longest == answer.stamp.longest {
                self.catch_up(ledger, at).await;
                return;
            }
            expected.push(ours);
        }
        let who = self.label_of(lease);
        self.differ(&format!("{who} sent {request:?}"), &answer, &expected[0]);
    }

    /// The same request as the ledger has to be asked: it must not judge the one who asks, unless for a claim. Who has
    /// run out does not claim, and a claim judges the others by the same time in both.
    fn to_the_ledger(&self, request: Request) -> Request {
        match request.call {
            Call::Open { .. } | Call::Renew => {
                Request { judged_by: Some(StoreTime::from_micros(0)), ..request }
            }
            _ => request,
        }
    }

    /// Where this claim raises K, tickets can be had from now on that could not before. The ledger would count from
    /// when they were given back, if that was while K was lower.
    fn raise_first(&self, ledger: &mut Ledger, request: &Request, at: StoreTime) {
        let Call::Claim(wants) = &request.call else { return };
        let mut raised = ledger.clone();
        let _answer = raised.apply(self.here(at), request);
        for want in wants {
            let resource = want.resource.as_str();
            let tickets = |ledger: &Ledger| ledger.read(self.here(at), resource).map(|view| view.tickets);
            if tickets(&raised) > tickets(ledger) {
                ledger.count_steps_from(resource, at);
            }
        }
    }

    /// Goes on with what the ledger has become. Those whom it has ended on the way are closed in the store: it ends
    /// waiters, too, and the store only drops them from the queue.
    async fn catch_up(&mut self, ledger: Ledger, at: StoreTime) {
        let before = std::mem::replace(&mut self.ledger, ledger);
        for resource in self.resources.clone() {
            let tickets =
                |ledger: &Ledger| ledger.read(self.here(at), resource.as_str()).map(|view| view.tickets);
            let raised = tickets(&self.ledger) > tickets(&before);
            // Before all time nobody has run out: these are the endings of those who were ended.
            let records = self.ledger.history(self.here(StoreTime::from_micros(0))).into_iter();
            let endings =
                records.filter(|record| record.resource == resource && record.what != HistoryEvent::Granted);
            let freed_at = endings.map(|record| record.at).chain(raised.then_some(at)).max();
            if let Some(freed_at) = freed_at {
                let known = self.freed.entry(resource).or_insert(freed_at);
                *known = freed_at.max(*known);
            }
        }
        let ended = |lease: &LeaseId| before.expiry(*lease).is_some() && self.ledger.expiry(*lease).is_none();
        let ended: Vec<LeaseId> = self.players.iter().map(|player| player.lease).filter(ended).collect();
        for lease in ended {
            let said = self.world.send_next(lease, Call::Close(Closing::Expired)).await;
            assert_eq!(said, Said::Closed);
        }
    }

    /// An operator's wish: to hand over, to a successor or not, or an eviction.
    async fn wish(&mut self, resource: &ResourceName, token: Token, gently: Option<Option<String>>) {
        let term = self.tokens.term(resource, token);
        let before = self.world.now().await;
        let asked = match &gently {
            Some(successor) => self.world.ask_at(resource.as_str(), token, successor.as_deref()).await,
            None => self.world.evict_at(resource.as_str(), token).await,
        };
        let after = self.world.now().await;
        self.slack = self.slack.max(after.since(before));

        let said = match asked.clone() {
            StepDownReply::OtherOwners(tokens) => {
                let mut terms: Vec<Token> =
                    tokens.iter().map(|token| self.tokens.term(resource, *token)).collect();
                terms.sort();
                StepDownReply::OtherOwners(terms)
            }
            asked => asked,
        };
        let mut expected = vec![];
        for at in [before, after] {
            let (mut ledger, here) = (self.ledger.clone(), self.here(at));
            let mut ours = match &gently {
                Some(successor) => {
                    ledger.ask(here, resource.as_str(), term, successor.as_deref().map(label).as_ref())
                }
                None => ledger.evict(here, resource.as_str(), term),
            };
            if let StepDownReply::OtherOwners(tokens) = &mut ours {
                tokens.sort();
            }
            if ours == said {
                self.catch_up(ledger, at).await;
                return;
            }
            expected.push(ours);
        }
        let wish =
            gently.map_or("an eviction".into(), |successor| format!("a wish to hand over to {successor:?}"));
        self.differ(&format!("{wish} of {resource} under {token:?}, term {term:?}"), &asked, &expected[0]);
    }

    /// Compares all that can be read.
    async fn read(&mut self) {
        for resource in self.resources.clone() {
            if self.theme == Theme::Jobs {
                self.read_job(&resource).await;
            }
            let before = self.world.now().await;
            let views = answered(self.world.store.read(Some(&resource))).await;
            let entries = answered(self.world.store.history(Some(&resource))).await;
            let after = self.world.now().await;
            self.slack = self.slack.max(after.since(before));

            let views: Vec<_> = views.into_iter().map(|view| self.tokens.view_in_terms(view)).collect();
            let ours = [before, after].map(|at| self.ledger.read(self.here(at), resource.as_str()));
            let agrees = |ours: &Option<_>| match (&views[..], ours) {
                ([], None) => true,
                ([view], Some(ours)) => same_view(view, ours, self.slack),
                _ => false,
            };
            if !ours.iter().any(agrees) {
                self.differ(&format!("a reader of {resource}"), &views, &ours[0]);
            }

            let entries: Vec<_> =
                entries.into_iter().map(|entry| self.tokens.entry_in_terms(entry)).collect();
            let ours = [before, after].map(|at| {
                let records = self.ledger.history(self.here(at)).into_iter();
                records.filter(|record| record.resource == resource).collect::<Vec<_>>()
            });
            // What was written down may be off by the slack, and the reader's own clock by as long as it read.
            let apart = self.slack + after.since(before);
            if !ours.iter().any(|ours| same_entries(&entries, ours, before, apart)) {
                self.differ(&format!("a reader of the history of {resource}"), &entries, &ours[0]);
            }
        }
    }

    /// The store at this time. Its wall clock stands at 0, so that the ledger's tokens are the terms.
    fn here(&self, now: StoreTime) -> Here {
        Here::new(now, 0, self.world.stamp().incarnation).expect("the wall clock is before the year 2200")
    }

    fn label_of(&self, lease: LeaseId) -> String {
        self.players
            .iter()
            .find(|player| player.lease == lease)
            .map_or("nobody".into(), |player| player.label.clone())
    }

    fn differ(&self, asked: &str, store: &dyn std::fmt::Debug, ledger: &dyn std::fmt::Debug) -> ! {
        panic!(
            "the store and the ledger disagree at step {} of seed {}\n  {asked}\n  the store said {store:?}\n  the ledger \
             says {ledger:?} (its tokens are the terms)\n  at most {:?} apart\nrepeat it with {SEED}={}",
            self.step, self.seed, self.slack, self.seed
        );
    }

    /// The request of a new worker.
    fn newcomer(&mut self, ttl: Duration) -> Sent {
        let player = Player::new(self.chance.one_of(&["a", "b", "c", "twin"]));
        let lease = player.lease;
        let call = Call::Open { ttl, label: label(&player.label), metadata: Default::default() };
        self.players.push(player);
        Sent { lease, seq: 1, judged_by: None, call }
    }
}
