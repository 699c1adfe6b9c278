//! The fence within transactions of PostgreSQL.

use std::time::Duration;

use tenure::fence::postgres::{check, install};
use tenure::fence::{Fence, Refusal};
use testkit::postgres::{Options, Postgres};
use tokio::time::timeout;
use tokio_postgres::{Client, IsolationLevel, NoTls};

use super::{PATIENCE, fence};

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn prepared() -> (Postgres, Client) {
    let server = Options::new().start();
    let client = connect(&server.url()).await;
    install(&client).await.expect("the schema");
    install(&client).await.expect("again does no harm");
    client
        .batch_execute("CREATE TABLE account (balance bigint); INSERT INTO account VALUES (0)")
        .await
        .expect("a table");
    (server, client)
}

/// One transaction under this ownership.
async fn pay(client: &mut Client, under: &Fence, balance: i64) -> Result<(), Refusal<tokio_postgres::Error>> {
    let transaction = client.transaction().await.expect("a transaction");
    check(&transaction, under).await?;
    transaction.execute("UPDATE account SET balance = $1", &[&balance]).await.expect("a write");
    transaction.commit().await.map_err(Refusal::Failed)
}

async fn balance(client: &Client) -> i64 {
    client.query_one("SELECT balance FROM account", &[]).await.expect("a row").get(0)
}

// req: T4
#[tokio::test]
async fn a_transaction_of_an_earlier_owner_is_refused_and_writes_nothing() {
    let (_server, mut client) = prepared().await;
    let (earlier, later) = (fence("ledger", 0, 7), fence("ledger", 0, 9));
    pay(&mut client, &earlier, 1).await.expect("it owns");
    pay(&mut client, &later, 2).await.expect("it owns");

    let refused = pay(&mut client, &earlier, 3).await.expect_err("too late");

    assert!(matches!(&refused, Refusal::Stale(stale) if stale.newest() == 9), "{refused:?}");
    assert_eq!(balance(&client).await, 2);
    pay(&mut client, &later, 4).await.expect("the present owner goes on");
    pay(&mut client, &fence("ledger", 1, 5), 5).await.expect("another ticket");
}

// req: T4
#[tokio::test]
async fn the_next_owner_waits_for_what_the_earlier_one_has_begun_and_owners_not_for_themselves() {
    let (server, mut client) = prepared().await;
    let (mut second, mut next) = (connect(&server.url()).await, connect(&server.url()).await);
    let (earlier, later) = (fence("ledger", 0, 7), fence("ledger", 0, 9));
    pay(&mut client, &earlier, 1).await.expect("it owns");
    let begun = client.transaction().await.expect("a transaction");
    check(&begun, &earlier).await.expect("it owns");

    let beside = second.transaction().await.expect("a transaction");
    timeout(PATIENCE, check(&beside, &earlier)).await.expect("no wait").expect("it owns");
    beside.commit().await.expect("it ends");
    let paid = tokio::spawn(async move {
        pay(&mut next, &later, 2).await.expect("it owns");
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    timeout(PATIENCE, async {
        while second.query_one(waits, &[]).await.expect("a row").get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the next owner waits");
    begun.execute("UPDATE account SET balance = 1000", &[]).await.expect("still its own");
    begun.commit().await.expect("it ends");

    timeout(PATIENCE, paid).await.expect("it goes on").expect("it ends");
    assert_eq!(balance(&second).await, 2, "the later owner has the last word");
}

#[tokio::test]
async fn many_transactions_of_a_new_owner_at_once_do_not_wait_for_each_other_for_ever() {
    let (server, mut client) = prepared().await;
    pay(&mut client, &fence("ledger", 0, 7), 1).await.expect("it owns");
    let later = fence("ledger", 0, 9);

    let mut all = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (url, later) = (server.url(), later.clone());
        all.spawn(async move {
            let mut client = connect(&url).await;
            pay(&mut client, &later, number).await.expect("no deadlock");
        });
    }

    while let Some(ended) = timeout(PATIENCE, all.join_next()).await.expect("all end") {
        ended.expect("it passes");
    }
}

#[tokio::test]
async fn an_older_snapshot_does_not_let_a_stale_owner_in() {
    let (server, mut client) = prepared().await;
    let mut other = connect(&server.url()).await;
    let (earlier, later) = (fence("ledger", 0, 7), fence("ledger", 0, 9));
    pay(&mut client, &earlier, 1).await.expect("it owns");
    let old = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .start()
        .await
        .expect("one");
    old.query_one("SELECT balance FROM account", &[]).await.expect("it takes its snapshot");
    pay(&mut other, &later, 2).await.expect("it owns");

    let refused = check(&old, &earlier).await.expect_err("what it sees is outdated");

    assert!(
        matches!(&refused, Refusal::Failed(error) if error.code().is_some_and(|code| code.code() == "40001"))
    );
}

#[tokio::test]
async fn nothing_without_a_token_passes() {
    let (_server, client) = prepared().await;

    for words in ["NULL, 0, 1", "'a', NULL, 1", "'a', 0, NULL", "'a', 0, 0", "'a', 0, -1"] {
        let refused = client.batch_execute(&format!("SELECT tenure_fence({words})")).await.expect_err(words);
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("22023"), "{words}");
    }
}
