//! Keys that somebody damaged: what belongs to one resource does not hide the others, and of a request that cannot be
//! carried out nothing is written.

use super::*;
use std::io::Write;
use std::sync::Mutex;
use tenure::store::{Closing, Released};
use tenure_core::{Asked, Why};

/// A server whose data can be compared.
fn comparable() -> Redis {
    fresh(Options::new().set("enable-debug-command", "local"))
}

fn digest(server: &Redis) -> String {
    server.command(&["DEBUG", "DIGEST"]).text()
}

/// What is done to the keys of a namespace in which this lease owns "job".
fn damages(lease: &str) -> Vec<(&'static str, Vec<Vec<String>>)> {
    let row = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let newest = format!("newest:{lease}\0job");
    let mut all = vec![
        ("a record that is none", vec![row(&["HSET", "{tenure}:state", "resource:job", "x"])]),
        ("a number of seats that is none", vec![row(&["HSET", "{tenure}:state", "resource:job", &many()])]),
        ("a seat that is none", vec![row(&["HSET", "{tenure}:state", "seat:job\u{0}0", "x"])]),
        ("a seat that is lost", vec![row(&["HDEL", "{tenure}:state", "seat:job\u{0}0"])]),
        ("a request that is none", vec![row(&["HSET", "{tenure}:state", &newest, "x"])]),
        ("a request that is lost", vec![row(&["HDEL", "{tenure}:state", &newest])]),
    ];
    for key in ["state", "leases", "queue", "held", "history", "names", "ended", "gone", "newest", "notices"]
    {
        let key = format!("{{tenure}}:{key}");
        all.push(("a key of another kind", vec![row(&["DEL", &key]), row(&["SET", &key, "x"])]));
    }
    all
}

/// More seats than there can be tickets.
fn many() -> String {
    format!("1 1 {} 1 1 1 1 1000000000", "a".repeat(32))
}

// Two resources are sound, one is not: all or nothing.
#[tokio::test]
async fn a_request_about_a_damaged_resource_changes_nothing_of_the_others() {
    let count = damages("").len();
    for index in 0..count {
        let server = comparable();
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [opened(&store).await, opened(&store).await];
        for resource in ["first", "job"] {
            assert!(matches!(claimed(&store, a, resource).await, Claimed::Granted(_)));
        }
        let (what, commands) = damages(&hex(a)).swap_remove(index);
        for words in &commands {
            server.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let before = digest(&server);

        let names = ["first", "new", "job"];
        for (who, call) in [
            (a, claiming_all(&names, 1)),
            (b, claiming_all(&names, 1)),
            (a, releasing(&names, Leaving::Released)),
            (a, releasing(&names, Leaving::SteppedDown)),
        ] {
            // What was asked for last is damaged for one of them only; b's answer would be a place in the queue.
            if what.starts_with("a request that is") && who == b {
                continue;
            }
            // A release does not look at the names.
            if commands[0].contains(&"{tenure}:names".to_owned()) && matches!(call, Call::Release(_)) {
                continue;
            }
            let answer = ask(&store, who, call.clone()).await;
            let error = match answer {
                Ok(answer) => {
                    panic!("{what}: {call:?} was answered {:?} after {commands:?}", answer.said)
                }
                Err(error) => error,
            };
            assert_eq!(error.kind(), Kind::Corrupt, "{what}: {}", chain(&error));
            assert_eq!(digest(&server), before, "{what}: {call:?} after {commands:?}");
        }
    }
}

/// One resource that is handed over to the one who waits: all of the step or nothing, and never a grant that is not written
/// down everywhere.
#[tokio::test]
async fn a_hand_over_over_a_damaged_key_happens_as_a_whole_or_not_at_all() {
    let count = damages("").len();
    for (index, release_first) in (0..count).flat_map(|index| [(index, false), (index, true)]) {
        let server = comparable();
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [opened(&store).await, opened(&store).await];
        let _hints = store.hints(b).await.expect("a subscription");
        for lease in [a, b] {
            claimed(&store, lease, "job").await;
        }
        if release_first {
            said(&store, a, releasing(&["job"], Leaving::Released)).await;
        }
        let (what, commands) = damages(&hex(if release_first { b } else { a })).swap_remove(index);
        for words in &commands {
            server.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let before = digest(&server);

        let (who, call) = match release_first {
            true => (b, claiming("job")),
            false => (a, releasing(&["job"], Leaving::Released)),
        };
        match ask(&store, who, call.clone()).await {
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "{what}: {}", chain(&error));
                assert_eq!(digest(&server), before, "{what}: {call:?} after {commands:?}");
            }
            // It can do without what is damaged.
            Ok(answer) => {
                let needless = ["leases", "names", "ended", "gone", "newest", "notices"];
                let needless = needless.map(|key| format!("{{tenure}}:{key}"));
                let done = match &answer.said {
                    Said::Claimed(said) => matches!(said[..], [Claimed::Granted(_)]),
                    Said::Released(said) => said[..] == [Released::Free],
                    _ => false,
                };
                assert!(done && needless.contains(&commands[0][1]), "{what}: {answer:?} after {commands:?}");
            }
        }
    }
}

/// Wishes, the opening and the closing of a lease over a key of another kind: all of the step or nothing.
#[tokio::test]
async fn what_is_not_about_tickets_happens_as_a_whole_or_not_at_all_over_a_key_of_another_kind() {
    let keys = [
        "state", "leases", "queue", "held", "history", "names", "ended", "gone", "newest", "notices",
        "metadata",
    ];
    for (key, step) in keys.into_iter().flat_map(|key| (0..4).map(move |step| (key, step))) {
        let server = comparable();
        let store = open(&server.url()).await.expect("a store");
        let a = opened(&store).await;
        let next = opened_as(&store, "next", Duration::from_secs(60)).await;
        let Claimed::Granted(grant) = claimed(&store, a, "job").await else { panic!("it is free") };
        claimed(&store, next, "job").await;
        let key = format!("{{tenure}}:{key}");
        server.command(&["DEL", &key]);
        server.command(&["SET", &key, "x"]);
        let before = digest(&server);

        let label = Label::new("next").expect("a label");
        let failed = match step {
            0 => store.ask(&name("job"), grant.token, Some(&label)).await.map(drop),
            1 => store.evict(&name("job"), grant.token).await.map(drop),
            2 => ask(&store, LeaseId(1), opening(Duration::from_secs(60))).await.map(drop),
            _ => ask(&store, a, Call::Close(Closing::Left)).await.map(drop),
        };

        if let Err(error) = failed {
            assert_eq!(error.kind(), Kind::Corrupt, "{key} {step}: {}", chain(&error));
            assert_eq!(digest(&server), before, "{key}: step {step} left a part behind");
        } else {
            // Names are for those who look for a resource that is not there, metadata for those who open.
            assert!(key.ends_with(":names") || key.ends_with(":metadata") && step != 2, "{key} {step}");
        }
    }
}

/// A quarantine that cannot be read is one that has just begun.
#[tokio::test]
async fn in_a_quarantine_that_cannot_be_read_nothing_is_granted() {
    let server = comparable();
    let store = open(&server.url()).await.expect("a store");
    let a = opened(&store).await;
    server.command(&["HSET", "{tenure}:state", "quarantine", "x"]);

    let said = claimed(&store, a, "job").await;

    assert!(matches!(said, Claimed::Waiting(waiting) if waiting.why == Why::Quarantine), "{said:?}");
}

/// Where somebody waits is written down twice. What the queue says counts; where it says nothing, nobody guesses.
#[tokio::test]
async fn a_place_that_is_lost_costs_nobody_its_turn_unless_the_queue_is_lost_too() {
    for (place, queue_too) in [(None, false), (Some("x"), false), (Some("x"), true)] {
        let server = comparable();
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [opened(&store).await, opened(&store).await];
        let _hints = store.hints(b).await.expect("a subscription");
        for lease in [a, b] {
            claimed(&store, lease, "job").await;
        }
        said(&store, a, releasing(&["job"], Leaving::Released)).await;

        let field = format!("place:{}\0job", hex(b));
        match place {
            None => server.command(&["HDEL", "{tenure}:state", &field]),
            Some(place) => server.command(&["HSET", "{tenure}:state", &field, place]),
        };
        if queue_too {
            server.command(&["DEL", "{tenure}:queue"]);
        }
        let before = digest(&server);

        match ask(&store, b, claiming("job")).await {
            Ok(answer) => {
                let granted =
                    matches!(&answer.said, Said::Claimed(said) if matches!(said[..], [Claimed::Granted(_)]));
                assert!(granted && !queue_too, "{answer:?}");
                assert_eq!(fields(&server, "place:"), Vec::<String>::new());
            }
            Err(error) => {
                assert!(queue_too && error.kind() == Kind::Corrupt, "{}", chain(&error));
                assert_eq!(digest(&server), before);
            }
        }
    }
}

/// The mark that there are notices is for the usual claim and release only: without it they are told all the same.
#[tokio::test]
async fn a_notice_whose_mark_is_lost_is_told() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    let Claimed::Granted(grant) = claimed(&store, lease, "job").await else { panic!("not granted") };
    store.ask(&name("job"), grant.token, None).await.expect("asked");

    assert_eq!(
        server.command(&["HDEL", "{tenure}:state", &format!("noticed:{}", hex(lease))]),
        Reply::Number(1)
    );

    let kept = said(&store, lease, Call::Renew).await;
    assert!(matches!(&kept, Said::Kept { notices, .. } if notices[0].token == grant.token), "{kept:?}");
}

/// A notice that is none does not cost a lease.
#[tokio::test]
async fn a_damaged_notice_does_not_hinder_a_renewal() {
    let server = comparable();
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    let Claimed::Granted(grant) = claimed(&store, lease, "job").await else { panic!("not granted") };
    store.ask(&name("job"), grant.token, None).await.expect("asked");

    server.command(&["ZADD", "{tenure}:notices", "0", &format!("{}\0another\0x", hex(lease))]);
    let kept = said(&store, lease, Call::Renew).await;
    assert!(matches!(&kept, Said::Kept { notices, .. } if notices.len() == 1), "{kept:?}");

    server.command(&["DEL", "{tenure}:notices"]);
    server.command(&["SET", "{tenure}:notices", "x"]);
    let before = digest(&server);
    let error = ask(&store, lease, Call::Renew).await.expect_err("nobody can read the notices");
    assert_eq!((error.kind(), digest(&server)), (Kind::Corrupt, before));
}

/// Everything that is logged while it is there, on this thread.
struct Log {
    written: Arc<Mutex<Vec<u8>>>,
    _listening: tracing::subscriber::DefaultGuard,
}

struct Pen(Arc<Mutex<Vec<u8>>>);

impl Write for Pen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin() -> Self {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let to = written.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || Pen(to.clone())).finish();
        Self { written, _listening: tracing::subscriber::set_default(subscriber) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("nobody panicked")).into_owned()
    }
}

#[tokio::test]
async fn reading_leaves_a_damaged_resource_out_and_says_so() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    for resource in ["a", "job", "z"] {
        claimed(&store, lease, resource).await;
    }
    // Endings that nobody has written down yet are looked for at every resource.
    let dead = opened(&store).await;
    claimed(&store, dead, "last").await;
    said(&store, dead, Call::Close(Closing::Left)).await;

    server.command(&["HSET", "{tenure}:state", "seat:job\u{0}0", "x"]);
    server.command(&["ZADD", "{tenure}:names", "0", "\u{1}"]);
    server.command(&["XADD", "{tenure}:history", "*", "at", "x"]);
    let log = Log::begin();

    let views = store.read(None).await.expect("views");
    let names: Vec<&str> = views.iter().map(|view| view.resource.as_str()).collect();
    assert_eq!(names, ["a", "last", "z"]);
    assert!(log.text().contains("resource=\"job\""), "{}", log.text());
    assert_eq!(store.read(Some(&name("z"))).await.expect("a view").len(), 1);
    let error = store.read(Some(&name("job"))).await.expect_err("it cannot be read");
    assert!(error.kind() == Kind::Corrupt && error.to_string().contains("job"), "{}", chain(&error));

    let entries = store.history(None).await.expect("entries");
    assert_eq!(entries.len(), 5, "four grants, one ending: {entries:?}");
    assert!(log.text().contains("rows=1"), "{}", log.text());
    assert_eq!(store.history(Some(&name("job"))).await.expect_err("it cannot be read").kind(), Kind::Corrupt);
}

#[tokio::test]
async fn closing_wakes_the_heads_of_all_that_is_not_damaged() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, next] = [opened(&store).await, opened(&store).await];
    let mut hints = store.hints(next).await.expect("a subscription");
    for lease in [owner, next] {
        for resource in ["a", "job", "z"] {
            claimed(&store, lease, resource).await;
        }
    }

    server.command(&["HSET", "{tenure}:state", "resource:job", "x"]);
    let log = Log::begin();
    assert_eq!(said(&store, owner, Call::Close(Closing::Left)).await, Said::Closed);

    for resource in ["a", "z"] {
        let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
        assert_eq!(hint.resource, name(resource));
        assert!(matches!(claimed(&store, next, resource).await, Claimed::Granted(_)));
    }
    assert!(log.text().contains("resource=\"job\""), "{}", log.text());
}

/// Whatever its worker asks, a lease of which the details are lost gives it nothing; the others wait until it has run
/// out, and see that there is somebody.
#[tokio::test]
async fn a_lease_without_its_details_is_gone_for_its_worker_and_lives_on_for_the_others() {
    const TTL: Duration = Duration::from_secs(2);
    for undecodable in [false, true] {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let [owner, waiter, next] = [
            opened_as(&store, "owner", TTL).await,
            opened_as(&store, "waiter", TTL).await,
            opened_as(&store, "next", TTL * 10).await,
        ];
        let mut hints = store.hints(next).await.expect("a subscription");
        for resource in ["job", "free"] {
            for lease in [owner, waiter, next] {
                claimed(&store, lease, resource).await;
            }
        }
        for lease in [owner, waiter] {
            let field = format!("lease:{}", hex(lease));
            match undecodable {
                false => server.command(&["HDEL", "{tenure}:state", &field]),
                true => server.command(&["HSET", "{tenure}:state", &field, "x"]),
            };
        }

        for lease in [owner, waiter] {
            for call in [
                opening(TTL),
                Call::Renew,
                Call::Held,
                claiming("job"),
                claiming("new"),
                releasing(&["job"], Leaving::Released),
                releasing(&["job"], Leaving::SteppedDown),
            ] {
                assert_eq!(said(&store, lease, call.clone()).await, Said::Gone, "{call:?}");
            }
        }
        let Claimed::Waiting(look) = claimed(&store, next, "job").await else { panic!("let in at once") };
        assert!((look.why, look.ahead) == (Why::Taken, 1) && look.look_again > TTL / 4, "{look:?}");
        let view = store.read(Some(&name("job"))).await.expect("a view").swap_remove(0);
        assert_eq!((view.owners.len(), view.owners[0].worker.as_str(), view.waiters.len()), (1, "?", 2));
        let successor = Label::new("next").expect("a label");
        let token = view.owners[0].grant.token;
        assert_eq!(store.ask(&name("job"), token, Some(&successor)).await.expect("asked"), Asked::Done);
        // Its own word still ends it; the waiter whose channel nobody knows is passed over.
        assert_eq!(said(&store, owner, Call::Close(Closing::Left)).await, Said::Closed);
        tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
        assert!(matches!(claimed(&store, next, "job").await, Claimed::Granted(_)));
        let entries = store.history(Some(&name("job"))).await.expect("entries");
        assert_eq!(entries.len(), 3, "{entries:?}");
    }
}

/// Such a lease is waited for as long as it could live.
#[tokio::test]
async fn an_owner_without_details_is_waited_for_until_it_has_run_out() {
    const TTL: Duration = Duration::from_secs(1);
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, next] = [opened_as(&store, "owner", TTL).await, opened_as(&store, "next", TTL * 10).await];
    claimed(&store, owner, "job").await;
    server.command(&["HDEL", "{tenure}:state", &format!("lease:{}", hex(owner))]);

    let begun = std::time::Instant::now();
    while !matches!(claimed(&store, next, "job").await, Claimed::Granted(_)) {
        assert!(begun.elapsed() < PATIENCE, "it is never let in");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() > TTL * 7 / 10, "after {:?}", begun.elapsed());
}
