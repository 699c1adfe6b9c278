//! The Redis store and its backend, on a real server of their own and the real clock, obey the rules.
#![cfg(all(feature = "redis", target_os = "linux"))]

use std::sync::Arc;

use tenure::conformance::backend::BackendFixture;
use tenure::conformance::{Fixture, Restarted};
use tenure::store::backend::Backend;
use tenure::store::{Namespace, RedisBackend, RedisStore, Store};
use testkit::redis::{Options, Redis};

mod of_the_store {
    use super::*;

    struct Private {
        server: Redis,
        store: Arc<RedisStore>,
    }

    impl Private {
        async fn fresh() -> Self {
            let server = Options::new().aof("everysec").start();
            // A server that has just begun cannot show that it is new; the test knows.
            let meta = format!(
                r#"{{"format":1,"rev":1,"life":"{}","longest_us":0,"floor":0,"secret":"5ec2e7"}}"#,
                server.life()
            );
            server.command(&[
                "HSET",
                "{tenure}:meta",
                "version",
                "0000000000000001",
                "stamp",
                "1",
                "value",
                &meta,
            ]);
            let store = open(&server).await;
            Self { server, store }
        }
    }

    async fn open(server: &Redis) -> Arc<RedisStore> {
        Arc::new(RedisStore::open(&server.url(), &Namespace::default()).await.expect("a store"))
    }

    impl Fixture for Private {
        fn store(&self) -> Arc<dyn Store> {
            self.store.clone()
        }

        /// Killed, and started again with its data: another life all the same, because Redis may have lost some.
        async fn restart(&mut self) -> Restarted {
            self.server.kill();
            self.server.start();
            self.store = open(&self.server).await;
            Restarted::NewLife
        }
    }

    tenure::conformance!(Private::fresh().await);
}

mod of_the_backend {
    use super::*;

    struct Private {
        server: Redis,
        backend: Arc<RedisBackend>,
    }

    impl Private {
        async fn fresh() -> Self {
            let server = Options::new().aof("everysec").start();
            let backend = open(&server).await;
            Self { server, backend }
        }
    }

    async fn open(server: &Redis) -> Arc<RedisBackend> {
        Arc::new(RedisBackend::open(&server.url(), &Namespace::default()).await.expect("a backend"))
    }

    impl BackendFixture for Private {
        fn backend(&self) -> Arc<dyn Backend> {
            self.backend.clone()
        }

        async fn another(&self) -> Arc<dyn Backend> {
            open(&self.server).await
        }

        async fn restart(&mut self) -> Restarted {
            self.server.kill();
            self.server.start();
            self.backend = open(&self.server).await;
            Restarted::NewLife
        }
    }

    tenure::backend_conformance!(Private::fresh().await);
}
