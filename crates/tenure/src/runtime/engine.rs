//! One worker's engine: carries out what its state machine wants; decides nothing.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Answer, Call, Grant, HeldBack, Holder, Input, Label, LeaseId, Moment, Now, Output, Ownership as Granted,
    Report, Request, ResourceName, Said, Seq, Timing, Token, Want, Worker as Machine,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::Error;
use crate::campaign::state::{Change, Seat, Signal};
use crate::campaign::work_guard::Stint;
use crate::guard::{Ended, SharedPage};
use crate::runtime::clock::{Alarm, Clocks};
use crate::runtime::deadline::Page;
use crate::runtime::driver::Job;
use crate::runtime::events::{self, Event, StoreChange};
use crate::runtime::flapping::{FlapLimit, Terms};
use crate::runtime::health::Health;
use crate::runtime::peers::Peers;
use crate::runtime::slim;
use crate::runtime::subscription::{self, Heard};
use crate::runtime::telemetry::{self, Figure};
use crate::store::{Known, Store};

/// What a user's handle asks of the engine of its worker.
pub(crate) enum Command {
    /// Competes for a resource, as soon as an earlier campaign for it has left.
    Enter(Wanted, Arc<Seat>, slim::Sender<Signal>),
    /// Something happened to the machine.
    Do(Input),
    /// The work under this token has ended, and the campaign with it.
    Depart(ResourceName, Token),
    /// A job on the store, done where the store's connections live.
    Ask(Box<dyn FnOnce(Arc<dyn Store>) -> Job + Send>),
    /// The same, for as long as the worker is there.
    Keep(Box<dyn FnOnce(Arc<dyn Store>) -> Job + Send>),
    /// As whom the store knows the owner under this token; nothing when the ownership has ended.
    Holder(ResourceName, Token, oneshot::Sender<Option<Holder>>),
    /// The lock of the lease on which the ownership under this token stands.
    ShareLock(ResourceName, Token, oneshot::Sender<Result<Option<OwnedFd>, Error>>),
    /// Leave everything; answered when all is done, or but for the store, which does not answer. Which of them is the answer.
    ShutDown(oneshot::Sender<bool>),
}

/// What a campaign is about.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// One of the tickets of a resource.
    Tickets(Want),
    /// A resource without limit.
    All(ResourceName),
}

impl Wanted {
    pub(crate) fn resource(&self) -> &ResourceName {
        match self {
            Self::Tickets(want) => &want.resource,
            Self::All(resource) => resource,
        }
    }
}

/// What happened outside, as the tasks of an engine report it.
enum Happened {
    Answered(Request, Box<Answer>),
    Failed(Request, Error),
    Hinted(tenure_core::Hint),
    /// A subscription was restored: hints may have been missed meanwhile.
    Missed,
    /// A campaign whose resource has become free.
    Entering(Wanted, Occupied),
    /// A campaign whose work has ended has not left for a third of the ttl.
    Overdue(ResourceName),
    /// Nothing has been done here for a third of the ttl, and the store has not been told.
    Unheard,
    /// Something that the engine tells itself, to be looked at after what it is doing now.
    Inside(Input),
}

/// What is known of a worker from its beginning.
pub(crate) struct Own {
    pub(crate) label: Label,
    pub(crate) timing: Timing,
    pub(crate) flapping: FlapLimit,
    pub(crate) page: Arc<Page>,
    pub(crate) clocks: Clocks,
    /// Shared with whoever ends the work when this process does not.
    pub(crate) guard: Option<Arc<SharedPage>>,
}

/// One worker's machine and what belongs to it.
pub(crate) struct Engine {
    machine: Machine,
    store: Arc<dyn Store>,
    own: Own,
    commands: mpsc::UnboundedReceiver<Command>,
    /// The other end of `commands`, for those who do the work.
    to_us: mpsc::WeakUnboundedSender<Command>,
    seats: HashMap<ResourceName, Occupied>,
    /// Campaigns that begin when an earlier one for the same resource has left.
    waiting: Vec<(Wanted, Occupied)>,
    attempts: HashMap<Seq, Attempt>,
    /// The attempt that was given up last, until it is known why.
    abandoned: Option<(Seq, &'static str)>,
    listening: Option<(LeaseId, AbortHandle)>,
    /// What ends with the engine.
    kept: JoinSet<()>,
    leaving: Vec<oneshot::Sender<bool>>,
    health: Health,
    /// Nothing is done here any more; the store is being told.
    is_telling: bool,
    /// Every handle was dropped: nobody is left to tell.
    deserted: bool,
    machine_is_done: bool,
    happened: mpsc::UnboundedReceiver<Happened>,
    report: mpsc::UnboundedSender<Happened>,
    chance: Chance,
}

/// A request under way.
struct Attempt {
    task: AbortHandle,
    call: &'static str,
}

/// Where the signals of a campaign go.
struct Occupied {
    seat: Arc<Seat>,
    signals: slim::Sender<Signal>,
    /// Its work has ended: there is nobody to be told to stop.
    is_departing: bool,
    /// What tells those who wait until it has left that this takes too long.
    overdue: Option<AbortHandle>,
    peers: Peers,
    terms: Terms,
}

impl Occupied {
    fn new(wanted: &Wanted, seat: Arc<Seat>, signals: slim::Sender<Signal>) -> Self {
        let tickets = match wanted {
            Wanted::Tickets(want) => want.tickets.count(),
            Wanted::All(_) => 1,
        };
        let (peers, terms) = (Peers::new(tickets), Terms::default());
        Self { seat, signals, is_departing: false, overdue: None, peers, terms }
    }
}

impl Engine {
    pub(crate) fn new(
        machine: Machine,
        store: Arc<dyn Store>,
        own: Own,
        to_us: mpsc::WeakUnboundedSender<Command>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let (report, happened) = mpsc::unbounded_channel();
        Self {
            machine,
            store,
            own,
            commands,
            to_us,
            seats: HashMap::new(),
            waiting: Vec::new(),
            attempts: HashMap::new(),
            abandoned: None,
            listening: None,
            kept: JoinSet::new(),
            leaving: Vec::new(),
            health: Health::default(),
            is_telling: false,
            deserted: false,
            machine_is_done: false,
            happened,
            report,
            chance: Chance::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        let clocks = self.own.clocks.clone();
        let mut alarm = Alarm::by(clocks.clone());
        while !self.machine_is_done {
            self.limit_telling();
            let now = clocks.now();
            let span = self.machine.sleep(now);
            let nap = async {
                match span {
                    Some(span) => alarm.sleep(span).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                command = self.commands.recv(), if !self.deserted => match command {
                    Some(command) => self.obey(command),
                    None => {
                        self.deserted = true;
                        self.handle(Input::Shutdown);
                    }
                },
                Some(happened) = self.happened.recv() => self.take_in(happened),
                () = nap => self.handle(Input::Tick),
            }
        }
        // Before it is answered: nobody enters any more.
        self.commands.close();
        // Whoever waited for it may have given up by now.
        for waits in self.leaving.drain(..) {
            let _gone = waits.send(true);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Enter(wanted, seat, signals) => {
                let occupied = Occupied::new(&wanted, seat, signals);
                self.enter(wanted, occupied);
            }
            Command::Do(input) => {
                if let Input::Stopped { resource, token } = &input
                    && let Some(occupied) = self.seats.get(resource)
                {
                    occupied.seat.is_done(*token);
                }
                self.handle(input);
            }
            Command::Depart(resource, token) => {
                if let Some(occupied) = self.seats.get_mut(&resource) {
                    occupied.seat.is_done(token);
                    occupied.is_departing = true;
                }
                self.handle(Input::Leave(resource.clone()));
                self.handle(Input::Stopped { resource: resource.clone(), token });
                self.limit_departure(resource);
            }
            Command::Ask(job) => drop(tokio::spawn(job(self.store.clone()))),
            Command::Keep(job) => {
                while self.kept.try_join_next().is_some() {}
                self.kept.spawn(job(self.store.clone()));
            }
            Command::Holder(resource, token, answer) => {
                let lease = self.machine.lease_of(&resource, token);
                // Whoever asked may have given up.
                let _gone = answer.send(lease.map(|lease| Holder { lease, resource, token }));
            }
            Command::ShareLock(resource, token, answer) => {
                let lease = self.machine.lease_of(&resource, token);
                let ended = || Error::refused(format!("the ownership of `{resource}` has ended"));
                let lock = lease.ok_or_else(ended).and_then(|lease| self.store.share_lock(lease));
                // Whoever asked may have given up: then the lock is let go again.
                let _gone = answer.send(lock);
            }
            Command::ShutDown(answer) => {
                self.leaving.push(answer);
                self.handle(Input::Shutdown);
            }
        }
    }

    /// Whoever waits until the campaign has left does not wait for a store that does not answer. Limited here, behind the
    /// request: a limit of the caller's own would have the driver woken once more before it and after it.
    fn limit_departure(&mut self, resource: ResourceName) {
        let Some(occupied) = self.seats.get_mut(&resource) else { return };
        let (report, clocks, limit) =
            (self.report.clone(), self.own.clocks.clone(), self.own.timing.ttl() / 3);
        let overdue = tokio::spawn(async move {
            clocks.doze(limit).await;
            // The engine is gone, and with it who waited.
            let _gone = report.send(Happened::Overdue(resource));
        });
        occupied.overdue = Some(overdue.abort_handle());
    }

    /// The same for whoever waits until the worker has left, from when nothing runs any more. The store is told for as long
    /// as the process lives.
    fn limit_telling(&mut self) {
        if self.is_telling || self.leaving.is_empty() || !self.seats.is_empty() {
            return;
        }
        self.is_telling = true;
        let (report, clocks, limit) =
            (self.report.clone(), self.own.clocks.clone(), self.own.timing.ttl() / 3);
        self.kept.spawn(async move {
            clocks.doze(limit).await;
            // The engine is gone: it has been told.
            let _gone = report.send(Happened::Unheard);
        });
    }

    fn enter(&mut self, wanted: Wanted, occupied: Occupied) {
        let resource = wanted.resource().clone();
        if self.machine.is_campaigning(&resource) {
            self.waiting.push((wanted, occupied));
        } else if occupied.signals.is_closed() {
            self.admit_next(&resource);
        } else {
            events::count(Figure::Entered(resource.clone()));
            self.seats.insert(resource, occupied);
            match wanted {
                Wanted::Tickets(want) => self.handle(Input::Enter(want)),
                Wanted::All(resource) => self.handle(Input::EnterUnlimited(resource)),
            }
        }
    }

    /// Lets in whoever waits for this resource, but for those who have given up.
    fn admit_next(&mut self, resource: &ResourceName) {
        self.waiting.retain(|(_, occupied)| !occupied.signals.is_closed());
        let waits = self.waiting.iter().position(|(wanted, _)| wanted.resource() == resource);
        if let Some((wanted, occupied)) = waits.map(|index| self.waiting.remove(index)) {
            // The other end is our own.
            let _sent = self.report.send(Happened::Entering(wanted, occupied));
        }
    }

    fn take_in(&mut self, happened: Happened) {
        match happened {
            Happened::Answered(request, answer) => {
                self.attempts.remove(&request.seq);
                let now = self.own.clocks.now();
                if request.call == Call::Renew {
                    let left = self.own.page.trusted_for(now).div_duration_f64(self.own.timing.trust());
                    let left = matches!(answer.said, Said::Kept { .. }).then_some(left);
                    events::count(Figure::RenewalAnswered {
                        took: now.longest_since(request.asked_at),
                        left,
                    });
                }
                let recovered = self.health.answered(&request.call);
                recovered.into_iter().for_each(|change| self.tell_of_store(change));
                self.handle(Input::Answered(request, *answer));
            }
            Happened::Failed(request, error) => {
                self.attempts.remove(&request.seq);
                self.failed(telemetry::name(&request.call), |call| StoreChange::failed(call, &error));
                self.handle(Input::Failed(request));
            }
            Happened::Inside(input) => self.handle(input),
            Happened::Entering(wanted, occupied) => self.enter(wanted, occupied),
            Happened::Missed => self.handle(Input::Missed),
            Happened::Overdue(resource) => {
                if let Some(occupied) = self.seats.get(&resource).filter(|occupied| occupied.is_departing) {
                    // Whoever waited may have given up.
                    let _gone = occupied.signals.send(Signal::Overdue);
                }
            }
            Happened::Unheard => {
                self.is_telling = false;
                for waits in self.leaving.drain(..) {
                    let _gone = waits.send(false);
                }
            }
            Happened::Hinted(hint) => {
                self.handle(Input::Hinted { resource: hint.resource, after: hint.after });
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let at = self.own.clocks.now();
        let now = Now { at, jitter: self.chance.jitter(), fresh: self.chance.fresh };
        self.machine.handle(now, input);
        while let Some(output) = self.machine.poll() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send(request) => self.send(request),
            Output::Abandon(seq) => {
                if let Some(Attempt { task, call }) = self.attempts.remove(&seq) {
                    task.abort();
                    self.abandoned = Some((seq, call));
                }
            }
            Output::Trust(until) => {
                until.map_or_else(|| self.distrust(), |until| self.trust(until));
            }
            Output::Start(Granted { resource, grant }) => self.start(resource, grant),
            Output::Stop { resource, token, ending } => {
                if let Some(Occupied { seat, signals, is_departing, .. }) = self.seats.get(&resource) {
                    seat.end(token, ending);
                    if !is_departing {
                        // Who does not listen any more has dropped the work: then it has stopped.
                        let _gone = signals.send(Signal::Stop(ending));
                    }
                }
            }
            Output::StopHard { resource, .. } => {
                if let Some(Occupied { signals, .. }) = self.seats.get(&resource) {
                    // As above.
                    let _gone = signals.send(Signal::StopHard);
                }
            }
            Output::Left(resource) => {
                if let Some(Occupied { seat, overdue, .. }) = self.seats.remove(&resource) {
                    overdue.iter().for_each(AbortHandle::abort);
                    seat.abandon();
                }
                self.admit_next(&resource);
            }
            Output::Report(report) => self.tell(report),
            Output::Done => self.machine_is_done = true,
        }
    }

    /// Everything owned may be relied on until then, unless a guard has ended the lease meanwhile.
    fn trust(&self, until: Moment) {
        let margin = self.own.timing.margin();
        match self.own.guard.as_ref().map_or(Ok(()), |guard| guard.extend(until, margin)) {
            Ok(()) => self.own.page.trust(until, until + margin),
            Err(Ended) => {
                self.own.page.distrust();
                let ended = self.machine.lease().map(Input::Ended);
                // The other end is our own.
                ended.into_iter().for_each(|ended| drop(self.report.send(Happened::Inside(ended))));
            }
        }
    }

    /// The lease is over. Withdrawn before its time, it protects nothing any more; run out, it does until the
    /// store may let others in.
    fn distrust(&self) {
        let page = &self.own.page;
        let ran_out = !page.is_trusted(self.own.clocks.now());
        let protected_until = ran_out.then(|| page.protected_until());
        page.distrust();
        self.own.guard.iter().for_each(|guard| guard.end_all());
        for Occupied { seat, .. } in self.seats.values().filter(|occupied| !occupied.seat.is_unlimited()) {
            seat.outlives_lease(protected_until);
        }
    }

    fn send(&mut self, request: Request) {
        let lease = request.lease;
        let listens = self.listening.as_ref().is_some_and(|(listening, _)| *listening == lease);
        if lease == self.chance.fresh {
            self.chance.renew();
        }
        if let (Call::Open { .. }, Some(guard)) = (&request.call, &self.own.guard) {
            guard.opening(lease);
        }
        let subscribed = match request.call {
            Call::Open { .. } if !listens => Some(self.listen(lease, request.limit)),
            Call::Close(_) if listens => {
                self.listening.take().iter().for_each(|(_, listening)| listening.abort());
                None
            }
            _ => None,
        };
        let (clocks, limit) = (self.own.clocks.clone(), request.limit);
        let (seq, call) = (request.seq, telemetry::name(&request.call));
        let store = self.store.clone();
        self.attend(seq, call, async move {
            // Before the first claim, so that no hint is missed between the two; but a store that answers and
            // cannot hint still elects.
            if let Some(subscribed) = subscribed {
                tokio::select! {
                    _ = subscribed => {}
                    () = clocks.sleep(limit / 2) => {}
                }
            }
            let answer = store.call(&request).await;
            (request, answer)
        });
    }

    /// Waits for what the store says to a request.
    fn attend(
        &mut self,
        seq: Seq,
        call: &'static str,
        answer: impl Future<Output = (Request, Result<Answer, Error>)> + Send + 'static,
    ) {
        let report = self.report.clone();
        let task = tokio::spawn(async move {
            // The engine is gone: nobody wants to know.
            let _gone = report.send(match answer.await {
                (request, Ok(answer)) => Happened::Answered(request, Box::new(answer)),
                (request, Err(error)) => Happened::Failed(request, error),
            });
        });
        self.attempts.insert(seq, Attempt { task: task.abort_handle(), call });
    }

    /// Listens to the hints of a lease, and no more to those of another. Tells when the first try has come to an end.
    fn listen(&mut self, lease: LeaseId, longest_pause: Duration) -> oneshot::Receiver<()> {
        let report = self.report.clone();
        let tell = move |heard| {
            let happened = match heard {
                Heard::Hint(hint) => Happened::Hinted(hint),
                Heard::Missed => Happened::Missed,
            };
            report.send(happened).is_ok()
        };
        let (store, clocks) = (self.store.clone(), self.own.clocks.clone());
        let (first, subscribed) = oneshot::channel();
        let worker = self.own.label.clone();
        let listening = tokio::spawn(async move {
            subscription::keep(&*store, &clocks, lease, worker, longest_pause, first, tell).await;
        });
        if let Some((_, before)) = self.listening.replace((lease, listening.abort_handle())) {
            before.abort();
        }
        subscribed
    }

    fn start(&mut self, resource: ResourceName, grant: Grant) {
        let Some(commands) = self.to_us.upgrade() else {
            // Every handle was dropped: nobody is there to do the work.
            let _sent = self.report.send(Happened::Inside(Input::Stopped { resource, token: grant.token }));
            return;
        };
        let served = self.health.is_served();
        served.into_iter().for_each(|change| self.tell_of_store(change));
        let stint = Stint::new(resource, grant, commands);
        let known = self.known(&stint.resource);
        if let Some(Occupied { seat, signals, peers, terms, .. }) = self.seats.get_mut(&stint.resource) {
            seat.begin(&stint);
            let (now, limit) = (self.own.clocks.now(), self.own.flapping);
            if let Some(changes) = terms.note(now, grant.term, limit, peers.asked()) {
                seat.publish(Change::Flapping { changes, within: limit.within() });
            }
            // Refused, it is dropped with the signal, and has stopped.
            let _gone = signals.send(Signal::Start(stint.clone()));
            peers.note(known).into_iter().for_each(|change| seat.publish(change));
        }
    }

    fn tell(&mut self, report: Report) {
        match report {
            Report::Unanswered(seq) => {
                if let Some((_, call)) = self.abandoned.take_if(|(abandoned, _)| *abandoned == seq) {
                    self.failed(call, |call| StoreChange::Silent { call });
                }
            }
            Report::Queued(resource, waiting) => {
                let change = self.health.waits(waiting);
                change.into_iter().for_each(|change| self.tell_of_store(change));
                let known = self.known(&resource);
                if let Some(Occupied { seat, signals, peers, .. }) = self.seats.get_mut(&resource) {
                    seat.publish(Change::Waiting(waiting));
                    peers.note(known).into_iter().for_each(|change| seat.publish(change));
                    // A campaign that was dropped is seen at its next start.
                    let _gone = signals.send(Signal::Waiting);
                }
            }
            Report::HeldBack(HeldBack::StoreForgot, left) => {
                self.tell_of_store(StoreChange::ForgotLease { left });
            }
            Report::HeldBack(_, left) => self.tell_of_store(StoreChange::ClockWatched { left }),
            Report::NewIncarnation => self.tell_of_store(StoreChange::Restarted),
            _ => {}
        }
    }

    /// What is known of a resource from earlier answers.
    fn known(&self, resource: &ResourceName) -> Known {
        self.machine.lease().map_or(Known::default(), |lease| self.store.known(lease, resource))
    }

    /// A request came to nothing.
    fn failed(&mut self, call: &'static str, how: impl FnOnce(&'static str) -> StoreChange) {
        self.health.failed();
        self.tell_of_store(how(call));
        if call == telemetry::name(&Call::Renew) {
            events::count(Figure::RenewalFailed);
        }
    }

    fn tell_of_store(&self, change: StoreChange) {
        events::tell(Event::Store { worker: Some(self.own.label.clone()), resource: None, change });
    }
}

impl Drop for Engine {
    /// Whatever happened, a panic included: nothing is owned from here on, and everybody is told.
    fn drop(&mut self) {
        self.own.page.distrust();
        self.own.guard.iter().for_each(|guard| guard.end_all());
        for Occupied { seat, .. } in self.seats.values().chain(self.waiting.iter().map(|(_, waits)| waits)) {
            seat.abandon();
        }
        self.attempts.values().for_each(|attempt| attempt.task.abort());
        self.seats.values().flat_map(|occupied| &occupied.overdue).for_each(AbortHandle::abort);
        if let Some((_, listening)) = &self.listening {
            listening.abort();
        }
    }
}

/// What the machine is given by chance with every message; so the kernel is not asked each time.
struct Chance {
    /// The id of a lease that nobody has. One that was used is replaced.
    fresh: LeaseId,
    jitter: u64,
}

impl Chance {
    fn new() -> Self {
        Self { fresh: LeaseId(random::<16>()), jitter: u64::from_le_bytes(random_bytes()) | 1 }
    }

    fn renew(&mut self) {
        self.fresh = LeaseId(random::<16>());
    }

    /// Spreads what many workers do at once; nothing depends on whether somebody can guess it.
    fn jitter(&mut self) -> u16 {
        // Xorshift: never zero, and its upper bits are the better ones.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let [.., low, high] = self.jitter.to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

/// So many random bytes from the kernel, as a number.
pub(crate) fn random<const N: usize>() -> u128 {
    let mut bytes = [0; 16];
    bytes[..N].copy_from_slice(&random_bytes::<N>());
    u128::from_le_bytes(bytes)
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness lease ids would not be secret, and two could be one.
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

#[cfg(test)]
mod tests;
