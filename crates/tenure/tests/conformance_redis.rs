//! The Redis store, on a real server of its own and the real clock, obeys the rules.
#![cfg(all(feature = "redis", target_os = "linux"))]

use std::sync::Arc;

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{Namespace, RedisStore, Store};
use testkit::redis::{Options, Redis};

struct Private {
    server: Redis,
    store: Arc<RedisStore>,
}

impl Private {
    async fn fresh() -> Self {
        let server = Options::new().aof("everysec").start();
        // A server that has just begun cannot show that it is new; the test knows.
        server.command(&["HSET", "{tenure}:state", "run", &server.life()]);
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
