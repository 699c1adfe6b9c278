//! The SQLite store, on a real file and the real clock, obeys the rules, and its backend keeps what it promises.
#![cfg(all(feature = "sqlite", target_os = "linux"))]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::conformance::{Fixture, Restarted};
use tenure::store::{Namespace, SqliteStore, Store};

struct Sqlite {
    folder: PathBuf,
    store: Arc<SqliteStore>,
}

impl Sqlite {
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tenure-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let store = open(&folder);
        Self { folder, store }
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
        self.store = open(&self.folder);
        Restarted::SameLife
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // A folder that stays behind harms nobody.
        let _left = std::fs::remove_dir_all(&self.folder);
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
