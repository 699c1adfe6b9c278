//! Records that somebody damaged: what belongs to one resource does not hide the others, and nothing is guessed.

use super::*;
use tenure::Event;
use tenure::store::Closing;
use tenure::store::StoreChange;
use tenure::types::WaitReason;
use tenure_core::Released;

fn digest(server: &Redis) -> String {
    server.command(&["DEBUG", "DIGEST"]).text()
}

/// What is done to the record of "job".
fn damages() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    const KEY: &str = "{tenure}:resource/job";
    let version = ["version", "1234567890abcdef", "stamp", "1", "value"];
    let text = |value| vec![[&["HSET", KEY], &version[..], &[value]].concat()];
    vec![
        ("no JSON", text("x")),
        ("another kind of JSON", text("[]")),
        ("a format to come", text(r#"{"format":99,"rev":1}"#)),
        ("fields that are missing", text(r#"{"format":1,"rev":1,"tickets":1}"#)),
        ("no version", vec![vec!["HDEL", KEY, "version"]]),
        ("no value", vec![vec!["HDEL", KEY, "value"]]),
        ("another kind of key", vec![vec!["DEL", KEY], vec!["SET", KEY, "x"]]),
    ]
}

#[tokio::test]
async fn a_damaged_resource_is_granted_to_nobody_and_the_others_go_on() {
    for (what, commands) in damages() {
        let server = fresh(Options::new().set("enable-debug-command", "local"));
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [opened(&store).await, opened(&store).await];
        for resource in ["first", "job"] {
            assert!(matches!(claimed(&store, a, resource).await, Claimed::Granted(_)));
        }
        commands.iter().for_each(|words| drop(server.command(words)));
        let before = digest(&server);

        // Processes that know nothing yet write nothing.
        for (lease, call) in [(b, claiming("job")), (a, releasing(&["job"], Leaving::Released))] {
            let store = open(&server.url()).await.expect("a store");
            let answer = ask(&store, lease, call.clone()).await;
            let Err(error) = answer else { panic!("{what}: {call:?} was answered {answer:?}") };
            let expected = if what == "a format to come" { ErrorKind::Refused } else { ErrorKind::Corrupt };
            assert_eq!(error.kind(), expected, "{what}: {}", chain(&error));
            assert_eq!(digest(&server), before, "{what}: {call:?}");
        }

        let store = open(&server.url()).await.expect("a store");
        let together = said(&store, b, claiming_all(&["first", "new", "job"], 1)).await;
        let Said::Claimed(together) = together else { panic!("{what}: {together:?}") };
        let [Claimed::Waiting(first), Claimed::Granted(_), Claimed::Waiting(job)] = together[..] else {
            panic!("{what}: {together:?}")
        };
        assert_eq!((first.why, job.why), (WaitReason::Taken, WaitReason::Unreadable), "{what}");
        assert!(matches!(said(&store, a, Call::Renew).await, Said::Kept { .. }), "{what}");
        let left = said(&store, a, releasing(&["first", "job"], Leaving::Released)).await;
        assert_eq!(left, Said::Released(vec![Released::Free, Released::Free]), "{what}");
        assert!(matches!(said(&store, a, Call::Held).await, Said::Held(held) if held.is_empty()), "{what}");
        assert!(matches!(claimed(&store, b, "first").await, Claimed::Granted(_)), "{what}");
    }
}

/// Somebody who owns it and knows the record as it was gets no grant out of a damaged one, either.
#[tokio::test]
async fn a_process_that_knows_the_resource_is_not_granted_a_damaged_one() {
    for (what, commands) in damages() {
        let server = fresh(Options::new());
        let store = open(&server.url()).await.expect("a store");
        let [a, b] = [opened(&store).await, opened(&store).await];
        claimed(&store, a, "job").await;
        commands.iter().for_each(|words| drop(server.command(words)));

        let answer = ask(&store, b, claiming("job")).await;

        match answer {
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused),
                    "{what}: {}",
                    chain(&error)
                );
            }
            // Its version is as it was, so what this process knows of it is true.
            Ok(answer) => {
                let waits =
                    matches!(&answer.said, Said::Claimed(all) if matches!(all[0], Claimed::Waiting(_)));
                assert!(what == "no value" && waits, "{what}: {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn reading_leaves_a_damaged_resource_out_and_says_so() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let lease = opened(&store).await;
    // Events are those of the whole process, and other tests damage `job`.
    for resource in ["a", "broken", "z"] {
        claimed(&store, lease, resource).await;
    }
    write_record(&server, "{tenure}:resource/broken", "x");
    let mut events = tenure::events();

    let views = store.read(None).await.expect("views");

    let names: Vec<&str> = views.iter().map(|view| view.resource.as_str()).collect();
    assert_eq!(names, ["a", "z"]);
    let is_told = |event: &Event| matches!(event, Event::Store { change: StoreChange::Unreadable { error }, .. } if error.contains("resource/broken"));
    let told = async { while !is_told(&events.next().await.expect("events go on")) {} };
    tokio::time::timeout(PATIENCE, told).await.expect("it is told");
    assert_eq!(store.read(Some(&name("z"))).await.expect("a view").len(), 1);
    let error = store.read(Some(&name("broken"))).await.expect_err("it cannot be read");
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("broken"), "{}", chain(&error));
    assert_eq!(store.history(None).await.expect("entries").len(), 3);
}

#[tokio::test]
async fn leaving_wakes_the_heads_of_all_that_is_not_damaged() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let other = open(&server.url()).await.expect("a store");
    let [owner, next] = [opened(&store).await, opened(&other).await];
    let mut hints = other.hints(next).await.expect("a subscription");
    for (store, lease) in [(&store, owner), (&other, next)] {
        for resource in ["a", "job", "z"] {
            claimed(store, lease, resource).await;
        }
    }

    write_record(&server, "{tenure}:resource/job", "x");
    // Whoever leaves gives up what it can; told of the damage, it leaves all the same.
    let first = ask(&store, owner, Call::Close(Closing::Left)).await.expect_err("one cannot be read");
    assert_eq!(first.kind(), ErrorKind::Corrupt, "{}", chain(&first));
    assert_eq!(said(&store, owner, Call::Close(Closing::Left)).await, Said::Closed);

    let mut heard = std::collections::BTreeSet::new();
    while heard.len() < 2 {
        let hint = tokio::time::timeout(PATIENCE, hints.recv()).await.expect("soon").expect("a hint");
        if hint.resource != name("job") {
            heard.insert(hint.resource);
        }
    }
    for resource in ["a", "z"] {
        assert!(matches!(claimed(&other, next, resource).await, Claimed::Granted(_)), "{resource}");
    }
}

/// A lease that cannot be read is nobody's end: its worker is told that it is damaged, and the ticket stays taken.
#[tokio::test]
async fn an_owner_whose_lease_cannot_be_read_is_not_taken_for_dead() {
    let server = fresh(Options::new());
    let store = open(&server.url()).await.expect("a store");
    let [owner, next] = [opened(&store).await, opened(&store).await];
    claimed(&store, owner, "job").await;
    write_record(&server, &format!("{{tenure}}:lease/{}", hex(owner)), "x");

    let store = open(&server.url()).await.expect("a store");
    let error = ask(&store, next, claiming("job")).await.expect_err("nobody knows whether it lives");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", chain(&error));
    assert!(!chain(&error).contains(&hex(owner)), "a lease id is a secret: {}", chain(&error));
    let error = ask(&store, owner, Call::Renew).await.expect_err("it cannot be renewed");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", chain(&error));
}

#[tokio::test]
async fn without_a_readable_record_of_the_namespace_nothing_is_granted() {
    let server = fresh(Options::new());
    let lease = opened(&open(&server.url()).await.expect("a store")).await;
    write_record(&server, "{tenure}:meta", "x");

    let store = open(&server.url()).await.expect("a store");
    let error = ask(&store, lease, claiming("job")).await.expect_err("nobody knows");

    assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", chain(&error));
}
