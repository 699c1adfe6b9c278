//! The competitor, as users make one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::{Input, Label, Metadata, Namespace as Space, ResourceName, Timing, Worker as Machine};
use tokio::sync::{mpsc, oneshot};

use crate::campaign::CampaignBuilder;
use crate::guard::SharedPage;
#[cfg(feature = "cron")]
use crate::jobs::cron::{Clockwork, CronBuilder};
use crate::messages::Messages;
use crate::runtime::clock::Clocks;
use crate::runtime::deadline::Page;
use crate::runtime::driver::Driver;
use crate::runtime::engine::{Command, Commands, Engine, OnOverdue, Own};
use crate::runtime::events;
use crate::runtime::flapping::FlapLimit;
use crate::store::{self, OpenStore};
use crate::{Error, ErrorKind};

/// How long the end of a worker waits for its last events to be logged.
const LOGS_WITHIN: Duration = Duration::from_millis(100);

/// One competitor: a label, one lease, and any number of campaigns. Cloning it gives another handle to the same.
///
/// When the last handle and campaign are dropped the worker leaves as on [`shutdown`](Self::shutdown), but
/// nobody waits for it.
#[derive(Clone, Debug)]
pub struct Worker {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) commands: Commands,
    pub(crate) page: Arc<Page>,
    pub(crate) clocks: Clocks,
    pub(crate) timing: Timing,
    pub(crate) label: Label,
    /// What this worker competes for.
    entered: Mutex<BTreeSet<ResourceName>>,
    /// Wakes its jobs, if it has some.
    #[cfg(feature = "cron")]
    clockwork: std::sync::OnceLock<Clockwork>,
    /// The thread stays as long as a worker of its store does.
    driver: Arc<Driver>,
}

impl Inner {
    /// Makes sure that one campaign of this worker is about the resource.
    pub(crate) fn reserve(&self, resource: &ResourceName) -> Result<(), Error> {
        self.commands.check()?;
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        match entered.insert(resource.clone()) {
            true => Ok(()),
            false => Err(Error::refused(format!("this worker competes for `{resource}` already"))),
        }
    }

    /// Waits for so long, by the clock that counts suspend. Whatever the runtime of the caller: the timer lives in
    /// the driver's.
    pub(crate) async fn sleep(&self, span: Duration) {
        if let Clocks::ByHand(_) = self.clocks {
            return self.clocks.sleep(span).await;
        }
        let clocks = self.clocks.clone();
        self.wait_for(async move { clocks.sleep(span).await }).await;
    }

    /// As [`sleep`](Self::sleep), but a suspend may not count: for a patience that hardly ever runs out. It takes no
    /// call of the kernel.
    pub(crate) async fn doze(&self, span: Duration) {
        if let Clocks::ByHand(_) = self.clocks {
            return self.clocks.sleep(span).await;
        }
        self.wait_for(async move { tokio::time::sleep(span).await }).await;
    }

    /// What wakes the jobs of this worker; it starts with the first.
    #[cfg(feature = "cron")]
    pub(crate) fn clockwork(&self) -> Result<&Clockwork, Error> {
        if let Some(clockwork) = self.clockwork.get() {
            return Ok(clockwork);
        }
        // If two start one at once, one of them ends again.
        let started = Clockwork::start(&self.driver, self.clocks.clone())?;
        Ok(self.clockwork.get_or_init(|| started))
    }

    /// Waits in the driver's runtime.
    async fn wait_for(&self, what: impl Future<Output = ()> + Send + 'static) {
        let (mut done, is_done) = oneshot::channel::<()>();
        let timer = async move {
            tokio::select! {
                () = what => {}
                () = done.closed() => {}
            }
        };
        if self.driver.spawn(Box::pin(timer)).is_ok() {
            // It ends by being dropped.
            let _dropped = is_done.await;
        }
    }

    pub(crate) fn free(&self, resource: &ResourceName) {
        if self.commands.check().is_err() {
            return;
        }
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }
}

impl Worker {
    /// A worker on the store at `url`: `sqlite:PATH`, `redis://HOST`, `postgres://HOST/DATABASE`, `memory:` or
    /// `memory:NAME`, as far as its feature is on, with a lease of 15 s. Another one is `Worker::builder(url).timing(Timing::new(ttl)?).connect()`.
    ///
    /// # Errors
    /// When the URL is not understood, or the store cannot be opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// The same, with settings.
    pub fn builder(url: &str) -> WorkerBuilder {
        WorkerBuilder {
            source: Source::Url(url.to_owned()),
            label: None,
            namespace: None,
            metadata: None,
            timing: Timing::default(),
            flapping: FlapLimit::default(),
            on_overdue: OnOverdue::default(),
            guard: None,
        }
    }

    /// A worker on a store that is open already, with settings.
    pub fn on(store: OpenStore) -> WorkerBuilder {
        WorkerBuilder { source: Source::Opened(store), ..Self::builder("") }
    }

    /// A campaign for `resource`, to be settled and begun.
    pub fn campaign(&self, resource: impl AsRef<str>) -> CampaignBuilder {
        CampaignBuilder::new(self.inner.clone(), ResourceName::new(resource.as_ref()).map_err(Error::from))
    }

    /// A job that runs at set times, each occurrence once among all workers: `spec` has five fields (minute, hour, day, month,
    /// weekday), or six with the seconds first. Its resource is `cron:NAME`. See [`cron`](crate::jobs::cron).
    #[cfg(feature = "cron")]
    // req: E10 E11 E12
    pub fn cron(&self, name: impl AsRef<str>, spec: impl AsRef<str>) -> CronBuilder {
        CronBuilder::new(self.inner.clone(), name.as_ref(), spec.as_ref())
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Listens to what the owners of `resource` [publish](crate::Lead::publish). Any worker of the namespace may, also one
    /// that does not compete. What an earlier owner sends after a later one has spoken is left out. When the link to the
    /// store is lost the subscription is made again; what was sent meanwhile is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// # let worker = tenure::Worker::connect("memory:").await?;
    /// let mut messages = worker.subscribe("cache").await?;
    /// let own = worker.campaign("cache").acquire().await?;
    /// own.publish(b"forget everything").await?;
    ///
    /// let message = messages.next().await.expect("the worker is there");
    /// assert_eq!((message.token.0, message.bytes()), (own.token(), &b"forget everything"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the name breaks its limit, the store cannot be subscribed to or does not answer within a third of the ttl, or
    /// the worker was shut down.
    // req: E15
    pub async fn subscribe(&self, resource: impl AsRef<str>) -> Result<Messages, Error> {
        Messages::subscribe(self.inner.clone(), ResourceName::new(resource.as_ref())?).await
    }

    /// What people call this worker.
    #[must_use]
    pub fn label(&self) -> &str {
        self.inner.label.as_str()
    }

    /// Shows that the application is not wedged. Without a beacon in the timing it does nothing.
    // req: H14
    pub fn beat(&self) {
        let _gone = self.inner.commands.send(Command::Do(Input::Beat));
    }

    /// Stops all work, awaits the cleanups, releases everything. Returns within one grace and one ttl also when
    /// a callback hangs, and within a third of the ttl after the last of them when the store is away. What still runs then
    /// keeps its ticket until it has ended; if the store is away the lease runs out by itself.
    // req: A2 H12
    pub async fn shutdown(&self) {
        let limit = self.inner.timing.grace() + self.inner.timing.ttl();
        self.shutdown_within(limit).await;
    }

    /// The same with a limit of one's own. Says whether all was done, the store told included.
    pub async fn shutdown_within(&self, limit: Duration) -> bool {
        let (done, is_done) = oneshot::channel();
        if let Err(error) = self.inner.commands.send(Command::ShutDown(done)) {
            // What has been shut down is done. What belongs to the parent of this process is not.
            return error.kind() != ErrorKind::Forked;
        }
        tokio::select! {
            biased;
            // A driver that is gone has nothing left to do.
            is_done = is_done => {
                let is_done = is_done.unwrap_or(true);
                // What is not logged by now is lost if the process ends; but a log that blocks does not keep it.
                tokio::select! {
                    () = events::rendered() => {}
                    () = self.inner.sleep(LOGS_WITHIN.min(limit)) => {}
                }
                is_done
            }
            () = self.inner.sleep(limit) => false,
        }
    }
}

/// A worker to be.
#[derive(Debug)]
#[must_use = "a builder does nothing until `connect`"]
pub struct WorkerBuilder {
    source: Source,
    label: Option<String>,
    namespace: Option<String>,
    metadata: Option<String>,
    timing: Timing,
    flapping: FlapLimit,
    on_overdue: OnOverdue,
    guard: Option<Arc<SharedPage>>,
}

#[derive(Debug)]
enum Source {
    Url(String),
    Opened(OpenStore),
}

impl WorkerBuilder {
    /// What people call the worker; by default host, pid and a random part.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// The part of the store that one fleet uses; by default `tenure`.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// What the worker tells the others about itself: JSON, at most 4096 bytes.
    pub fn metadata(self, json: impl Into<String>) -> Self {
        Self { metadata: Some(json.into()), ..self }
    }

    /// How long things last.
    pub fn timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// How often a resource may change its owner before the worker says that it flaps: by
    /// [`Change::Flapping`](crate::Change::Flapping), a log line and a counter.
    pub fn flapping(self, flapping: FlapLimit) -> Self {
        Self { flapping, ..self }
    }

    /// What happens when work does not end although it was told to, also by force. By default it is reported.
    ///
    /// Work that awaits nothing, such as a blocked thread, cannot be stopped from outside. After a loss the worker says so when a
    /// quarter of the margin is left, and then nothing but the end of the process can keep two workers apart. After
    /// a gentle end it says so a quarter of the margin after the grace.
    // req: S3
    pub fn on_overdue(self, on_overdue: OnOverdue) -> Self {
        Self { on_overdue, ..self }
    }

    /// Shares its lease with a guard, which sees the same page: what the worker relies on stands there first, and what the
    /// guard has ended the worker does not rely on. See [`guard`](crate::guard). One worker per page.
    pub fn guarded_by(self, page: Arc<SharedPage>) -> Self {
        Self { guard: Some(page), ..self }
    }

    /// Opens the store, and starts the worker. It asks for a lease with its first campaign.
    ///
    /// # Errors
    /// When a setting breaks its limit, the URL is not understood, or the store cannot be opened.
    pub async fn connect(self) -> Result<Worker, Error> {
        let label = Label::new(&self.label.unwrap_or_else(default_label))?;
        let namespaced = self.namespace.is_some();
        let namespace = self.namespace.map_or_else(|| Ok(Space::default()), |name| Space::new(&name))?;
        let metadata = self.metadata.map_or_else(|| Ok(Metadata::default()), |json| checked_json(&json))?;
        let opened = match self.source {
            Source::Url(url) => store::open(&url, &namespace).await?,
            Source::Opened(_) if namespaced => {
                let why = "its namespace was chosen when it was opened";
                return Err(Error::refused(format!(
                    "the store is open already, and {why}: `{namespace}` cannot be"
                )));
            }
            Source::Opened(opened) => opened,
        };
        let page = Page::new().map_err(|error| Error::unavailable("cannot map a page").because(error))?;
        let (page, clocks) = (Arc::new(page), opened.clocks.clone());
        let (store, driver) = opened.parts.get()?.clone();
        let (commands, obeyed) = mpsc::unbounded_channel();
        let machine = Machine::new(self.timing, label.clone(), metadata, clocks.now());
        let own = Own {
            label: label.clone(),
            timing: self.timing,
            flapping: self.flapping,
            on_overdue: self.on_overdue,
            page: page.clone(),
            clocks: clocks.clone(),
            guard: self.guard,
        };
        let engine = Engine::new(machine, store, own, commands.downgrade(), obeyed);
        driver.spawn(Box::pin(engine.run()))?;
        let inner = Inner {
            commands: Commands::new(commands),
            page,
            clocks,
            timing: self.timing,
            label,
            entered: Mutex::default(),
            #[cfg(feature = "cron")]
            clockwork: std::sync::OnceLock::new(),
            driver,
        };
        Ok(Worker { inner: Arc::new(inner) })
    }
}

/// Host, pid and a random part: unique, and of use to people.
// req: T11
fn default_label() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| !c.is_control()).take(20).collect();
    let host = if host.is_empty() { "host".to_owned() } else { host };
    format!("{host}-{}-{:08x}", std::process::id(), crate::runtime::engine::random::<4>())
}

// req: T9
fn checked_json(json: &str) -> Result<Metadata, Error> {
    let metadata = Metadata::new(json)?;
    serde_json::from_str::<serde::de::IgnoredAny>(json).map_err(|error| {
        let start: String = json.chars().take(60).collect();
        Error::refused(format!("metadata {start:?} is not JSON")).because(error)
    })?;
    Ok(metadata)
}
