//! The SQLite store, on a real file and the real clock, obeys the rules, and its backend keeps what it promises.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

use std::sync::Arc;

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{Namespace, SqliteStore, Store};
use testkit::TempDir;

struct Sqlite {
    store: Arc<SqliteStore>,
    // After the store that has its files open.
    folder: TempDir,
}

impl Sqlite {
    fn fresh() -> Self {
        let folder = testkit::folder();
        let store = open(folder.path());
        Self { store, folder }
    }
}

fn open(folder: &std::path::Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(folder.join("tenure.db"), &Namespace::default()).expect("a store"))
}

impl Fixture for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Every connection is closed and the file opened again: nothing may be lost.
    async fn restart(&mut self) -> Restarted {
        self.store = open(self.folder.path());
        Restarted::SameLife
    }
}

tenure::conformance!(Sqlite::fresh());

mod backend {
    use std::sync::Arc;

    use tempfile::TempDir;
    use tenure::conformance::Restarted;
    use tenure::conformance::backend::BackendFixture;
    use tenure::store::backend::Backend;
    use tenure::store::{Namespace, SqliteBackend};

    struct Sqlite {
        folder: TempDir,
        backend: Arc<SqliteBackend>,
    }

    impl Sqlite {
        fn fresh() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let backend = open(&folder);
            Self { folder, backend }
        }
    }

    fn open(folder: &TempDir) -> Arc<SqliteBackend> {
        let path = folder.path().join("tenure.db");
        Arc::new(SqliteBackend::open(path, &Namespace::default()).expect("the store opens"))
    }

    impl BackendFixture for Sqlite {
        fn backend(&self) -> Arc<dyn Backend> {
            self.backend.clone()
        }

        async fn another(&self) -> Arc<dyn Backend> {
            open(&self.folder)
        }

        async fn restart(&mut self) -> Restarted {
            // There is no server. All connections of this process are closed and opened again.
            self.backend = open(&self.folder);
            Restarted::SameLife
        }
    }

    tenure::backend_conformance!(Sqlite::fresh());
}
