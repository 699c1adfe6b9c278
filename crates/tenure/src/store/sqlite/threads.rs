//! What the threads of a store do to each other, and to those who ask, when one of them hangs or fails.

use std::path::PathBuf;
use std::task::{Context, Waker};
use std::time::Duration;

use tenure_core::{Label, Metadata, Moment, Said, Seq};

use super::*;

/// Nothing here should ever take so long.
const LIMIT: Duration = Duration::from_secs(10);

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tenure-threads-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn said(store: &SqliteStore, seq: u64, call: Call) -> Said {
    let (seq, asked_at) = (Seq(seq), Moment::new(Duration::ZERO, Duration::ZERO));
    let (lease, judged_by, longest) = (LeaseId(7), None, Duration::ZERO);
    let request = Request { lease, seq, asked_at, limit: LIMIT, judged_by, longest, call };
    store.call(&request).await.expect("an answer").said
}

#[tokio::test]
async fn a_job_that_panics_is_answered_and_the_desk_goes_on() {
    let folder = Folder::new("panic");
    let store = SqliteStore::open(folder.0.join("t.db"), &Namespace::default()).expect("it opens");
    let label = Label::new("worker").expect("a label");
    let open = Call::Open { ttl: LIMIT, label, metadata: Metadata::default() };
    assert_eq!(said(&store, 1, open).await, Said::Opened);

    for desk in [&store.claims, &store.renewals, &store.reads] {
        let panics = |desk: &mut Desk| {
            let done = desk.transact::<()>(LIMIT, false, |_| panic!("on purpose"));
            done.map(drop).map_err(|trouble| trouble.told("panic in", Path::new("t.db")))
        };
        let error = store.at(desk, panics, Late::Skip).await.expect_err("nobody can answer");
        assert_eq!(error.kind(), crate::Kind::Unavailable);
    }

    assert!(matches!(said(&store, 2, Call::Renew).await, Said::Kept { .. }));
    assert_eq!(said(&store, 3, Call::Claim(Vec::new())).await, Said::Claimed(Vec::new()));
    assert!(store.read(None).await.expect("a view").is_empty());
}

#[tokio::test]
async fn a_subscription_touches_no_disk_on_the_callers_thread() {
    let folder = Folder::new("hang");
    let (ears, deaf) = Ears::new().expect("ears");
    let (place, host) = (Place::find(&folder.0.join("t.db")).expect("a place"), Host::new().expect("Linux"));
    place.make_folder().expect("a folder");
    let (sockets, us) = (place.folder.clone(), host.process.clone());
    let (namespace, proof, hinted) = (Namespace::default(), Proof::On, Arc::default());
    let shared = Arc::new(Shared { place, host, namespace, proof, ears, hinted });
    let (nowhere, _jobs) = mpsc::channel();
    let store =
        SqliteStore { renewals: nowhere.clone(), claims: nowhere.clone(), reads: nowhere.clone(), shared };
    let made = || std::fs::read_dir(&sockets).expect("the folder").count();

    // The thread that makes the socket hangs: here it has not even begun.
    let mut subscribing = store.hints(LeaseId(7));
    let mut asked = Context::from_waker(Waker::noop());
    assert!(subscribing.as_mut().poll(&mut asked).is_pending());
    assert_eq!(made(), 0);
    deaf.start(sockets.clone(), us, Arc::default(), nowhere).expect("a thread");

    let _hints = tokio::time::timeout(LIMIT, subscribing).await.expect("soon").expect("a subscription");
    assert_eq!(made(), 1);
}
