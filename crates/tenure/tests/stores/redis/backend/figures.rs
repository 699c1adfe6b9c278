//! How long it takes, in PINGs. Not a test of speed: run it by hand with `--ignored --nocapture`.

use super::*;
use std::time::Instant;

const ROUNDS: u32 = 500;

/// The median of many and, by the server's own count, the processor time of each.
async fn median(server: &Redis, mut run: impl AsyncFnMut()) -> (Duration, Duration) {
    let processor = || -> f64 {
        let seconds =
            |name| server.info("cpu", name).and_then(|text| text.parse::<f64>().ok()).expect("seconds");
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    };
    let (mut times, before) = (Vec::new(), processor());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        run().await;
        times.push(begun.elapsed());
    }
    times.sort();
    (times[times.len() / 2], Duration::from_secs_f64((processor() - before) / f64::from(ROUNDS)))
}

#[tokio::test]
#[ignore = "a measurement"]
async fn read_and_commit_in_pings() {
    let server = Options::new().aof("everysec").start();
    let backend = open(&server.url()).await;
    let text = "x".repeat(1000);
    let client = redis::Client::open(server.url()).expect("a client");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");

    for count in [1, 250] {
        let keys: Vec<Key> = (0..count).map(|index| resource(&format!("{count} {index}"))).collect();
        let created: Vec<Change> = keys.iter().map(|key| creation(key.clone(), &text)).collect();
        commit(&backend, &created).await;
        let life = life(&backend).await;
        let mut versions: Vec<Version> = created.iter().map(|change| change.put[0].version).collect();

        let ping =
            median(&server, async || redis::cmd("PING").exec_async(&mut connection).await.expect("a pong"))
                .await;
        let read = median(&server, async || drop(backend.read(&keys).await.expect("an answer"))).await;
        let committed = median(&server, async || {
            let changes: Vec<Change> = keys
                .iter()
                .zip(&versions)
                .map(|(key, version)| change(key.clone(), *version, &text))
                .collect();
            let commits = backend.commit(life, &changes).await.expect("an answer");
            assert!(commits.done.iter().all(|done| matches!(done, Committed::Done { .. })));
            versions = changes.iter().map(|change| change.put[0].version).collect();
        })
        .await;
        let conflict = median(&server, async || {
            let changes: Vec<Change> = keys.iter().map(|key| creation(key.clone(), &text)).collect();
            drop(backend.commit(life, &changes).await.expect("an answer"));
        })
        .await;
        let pings = |(time, _): (Duration, Duration)| time.as_secs_f64() / ping.0.as_secs_f64();
        println!(
            "{count} records of 1 KB: PING {ping:?}; read {read:?} ({:.2} PINGs), commit {committed:?} ({:.2}), \
             conflict {conflict:?} ({:.2})",
            pings(read),
            pings(committed),
            pings(conflict)
        );
    }
}
