//! The PostgreSQL store and its backend, on a private server, obey the rules.
#![cfg(all(feature = "postgres", target_os = "linux"))]

use crate::postgres::fixture;

tenure::conformance!(fixture::Fresh::start().await);

mod backend {
    use std::sync::{Arc, Mutex};

    use tenure::conformance::Restarted;
    use tenure::conformance::backend::BackendFixture;
    use tenure::store::backend::Backend;
    use tenure::store::{Namespace, PostgresBackend};
    use testkit::postgres::Postgres;

    use super::fixture::{fresh_namespace, lock, shared, start};

    /// A namespace of its own, on the server that all cases share unless they restart it.
    struct Bare {
        server: Arc<Mutex<Postgres>>,
        url: String,
        namespace: Namespace,
        backend: Arc<PostgresBackend>,
    }

    impl Bare {
        async fn fresh() -> Self {
            let case = std::thread::current().name().unwrap_or_default().to_owned();
            let restarts = case.contains("restart") || case.contains("lost_data");
            let server = if restarts { start() } else { shared() };
            let (url, namespace) = (lock(&server).url(), fresh_namespace());
            let backend = Arc::new(open(&url, &namespace).await);
            Self { server, url, namespace, backend }
        }
    }

    async fn open(url: &str, namespace: &Namespace) -> PostgresBackend {
        PostgresBackend::open(url, namespace).await.expect("a backend")
    }

    impl BackendFixture for Bare {
        fn backend(&self) -> Arc<dyn Backend> {
            self.backend.clone()
        }

        async fn another(&self) -> Arc<dyn Backend> {
            Arc::new(open(&self.url, &self.namespace).await)
        }

        async fn restart(&mut self) -> Restarted {
            assert_eq!(Arc::strong_count(&self.server), 1, "a server that others use would be restarted");
            {
                let mut server = lock(&self.server);
                server.stop();
                server.start();
            }
            self.backend = Arc::new(open(&self.url, &self.namespace).await);
            Restarted::NewLife
        }
    }

    tenure::backend_conformance!(Bare::fresh().await);
}
