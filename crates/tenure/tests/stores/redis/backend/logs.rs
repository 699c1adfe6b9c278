//! What ends up in logs: nothing of what records, signals and URLs contain.

use super::*;
use std::io::Write;
use std::sync::{Arc, Mutex};
use testkit::child::is_alone;
use tracing_subscriber::filter::LevelFilter;

/// All that is logged in this process, by `log` and by `tracing`.
static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {} {}\n", record.level(), record.target(), record.args());
        LINES.lock().expect("nobody panics in here").extend(line.as_bytes());
    }

    fn flush(&self) {}
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().expect("nobody panics in here").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_log_line_contains_what_records_signals_and_urls_do() {
    if !is_alone(module_path!(), "no_log_line_contains_what_records_signals_and_urls_do") {
        return;
    }
    log::set_logger(&Lines).expect("no other logger");
    log::set_max_level(log::LevelFilter::Trace);
    let subscriber =
        tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(|| Lines).finish();
    tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
    let folder = tempfile::tempdir().expect("a folder");
    let tls = crate::redis::secured::certificates(folder.path(), "localhost");
    let server = Options::new().tls(tls.clone()).set("requirepass", "hushed-password").start();
    let url =
        format!("rediss://:hushed-password@localhost:{}?ca={}", server.tls_port(), tls.authority.display());

    let backend = Arc::new(open(&url).await);
    let (subscriptions, mut signals) = backend.listen().await.expect("a connection");
    subscriptions.follow(Channel::new("hushed_channel")).await.expect("a subscription");
    let mut created = creation(Key::Lease(LeaseId(0x5ec_2e7)), "hushed-value");
    created.history.push(entry("a", "hushed-entry"));
    created.signals.push(signal(&["hushed_channel"], "hushed-signal"));
    apply(&backend, created.clone()).await;
    let conflict = commit(&backend, &[created.clone()]).await;
    let heard = hear(&mut signals).await;
    let shown = read(&backend, Key::Lease(LeaseId(0x5ec_2e7))).await;
    let error =
        RedisBackend::open(&url.replace("hushed-password", "hushed-guess"), &Namespace::default()).await;
    tracing::info!(?backend, ?subscriptions, ?created, ?conflict, ?heard, ?shown, ?error, "here they are");

    let lines = String::from_utf8(LINES.lock().expect("nobody panics in here").clone()).expect("text");
    assert!(lines.contains("here they are") && lines.contains("rustls"), "nothing was logged: {lines}");
    for line in lines.lines() {
        assert!(!line.contains("hushed"), "{line}");
        let from_others = !line.contains("here they are");
        assert!(!from_others || !line.contains(&format!("{:032x}", 0x5ec_2e7)), "{line}");
    }
}
