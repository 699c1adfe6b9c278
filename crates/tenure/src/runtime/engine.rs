//! One worker's engine: carries out what its state machine wants; decides nothing.

use std::collections::HashMap;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::{
    Answer, Call, Grant, HeldBack, Holder, Input, Label, LeaseId, Moment, Now, Output, Ownership as Granted,
    Report, Request, ResourceName, Said, Seq, Timing, Token, Want, Worker as Machine,
};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::Error;
use crate::campaign::state::{CampaignState, Change};
use crate::campaign::work_guard::WorkGuard;
use crate::guard::{Ended, SharedPage};
use crate::outcome::panic_message;
use crate::runtime::clock::{Alarm, Clocks};
use crate::runtime::deadline::Page;
use crate::runtime::driver::Job;
use crate::runtime::events::{self, Event, StoreChange};
use crate::runtime::flapping::{FlapLimit, Terms};
use crate::runtime::health::Health;
use crate::runtime::peers::Peers;
use crate::runtime::process::{self, Owned};
use crate::runtime::subscription::{self, Heard};
use crate::runtime::telemetry::{self, Figure};
use crate::store::{Known, Pending, Store};

/// What a user's handle asks of the engine of its worker.
pub(crate) enum Command {
    /// Competes for a resource, once the work of an earlier campaign for it has ended.
    Enter(Wanted, Arc<CampaignState>),
    /// Something happened to the machine.
    Do(Input),
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

/// The way to an engine.
#[derive(Clone, Debug)]
pub(crate) struct Commands(Owned<mpsc::UnboundedSender<Command>>);

impl Commands {
    pub(crate) fn new(to: mpsc::UnboundedSender<Command>) -> Self {
        Self(Owned::new(to))
    }

    /// # Errors
    /// In a forked child, and when the engine has ended.
    pub(crate) fn send(&self, command: Command) -> Result<(), Error> {
        self.0.get()?.send(command).map_err(|_| Error::refused("the worker has been shut down"))
    }

    pub(crate) fn downgrade(&self) -> WeakCommands {
        WeakCommands(self.0.map(mpsc::UnboundedSender::downgrade))
    }

    /// # Errors
    /// In a forked child.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.get().map(drop)
    }
}

/// The same, but it keeps no worker alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakCommands(Owned<mpsc::WeakUnboundedSender<Command>>);

impl WeakCommands {
    /// Nothing in a forked child, and when the worker is gone.
    pub(crate) fn upgrade(&self) -> Option<Commands> {
        self.0.get().ok()?.upgrade().map(Commands::new)
    }
}

/// What to do when work does not end although it was told to, also by force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOverdue {
    /// Say so: [`Change::Overdue`], a log line and a counter.
    #[default]
    Report,
    /// Say so on stderr and end the process at once with [`EXIT_CODE`](Self::EXIT_CODE), before the store lets another worker in.
    Exit,
}

impl OnOverdue {
    /// How a process ends whose work could not be stopped.
    pub const EXIT_CODE: u8 = 70;
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
    /// Something that the engine tells itself, to be looked at after what it is doing now.
    Inside(Input),
}

/// What is known of a worker from its beginning.
pub(crate) struct Own {
    pub(crate) label: Label,
    pub(crate) timing: Timing,
    pub(crate) flapping: FlapLimit,
    pub(crate) on_overdue: OnOverdue,
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
    /// Absent when every handle was dropped.
    commands: Option<mpsc::UnboundedReceiver<Command>>,
    /// The other end of `commands`, for those who do the work.
    to_us: mpsc::WeakUnboundedSender<Command>,
    campaigns: HashMap<ResourceName, Campaign>,
    attempts: HashMap<Seq, Attempt>,
    /// The attempt that was given up last, until it is known why.
    abandoned: Option<(Seq, &'static str)>,
    listening: Option<(LeaseId, AbortHandle)>,
    /// What ends with the engine.
    kept: JoinSet<()>,
    leaving: Vec<oneshot::Sender<bool>>,
    health: Health,
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

/// A campaign, as its user sees it.
struct Campaign {
    state: Arc<CampaignState>,
    peers: Peers,
    terms: Terms,
}

impl Campaign {
    fn new(wanted: &Wanted, state: Arc<CampaignState>) -> Self {
        let tickets = match wanted {
            Wanted::Tickets(want) => want.tickets.count(),
            Wanted::All(_) => 1,
        };
        let (peers, terms) = (Peers::new(tickets), Terms::default());
        Self { state, peers, terms }
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
            commands: Some(commands),
            to_us,
            campaigns: HashMap::new(),
            attempts: HashMap::new(),
            abandoned: None,
            listening: None,
            kept: JoinSet::new(),
            leaving: Vec::new(),
            health: Health::default(),
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
            let now = clocks.now();
            let span = self.machine.sleep(now);
            let nap = async {
                match span {
                    Some(span) => alarm.sleep(span).await,
                    None => std::future::pending().await,
                }
            };
            let command = async {
                match &mut self.commands {
                    Some(commands) => commands.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                command = command => match command {
                    Some(command) => self.obey(command),
                    None => {
                        self.commands = None;
                        self.handle(Input::Shutdown);
                    }
                },
                Some(happened) = self.happened.recv() => self.take_in(happened),
                () = nap => self.handle(Input::Tick),
            }
        }
        // Before it is answered: nobody enters any more.
        self.commands.iter_mut().for_each(mpsc::UnboundedReceiver::close);
        // Whoever waited for it may have given up by now.
        for waits in self.leaving.drain(..) {
            let _gone = waits.send(true);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Enter(wanted, state) => self.enter(wanted, state),
            Command::Do(input) => {
                if let Input::Stopped { resource, token } = &input
                    && let Some(campaign) = self.campaigns.get(resource)
                {
                    campaign.state.is_done(*token);
                }
                self.handle(input);
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

    fn enter(&mut self, wanted: Wanted, state: Arc<CampaignState>) {
        if state.has_left() {
            return state.abandon();
        }
        let campaign = Campaign::new(&wanted, state);
        let resource = wanted.resource().clone();
        events::count(Figure::Entered(resource.clone()));
        // First what is due by now: the end of an earlier campaign must not reach this one.
        let at = self.own.clocks.now();
        self.handle_at(at, Input::Tick);
        // Its campaign was left, but its work may still run, or the ticket be on its way back.
        if let Some(before) = self.campaigns.insert(resource, campaign) {
            before.state.outlives_lease(None);
            before.state.abandon();
        }
        match wanted {
            Wanted::Tickets(want) => self.handle_at(at, Input::Enter(want)),
            Wanted::All(resource) => self.handle_at(at, Input::EnterUnlimited(resource)),
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
            Happened::Missed => self.handle(Input::Missed),
            Happened::Hinted(hint) => {
                self.handle(Input::Hinted { resource: hint.resource, after: hint.after });
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.handle_at(self.own.clocks.now(), input);
    }

    fn handle_at(&mut self, at: Moment, input: Input) {
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
            Output::Trust(until) => self.trust(until),
            Output::Distrust { protected_until } => self.distrust(protected_until),
            Output::Start(Granted { resource, grant }) => self.start(resource, grant),
            Output::Stop { resource, token, ending } => {
                if let Some(Campaign { state, .. }) = self.campaigns.get(&resource) {
                    state.end(token, ending);
                }
            }
            Output::StopHard { resource, .. } => {
                if let Some(Campaign { state, .. }) = self.campaigns.get(&resource) {
                    state.stop_hard();
                }
            }
            Output::Left(resource) => {
                if let Some(Campaign { state, .. }) = self.campaigns.remove(&resource) {
                    state.abandon();
                }
            }
            Output::Overdue(Granted { resource, grant }) => self.overdue(&resource, grant),
            Output::Unheard => {
                for waits in self.leaving.drain(..) {
                    // Whoever waited for it may have given up by now.
                    let _gone = waits.send(false);
                }
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

    fn distrust(&self, protected_until: Option<Moment>) {
        self.own.page.distrust();
        self.own.guard.iter().for_each(|guard| guard.end_all());
        for Campaign { state, .. } in
            self.campaigns.values().filter(|campaign| !campaign.state.is_unlimited())
        {
            state.outlives_lease(protected_until);
        }
    }

    /// The work does not stop.
    fn overdue(&self, resource: &ResourceName, grant: Grant) {
        if let Some(Campaign { state, .. }) = self.campaigns.get(resource) {
            state.publish(Change::Overdue(grant));
        }
        if self.own.on_overdue == OnOverdue::Exit {
            let token = grant.token.0;
            let why = format!(
                "the work of `{resource}` (token {token}) does not stop; this process ends before another worker starts"
            );
            process::exit_at_once(&why, OnOverdue::EXIT_CODE.into());
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
            let answer = caught(store.call(&request)).await;
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
        let work = WorkGuard::new(resource, grant, Commands::new(commands));
        let known = self.known(&work.resource);
        if let Some(Campaign { state, peers, terms }) = self.campaigns.get_mut(&work.resource) {
            state.begin(&work);
            let (now, limit) = (self.own.clocks.now(), self.own.flapping);
            if let Some(changes) = terms.note(now, grant.term, limit, peers.asked()) {
                state.publish(Change::Flapping { changes, within: limit.within() });
            }
            peers.note(known).into_iter().for_each(|change| state.publish(change));
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
                if let Some(Campaign { state, peers, .. }) = self.campaigns.get_mut(&resource) {
                    state.waits(waiting);
                    peers.note(known).into_iter().for_each(|change| state.publish(change));
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
        self.campaigns.values().for_each(|campaign| campaign.state.abandon());
        // Campaigns whose command nobody will read. After the close no other can come.
        if let Some(commands) = &mut self.commands {
            commands.close();
            loop {
                match commands.try_recv() {
                    Ok(Command::Enter(_, state)) => state.abandon(),
                    Ok(_) => {}
                    // Another thread is in the middle of sending.
                    Err(TryRecvError::Empty) => std::thread::yield_now(),
                    Err(TryRecvError::Disconnected) => break,
                }
            }
        }
        self.attempts.values().for_each(|attempt| attempt.task.abort());
        if let Some((_, listening)) = &self.listening {
            listening.abort();
        }
    }
}

/// A store that panics has not answered.
async fn caught<T>(answer: Pending<'_, T>) -> Result<T, Error> {
    let mut answer = answer;
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
        Ok(answer) => answer,
        Err(panic) => {
            Poll::Ready(Err(Error::unavailable("the store panicked").because(panic_message(&*panic))))
        }
    })
    .await
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
