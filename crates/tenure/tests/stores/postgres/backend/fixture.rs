//! A fresh namespace on a private server, and short words for records and changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure::store::backend::{
    Backend, Change, Channel, Commits, Committed, Put, Signal, Snapshot, Stored, Text,
};
use tenure::store::{LeaseId, Namespace, PostgresBackend};
use tenure_core::{Incarnation, Key, ResourceName, Version, Window};
use testkit::postgres::{Options, Postgres};

/// Long enough for anything that should happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Fresh {
    server: Arc<Mutex<Postgres>>,
    pub(crate) url: String,
    pub(crate) namespace: Namespace,
    pub(crate) backend: Arc<PostgresBackend>,
}

impl Fresh {
    /// On the server that the tests share.
    pub(crate) async fn start() -> Self {
        Self::on(shared()).await
    }

    /// On a server of its own.
    pub(crate) async fn alone() -> Self {
        Self::with(Options::new()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        Self::on(Arc::new(Mutex::new(options.start()))).await
    }

    async fn on(server: Arc<Mutex<Postgres>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let namespace = namespace(&format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let url = lock(&server).url();
        let backend = Arc::new(open(&url, &namespace).await);
        Self { server, url, namespace, backend }
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Postgres> {
        lock(&self.server)
    }

    /// Another client of the same namespace.
    pub(crate) async fn another(&self) -> PostgresBackend {
        open(&self.url, &self.namespace).await
    }

    /// Statements in which `@` is the schema.
    pub(crate) fn in_schema(&self, statements: &str) -> String {
        statements.replace('@', &format!("\"{}\"", self.namespace))
    }

    pub(crate) fn sql(&self, statements: &str) -> String {
        let statements = self.in_schema(statements);
        self.server().sql(&statements)
    }
}

pub(crate) async fn open(url: &str, namespace: &Namespace) -> PostgresBackend {
    PostgresBackend::open(url, namespace).await.expect("a backend")
}

pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace::new(name).expect("a namespace")
}

/// The server of the tests that run now; it goes with the last of them.
pub(crate) fn shared() -> Arc<Mutex<Postgres>> {
    static SHARED: Mutex<Weak<Mutex<Postgres>>> = Mutex::new(Weak::new());
    let mut shared = lock(&SHARED);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Mutex::new(Options::new().start()));
        *shared = Arc::downgrade(&server);
        server
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed leaves the server as it is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn resource(name: &str) -> Key {
    Key::Resource(ResourceName::new(name).expect("a name"))
}

pub(crate) fn lease(number: u128) -> Key {
    Key::Lease(LeaseId(number))
}

/// A version that nobody has used.
pub(crate) fn fresh_version() -> Version {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Also such as are negative where numbers have a sign.
    Version(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Writes this record if it is at this version.
pub(crate) fn write(key: &Key, expected: Version, value: &str) -> Change {
    Change::default().and_write(key, expected, value)
}

pub(crate) trait Words: Sized {
    fn and_write(self, key: &Key, expected: Version, value: &str) -> Self;
    fn and_delete(self, key: &Key, expected: Version) -> Self;
    fn and_expect(self, key: &Key, expected: Version) -> Self;
    fn and_signal(self, channel: &Channel, text: &str) -> Self;
    fn within(self, window: Window) -> Self;
}

impl Words for Change {
    fn and_write(mut self, key: &Key, expected: Version, value: &str) -> Self {
        self.expect.push((key.clone(), expected));
        self.put.push(Put { key: key.clone(), version: fresh_version(), value: Some(value.into()) });
        self
    }

    fn and_delete(mut self, key: &Key, expected: Version) -> Self {
        self.expect.push((key.clone(), expected));
        self.put.push(Put { key: key.clone(), version: fresh_version(), value: None });
        self
    }

    fn and_expect(mut self, key: &Key, expected: Version) -> Self {
        self.expect.push((key.clone(), expected));
        self
    }

    fn and_signal(mut self, channel: &Channel, text: &str) -> Self {
        self.signals.push(Signal { to: vec![channel.clone()], text: text.into() });
        self
    }

    fn within(mut self, window: Window) -> Self {
        self.window = window;
        self
    }
}

pub(crate) async fn snapshot(backend: &PostgresBackend, keys: &[Key]) -> Snapshot {
    backend.read(keys).await.expect("an answer")
}

pub(crate) async fn read(backend: &PostgresBackend, key: &Key) -> Stored {
    snapshot(backend, std::slice::from_ref(key)).await.records.remove(0)
}

pub(crate) async fn life(backend: &PostgresBackend) -> Incarnation {
    snapshot(backend, &[]).await.life
}

/// Commits in the present life.
pub(crate) async fn commit(backend: &PostgresBackend, changes: &[Change]) -> Commits {
    backend.commit(life(backend).await, changes).await.expect("an answer")
}

/// Commits a change that is applied.
pub(crate) async fn apply(backend: &PostgresBackend, change: Change) -> u64 {
    match commit(backend, &[change]).await.done.remove(0) {
        Committed::Done { stamp } => stamp.expect("a stamp").as_micros(),
        conflict => panic!("not applied: {conflict:?}"),
    }
}

/// Writes a record whatever its version is.
pub(crate) async fn set(backend: &PostgresBackend, key: &Key, value: &str) -> Version {
    let present = read(backend, key).await.version;
    apply(backend, write(key, present, value)).await;
    read(backend, key).await.version
}

pub(crate) fn text(stored: &Stored) -> Option<&str> {
    stored.value.as_ref().map(Text::as_str)
}

pub(crate) fn is_done(committed: &Committed) -> bool {
    matches!(committed, Committed::Done { .. })
}

/// The keys of the records that differ.
pub(crate) fn differing(committed: &Committed) -> Vec<&Key> {
    match committed {
        Committed::Done { .. } => panic!("it was applied"),
        Committed::Conflict(records) => records.iter().map(|stored| &stored.key).collect(),
    }
}
