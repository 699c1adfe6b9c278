//! What the driver logs, at its most talkative: no key, value, entry, signal or channel.

use std::sync::Mutex;

use log::{LevelFilter, Log, Metadata, Record};
use tenure::store::LeaseId;
use tenure::store::backend::{Backend, Change, Channel, HistoryEntry};
use tenure_core::{Key, ResourceName, Version};
use testkit::child::is_alone;

use super::fixture::{Fresh, Words, apply, lock, open, read, write};

static LINES: Mutex<String> = Mutex::new(String::new());

struct Collector;

impl Log for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{} {}: {}\n", record.level(), record.target(), record.args());
        lock(&LINES).push_str(&line);
    }

    fn flush(&self) {}
}

#[tokio::test]
async fn the_drivers_log_lines_hold_nothing_that_was_bound() {
    if !is_alone(module_path!(), "the_drivers_log_lines_hold_nothing_that_was_bound") {
        return;
    }
    log::set_logger(&Collector).expect("the only logger");
    log::set_max_level(LevelFilter::Trace);
    let fresh = Fresh::start().await;
    let (lease, secret) = (Key::Lease(LeaseId(0xfeed_beef_cafe_0123)), "SwordfiSh");
    let numbers = Version(0x7a7a_7a7a_7a7a_7a7a);
    for parameters in ["", "?prepared_statements=on"] {
        let backend = open(&format!("{}{parameters}", fresh.url), &fresh.namespace).await;
        let (subscriptions, mut signals) = backend.listen().await.expect("it listens");
        let channel = Channel::new("swordfish_channel");
        subscriptions.follow(channel.clone()).await.expect("it follows");
        for _ in 0..2 {
            let version = read(&backend, &lease).await.version;
            let mut change: Change = write(&lease, version, secret).and_signal(&channel, secret);
            change.put[0].version = Version(numbers.0 + version.0 % 2);
            let resource = ResourceName::new(secret).expect("a name");
            change.history.push(HistoryEntry { resource, at: None, text: secret.into() });
            apply(&backend, change).await;
            signals.recv().await.expect("a signal");
            backend.history(Some(&ResourceName::new(secret).expect("a name")), 9).await.expect("an answer");
        }
        subscriptions.forget(&channel);
    }
    log::set_max_level(LevelFilter::Off);

    let lines = lock(&LINES).clone();
    assert!(lines.contains("executing statement") && lines.contains("with parameters: [.."), "{lines}");
    for bound in
        [secret, "feedbeefcafe0123", "swordfish_channel", "tenure_", "8825501086245354106", "254, 237"]
    {
        let told = lines.lines().find(|line| line.contains(bound));
        assert_eq!(told, None, "{bound}");
    }
}
