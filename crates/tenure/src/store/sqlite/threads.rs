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

#[tokio::test]
async fn a_step_of_a_job_is_committed_as_durably_as_a_grant() {
    let folder = Folder::new("durable");
    let store = SqliteStore::open(folder.0.join("t.db"), &Namespace::default()).expect("it opens");
    // 1 is NORMAL, 2 is FULL.
    let level =
        |desk: &mut Desk| Ok(desk.db.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap_or(-1));
    let level = async || store.at::<i64>(&store.claims, level, Late::Skip).await.expect("a level");
    let label = Label::new("worker").expect("a label");
    let open = Call::Open { ttl: LIMIT, label, metadata: Metadata::default() };
    assert_eq!(said(&store, 1, open).await, Said::Opened);
    let resource = ResourceName::new("job").expect("a name");
    let want =
        tenure_core::Want { resource: resource.clone(), tickets: tenure_core::Tickets::ONE, priority: 0 };
    let claimed = said(&store, 2, Call::Claim(vec![want])).await;
    let Said::Claimed(claimed) = claimed else { panic!("{claimed:?}") };
    let tenure_core::Claimed::Granted(grant) = claimed[0] else { panic!("{claimed:?}") };
    let holder = Holder { lease: LeaseId(7), resource, token: grant.token };
    let occurrence = tenure_core::Occurrence::ONCE;
    let begin = tenure_core::Begin { occurrence, missed: 0, skipped: 0, again: false };
    let steps = [
        JobAct::Attend { plan: tenure_core::Plan::new("once").expect("a plan"), from: Default::default() },
        JobAct::Begin(begin),
        JobAct::Finish { occurrence, outcome: tenure_core::JobOutcome::Ran, note: Default::default() },
    ];

    for act in steps {
        // What gives something up is not: it sets the level back.
        assert_eq!(said(&store, 3, Call::Release(Vec::new())).await, Said::Released(Vec::new()));
        assert_eq!(level().await, 1);
        let said = store.job(&JobStep { holder: holder.clone(), act }).await.expect("an answer");

        assert!(
            matches!(said, JobSaid::Attended { .. } | JobSaid::Begun(_) | JobSaid::Finished(_)),
            "{said:?}"
        );
        assert_eq!(level().await, 2);
    }
}
