//! Carries out what the state machine wants, on a thread of its own; decides nothing.
//!
//! One thread and one small runtime per process and store, shared by the workers of that process. A blocked
//! application runtime never costs a lease, because nothing of the lease runs there.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Answer, Call, Ending, Grant, Input, LeaseId, Now, Output, Ownership as Granted, Report, Request,
    ResourceName, Seq, Token, Want, Worker as Machine,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::Error;
use crate::clock::Clocks;
use crate::observe;
use crate::page::Page;
use crate::seat::{Change, Seat, Signal};
use crate::store::Store;

/// The thread, as the workers of a store see it. It ends when the last of them has.
#[derive(Debug)]
pub(crate) struct Driver {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Driver {
    pub(crate) fn start() -> Result<Arc<Self>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::unavailable("cannot start the driver's runtime").because(error))?;
        let (jobs, mut arriving) = mpsc::unbounded_channel::<Job>();
        let drive = async move {
            let mut running = tokio::task::JoinSet::new();
            while let Some(job) = arriving.recv().await {
                running.spawn(job);
                while running.try_join_next().is_some() {}
            }
            while running.join_next().await.is_some() {}
        };
        std::thread::Builder::new()
            .name("tenure-driver".into())
            .spawn(move || runtime.block_on(drive))
            .map_err(|error| Error::unavailable("cannot start the driver's thread").because(error))?;
        Ok(Arc::new(Self { jobs }))
    }

    /// Does this on the driver's thread, where the store's connections live.
    pub(crate) fn spawn(&self, job: Job) -> Result<(), Error> {
        self.jobs.send(job).map_err(|_| Error::unavailable("the driver's thread has ended"))
    }
}

/// What a user's handle asks of the engine of its worker.
pub(crate) enum Command {
    /// Competes for a resource, as soon as an earlier campaign for it has left.
    Enter(Want, Arc<Seat>, mpsc::UnboundedSender<Signal>),
    /// Something happened to the machine.
    Do(Input),
    /// A job on the store, done where the store's connections live.
    Ask(Box<dyn FnOnce(Arc<dyn Store>) -> Job + Send>),
    /// The lock of the lease on which the ownership under this token stands.
    ShareLock(ResourceName, Token, oneshot::Sender<Result<Option<OwnedFd>, Error>>),
    /// Leave everything; answered when all is done.
    ShutDown(oneshot::Sender<()>),
}

/// A job on the store.
pub(crate) type Job = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// What happened outside, as the tasks of an engine report it.
enum Happened {
    Answered(Request, Box<Answer>),
    Failed(Request, Error),
    Hinted(tenure_core::Hint),
    /// A subscription was restored: hints may have been missed meanwhile.
    Missed,
    /// A campaign whose resource has become free.
    Entering(Want, Occupied),
    /// Something that the engine tells itself, to be looked at after what it is doing now.
    Inside(Input),
}

/// One worker's machine and what belongs to it.
pub(crate) struct Engine {
    pub(crate) machine: Machine,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clocks: Clocks,
    pub(crate) page: Arc<Page>,
    pub(crate) margin: Duration,
    pub(crate) label: String,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    seats: HashMap<ResourceName, Occupied>,
    /// Campaigns that begin when an earlier one for the same resource has left.
    waiting: Vec<(Want, Occupied)>,
    attempts: HashMap<Seq, AbortHandle>,
    listening: Option<(LeaseId, AbortHandle)>,
    leaving: Vec<oneshot::Sender<()>>,
    /// Every handle was dropped: nobody is left to tell.
    deserted: bool,
    done: bool,
    happened: mpsc::UnboundedReceiver<Happened>,
    report: mpsc::UnboundedSender<Happened>,
}

/// Where the signals of a campaign go.
struct Occupied {
    seat: Arc<Seat>,
    signals: mpsc::UnboundedSender<Signal>,
}

impl Engine {
    pub(crate) fn new(
        machine: Machine,
        store: Arc<dyn Store>,
        clocks: Clocks,
        page: Arc<Page>,
        margin: Duration,
        label: String,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let (report, happened) = mpsc::unbounded_channel();
        Self {
            machine,
            store,
            clocks,
            page,
            margin,
            label,
            commands,
            seats: HashMap::new(),
            waiting: Vec::new(),
            attempts: HashMap::new(),
            listening: None,
            leaving: Vec::new(),
            deserted: false,
            done: false,
            happened,
            report,
        }
    }

    pub(crate) async fn run(mut self) {
        let clocks = self.clocks.clone();
        while !self.done {
            let nap = self.machine.sleep(clocks.now());
            let nap = async {
                match nap {
                    Some(span) => clocks.sleep(span).await,
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
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Enter(want, seat, signals) => self.enter(want, Occupied { seat, signals }),
            Command::Do(input) => self.handle(input),
            Command::Ask(job) => drop(tokio::spawn(job(self.store.clone()))),
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

    fn enter(&mut self, want: Want, occupied: Occupied) {
        if self.machine.is_campaigning(&want.resource) {
            self.waiting.push((want, occupied));
        } else if !self.done && !occupied.signals.is_closed() {
            self.seats.insert(want.resource.clone(), occupied);
            self.handle(Input::Enter(want));
        }
    }

    fn take_in(&mut self, happened: Happened) {
        match happened {
            Happened::Answered(request, answer) => {
                self.attempts.remove(&request.seq);
                observe::answered(&request, &answer, self.clocks.now());
                self.handle(Input::Answered(request, *answer));
            }
            Happened::Failed(request, error) => {
                self.attempts.remove(&request.seq);
                observe::failed(&self.label, &request, &error);
                self.handle(Input::Failed(request));
            }
            Happened::Inside(input) => self.handle(input),
            Happened::Entering(want, occupied) => self.enter(want, occupied),
            Happened::Missed => self.handle(Input::Missed),
            Happened::Hinted(hint) => {
                self.handle(Input::Hinted { resource: hint.resource, after: hint.after });
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let now = Now { at: self.clocks.now(), jitter: random::<2>() as u16, fresh: LeaseId(random::<16>()) };
        self.machine.handle(now, input);
        while let Some(output) = self.machine.poll() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send(request) => self.send(request),
            Output::Abandon(seq) => {
                if let Some(attempt) = self.attempts.remove(&seq) {
                    attempt.abort();
                }
            }
            Output::Trust(Some(until)) => self.page.trust(until, until + self.margin),
            Output::Trust(None) => self.page.distrust(),
            Output::Start(Granted { resource, grant }) => self.start(&resource, grant),
            Output::Stop { resource, token, ending } => {
                observe::ended(&self.label, &resource, token, ending);
                self.signal(&resource, token, Signal::Stop(ending));
            }
            Output::StopHard { resource, token } => self.signal(&resource, token, Signal::StopHard),
            Output::Left(resource) => {
                self.seats.remove(&resource);
                let waits = self.waiting.iter().position(|(want, _)| want.resource == resource);
                if let Some((want, occupied)) = waits.map(|index| self.waiting.remove(index)) {
                    let _sent = self.report.send(Happened::Entering(want, occupied));
                }
            }
            Output::Report(report) => self.tell(report),
            Output::Done => {
                self.done = true;
                // Whoever waited for it may have given up by now.
                for waits in self.leaving.drain(..) {
                    let _gone = waits.send(());
                }
            }
        }
    }

    fn send(&mut self, request: Request) {
        let (store, report, clocks) = (self.store.clone(), self.report.clone(), self.clocks.clone());
        let (seq, lease) = (request.seq, request.lease);
        let opens = matches!(request.call, Call::Open { .. });
        let listens = self.listening.as_ref().is_some_and(|(listening, _)| *listening == lease);
        let subscribed = (opens && !listens).then(|| self.listen(lease, request.limit));
        let attempt = tokio::spawn(async move {
            // Before the first claim, so that no hint is missed between the two; but a store that answers and
            // cannot hint still elects.
            if let Some(subscribed) = subscribed {
                tokio::select! {
                    _ = subscribed => {}
                    () = clocks.sleep(request.limit / 2) => {}
                }
            }
            let answer = store.call(&request).await;
            // The engine is gone: nobody wants to know.
            let _gone = report.send(match answer {
                Ok(answer) => Happened::Answered(request, Box::new(answer)),
                Err(error) => Happened::Failed(request, error),
            });
        });
        self.attempts.insert(seq, attempt.abort_handle());
    }

    /// Passes the hints of a lease on, and subscribes again whenever the subscription ends. Tells when the first
    /// try has succeeded or failed.
    fn listen(&mut self, lease: LeaseId, longest_pause: Duration) -> oneshot::Receiver<()> {
        let (store, report, clocks) = (self.store.clone(), self.report.clone(), self.clocks.clone());
        let (first, subscribed) = oneshot::channel();
        let listening = tokio::spawn(async move {
            let (mut first, mut pause) = (Some(first), SHORTEST_PAUSE);
            loop {
                let hints = store.hints(lease).await;
                // Whoever waited for it may have been given up.
                let again = first.take().map(|first| first.send(())).is_none();
                match hints {
                    Ok(mut hints) => {
                        pause = SHORTEST_PAUSE;
                        if again && report.send(Happened::Missed).is_err() {
                            return;
                        }
                        while let Some(hint) = hints.recv().await {
                            if report.send(Happened::Hinted(hint)).is_err() {
                                return;
                            }
                        }
                    }
                    Err(error) => tracing::debug!(%error, "no hints: looking again has to do"),
                }
                clocks.sleep(jittered(pause)).await;
                pause = (pause * 2).min(longest_pause).max(SHORTEST_PAUSE);
            }
        });
        if let Some((_, before)) = self.listening.replace((lease, listening.abort_handle())) {
            before.abort();
        }
        subscribed
    }

    fn start(&mut self, resource: &ResourceName, grant: Grant) {
        observe::acquired(&self.label, resource, grant);
        let Some(Occupied { seat, signals }) = self.seats.get(resource) else { return };
        seat.begin(grant);
        if signals.send(Signal::Start(grant)).is_err() {
            // Nobody is there to do the work: the campaign was dropped.
            self.forsake(resource, grant.token);
        }
    }

    fn signal(&mut self, resource: &ResourceName, token: Token, signal: Signal) {
        let Some(Occupied { seat, signals }) = self.seats.get(resource) else { return };
        if let Signal::Stop(ending) = signal {
            seat.end(token, ending);
        }
        if signals.send(signal).is_err() {
            self.forsake(resource, token);
        }
    }

    /// The campaign of this ownership was dropped, and its work with it.
    fn forsake(&self, resource: &ResourceName, token: Token) {
        let (ending, resource) = (Ending::Left, resource.clone());
        let end = Input::End { resource: resource.clone(), token, ending };
        for input in [end, Input::Stopped { resource, token }] {
            // The other end is our own.
            let _sent = self.report.send(Happened::Inside(input));
        }
    }

    fn tell(&self, report: Report) {
        observe::reported(&self.label, &report);
        if let Report::Queued(resource, waiting) = report
            && let Some(Occupied { seat, signals }) = self.seats.get(&resource)
        {
            seat.publish(Change::Waiting(waiting));
            // A campaign that was dropped is seen at its next start.
            let _gone = signals.send(Signal::Waiting);
        }
    }
}

impl Drop for Engine {
    /// Whatever happened, a panic included: nothing is owned from here on, and everybody is told.
    fn drop(&mut self) {
        self.page.distrust();
        for Occupied { seat, .. } in self.seats.values() {
            seat.abandon();
        }
        self.attempts.values().for_each(AbortHandle::abort);
        if let Some((_, listening)) = &self.listening {
            listening.abort();
        }
    }
}

/// Before the first new try of a subscription that ended; each further one waits twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Between a half and the whole of it: those who lost their link at the same moment come back one by one.
fn jittered(pause: Duration) -> Duration {
    pause / 2 + (pause / 2) * random::<1>() as u32 / 255
}

/// So many random bytes from the kernel, as a number.
pub(crate) fn random<const N: usize>() -> u128 {
    let mut bytes = [0; 16];
    // Without randomness lease ids would not be secret, and two could be one.
    getrandom::fill(&mut bytes[..N]).expect("the kernel gives random bytes");
    u128::from_le_bytes(bytes)
}
