//! A fresh namespace on a private server, for the conformance suite and for tests of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{Namespace, PostgresStore, Store};
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
        Self::on(if case.contains("restart") { start() } else { shared() }).await
    }

    pub(crate) async fn on(server: Arc<Mutex<Postgres>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(&format!("case-{number}")).expect("a namespace");
        let url = lock(&server).url();
        let store = open(&url, &namespace).await;
        let fresh = Self { server, url, namespace, store };
        // Nobody can have owned anything here before.
        fresh.sql("UPDATE @.meta SET quarantine_from = NULL");
        // Who looks at a short lease later does not wait for a connection first.
        fresh.store.read(None).await.expect("an answer");
        fresh
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Postgres> {
        lock(&self.server)
    }

    /// Carries out statements in which `@` is the schema.
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.server().sql(&statements.replace('@', &format!("\"{}\"", self.namespace)))
    }

    /// Replaces a piece of text in the functions of this namespace: a bug, planted.
    #[allow(dead_code, reason = "only some of the tests plant bugs")]
    pub(crate) fn plant(&self, wrong: &str, instead_of: &str) {
        let (wrong, right) = (wrong.replace('\'', "''"), instead_of.replace('\'', "''"));
        let planted = self.sql(&format!(
            "DO $do$ DECLARE f record; BEGIN
                FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                    WHERE quote_ident(n.nspname) = '@' AND position('{right}' IN p.prosrc) > 0
                LOOP EXECUTE replace(pg_get_functiondef(f.oid), '{right}', '{wrong}'); END LOOP;
            END $do$;
            SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                WHERE quote_ident(n.nspname) = '@' AND position('{wrong}' IN p.prosrc) > 0"
        ));
        assert_ne!(planted, "0", "nothing reads {instead_of:?}");
    }
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

async fn open(url: &str, namespace: &Namespace) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, namespace).await.expect("a store"))
}

impl Fixture for Fresh {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The server is shut down and started again: nothing is lost, but it cannot show that.
    async fn restart(&mut self) -> Restarted {
        {
            let mut server = self.server();
            server.stop();
            server.start();
        }
        self.store = open(&self.url, &self.namespace).await;
        Restarted::NewLife
    }
}
