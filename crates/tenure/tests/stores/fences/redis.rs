//! The guard of writes to Redis.

use redis::aio::MultiplexedConnection;
use tenure::fence::Refusal;
use tenure::fence::redis::Guard;
use testkit::redis::{Options, Redis};

use super::fence;

async fn connect(server: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a client");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

async fn text(connection: &mut MultiplexedConnection, words: &[&str]) -> Option<String> {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(connection).await.expect("an answer")
}

// req: T4
#[tokio::test]
async fn what_an_earlier_owner_writes_is_refused_and_changes_nothing() {
    let server = Options::new().start();
    let mut connection = connect(&server).await;
    let (earlier, later) = (Guard::new(&fence("ledger", 0, 99)), Guard::new(&fence("ledger", 0, 100)));
    earlier.set(&mut connection, "balance", 1).await.expect("it owns");
    later.set(&mut connection, "balance", 2).await.expect("it owns");
    later.hset(&mut connection, "order", "state", "paid").await.expect("it owns");

    let refused = earlier.set(&mut connection, "balance", 3).await.expect_err("too late");
    assert!(matches!(&refused, Refusal::Stale(stale) if stale.newest() == 100), "{refused:?}");
    let refused = earlier.hset(&mut connection, "order", "state", "new").await.expect_err("too late");
    assert!(matches!(refused, Refusal::Stale(_)));
    let refused = earlier.eval::<()>(&mut connection, "redis.call('DEL', KEYS[1])", &["balance"], "").await;
    assert!(matches!(refused, Err(Refusal::Stale(_))));

    assert_eq!(text(&mut connection, &["GET", "balance"]).await.as_deref(), Some("2"));
    assert_eq!(text(&mut connection, &["HGET", "order", "state"]).await.as_deref(), Some("paid"));
    assert_eq!(text(&mut connection, &["GET", later.mark()]).await.as_deref(), Some("100"));
    later.set(&mut connection, "balance", 4).await.expect("the present owner goes on");
}

#[tokio::test]
async fn owners_of_other_tickets_pass_and_a_script_has_its_own_keys_and_arguments() {
    let server = Options::new().start();
    let mut connection = connect(&server).await;
    Guard::new(&fence("ledger", 1, 1000)).set(&mut connection, "a", "x").await.expect("it owns");

    let script = "redis.call('APPEND', KEYS[1], ARGV[1] .. ARGV[2]) return {#KEYS, #ARGV}";
    let other = Guard::new(&fence("ledger", 0, 7));
    let counted: (u32, u32) =
        other.eval(&mut connection, script, &["a", "b"], ("y", "z")).await.expect("it passes");

    assert_eq!(counted, (2, 2));
    assert_eq!(text(&mut connection, &["GET", "a"]).await.as_deref(), Some("xyz"));
}

#[tokio::test]
async fn other_trouble_is_not_taken_for_a_stale_token() {
    let server = Options::new().start();
    let mut connection = connect(&server).await;
    let guard = Guard::new(&fence("ledger", 0, 7));
    guard.hset(&mut connection, "order", "state", "new").await.expect("it owns");

    let failed = guard.hset(&mut connection, guard.mark(), "a", "b").await.expect_err("the mark is a text");

    assert!(matches!(&failed, Refusal::Failed(_)), "{failed:?}");
    assert!(failed.to_string().contains("WRONGTYPE"), "{failed}");
}

#[tokio::test]
async fn in_a_cluster_mark_and_data_share_a_slot_by_their_tag() {
    let server = Options::new().cluster().start();
    let mut connection = connect(&server).await;
    let (earlier, later) = (fence("ledger", 0, 7), fence("ledger", 0, 8));

    let guard = Guard::tagged(&later, "account7");
    guard.set(&mut connection, "balance:{account7}", 1).await.expect("one slot");

    let late = Guard::tagged(&earlier, "account7").set(&mut connection, "balance:{account7}", 2).await;
    assert!(matches!(late, Err(Refusal::Stale(_))));
    let elsewhere =
        Guard::new(&later).set(&mut connection, "balance:{account7}", 3).await.expect_err("two slots");
    assert!(
        elsewhere.to_string().contains("CROSSSLOT") || elsewhere.to_string().contains("CrossSlot"),
        "{elsewhere}"
    );
}
