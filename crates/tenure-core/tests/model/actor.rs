//! A process: its worker, what it knows of the store, what it asks, and its work.

use std::time::Duration;

use tenure_core::rules::{Act, Client, Env, Operation, Reply as Answered, Shown, Step};
use tenure_core::*;

use crate::plan::Plan;
use crate::shared::VERSION;
use crate::store::{Ask, Reply, Store};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Actor {
    pub(crate) who: usize,
    pub(crate) worker: Worker,
    pub(crate) client: Client,
    pub(crate) asking: Vec<Asking>,
    /// The how-manieth process under this label.
    pub(crate) life: u8,
    /// How many leases were asked for under this label; makes their ids.
    pub(crate) leases: u8,
    pub(crate) crashed: bool,
    pub(crate) cut: bool,
    /// The lease that a guard has ended, together with the work under it.
    pub(crate) guarded: Option<LeaseId>,
    pub(crate) work: Option<Work>,
    /// The last ownership that was taken up under this label.
    pub(crate) last: Option<Grant>,
    /// The last ownership that a user asked to give up.
    pub(crate) stepped_down: Option<Grant>,
}

/// A request that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asking {
    request: Request,
    operation: Operation,
    /// How many messages were sent for it. An answer to an earlier one is not heard.
    trip: u8,
}

/// One message to the store for a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trip {
    pub(crate) seq: Seq,
    pub(crate) trip: u8,
    pub(crate) ask: Ask,
}

/// What has to be done for a request.
pub(crate) enum Next {
    Send(Trip),
    Answer(Request, Answer),
    /// It has taken so many messages that it will never end.
    Nowhere,
}

/// No request needs as many messages, whatever comes between.
const MOST_TRIPS: u8 = 40;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub(crate) grant: Grant,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Nothing,
    Gently,
    AtOnce,
}

pub(crate) fn resource() -> ResourceName {
    ResourceName::new("r").expect("a name")
}

pub(crate) fn moment(at: u64) -> Moment {
    Moment::new(Duration::from_micros(at), Duration::from_micros(at))
}

/// The time, and what stands for chance: the versions of two commits are never the same.
pub(crate) fn env(at: u64, (who, life): (usize, u8), seq: Seq, attempts: u32) -> Env {
    let drawn = VERSION | (who as u64) << 48 | u64::from(life) << 40 | seq.0 << 16 | u64::from(attempts);
    let chance = u128::from(drawn) << 64 | u128::from(drawn);
    Env { at: moment(at), wall: Store::wall(at), jitter: 0, chance }
}

impl Actor {
    pub(crate) fn new(plan: &Plan, who: usize, life: u8, leases: u8, at: u64) -> Self {
        let label = Label::new(&format!("w{who}")).expect("a label");
        let worker = Worker::new(plan.timing(), label, Metadata::default(), moment(at));
        Self {
            who,
            worker: worker.with_planted(plan.planted()),
            client: Client::new(plan.capabilities()).with_planted(plan.planted()),
            asking: Vec::new(),
            life,
            leases,
            crashed: false,
            cut: false,
            guarded: None,
            work: None,
            last: None,
            stepped_down: None,
        }
    }

    /// Whose lease it is.
    pub(crate) fn of(lease: LeaseId) -> usize {
        (lease.0 >> 8) as usize - 1
    }

    /// The next lease that it may open.
    pub(crate) fn fresh(&self) -> LeaseId {
        LeaseId((self.who as u128 + 1) << 8 | u128::from(self.leases))
    }

    /// The lease, while it is trusted and no guard has ended it.
    pub(crate) fn trusts(&self, at: u64) -> Option<LeaseId> {
        let until = self.worker.trusted_until().filter(|_| !self.crashed)?;
        let lease = self.worker.lease().filter(|lease| self.guarded != Some(*lease));
        lease.filter(|_| !moment(at).has_reached(until))
    }

    /// What `holds()` would say.
    pub(crate) fn believes(&self, at: u64) -> Option<Grant> {
        self.trusts(at)?;
        self.worker.owned().map(|(_, grant)| grant).next()
    }

    pub(crate) fn works(&self) -> Option<Grant> {
        self.work.as_ref().map(|work| work.grant)
    }

    /// When it wants to be woken, at the latest.
    pub(crate) fn wakes_at(&self, at: u64) -> Option<u64> {
        let span = self.worker.sleep(moment(at)).filter(|_| !self.crashed)?;
        Some(at + span.as_micros() as u64)
    }

    pub(crate) fn is_due(&self, at: u64) -> bool {
        self.wakes_at(at) == Some(at)
    }

    // ---- what it asks ----------------------------------------------------------------------------------------

    pub(crate) fn begin(&mut self, at: u64, request: Request) {
        let env = env(at, (self.who, self.life), request.seq, 0);
        let operation = self.client.begin(&env, Act::Call(request.clone(), None));
        self.asking.push(Asking { request, operation, trip: 0 });
    }

    /// Goes on with a request, unless that was given up.
    pub(crate) fn go_on(&mut self, at: u64, seq: Seq) -> Option<Next> {
        let index = self.asking.iter().position(|asking| asking.request.seq == seq)?;
        for _ in 0..MOST_TRIPS {
            let asking = &mut self.asking[index];
            let env = env(at, (self.who, self.life), seq, asking.operation.attempts().0);
            let ask = match self.client.step(&env, &mut asking.operation) {
                // Nobody draws jitter, so nobody waits.
                Step::Wait(_) => continue,
                Step::Read(keys) => Ask::Read(keys),
                Step::Commit(life, sendings) => Ask::Commit(life, sendings),
                Step::LostNothing(_) => Ask::LostNothing,
                Step::List => Ask::List,
                Step::Done(reply) => {
                    let Asking { request, .. } = self.asking.remove(index);
                    let Answered::Answer(answer) = reply else { return None };
                    return Some(Next::Answer(request, answer));
                }
            };
            asking.trip += 1;
            if asking.trip > MOST_TRIPS {
                break;
            }
            return Some(Next::Send(Trip { seq, trip: asking.trip, ask }));
        }
        Some(Next::Nowhere)
    }

    /// Whether somebody waits for the answer to this message.
    pub(crate) fn awaits(&self, seq: Seq, trip: u8) -> bool {
        self.asking.iter().any(|asking| (asking.request.seq, asking.trip) == (seq, trip))
    }

    /// The store's answer to a message that is awaited.
    pub(crate) fn hear(&mut self, at: u64, seq: Seq, shown: Shown, reply: Reply) {
        let Some(asking) = self.asking.iter_mut().find(|asking| asking.request.seq == seq) else { return };
        let env = env(at, (self.who, self.life), seq, asking.operation.attempts().0);
        let operation = &mut asking.operation;
        match reply {
            Reply::Read(found) => self.client.read(&env, operation, shown, found),
            Reply::Committed(fates) => self.client.committed(&env, operation, shown, fates),
            Reply::LostNothing(lost) => self.client.lost_nothing(operation, lost),
            Reply::Listed(names) => self.client.listed(operation, names),
        }
    }

    /// Whether this request opens a lease.
    pub(crate) fn opens(&self, seq: Seq) -> bool {
        let opens = |asking: &Asking| matches!(asking.request.call, Call::Open { .. });
        self.asking.iter().any(|asking| asking.request.seq == seq && opens(asking))
    }

    // ---- what its worker wants -------------------------------------------------------------------------------

    /// Carries out what does not concern the store. Says which promise that breaks.
    pub(crate) fn carry_out(&mut self, output: &Output) -> Option<&'static str> {
        match output {
            Output::Send(Request { call: Call::Release(_), .. }) if self.work.is_some() => {
                return Some("S5: a ticket is released while its work runs");
            }
            Output::Send(Request { call: Call::Close(_), lease, .. })
                if self.work.as_ref().is_some_and(|work| work.lease == Some(*lease)) =>
            {
                return Some("S5: a lease is closed while work runs under it");
            }
            Output::Abandon(seq) => self.asking.retain(|asking| asking.request.seq != *seq),
            Output::Start(Ownership { grant, .. }) => {
                let work = Work { grant: *grant, lease: self.worker.lease(), told: Told::Nothing };
                let before = self.last.replace(*grant);
                if self.work.replace(work).is_some() {
                    return Some("L4: work starts while the old work runs");
                } else if before.is_some_and(|before| grant.token <= before.token) {
                    return Some("S6: an ownership is taken up again");
                }
            }
            Output::Stop { token, ending, .. } => {
                self.stop(*token, if ending.is_gentle() { Told::Gently } else { Told::AtOnce });
            }
            Output::StopHard { token, .. } => self.stop(*token, Told::AtOnce),
            _ => {}
        }
        None
    }

    fn stop(&mut self, token: Token, told: Told) {
        if let Some(work) = self.work.as_mut().filter(|work| work.grant.token == token) {
            work.told = told;
        }
    }
}
