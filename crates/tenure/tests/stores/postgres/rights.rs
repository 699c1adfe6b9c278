//! What workers, operators and readers may do when they may only call the functions that the documents list.

use std::sync::Arc;

use tenure::ErrorKind;
use tenure::store::{
    Begin, Holder, JobAct, JobOutcome, JobSaid, JobStep, Namespace, Payload, PostgresStore, Published, Said,
    Store,
};
use tenure_core::{Note, Occurrence, Plan};

use super::fixture::{lock, settle, shared};
use super::words::{Asker, SOON, granted, resource};

/// The statements in the documents that grant what this role needs, for another schema.
fn documented(role: &str, schema: &str) -> String {
    let page = include_str!("../../../../../docs/stores.md");
    let blocks = page.split("```sql\n").skip(1).filter_map(|block| block.split("```").next());
    let to = format!(" TO {role};");
    let block = blocks.into_iter().find(|block| block.contains(&to));
    block
        .unwrap_or_else(|| panic!("nothing is granted to {role}"))
        .replace("\"tenure\"", &format!("\"{schema}\""))
}

async fn open_as(url: &str, role: &str, name: &Namespace) -> Result<PostgresStore, tenure::Error> {
    PostgresStore::open(&url.replace("postgres@", &format!("{role}@")), name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_the_documented_rights_can_do_all_that_workers_and_operators_do() {
    let server = shared();
    let (url, name) = (lock(&server).url(), Namespace::new("documented").expect("a namespace"));
    settle(&server, &url, &name).await;
    lock(&server).sql("CREATE ROLE worker LOGIN");

    let without = open_as(&url, "worker", &name).await.expect_err("no rights");
    assert_eq!(without.kind(), ErrorKind::Refused);
    assert!(without.to_string().contains("tenure schema postgres"), "{without}");

    lock(&server).sql(&documented("worker", "documented"));
    let store: Arc<dyn Store> = Arc::new(open_as(&url, "worker", &name).await.expect("enough rights"));
    let mut worker = Asker::open(&store, "a", SOON).await;
    let grant = granted(&worker.claim(&["job"]).await);
    assert!(matches!(worker.renew().await, Said::Kept { .. }));
    let mut next = Asker::open(&store, "b", SOON).await;
    let mut hints = store.hints(next.lease).await.expect("it may listen");
    next.claim(&["job"]).await;
    assert_eq!(store.read(None).await.expect("it may read").len(), 1);
    assert!(!store.history(None).await.expect("it may read").is_empty());
    store.safety().await.expect("it may ask");
    let job = resource("job");
    let holder = Holder { lease: worker.lease, resource: job.clone(), token: grant.token };
    run_a_job(&store, &holder).await;
    let mut messages = store.subscribe(&job).await.expect("it may listen");
    let hello = Payload::new(b"hello").expect("not too much");
    assert_eq!(store.publish(&holder, &hello).await.expect("an answer"), Published::Sent);
    assert!(tokio::time::timeout(SOON, messages.recv()).await.expect("in time").is_some());
    assert_eq!(store.ask(&job, grant.token, None).await.expect("asked"), tenure::admin::StepDownReply::Done);
    worker.release(&["job"]).await;
    assert!(tokio::time::timeout(SOON, hints.recv()).await.expect("in time").is_some());
    let grant = granted(&next.claim(&["job"]).await);
    assert_eq!(store.evict(&job, grant.token).await.expect("evicted"), tenure::admin::StepDownReply::Done);
}

/// Every step of a job, and what can be read of it.
async fn run_a_job(store: &Arc<dyn Store>, holder: &Holder) {
    let occurrence = Occurrence::ONCE;
    let acts = [
        JobAct::Attend { plan: Plan::new("once").expect("a plan"), from: Occurrence::default() },
        JobAct::Begin(Begin { occurrence, missed: 0, skipped: 0, again: false }),
        JobAct::Finish { occurrence, outcome: JobOutcome::Ran, note: Note::default() },
    ];
    for act in acts {
        let said = store.job(&JobStep { holder: holder.clone(), act }).await.expect("an answer");
        assert!(
            matches!(said, JobSaid::Attended { .. } | JobSaid::Begun(_) | JobSaid::Finished(_)),
            "{said:?}"
        );
    }
    assert_eq!(store.jobs(Some(&holder.resource)).await.expect("an answer")[0].counts.ran, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_with_the_documented_rights_sees_everything_and_changes_nothing() {
    let server = shared();
    let (url, name) = (lock(&server).url(), Namespace::new("looked-at").expect("a namespace"));
    settle(&server, &url, &name).await;
    lock(&server).sql(&format!("CREATE ROLE reader LOGIN; {}", documented("reader", "looked-at")));
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&url, &name).await.expect("a store"));
    let mut worker = Asker::open(&store, "a", SOON).await;
    let grant = granted(&worker.claim(&["job"]).await);
    let job = resource("job");
    let holder = Holder { lease: worker.lease, resource: job.clone(), token: grant.token };
    run_a_job(&store, &holder).await;

    let reader = url.replace("postgres@", "reader@");
    let found = PostgresStore::open(&reader, &name).await.expect("it is there");

    assert_eq!(found.read(None).await.expect("it may read")[0].owners.len(), 1);
    assert!(!found.history(None).await.expect("it may read").is_empty());
    assert_eq!(found.jobs(None).await.expect("it may read").len(), 1);
    found.safety().await.expect("it may ask");
    let mut messages = found.subscribe(&job).await.expect("it may listen");
    let hello = Payload::new(b"hello").expect("not too much");
    assert_eq!(store.publish(&holder, &hello).await.expect("an answer"), Published::Sent);
    assert!(tokio::time::timeout(SOON, messages.recv()).await.expect("in time").is_some());
    for refused in [found.ask(&job, grant.token, None).await, found.evict(&job, grant.token).await] {
        let told = refused.expect_err("no right");
        assert_eq!(told.kind(), ErrorKind::Refused, "{told}");
    }
    assert!(matches!(worker.renew().await, Said::Kept { notices, .. } if notices.is_empty()));
}
