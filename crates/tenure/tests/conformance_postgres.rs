//! The PostgreSQL store, on a private server, obeys the rules.
#![cfg(all(feature = "postgres", target_os = "linux"))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{Namespace, PostgresStore, Store};
use testkit::postgres::{Options, Postgres};

struct Fresh {
    /// Shared by the cases that run now, each in a namespace of its own; or its own, if it is to be restarted.
    server: Arc<Mutex<Postgres>>,
    url: String,
    namespace: Namespace,
    store: Arc<PostgresStore>,
}

impl Fresh {
    async fn start() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let case = std::thread::current().name().unwrap_or_default().to_owned();
        let server = if case.contains("restart") { start() } else { shared() };
        let namespace = Namespace::new(&format!("case-{number}")).expect("a namespace");
        let url = lock(&server).url();
        let store = open(&url, &namespace).await;
        // Nobody can have owned anything here before.
        lock(&server).sql(&format!("UPDATE \"{namespace}\".meta SET quarantine_from = NULL"));
        Self { server, url, namespace, store }
    }
}

fn start() -> Arc<Mutex<Postgres>> {
    Arc::new(Mutex::new(Options::new().start()))
}

/// The server of the cases that run now; it goes with the last of them.
fn shared() -> Arc<Mutex<Postgres>> {
    static SHARED: Mutex<Weak<Mutex<Postgres>>> = Mutex::new(Weak::new());
    let mut shared = lock(&SHARED);
    shared.upgrade().unwrap_or_else(|| {
        let server = start();
        *shared = Arc::downgrade(&server);
        server
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A case that failed leaves the server as it is.
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
            let mut server = lock(&self.server);
            server.stop();
            server.start();
        }
        self.store = open(&self.url, &self.namespace).await;
        Restarted::NewLife
    }
}

tenure::conformance!(Fresh::start().await);
