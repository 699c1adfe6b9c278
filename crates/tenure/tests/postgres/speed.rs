//! How fast it is, beside one committed update on the same server: run with `--ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::conformance::Fixture;
use tenure::store::{PostgresStore, Store};

use crate::fixture::{Fresh, start};
use crate::words::{Asker, granted};

const HOUR: Duration = Duration::from_secs(3600);
const ROUNDS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a test"]
async fn a_hand_over_beside_a_committed_update() {
    let fresh = Fresh::on(start()).await;
    fresh.sql("CREATE TABLE base (id int PRIMARY KEY, v bigint) WITH (fillfactor = 50); INSERT INTO base VALUES (1, 0)");
    let (client, connection) =
        tokio_postgres::connect(&fresh.url, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    let other: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&fresh.url, &fresh.namespace).await.expect("a second store"));
    let mut workers = [Asker::open(&fresh.store(), "a", HOUR).await, Asker::open(&other, "b", HOUR).await];
    let mut hints = [
        fresh.store().hints(workers[0].lease).await.expect("hints"),
        other.hints(workers[1].lease).await.expect("hints"),
    ];
    granted(&workers[0].claim(&["job"]).await);
    let (mut updates, mut overs, mut renewals) = (vec![], vec![], vec![]);

    for round in 0..ROUNDS {
        let (from, to) = (round % 2, 1 - round % 2);
        workers[to].claim(&["job"]).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let began = Instant::now();
        client.query_typed("UPDATE base SET v = v + 1 WHERE id = 1", &[]).await.expect("updated");
        updates.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
        let began = Instant::now();
        workers[from].renew().await;
        renewals.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;

        let began = Instant::now();
        let [a, b] = &mut workers;
        let (giver, taker) = if from == 0 { (a, b) } else { (b, a) };
        let (_, claimed) = tokio::join!(giver.release(&["job"]), async {
            hints[to].recv().await.expect("a hint");
            let claimed = taker.claim(&["job"]).await;
            overs.push(began.elapsed());
            claimed
        });
        granted(&claimed);
    }

    for (what, mut spans) in [("update", updates), ("renewal", renewals), ("hand-over", overs)] {
        spans.sort();
        println!("{what}: median {:?}, p99 {:?}", spans[ROUNDS / 2], spans[ROUNDS * 99 / 100]);
    }
}
