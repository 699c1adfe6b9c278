//! What a URL says, and whatever a server could: by the million. Neither makes a panic, and no secret is told.

use redis::Value;
use tenure_core::{Call, LeaseId, Leave, Leaving, ResourceName, Said, Tickets, Want};
use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use super::answers::{self, jobs};
use super::ears;
use super::reply::{self, Coming};
use super::server::Server;
use super::target::Target;
use crate::store::Entry;

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a name")
}

#[test]
fn redis_urls() {
    let make = |make: &mut Maker| {
        let like = [
            "redis://cache:6379",
            "redis://user:SwordfiSh@[::1]:7000/3",
            "rediss://:SwordfiSh@cache/0",
            "rediss://cache?ca=/nowhere/ca.pem",
            "redis+unix:///run/redis.sock?db=3&user=me&pass=SwordfiSh",
            "unix:/run/redis.sock?pass=SwordfiSh",
        ];
        // A fifth of them only, because they read what browsers trust.
        let schemes = ["redis", "redis", "redis", "redis", "rediss"];
        let url = if make.is_one_of(2) { make.text(&like) } else { url_with_a_secret(make, &schemes) };
        (url, make.text(&["10.0.0.7:7001", ":7002", "[::1]:7003", "node:70000"]))
    };
    fuzz("redis_urls", make, |(url, moved)| {
        let target = Target::of(url);
        match &target {
            Ok(target) => {
                keeps_secrets(&format!("{target} {target:?}"), url);
                let before = target.to_string();
                target.move_to(moved);
                assert!(!target.to_string().is_empty());
                target.come_back();
                assert_eq!(target.to_string(), before);
            }
            Err(error) => {
                keeps_secrets(&format!("{error:?}"), url);
                is_a_sentence(&error.to_string());
            }
        }
        Verdict::of(&target)
    });
}

// ---- answers -----------------------------------------------------------------------------------------------

fn texts(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| text(word)).collect())
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn list<const N: usize>(values: [Value; N]) -> Value {
    Value::Array(values.into())
}

const STAMP: [&str; 3] = ["1763228625123500", "00112233445566778899aabbccddeeff", "15000000000"];
const GRANT: [&str; 3] = ["0", "7", "1763228625123500"];
const RUN: [&str; 11] =
    ["1763228640000", "1", "5", "5", "host-1", "1763228640000123", "running", "", "0", "2", "a note"];

/// One that is understood, by a number, and who understands it.
fn sound(which: usize) -> Value {
    let said: Vec<Value> = match which {
        0 => vec![text("opened")],
        1 => vec![text("kept"), texts(&["a b\u{0}1763228625123501 2", "job\u{0}5 1"])],
        2 => vec![text("held"), texts(&["job\u{0}5 1"])],
        3 => vec![text("claimed"), list([texts(&[&["granted"], &GRANT[..]].concat())])],
        4 => vec![text("claimed"), list([texts(&["waiting", "2", "1500000", "turn"])])],
        5 => vec![text("released"), list([texts(&["free"])])],
        6 => vec![text("released"), list([texts(&["waiting", "2", "1500000", "taken"])])],
        7 => vec![text("closed"), texts(&["odd"])],
        8 => vec![text("other-owners"), texts(&["5", "6"])],
        9 => {
            let owner = texts(&[&["host-1", "{}"], &GRANT[..], &["12000000", "9000000"]].concat());
            let waiter = texts(&["host-2", "{\"a\":1}", "9000000"]);
            vec![list([list([text("job"), text("3"), list([owner]), list([waiter])])]), text(""), texts(&[])]
        }
        10 => {
            let rows = texts(&["1763228625000000 granted 0 7 1763228625123500\u{0}job\u{0}host-1"]);
            vec![text(""), text("1-0"), rows.clone(), rows, texts(&["odd"])]
        }
        11 => vec![text("attended"), text("1763228640000"), texts(&RUN), text("* * * * * UTC")],
        12 => vec![text("begun"), texts(&RUN)],
        13 => vec![text("sent")],
        _ => {
            let counts = ["1", "2", "3", "4", "5"].map(text);
            let [ran, failed, interrupted, missed, skipped] = counts;
            let (plan, through) = (text("@daily UTC"), text("1763228640000"));
            let job =
                [text("job"), plan, through, ran, failed, interrupted, missed, skipped, list([texts(&RUN)])];
            vec![list([list(job)]), text(""), texts(&[])]
        }
    };
    Value::Array(STAMP.map(text).into_iter().chain(said).collect())
}

/// Changes one place of it, at any depth.
fn change(make: &mut Maker, value: &mut Value) {
    match value {
        Value::Array(parts) if !parts.is_empty() && !make.is_one_of(8) => {
            let at = make.below(parts.len());
            match make.below(10) {
                0 => drop(parts.remove(at)),
                1 => parts.insert(at, any(make, 3)),
                2 => parts.push(parts[at].clone()),
                _ => change(make, &mut parts[at]),
            }
        }
        Value::BulkString(bytes) if !make.is_one_of(8) => *bytes = make.bytes(&[&bytes.clone()]),
        other => *other = any(make, 3),
    }
}

/// Whatever a server could say.
fn any(make: &mut Maker, depth: usize) -> Value {
    let parts =
        |make: &mut Maker| -> Vec<Value> { (0..make.below(4)).map(|_| any(make, depth - 1)).collect() };
    match make.below(if depth == 0 { 7 } else { 10 }) {
        0 => Value::Nil,
        1 => Value::Int(make.number().cast_signed()),
        2 => Value::Okay,
        3 => Value::SimpleString(make.any_text()),
        4 => Value::Double(f64::from_bits(make.number())),
        5 => Value::Boolean(true),
        6 => text(&make.number().to_string()),
        7 => Value::Set(parts(make)),
        8 => Value::Map(parts(make).into_iter().map(|value| (Value::Nil, value)).collect()),
        _ => Value::Array(parts(make)),
    }
}

#[test]
fn redis_answers() {
    let make = |make: &mut Maker| {
        let mut value = sound(make.below(15));
        for _ in 0..make.below(4) {
            change(make, &mut value);
        }
        value
    };
    let want = || Want { resource: name("job"), tickets: Tickets::ONE, priority: 0 };
    let leave = |how| Leave { resource: name("job"), how };
    let calls = [
        Call::Renew,
        Call::Held,
        Call::Claim(vec![want()]),
        Call::Claim(vec![want(), want()]),
        Call::Release(vec![leave(Leaving::Released)]),
        Call::Release(vec![leave(Leaving::SteppedDown)]),
    ];
    fuzz("redis_answers", make, |value| {
        let mut accepted = false;
        let mut told = |outcome: Result<(), super::Trouble>| match outcome {
            Ok(()) => accepted = true,
            Err(trouble) => is_a_sentence(&trouble.told("ask", "redis://there").to_string()),
        };
        for call in &calls {
            told(answers::answer(call, value.clone()).map(|answer| {
                let fits = match (call, &answer.said) {
                    (_, Said::Gone) | (Call::Renew, Said::Kept { .. } | Said::Stale) => true,
                    (Call::Held, Said::Held(_)) => true,
                    (Call::Claim(wants), Said::Claimed(answers)) => answers.len() == wants.len(),
                    (Call::Release(leaves), Said::Released(answers)) => answers.len() == leaves.len(),
                    _ => false,
                };
                assert!(fits, "{call:?} {answer:?}");
            }));
        }
        told(answers::asked(value.clone()).map(drop));
        told(answers::views(value.clone()).map(drop));
        told(answers::past(value.clone()).map(|past| {
            for record in past.unwritten.into_iter().chain(past.written) {
                let _ago = Entry::of(record, past.now).ago;
            }
        }));
        told(jobs::said(value.clone()).map(drop));
        told(jobs::published(value.clone()).map(drop));
        told(jobs::jobs(value.clone(), None).map(drop));
        told(jobs::jobs(value.clone(), Some(&name("job"))).map(drop));
        if accepted { Verdict::Accepted } else { Verdict::Refused }
    });
}

// ---- hints, messages and INFO ------------------------------------------------------------------------------

const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n\
    aof_enabled:1\r\nconnected_slaves:0\r\ncluster_enabled:0\r\n";

#[test]
fn redis_words() {
    let make = |make: &mut Maker| {
        let payload =
            make.bytes(&[b"24000000000 night ly", b"0 job", b"2 1763228625123500 a \xff\0", b"0 1 "]);
        (payload, make.text(&[INFO]))
    };
    fuzz("redis_words", make, |(payload, info)| {
        let hint = ears::hint(LeaseId(1), payload);
        if let Some(hint) = &hint {
            // Written as the scripts do, it is the same.
            let written = format!("{} {}", hint.after.as_nanos(), hint.resource);
            assert_eq!(ears::hint(LeaseId(1), written.as_bytes()).as_ref(), Some(hint));
        }
        let message = ears::message(&name("job"), payload);
        if let Some(message) = &message {
            let mut written = format!("{} {} ", message.ticket.0, message.token.0).into_bytes();
            written.extend_from_slice(message.bytes());
            assert_eq!(ears::message(&name("job"), &written).as_ref(), Some(message));
        }
        let server = Server::of(info);
        let checked = server.check("redis://there");
        if let Err(error) = &checked {
            is_a_sentence(&error.to_string());
        }
        server.concerns().iter().for_each(|concern| is_a_sentence(&concern.what));
        if hint.is_some() || message.is_some() { Verdict::Accepted } else { Verdict::Refused }
    });
}

/// As a server would write it.
fn written(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Array(parts) => {
            to.extend(format!("*{}\r\n", parts.len()).bytes());
            parts.iter().for_each(|part| written(part, to));
        }
        Value::BulkString(bytes) => {
            to.extend(format!("${}\r\n", bytes.len()).bytes());
            to.extend(bytes.iter().copied().chain(*b"\r\n"));
        }
        other => panic!("not among what is sound: {other:?}"),
    }
}

/// What comes over a connection, in whatever pieces: they make no difference, and where the library understands it, it
/// understands the same.
#[test]
fn redis_bytes() {
    let make = |make: &mut Maker| {
        let mut bytes = Vec::new();
        match make.below(6) {
            0 => bytes.extend_from_slice(b"-ERR it refused\r\n+OK\r\n:17\r\n$-1\r\n*-1\r\n"),
            _ => written(&sound(make.below(15)), &mut bytes),
        }
        let bytes = if make.is_one_of(4) { bytes } else { make.bytes(&[&bytes]) };
        let cut = make.below(bytes.len() + 1);
        (bytes, cut)
    };
    fuzz("redis_bytes", make, |(bytes, cut)| {
        let whole = Coming::default().whole(bytes);
        let mut coming = Coming::default();
        let in_pieces = match coming.whole(&bytes[..*cut]) {
            Ok(None) => coming.whole(bytes),
            early => early,
        };
        assert_eq!(whole.as_ref().ok(), in_pieces.as_ref().ok());
        let said = whole.map(|end| end.map(|end| (&bytes[..end], reply::value(&bytes[..end]))));
        match &said {
            Ok(Some((bytes, Ok(said)))) => {
                if let Ok(theirs) = redis::parse_redis_value(bytes) {
                    assert_eq!(*said, theirs);
                }
                Verdict::Accepted
            }
            _ => Verdict::Refused,
        }
    });
}
