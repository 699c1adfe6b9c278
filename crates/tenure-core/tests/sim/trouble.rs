//! Everything that goes wrong in a run, and what users and operators want at the worst moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::rules::{Act, Env, Found, Key, LookedAtLeases, Record, Reply as Answered, Step};
use tenure_core::*;

use crate::actor::{Actor, Cut, News};
use crate::check::Marks;
use crate::plan::{Restarts, Theme};
use crate::rng::Rng;
use crate::store::Store;
use crate::world::{Event, MILLI, Real, Route, World};

/// What the troublemaker remembers.
#[derive(Default)]
pub(crate) struct Trouble {
    /// The latest answer that each process has got: which life of the store made it, and when. An answer may be on its
    /// way for longer than a lease lasts, and says nothing about the time since it was made.
    heard: BTreeMap<usize, (Incarnation, Real)>,
    /// A record as it was once, for hints that come much too late.
    pub(crate) old_record: Option<Found>,
    /// Until then nothing else fails.
    pub(crate) calm_until: Real,
    /// A request whose later messages are slow.
    pub(crate) lagging: Option<u64>,
    /// In which life of the store it was begun.
    pub(crate) lagging_from: u128,
    /// By how much the ttls of newcomers have grown.
    grown: u64,
    /// The clock is back or ahead for a moment.
    blink: bool,
    /// Who knows the longest ttl and tells it to a store that has lost everything: nothing happens to this process
    /// until then.
    witness: Option<(usize, Real)>,
    /// The new primary of the store, while the old one goes on.
    new_primary: Option<(Box<Store>, Marks)>,
    /// Until then some reach the new primary.
    ping_until: Real,
    /// Which processes had heard from the old primary lately when it ended.
    spared: BTreeSet<usize>,
    /// Until then the others reach nothing.
    mute_until: Real,
    /// The last life of the old primary.
    old_life: Option<Incarnation>,
    lives: u128,
}

impl Trouble {
    pub(crate) fn note_heard(&mut self, process: usize, life: Incarnation, made_at: Real) {
        let heard = self.heard.entry(process).or_insert((life, made_at));
        if made_at >= heard.1 {
            *heard = (life, made_at);
        }
    }
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.calm {
            return;
        }
        self.after_random(self.plan.fault_every, Event::Fault);
        if self.is_calm() {
            return;
        }
        self.faults += 1;
        let actor = self.rng.range(0, self.actors.len() as u64) as usize;
        match self.rng.range(0, 12) {
            0..=2 => self.cut_off(actor),
            3 | 4 => self.freeze(actor, false),
            5 => self.freeze(actor, true),
            6 | 7 if self.plan.theme != Theme::Clock => self.crash(actor),
            8 | 9
                if self.plan.theme != Theme::Clock
                    && self.plan.restarts != Restarts::Never
                    && !self.store.down =>
            {
                self.store_down();
            }
            9 if self.plan.theme == Theme::OldPrimary => self.fail_over(),
            6..=9 if self.plan.theme == Theme::Clock && self.rng.chance(600) => self.blink_scene(),
            10 | 11 if self.plan.steps => self.step(),
            10 if self.plan.wipes && !self.store.down => self.wipe(),
            7 => self.crash(actor),
            8 if self.plan.restarts != Restarts::Never && !self.store.down => self.store_down(),
            _ => self.cut_off(actor),
        }
        if self.plan.restarts >= Restarts::SomeLost && self.rng.chance(300) {
            self.store.snapshot = Some((self.store.records(), self.check.marks()));
        }
        // A newcomer at the worst moment.
        if self.rng.chance(100) && self.actors.iter().filter(|actor| !actor.crashed).count() < 8 {
            self.join();
        }
    }

    // ---- processes ---------------------------------------------------------------------------------------

    /// All workers of the same process that live.
    fn mates(&self, index: usize) -> Vec<usize> {
        let process = self.actors[index].process;
        let mates = (0..self.actors.len()).filter(|mate| {
            let mate = &self.actors[*mate];
            mate.process == process && !mate.crashed
        });
        mates.collect()
    }

    /// A worker of this process that lives.
    pub(crate) fn somebody_in(&self, process: usize) -> Option<usize> {
        self.actors.iter().position(|actor| actor.process == process && !actor.crashed)
    }

    /// Nothing happens to this process now.
    pub(crate) fn is_sheltered(&self, index: usize) -> bool {
        let process = self.actors[index].process;
        self.trouble.witness.is_some_and(|(witness, until)| witness == process && self.at < until)
    }

    fn cut_off(&mut self, index: usize) {
        if self.is_sheltered(index) {
            return;
        }
        let both = self.rng.chance(400);
        let requests = self.rng.chance(500);
        let cut = Cut { requests: both || requests, answers: both || !requests };
        let span = self.rng.range(0, 3 * self.plan.longest());
        self.cut(index, cut, span);
    }

    fn cut(&mut self, index: usize, cut: Cut, span: u64) {
        for mate in self.mates(index) {
            self.actors[mate].cut = cut;
        }
        self.after(span, Event::Heal(index));
    }

    pub(crate) fn cut_for(&mut self, index: usize, span: u64) {
        if !self.is_sheltered(index) {
            self.cut(index, Cut { requests: true, answers: true }, span);
        }
    }

    pub(crate) fn heal(&mut self, index: usize) {
        for mate in self.mates(index) {
            self.actors[mate].cut = Cut::default();
        }
    }

    fn freeze(&mut self, index: usize, asleep: bool) {
        let span = self.rng.range(MILLI, 3 * self.plan.longest());
        self.freeze_for(index, span, asleep);
    }

    /// The process stands still, at times because its machine sleeps.
    pub(crate) fn freeze_for(&mut self, index: usize, span: u64, asleep: bool) {
        if self.actors[index].is_up() && !self.is_sheltered(index) {
            self.stand_still(index, span, asleep);
        }
    }

    fn stand_still(&mut self, index: usize, span: u64, asleep: bool) {
        let until = self.at + span;
        for mate in self.mates(index) {
            self.actors[mate].frozen_until = Some(until);
            if asleep {
                self.actors[mate].fall_asleep(self.at);
            }
            self.queue_at(until, Event::Resume(mate));
        }
    }

    fn crash(&mut self, index: usize) {
        if self.actors[index].crashed || self.is_sheltered(index) {
            return;
        }
        for mate in self.mates(index) {
            let lease = self.actors[mate].worker.lease();
            self.kill(mate);
            // At times somebody can prove it.
            if let Some(lease) = lease.filter(|_| self.rng.chance(200)) {
                self.operate_somehow(Act::Prove(lease));
            }
            self.join();
        }
    }

    /// The worker is gone, and its work with it.
    pub(crate) fn kill(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        actor.crashed = true;
        actor.trust = None;
        actor.owned.clear();
        actor.works.clear();
    }

    // ---- the store ---------------------------------------------------------------------------------------

    fn store_down(&mut self) {
        let kinds: &[Restarts] = match self.plan.restarts {
            Restarts::AllLost => &[Restarts::Whole, Restarts::SomeLost, Restarts::AllLost],
            Restarts::SomeLost => &[Restarts::Whole, Restarts::SomeLost],
            _ => &[Restarts::Whole],
        };
        let how = *self.rng.pick(kinds);
        let how = match how {
            Restarts::SomeLost if !self.may_fall_back() => Restarts::Whole,
            Restarts::AllLost if !self.finds_witness() => Restarts::Whole,
            how => how,
        };
        self.store.down = true;
        // At times it is back before anybody has noticed. A witness does not remember for ever.
        let quick = self.rng.chance(500) || self.trouble.witness.is_some_and(|(_, until)| self.at < until);
        let span = self.rng.range(0, if quick { 5 * MILLI } else { 2 * self.plan.longest() });
        self.after(span, Event::StoreBack(how));
        if how == Restarts::AllLost && self.rng.chance(600) {
            // Once more, before everybody has heard of it.
            let soon = span + self.rng.range(1, 20 * MILLI);
            self.after(soon, Event::StoreBack(how));
        }
    }

    pub(crate) fn store_back(&mut self, how: Restarts) {
        let how = match how {
            Restarts::SomeLost if !self.may_fall_back() => Restarts::Whole,
            Restarts::AllLost if !self.finds_witness() => Restarts::Whole,
            how => how,
        };
        self.store.down = false;
        self.store.incarnation = self.next_life();
        let sane_clock = !self.plan.steps;
        match how {
            Restarts::SomeLost => {
                let (records, marks) = self.store.snapshot.clone().expect("a snapshot");
                self.store.fall_back(records);
                self.check.data_lost(&marks, sane_clock);
            }
            Restarts::AllLost => self.lose_all(),
            Restarts::Never | Restarts::Whole => {}
        }
    }

    /// All data is gone, and the store does not show it: it is the same life.
    fn wipe(&mut self) {
        if self.finds_witness() {
            self.lose_all();
        }
    }

    fn lose_all(&mut self) {
        // An older life of the store does not come back from here on.
        self.store.lose_all();
        self.check.data_lost(&Marks::new(), !self.plan.steps);
        if self.plan.theme == Theme::Losses {
            self.newcomer_first();
        }
    }

    /// Newcomers with the shortest ttl are there first; those who rely on the longest do not hear of the loss.
    fn newcomer_first(&mut self) {
        let (longest, shortest) = (self.plan.longest(), self.plan.ttls[0]);
        let witness = self.trouble.witness.map(|(process, _)| process);
        for index in 0..self.actors.len() {
            if Some(self.actors[index].process) != witness {
                let span = self.rng.range(shortest / 2, longest);
                self.cut_for(index, span);
            } else if self.actors[index].is_up() {
                let span = self.rng.range(4 * MILLI, 14 * MILLI);
                self.stand_still(index, span, false);
                self.after(span + 1, Event::Look(index));
            }
        }
        if self.actors.iter().filter(|actor| !actor.crashed).count() < 8 {
            self.newcomer(shortest);
        }
    }

    /// The process of this worker asks the store for something.
    pub(crate) fn look(&mut self, index: usize) {
        if let Some(lease) = self.actors[index].worker.lease().filter(|_| self.actors[index].is_up()) {
            self.ask(index, Act::Wishes(lease));
        }
    }

    /// A new process with a worker of this ttl.
    fn newcomer(&mut self, ttl: u64) {
        let ttls = std::mem::replace(&mut self.plan.ttls, vec![ttl]);
        let shared = std::mem::replace(&mut self.plan.shared, 0);
        self.join();
        (self.plan.ttls, self.plan.shared) = (ttls, shared);
    }

    fn next_life(&mut self) -> u128 {
        self.trouble.lives = self.trouble.lives.max(self.store.incarnation) + 1;
        self.trouble.lives
    }

    /// Older data must know of every ttl that somebody relies on: that of a lease which was opened since is unknown to
    /// all but its worker, and no quarantine could be long enough.
    fn may_fall_back(&self) -> bool {
        let known = |actor: &Actor| match actor.worker.lease().filter(|_| !actor.crashed) {
            Some(lease) => self.store.would_know(lease, actor.timing.ttl()),
            None => true,
        };
        self.store.snapshot.is_some() && self.actors.iter().all(known)
    }

    /// Where leases are of different length, a store that has lost everything learns of the longest only from those who
    /// know it. One of them renews its lease soon.
    fn finds_witness(&mut self) -> bool {
        if self.plan.ttls.len() == 1 {
            return true;
        }
        let (at, longest) = (self.at, Duration::from_micros(self.plan.longest()));
        let shortest = self.plan.ttls[0];
        if let Some((_, until)) = &mut self.trouble.witness
            && at + shortest < *until
        {
            *until = at + 2 * shortest;
            return true;
        }
        let knows = |actor: &&Actor| {
            let trusts = actor.trust.is_some_and(|until| !actor.moment(at).has_reached(until));
            let heard = self.trouble.heard.get(&actor.process);
            let lately = heard
                .is_some_and(|(life, heard)| life.0 == self.store.incarnation && at < heard + shortest / 2);
            let seen = self.clients[actor.process].seen(&Key::Meta).and_then(Record::meta);
            let knows = seen.is_some_and(|meta| meta.longest >= longest);
            let connected = !actor.cut.requests && !actor.cut.answers;
            // It renews before the shortest quarantine is over.
            let soon = actor.timing.renew().as_micros() as u64 <= shortest * 7 / 10;
            actor.is_up() && connected && trusts && lately && knows && soon && actor.worker.lease().is_some()
        };
        let witness = self.actors.iter().find(knows).map(|actor| (actor.process, at + 2 * shortest));
        self.trouble.witness = witness.or(self.trouble.witness);
        witness.is_some()
    }

    // ---- an old primary ----------------------------------------------------------------------------------

    /// A new primary takes over, and the workers go on with the old one.
    fn fail_over(&mut self) {
        if self.trouble.new_primary.is_some() {
            return;
        }
        self.check.lives_return = true;
        let mut new = self.store.clone();
        new.incarnation = self.next_life();
        self.trouble.old_life = Some(Incarnation(self.store.incarnation));
        self.trouble.new_primary = Some((Box::new(new), self.check.marks()));
        self.after(1, Event::Ping);
        let span = self.rng.range(self.plan.longest() / 8, 4 * self.plan.longest());
        self.after(span, Event::OldPrimaryEnds);
    }

    /// An operator, or some of the processes, reach the new primary for a moment.
    pub(crate) fn ping(&mut self) {
        if self.trouble.new_primary.is_none() || self.calm {
            return;
        }
        if self.rng.chance(500) {
            let resource = self.rng.pick(&self.names).clone();
            self.at_the_new_primary(|world| drop(world.operate(Act::Ask(resource, Token(1), None))));
        } else {
            self.trouble.ping_until = self.at + self.rng.range(MILLI, self.plan.longest() / 4);
        }
        self.after_random(2 * self.plan.longest(), Event::Ping);
    }

    /// The old primary is gone, and all go to the new one. Whoever has heard from the old one lately has to be there:
    /// nobody else can know for how long others rely on it.
    pub(crate) fn old_primary_ends(&mut self) {
        let all = (0..self.actors.len()).filter(|index| !self.actors[*index].crashed);
        let ready = |index: usize| {
            let actor = &self.actors[index];
            actor.is_up() && !actor.cut.requests && !actor.cut.answers && self.hears_old_primary(index)
        };
        let owners_ready = all.filter(|index| self.actors[*index].trust.is_some()).all(ready);
        if self.calm {
            return;
        }
        if !owners_ready {
            self.after(2 * MILLI, Event::OldPrimaryEnds);
            return;
        }
        let Some((new, marks)) = self.trouble.new_primary.take() else { return };
        let spared = (0..self.actors.len()).filter(|index| self.hears_old_primary(*index));
        self.trouble.spared = spared.map(|index| self.actors[index].process).collect();
        self.store = *new;
        self.check.data_lost(&marks, true);
        self.trouble.calm_until = self.at + self.plan.longest();
        self.trouble.mute_until = self.trouble.calm_until;
    }

    /// Whether the process has heard from the old primary lately.
    fn hears_old_primary(&self, index: usize) -> bool {
        let heard = self.trouble.heard.get(&self.actors[index].process);
        let lately = |at: Real| self.at < at + self.plan.longest() / 4;
        heard.is_some_and(|(life, at)| Some(*life) == self.trouble.old_life && lately(*at))
    }

    /// Where a message of this worker goes.
    pub(crate) fn route(&self, index: usize) -> Route {
        let new = self.trouble.new_primary.is_some();
        if new && self.at < self.trouble.ping_until && self.hears_old_primary(index) {
            return Route::NewPrimary;
        }
        let mute =
            self.at < self.trouble.mute_until && !self.trouble.spared.contains(&self.actors[index].process);
        if mute { Route::Nowhere } else { Route::Store }
    }

    pub(crate) fn at_the_new_primary(&mut self, act: impl FnOnce(&mut Self)) {
        let Some((mut new, marks)) = self.trouble.new_primary.take() else { return };
        std::mem::swap(&mut self.store, &mut new);
        act(self);
        std::mem::swap(&mut self.store, &mut new);
        self.trouble.new_primary = Some((new, marks));
    }

    // ---- the store's clock -------------------------------------------------------------------------------

    /// The store's clock steps, at times for a moment only.
    fn step(&mut self) {
        let longest = self.plan.longest();
        let most = *self.rng.pick(&[4, 40]);
        let by = self.rng.range(1, most * longest) as i64;
        let by = if self.rng.chance(500) { by } else { -by };
        // Not twice within two leases: nobody could have seen the time in between.
        let rested = self.at >= self.store.stepped_at + 2 * longest;
        if self.trouble.blink || !rested {
            return;
        }
        if self.rng.chance(600) {
            let span = *self.rng.pick(&[longest / 50, longest / 10, longest / 2]);
            let span = self.rng.range(1, span);
            self.blink(by, span);
        } else {
            (self.store.stepped_at, self.store.offset) = (self.at, self.store.offset + by);
        }
    }

    /// The clock is wrong for so long.
    pub(crate) fn blink(&mut self, by: i64, span: u64) {
        let rested = self.at >= self.store.stepped_at + 2 * self.plan.longest();
        if self.trouble.blink || !rested || self.calm {
            return;
        }
        self.trouble.blink = true;
        (self.store.stepped_at, self.store.offset) = (self.at, self.store.offset + by);
        self.after(span, Event::ClockRight(-by));
    }

    /// Everybody has just looked when the clock goes back, something is done while it is back, and everybody looks
    /// again when it is right.
    fn blink_scene(&mut self) {
        let longest = self.plan.longest();
        let grows = self.plan.growth > 0 && !self.store.down && self.rng.chance(500);
        if grows {
            self.store_back(Restarts::Whole);
        }
        let by = self.rng.range(1_000 * MILLI, (40 * self.plan.longest()).max(2_000 * MILLI));
        let (mut soon, span) = (self.rng.range(MILLI, 12 * MILLI), self.rng.range(MILLI, 20 * MILLI));
        if grows {
            // In the quarantine, when all have settled.
            soon = self.rng.range(longest / 4, 3 * longest / 4);
            self.after(soon + 1, Event::Newcomer);
        }
        self.after(soon / 2, Event::Rumour);
        self.after(soon, Event::Blink(-(by as i64), span));
        for _ in 0..3 {
            let when = soon + self.rng.range(0, span);
            let what = if self.rng.chance(500) { Event::OneChore } else { Event::OneWish };
            self.after(when, what);
        }
        self.after(soon + span + 1, Event::Rumour);
    }

    /// Somebody comes with a ttl that is longer than all before.
    pub(crate) fn longer_newcomer(&mut self) {
        if self.calm || self.actors.iter().filter(|actor| !actor.crashed).count() >= 8 {
            return;
        }
        self.trouble.grown = (self.trouble.grown + MILLI).min(self.plan.growth);
        self.newcomer(self.plan.ttls[0] + self.trouble.grown);
    }

    /// Hints may come for no reason.
    pub(crate) fn rumour(&mut self) {
        for index in 0..self.actors.len() {
            let resource = self.rng.pick(&self.names).clone();
            if !self.actors[index].crashed && self.rng.chance(700) {
                self.send_to_process(index, News::Input(Input::Hinted { resource, after: Duration::ZERO }));
            }
        }
    }

    /// The clock is as it was before. If it was back, and a lease or a quarantine counts from then, not before
    /// everybody could have seen it: else they would be over too soon for whoever did not.
    pub(crate) fn clock_right(&mut self, by: i64) {
        if self.calm {
            return;
        }
        let untouched = self.store.span_began_at < self.store.stepped_at;
        let rested = self.store.stepped_at + 2 * self.plan.longest();
        if by > 0 && !untouched && self.at < rested {
            self.queue_at(rested, Event::ClockRight(by));
            return;
        }
        self.trouble.blink = false;
        self.store.offset += by;
        if by < 0 || !untouched {
            self.store.stepped_at = self.at;
        } else {
            // As if nothing had been.
            self.store.stepped_at = self.at.saturating_sub(2 * self.plan.longest());
        }
    }

    // ---- wishes ------------------------------------------------------------------------------------------

    pub(crate) fn wish(&mut self) {
        if self.calm {
            return;
        }
        let resource = self.rng.pick(&self.names).clone();
        let owners: Vec<(usize, Grant)> = self
            .actors
            .iter()
            .enumerate()
            .filter_map(|(index, actor)| Some((index, *actor.owned.get(&resource)?)))
            .collect();
        if !owners.is_empty() && self.rng.chance(800) {
            let (index, grant) = *self.rng.pick(&owners);
            self.wish_about(index, resource, grant);
        } else {
            let index = self.rng.range(0, self.actors.len() as u64) as usize;
            self.wish_for(index, resource);
        }
        self.after_random(self.plan.wish_every, Event::Wish);
    }

    /// An operator asks an owner to hand over.
    pub(crate) fn one_wish(&mut self) {
        let resource = self.rng.pick(&self.names).clone();
        let owner = self.actors.iter().find_map(|actor| Some(actor.owned.get(&resource)?.token));
        if let Some(token) = owner.filter(|_| !self.calm) {
            self.operate_somehow(Act::Ask(resource, token, None));
        }
    }

    /// Something that a user may want of a worker in any state.
    fn wish_for(&mut self, index: usize, resource: ResourceName) {
        match self.rng.range(0, 14) {
            0..=3 => self.worker_gets(index, Input::Leave(resource)),
            4..=7 => self.worker_gets(index, Input::StepDown(resource)),
            8..=10 => {
                let tickets = Tickets::new(self.plan.tickets).expect("a few tickets");
                self.worker_gets(index, Input::Enter(Want { resource, tickets, priority: 0 }));
            }
            11 => self.worker_gets(index, Input::Shutdown),
            _ => {
                // All at once, so that they go into one request.
                for resource in self.names.clone() {
                    let tickets = Tickets::new(self.plan.tickets).expect("a few tickets");
                    self.worker_gets(index, Input::Enter(Want { resource, tickets, priority: 0 }));
                }
            }
        }
    }

    fn wish_about(&mut self, index: usize, resource: ResourceName, grant: Grant) {
        let token = grant.token;
        match self.rng.range(0, 22) {
            0..=11 => self.worker_gets(index, Input::StepDown(resource)),
            12 | 13 => self.worker_gets(index, Input::Leave(resource)),
            14 => self.worker_gets(index, Input::End { resource, token, ending: EndReason::Failed }),
            15 => self.worker_gets(index, Input::End { resource, token, ending: EndReason::Finished }),
            16 | 17 => {
                let label = self.rng.pick(&self.actors).label.clone();
                let successor = self.rng.chance(500).then_some(label);
                self.operate_somehow(Act::Ask(resource, token, successor));
            }
            18 => {
                // From here on: where records are written one by one it may stop in the middle.
                self.check.evicted(&resource, token);
                self.operate_somehow(Act::Evict(resource, token));
            }
            19 => self.worker_gets(index, Input::Shutdown),
            20 => {
                for resource in self.names.clone() {
                    self.worker_gets(index, Input::Leave(resource));
                }
            }
            _ => self.worker_gets(index, Input::StepDown(resource)),
        }
    }

    /// At times a worker leaves just after it has claimed.
    pub(crate) fn leave_soon(&mut self, index: usize, request: &Request) {
        if let Call::Claim(wants) = &request.call
            && !self.is_calm()
            && self.rng.chance(self.plan.leaves_soon)
        {
            let resource = self.rng.pick(wants).resource.clone();
            let soon = self.rng.range(1, 6 * MILLI);
            self.after(soon, Event::Leave(index, resource));
        }
    }

    /// At times the store falls back to what it had when several resources were claimed.
    pub(crate) fn fall_back_soon(&mut self, request: &Request) {
        if let Call::Claim(wants) = &request.call
            && wants.len() > 1
            && self.plan.theme == Theme::Fallbacks
            && !self.is_calm()
            && self.rng.chance(200)
        {
            self.store.snapshot = Some((self.store.records(), self.check.marks()));
            let soon = self.rng.range(2 * MILLI, 20 * MILLI);
            self.after(soon, Event::StoreBack(Restarts::SomeLost));
            // The number of what is asked next.
            self.trouble.lagging = Some(self.next_asking());
            self.trouble.lagging_from = self.store.incarnation;
        }
    }

    /// At times a worker leaves everything, and claims it again just before it renews its lease the next time.
    pub(crate) fn claim_late(&mut self, index: usize, request: &Request) {
        let late = request.call == Call::Renew && self.plan.theme == Theme::Fallbacks;
        if !late || self.is_calm() || !self.rng.chance(100) {
            return;
        }
        let renews = self.actors[index].real(self.actors[index].timing.renew());
        let before = self.rng.range(2 * MILLI, 25 * MILLI);
        for resource in self.names.clone() {
            self.after(MILLI, Event::Leave(index, resource.clone()));
            self.after(renews.saturating_sub(before).max(2 * MILLI), Event::Enter(index, resource));
        }
    }

    /// A process does something in the background, beside its workers.
    pub(crate) fn chore(&mut self) {
        if self.calm {
            return;
        }
        self.after_random(self.plan.chore_every, Event::Chore);
        self.one_chore();
    }

    pub(crate) fn one_chore(&mut self) {
        let index = self.rng.range(0, self.actors.len() as u64) as usize;
        if !self.actors[index].is_up() {
            return;
        }
        let act = match self.rng.range(0, 4) {
            0 => Act::Sweep(self.store.leases()),
            1 => {
                let client = &self.clients[self.actors[index].process];
                let [meta, ttls] =
                    [Key::Meta, Key::Ttls].map(|key| client.seen(&key).map(|seen| seen.version));
                let (Some(meta), Some(ttls)) = (meta, ttls) else { return };
                let (in_use, linger) = (self.store.ttls_in_use(), Duration::from_micros(self.plan.longest()));
                Act::DropTtls(LookedAtLeases { in_use, meta, ttls, linger })
            }
            _ => match self.actors[index].worker.lease() {
                Some(lease) => Act::Wishes(lease),
                None => return,
            },
        };
        self.ask(index, act);
    }

    /// An operator does something, from a process of its own or from that of a worker.
    fn operate_somehow(&mut self, act: Act) {
        let index = self.rng.range(0, self.actors.len() as u64) as usize;
        if self.actors[index].is_up() && self.rng.chance(500) {
            self.ask(index, act);
        } else if !self.store.down {
            self.operate(act);
        }
    }

    /// An operator does something, in one go. Where the store writes records one by one it may stop after the first.
    fn operate(&mut self, act: Act) -> Option<Answered> {
        let (at, clock) = (self.at, Duration::from_micros(self.at));
        let mut operator = self.operator.clone();
        let env = |rng: &mut Rng| Env {
            at: Moment::new(clock, clock),
            wall: 100_000_000_000 + at,
            jitter: 0,
            chance: (u128::from(rng.next()) << 64) | u128::from(rng.next()),
        };
        let mut operation = operator.begin(&env(&mut self.rng), act);
        for _ in 0..100 {
            let now = env(&mut self.rng);
            match operator.step(&now, &mut operation) {
                Step::Done(reply) => {
                    self.operator = operator;
                    return Some(reply);
                }
                Step::Wait(_) => {}
                Step::Read(keys) => {
                    let (shown, found) = self.store.read(at, &keys);
                    operator.read(&now, &mut operation, shown, found);
                }
                Step::LostNothing(_) => operator.lost_nothing(&mut operation, self.store.lost_nothing()),
                Step::List => operator.listed(&mut operation, self.store.names()),
                Step::Commit(life, sendings) => {
                    let mut fates = Vec::new();
                    for sending in &sendings {
                        let puts = sending.change.put.len();
                        let stops = !self.plan.together && puts > 1 && !self.calm && self.rng.chance(300);
                        let until = if stops { 1 } else { puts };
                        let (fate, applied) = self.store.commit(at, life, sending, 0..until);
                        self.applied(usize::MAX, life, applied);
                        if stops {
                            return None;
                        }
                        fates.push(fate);
                    }
                    let shown = self.store.shown(at);
                    operator.committed(&now, &mut operation, shown, fates);
                }
            }
        }
        self.check.fail("cost", at, "an operator gets nowhere".to_owned());
        None
    }

    /// All faults stop: links heal, everybody wakes up, the store is there.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        (self.trouble.new_primary, self.trouble.mute_until) = (None, 0);
        if self.store.down {
            self.store_back(Restarts::Whole);
        }
        for index in 0..self.actors.len() {
            self.actors[index].cut = Cut::default();
        }
    }
}

#[test]
fn an_answer_that_comes_late_is_not_the_latest_that_a_process_has_got() {
    let mut trouble = Trouble::default();

    trouble.note_heard(0, Incarnation(2), 500);
    trouble.note_heard(0, Incarnation(1), 300);

    assert_eq!(trouble.heard[&0], (Incarnation(2), 500));
}
