//! The stores that have a server: real ones, on ports of their own.

use testkit::{postgres, redis};

use super::scene::Scene;

/// A server that goes with the test.
pub(crate) enum Server {
    Redis(redis::Redis),
    Postgres(postgres::Postgres),
}

impl Server {
    pub(crate) fn redis() -> Self {
        Self::Redis(redis::Options::new().start())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(postgres::Options::new().start())
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.url(),
        }
    }

    /// A scene on it; the server stays as long as the test keeps both.
    pub(crate) fn scene(&self) -> Scene {
        Scene::on(self.url())
    }
}
