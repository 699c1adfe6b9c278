//! An application of modules: they compete once it has started, and it closes in good order when it is told to end.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::{Error, Worker};

/// Whatever went wrong in a module.
pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A part of an application: what it owns ([`resources!`](macro@crate::resources)), what it does when the application starts, and
/// what it does when it closes.
///
/// ```
/// tenure::resources! {
///     /// What runs on one worker at a time, or on two.
///     pub enum Job in "student" { Echo = "echo", Report = "report" (tickets: 2) }
/// }
///
/// pub struct Student;
///
/// impl tenure::app::Module for Student {
///     async fn on_started(&mut self, worker: &tenure::Worker) -> Result<(), tenure::app::AnyError> {
///         Job::Echo.campaign(worker).obtain(
///             async |own| println!("started, term {}", own.term()),
///             async |ending| println!("stopped: {ending:?}"),
///         )?;
///         Ok(())
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// // Until SIGTERM or SIGINT: `.run()`.
/// tenure::app::App::connect("memory:").await?.module(Student).run_until(async {}).await
/// # }
/// ```
// req: A1 A2
pub trait Module: Send + Sized + 'static {
    /// The application has started: what the module competes for, it competes for from here on. Whoever waits here lets
    /// the modules after this one wait.
    ///
    /// # Errors
    /// One that fails ends the application: what had begun is closed, and [`App::run`] says which module it was.
    fn on_started(&mut self, worker: &Worker) -> impl Future<Output = Result<(), AnyError>> + Send;

    /// The application closes. The work of all modules has been stopped, its cleanups awaited, and the tickets are free: this
    /// is for what the work needed, such as connections, or a server that still answers what it was asked. The last module
    /// that was started is closed first. Called once if `on_started` was, also when that failed.
    ///
    /// # Errors
    /// One that fails keeps no other from being closed; [`App::run`] says which it was.
    fn on_close(self) -> impl Future<Output = Result<(), AnyError>> + Send {
        async { Ok(()) }
    }
}

/// A worker and the modules that compete with it, from the start of an application to its end.
#[must_use = "an application does nothing until `run`"]
pub struct App {
    worker: Worker,
    modules: Vec<Box<dyn Part>>,
    close_within: Duration,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modules: Vec<&str> = self.modules.iter().map(|module| module.name()).collect();
        f.debug_struct("App").field("worker", &self.worker.label()).field("modules", &modules).finish()
    }
}

impl App {
    /// An application with a worker on the store at `url`. See [`Worker::connect`].
    ///
    /// # Errors
    /// When the URL is not understood, or the store cannot be opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Ok(Self::new(Worker::connect(url).await?))
    }

    /// The same with a worker that has settings of its own.
    pub fn new(worker: Worker) -> Self {
        let close_within = worker.inner.timing.grace() + worker.inner.timing.ttl();
        Self { worker, modules: Vec::new(), close_within }
    }

    /// The worker of all modules.
    #[must_use]
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Adds a module. They are started in this order.
    pub fn module(mut self, module: impl Module) -> Self {
        self.modules.push(Box::new(module));
        self
    }

    /// How long closing may take; by default one grace and one ttl, together 30 s unless set. Two thirds of
    /// it are for the work, to be stopped, cleaned up and released, one is for [`on_close`](Module::on_close), whatever the store does.
    pub fn close_within(self, limit: Duration) -> Self {
        Self { close_within: limit, ..self }
    }

    /// Starts the modules, waits for SIGTERM or SIGINT, and closes: stops the work, awaits its cleanups, releases everything,
    /// closes the modules. A second SIGINT ends it at once.
    ///
    /// # Errors
    /// When a module could not be started or closed, or closing took too long. What was begun has been closed as far as
    /// there was time.
    // req: A2
    pub async fn run(self) -> Result<(), Error> {
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let told = async {
            let by = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(by, "the application closes");
        };
        let hurried = async {
            // Heard from when it closes on: the first one told it to.
            match listen(SignalKind::interrupt()) {
                Ok(mut again) => drop(again.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        self.serve(told, hurried).await
    }

    /// The same, but it closes when `over` comes to its end: for tests, and for those who have signals of their own.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(self, over: impl Future<Output = ()>) -> Result<(), Error> {
        self.serve(over, std::future::pending()).await
    }

    async fn serve(
        self,
        told: impl Future<Output = ()>,
        hurried: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let Self { worker, modules, close_within } = self;
        let (mut told, mut begun, mut started) = (pin!(told), Vec::new(), Ok(Goes::On));
        for mut module in modules {
            started = tokio::select! {
                biased;
                started = module.start(&worker) => started.map(|()| Goes::On),
                () = &mut told => Ok(Goes::Home),
            };
            begun.push(module);
            if !matches!(started, Ok(Goes::On)) {
                break;
            }
        }
        if let Ok(Goes::On) = started {
            told.await;
        }
        let closed = tokio::select! {
            biased;
            closed = close(&worker, begun, close_within) => closed,
            () = hurried => Err(Error::unavailable("the application was ended before it was closed")),
        };
        started.and(closed)
    }
}

/// What an application does when a module has started.
enum Goes {
    On,
    /// Somebody told it to end meanwhile.
    Home,
}

/// Ends the work, then closes the modules, the last one first. One that fails keeps no other from being closed; one that
/// hangs does, when the time is over.
async fn close(worker: &Worker, modules: Vec<Box<dyn Part>>, limit: Duration) -> Result<(), Error> {
    let for_work = limit * 2 / 3;
    let mut closed = match worker.shutdown_within(for_work).await {
        true => Ok(()),
        false => {
            let what = format!("work did not end within {for_work:?}, or the store did not hear of it");
            Err(Error::unavailable(what))
        }
    };
    let mut over = pin!(worker.inner.sleep(limit - for_work));
    for module in modules.into_iter().rev() {
        let name = module.name();
        let done = tokio::select! {
            biased;
            done = module.close() => done,
            () = &mut over => {
                return closed.and(Err(Error::unavailable(format!("`{name}` did not close within {limit:?}"))));
            }
        };
        if let Err(error) = done {
            tracing::error!(error = &error as &dyn std::error::Error, "a module failed to close");
            closed = closed.and(Err(error));
        }
    }
    closed
}

fn listen(kind: SignalKind) -> Result<Signal, Error> {
    signal(kind).map_err(|error| Error::refused("cannot listen for signals").because(error))
}

type Done<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A module of whatever type.
trait Part: Send {
    fn name(&self) -> &'static str;
    fn start<'a>(&'a mut self, worker: &'a Worker) -> Done<'a>;
    fn close(self: Box<Self>) -> Done<'static>;
}

impl<M: Module> Part for M {
    fn name(&self) -> &'static str {
        std::any::type_name::<M>()
    }

    fn start<'a>(&'a mut self, worker: &'a Worker) -> Done<'a> {
        let name = self.name();
        let failed = move |error| Error::refused(format!("cannot start `{name}`")).because(error);
        Box::pin(async move { self.on_started(worker).await.map_err(failed) })
    }

    fn close(self: Box<Self>) -> Done<'static> {
        let name = self.name();
        let failed = move |error| Error::unavailable(format!("cannot close `{name}`")).because(error);
        // In a task of its own: a panic in it keeps no other from being closed.
        let mut closing = JoinSet::new();
        closing.spawn((*self).on_close());
        Box::pin(async move {
            let closed = closing.join_next().await.unwrap_or(Ok(Ok(())));
            closed.map_err(AnyError::from).and_then(|closed| closed).map_err(failed)
        })
    }
}
