//! What commits cost the server.

use tenure::store::backend::{Backend, Change};
use tenure_core::{Key, Version};
use testkit::postgres::Options;

use super::fixture::{Fresh, SOON, Words, apply, fresh_version, is_done, lease, read, set, write};

/// A number that the server tells.
fn number(told: &str) -> u64 {
    told.parse().unwrap_or_else(|_| panic!("{told:?} is not a number"))
}

/// A renewal as the rules write it: about as long.
fn renewal(key: &Key, version: Version, meta: Version, seq: u64) -> Change {
    let value = format!(
        "{{\"format\":1,\"rev\":{seq},\"tag\":\"{:016x}\",\"ttl\":15000000,\"label\":\"host-1/4121\",\"seq\":{seq},\"notices\":[]}}",
        fresh_version().0
    );
    Change { essential: true, ..write(key, version, &value).and_expect(&Key::Meta, meta) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_are_heap_only_updates() {
    let fresh = Fresh::alone().await;
    let meta = set(&fresh.backend, &Key::Meta, "meta").await;
    // Pages as full as the server makes them.
    fresh.sql(
        "INSERT INTO @.record SELECT 'lease/' || lpad(to_hex(i), 32, '0'), i, 1, repeat('x', 120)
         FROM generate_series(1, 3000) AS i",
    );
    let updates = || {
        let told = fresh.sql(
            "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'record'",
        );
        let (all, hot) = told.split_once(' ').expect("two numbers");
        (number(all), number(hot))
    };

    for round in 0..2 {
        for number in (1..3000).step_by(10) {
            let version = read(&fresh.backend, &lease(number)).await.version;
            apply(&fresh.backend, renewal(&lease(number), version, meta, round)).await;
        }
    }

    tokio::task::block_in_place(|| testkit::eventually(SOON, "the server counts", || updates().0 >= 600));
    let (all, hot) = updates();
    assert!(hot * 100 >= all * 97, "{hot} of {all} updates are heap-only");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_writes_little_to_the_log() {
    let fresh = Fresh::alone().await;
    let meta = set(&fresh.backend, &Key::Meta, "meta").await;
    let mut version = set(&fresh.backend, &lease(1), &"x".repeat(120)).await;
    fresh.sql("CHECKPOINT");
    let position = || fresh.sql("SELECT pg_current_wal_insert_lsn() - '0/0'");
    // The first write of a page after a checkpoint logs all of it.
    for _ in 0..2 {
        let change = renewal(&lease(1), version, meta, 1);
        version = change.put[0].version;
        apply(&fresh.backend, change).await;
    }
    let before = number(&position());

    for round in 0..200 {
        let change = renewal(&lease(1), version, meta, round);
        version = change.put[0].version;
        apply(&fresh.backend, change).await;
    }

    let bytes = (number(&position()) - before) / 200;
    println!("a renewal writes {bytes} bytes of WAL");
    assert!(bytes < 600, "{bytes} bytes");
}

/// The time of one of `count` in microseconds: the median.
async fn median(count: usize, mut act: impl AsyncFnMut()) -> u128 {
    let mut times = Vec::new();
    for _ in 0..count {
        let began = std::time::Instant::now();
        act().await;
        times.push(began.elapsed().as_micros());
    }
    times.sort_unstable();
    times[count / 2]
}

/// Prints what requests take beside an UPDATE of one row on the same server:
/// `cargo test -p tenure --features postgres --test stores figures -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures, and claims nothing"]
async fn figures() {
    for fsync in ["on", "off"] {
        figures_with(fsync).await;
    }
}

async fn figures_with(fsync: &str) {
    let fresh = Fresh::with(Options::new().set("fsync", fsync)).await;
    fresh.sql("CREATE TABLE plain (id int PRIMARY KEY, n int); INSERT INTO plain VALUES (1, 0)");
    let (client, connection) =
        tokio_postgres::connect(&fresh.url, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    let update = client.prepare("UPDATE plain SET n = n + 1 WHERE id = 1").await.expect("prepared");
    for parameters in ["", "?prepared_statements=on"] {
        let backend = super::fixture::open(&format!("{}{parameters}", fresh.url), &fresh.namespace).await;
        let meta = set(&backend, &Key::Meta, "meta").await;
        set(&backend, &lease(1), "x").await;
        let keys: Vec<Key> = (0..250).map(|number| super::fixture::resource(&format!("r{number}"))).collect();
        let plain = median(300, async || {
            client.execute(&update, &[]).await.expect("updated");
        })
        .await;
        let reads = median(300, async || drop(read(&backend, &lease(1)).await)).await;
        let life = super::fixture::life(&backend).await;
        let mut version = read(&backend, &lease(1)).await.version;
        let renewals = median(300, async || {
            let change = renewal(&lease(1), version, meta, 1);
            version = change.put[0].version;
            assert!(is_done(&backend.commit(life, &[change]).await.expect("an answer").done[0]));
        })
        .await;
        let batch = async |text: &str| {
            let shown = backend.read(&keys).await.expect("an answer");
            let change = |stored: &tenure::store::backend::Stored| {
                write(&stored.key, stored.version, text).and_expect(&Key::Meta, meta)
            };
            let changes: Vec<Change> = shown.records.iter().map(change).collect();
            assert!(backend.commit(life, &changes).await.expect("an answer").done.iter().all(is_done));
        };
        let text = "x".repeat(500);
        let created = median(1, async || batch(&text).await).await;
        let batches = median(30, async || batch(&text).await).await;
        println!(
            "fsync {fsync:3} {parameters:24} update {plain} us; read {reads} us; commit of 1 {renewals} us ({:.2} updates); read+commit of 250 \
             {batches} us ({:.1} updates), the first {created} us",
            renewals as f64 / plain as f64,
            batches as f64 / plain as f64,
        );
    }
}
