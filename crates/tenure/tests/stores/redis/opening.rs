//! What is refused, with which sentence; and how a server is reached.

use super::*;
use tenure::store::Impact;

async fn refused(url: &str) -> String {
    let error = open(url).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", chain(&error));
    error.to_string()
}

#[tokio::test]
async fn a_replica_is_refused_and_its_primary_has_a_concern() {
    let primary = Options::new().aof("everysec").start();
    let replica = Options::new().set("replicaof", &format!("127.0.0.1 {}", primary.port())).start();
    testkit::eventually(PATIENCE, "the replica follows", || {
        replica.info("replication", "master_link_status").is_some_and(|status| status == "up")
    });

    assert!(refused(&replica.url()).await.contains("it is a replica"));

    let concerns = open(&primary.url()).await.expect("a store").safety().await.expect("a report");
    assert_eq!(concerns.iter().map(|concern| concern.cost).collect::<Vec<_>>(), [Impact::Exclusion]);
}

#[tokio::test]
async fn a_server_without_a_file_costs_the_record_of_jobs() {
    let server = Options::new().start();
    let store = open(&server.url()).await.expect("a store");

    let concerns = store.safety().await.expect("a report");

    assert_eq!(concerns.iter().map(|concern| concern.cost).collect::<Vec<_>>(), [Impact::Record]);
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    assert_eq!(store.safety().await.expect("a report"), []);
}

#[tokio::test]
async fn data_of_an_earlier_build_is_refused_and_left_alone() {
    let server = Options::new().start();
    server.command(&["HSET", "{tenure}:state", "format", "5"]);

    let told = refused(&server.url()).await;

    assert!(told.contains("an earlier build") && told.contains("`{tenure}:*`"), "{told}");
    assert!(matches!(server.command(&["DBSIZE"]), Reply::Number(1)));
}

#[tokio::test]
async fn another_database_of_the_server_is_another_store() {
    let server = fresh(Options::new());
    let (zero, one) = (open(&server.url()).await, open(&format!("{}/1", server.url())).await);
    let (zero, one) = (zero.expect("a store"), one.expect("a store"));
    let (a, b) = (opened(&zero).await, opened(&one).await);

    assert!(matches!(claimed(&zero, a, "job").await, Claimed::Granted(_)));
    assert!(!matches!(claimed(&one, b, "job").await, Claimed::Waiting(waiting) if waiting.ahead > 0));
    assert_eq!(zero.read(None).await.expect("views").len(), 1);
}

/// Every key of a namespace lies in one slot, also with hostile names; a script that strays is refused by a cluster.
#[tokio::test]
async fn a_cluster_serves_as_well() {
    let server = fresh(Options::new().cluster());
    let store = open(&server.url()).await.expect("a store");
    let [a, b] = [opened(&store).await, opened(&store).await];

    for resource in ["job", "{other}", "}{", "a{b}c"] {
        assert!(matches!(claimed(&store, a, resource).await, Claimed::Granted(_)), "{resource}");
        assert!(matches!(claimed(&store, b, resource).await, Claimed::Waiting(_)), "{resource}");
    }
    let mut hints = store.hints(b).await.expect("a subscription");
    assert_eq!(said(&store, a, Call::Close(tenure::store::Closing::Left)).await, Said::Closed);
    let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
    assert!(matches!(claimed(&store, b, hint.resource.as_str()).await, Claimed::Granted(_)));
    assert_eq!(store.read(None).await.expect("views").len(), 4);
    assert_eq!(store.history(None).await.expect("entries").len(), 4 + 4 + 1);
}
