//! A fresh namespace on a private server, for the conformance suite and for tests of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use std::time::Duration;

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{Call, LeaseId, Namespace, PostgresStore, Request, Said, Seq, Store};
use tenure_core::Moment;
use testkit::postgres::{Options, Postgres};

pub(crate) struct Fresh {
    /// Shared by the tests that run now, each in a namespace of its own; or its own, if it is to be restarted.
    server: Arc<Mutex<Postgres>>,
    pub(crate) url: String,
    pub(crate) namespace: Namespace,
    store: Arc<PostgresStore>,
}

impl Fresh {
    /// On the server of its own that a case about restarts needs, or on the one that all others share.
    pub(crate) async fn start() -> Self {
        let case = std::thread::current().name().unwrap_or_default().to_owned();
        let restarts = case.contains("restart") || case.contains("quarantine");
        Self::on(if restarts { start() } else { shared() }).await
    }

    pub(crate) async fn on(server: Arc<Mutex<Postgres>>) -> Self {
        let (url, namespace) = (lock(&server).url(), fresh_namespace());
        settle(&server, &url, &namespace).await;
        let store = open(&url, &namespace).await;
        // Who looks at a short lease later does not wait for a connection first.
        store.read(None).await.expect("an answer");
        Self { server, url, namespace, store }
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Postgres> {
        lock(&self.server)
    }

    /// Carries out statements in which `@` is the schema.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let statements = self.in_schema(statements);
        self.server().sql(&statements)
    }

    /// Statements in which `@` is the schema.
    pub(crate) fn in_schema(&self, statements: &str) -> String {
        statements.replace('@', &format!("\"{}\"", self.namespace))
    }
}

/// A namespace that no other test uses.
pub(crate) fn fresh_namespace() -> Namespace {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Namespace::new(&format!("case-{number}")).expect("a namespace")
}

pub(crate) fn start() -> Arc<Mutex<Postgres>> {
    Arc::new(Mutex::new(Options::new().start()))
}

/// The server of the tests that run now; it goes with the last of them.
pub(crate) fn shared() -> Arc<Mutex<Postgres>> {
    static SHARED: Mutex<Weak<Mutex<Postgres>>> = Mutex::new(Weak::new());
    let mut shared = lock(&SHARED);
    shared.upgrade().unwrap_or_else(|| {
        let server = start();
        *shared = Arc::downgrade(&server);
        server
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed leaves the server as it is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the namespace and ends its quarantine: nobody can have owned anything here before.
pub(crate) async fn settle(server: &Mutex<Postgres>, url: &str, namespace: &Namespace) {
    contact(&*open(url, namespace).await).await;
    end_quarantine(&lock(server), namespace.as_str());
}

/// The first request in a life of the store writes down that a quarantine begins.
pub(crate) async fn contact(store: &PostgresStore) {
    let nobody = Request {
        lease: LeaseId(1),
        seq: Seq(1),
        asked_at: Moment::new(Duration::ZERO, Duration::ZERO),
        limit: Duration::from_secs(20),
        judged_by: None,
        call: Call::Renew,
    };
    assert_eq!(store.call(&nobody).await.expect("an answer").said, Said::Gone);
}

/// Ends a quarantine by hand. Whoever knows of it reads the record again, because its version is another.
pub(crate) fn end_quarantine(server: &Postgres, schema: &str) {
    let ended = server.sql(&format!(
        "UPDATE \"{schema}\".record SET version = version + 1, value = (value::jsonb - 'quarantine')::text
         WHERE key = 'meta' AND value::jsonb ? 'quarantine' RETURNING 'ended'"
    ));
    assert!(ended.starts_with("ended"), "there is no quarantine: {ended:?}");
}

/// How many wait for `job`.
pub(crate) fn waiters(server: &Postgres, schema: &str) -> usize {
    let count = server.sql(&format!(
        "SELECT coalesce(sum(jsonb_array_length(value::jsonb -> 'queue')), 0) FROM \"{schema}\".record
         WHERE key = 'resource/job'"
    ));
    count.parse().expect("a number")
}

/// A planted bug: a server that says after a restart, a restore or a failover that it lives the same life as before.
pub(crate) fn one_life(schema: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION \"{schema}\".life() RETURNS bytea LANGUAGE sql VOLATILE
         AS $$ SELECT decode(repeat('07', 16), 'hex') $$"
    )
}

async fn open(url: &str, namespace: &Namespace) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, namespace).await.expect("a store"))
}

impl Fixture for Fresh {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The server is shut down and started again: nothing is lost, but it cannot show that.
    async fn restart(&mut self) -> Restarted {
        assert_eq!(Arc::strong_count(&self.server), 1, "a server that others use would be restarted");
        {
            let mut server = self.server();
            server.stop();
            server.start();
        }
        self.store = open(&self.url, &self.namespace).await;
        Restarted::NewLife
    }
}
