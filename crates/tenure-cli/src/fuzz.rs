//! What is typed, what a guard is told and what others say of themselves, by the million.

use std::io::Write;
use std::os::unix::net::UnixStream;

use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use crate::args::duration;
use crate::guard::protocol::{self, Order, Received, Told};
use crate::json;
use crate::output::{clean, escaped};
use crate::place::without_secrets;
use crate::status::said;

#[test]
fn hidden_urls() {
    let make = |make: &mut Maker| {
        if make.is_one_of(2) {
            return url_with_a_secret(make, &["redis", "rediss", "postgres", "mysql"]);
        }
        make.text(&[
            "sqlite:/var/x.db?proof=off",
            "redis://me:SwordfiSh@cache:6379/0",
            "redis://cache:6379/0",
            "postgres://me:SwordfiSh@db/x?password=hunter22",
            "redis+unix:///run/redis.sock?db=1&pass=SwordfiSh",
            "unix:/run/redis.sock?pass=SwordfiSh",
            "redis:me:SwordfiSh@cache",
        ])
    };
    fuzz("hidden_urls", make, |url| {
        let shown = without_secrets(url);
        keeps_secrets(&shown, url);
        // In the place of a parameter nothing is told, whatever stands there.
        let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
        let is_file = url.starts_with("sqlite:");
        assert!(
            is_file || !parameters.contains("pass=SwordfiSh") || !shown.contains("pass=SwordfiSh"),
            "{shown}"
        );
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(without_secrets(&shown), shown, "what is hidden stays as it is");
        if shown == *url { Verdict::Accepted } else { Verdict::Refused }
    });
}

#[test]
fn spans() {
    let make = |make: &mut Maker| {
        if make.is_one_of(3) {
            let unit = make.pick(&["ms", "s", "m", "h", "", "d", "us"]);
            return format!("{}{unit}", make.number());
        }
        make.text(&["1500ms", "15s", "2m", "1h", "0.1s", "1.5s", ".5h", "0s"])
    };
    fuzz("spans", make, |typed| {
        let span = duration(typed);
        match &span {
            Ok(span) => {
                let digits = typed.trim_end_matches(|c: char| c.is_ascii_lowercase());
                assert!(digits.chars().all(|c| c.is_ascii_digit() || c == '.'), "{typed:?} is {span:?}");
                // A number with a point is exact to the microsecond for a working life.
                if span.as_secs() < 30 * 366 * 86_400 {
                    let written = format!("{}.{:03}ms", span.as_micros() / 1000, span.as_micros() % 1000);
                    assert_eq!(duration(&written).as_ref(), Ok(span), "{written}");
                }
                let whole = digits.parse::<u64>().ok().filter(|whole| *whole < 1_000_000_000);
                if let Some(whole) = whole {
                    let micros = match &typed[digits.len()..] {
                        "ms" => 1_000,
                        "s" => 1_000_000,
                        "m" => 60_000_000,
                        "h" => 3_600_000_000,
                        _ => 86_400_000_000,
                    };
                    assert_eq!(span.as_micros(), u128::from(whole) * micros);
                }
            }
            Err(why) => is_a_sentence(why),
        }
        Verdict::of(&span)
    });
}

#[test]
fn guard_messages() {
    let (ours, theirs) = protocol::pair().expect("a pair");
    let mut ours = UnixStream::from(ours);
    let make = |make: &mut Maker| {
        make.bytes(&[
            br#"{"Start":{"run":1,"lease":18446744073709551615,"variables":[["TENURE_TICKET","0"],["A","\ud83d\ude00"]]}}"#,
            br#"{"Signal":{"run":1,"number":15}}"#,
            br#"{"Lose":{"run":7}}"#,
            br#""Farewell""#,
            br#"{"Started":{"run":1,"pid":4121}}"#,
            br#"{"Left":{"run":1,"count":3}}"#,
            br#"{"Over":{"run":1,"how":{"Ended":256}}}"#,
            br#"{"Over":{"run":1,"how":"Refused"}}"#,
        ])
    };
    // Written again it is the same, and nothing is left in the socket.
    fn heard<T: serde::Serialize + serde::de::DeserializeOwned>(
        bytes: &[u8],
        ours: &mut UnixStream,
        theirs: &std::os::fd::OwnedFd,
    ) -> bool {
        if bytes.is_empty() {
            return false;
        }
        ours.write_all(bytes).expect("it is sent");
        let heard = protocol::receive::<T>(theirs);
        let understood = match heard {
            Ok(Received::Message(message, None)) => {
                let written = serde_json::to_vec(&message).expect("JSON");
                protocol::send(&*ours, &message, None).expect("it is sent");
                let Ok(Received::Message(again, None)) = protocol::receive::<T>(theirs) else {
                    panic!("{written:?} does not come back")
                };
                assert_eq!(serde_json::to_vec(&again).expect("JSON"), written);
                true
            }
            Ok(Received::Message(_, Some(_)) | Received::Nothing | Received::End) => {
                panic!("one message was sent, and nothing with it")
            }
            Err(_) => false,
        };
        assert!(matches!(protocol::receive::<T>(theirs), Ok(Received::Nothing)));
        understood
    }
    let ours = std::cell::RefCell::new(&mut ours);
    fuzz("guard_messages", make, |bytes| {
        let mut ours = ours.borrow_mut();
        let order = heard::<Order>(bytes, &mut ours, &theirs);
        let told = heard::<Told>(bytes, &mut ours, &theirs);
        assert!(!(order && told), "an order is no report");
        if order || told { Verdict::Accepted } else { Verdict::Refused }
    });
}

#[test]
fn metadata() {
    let make = |make: &mut Maker| {
        make.text(&[
            r#"{"zone":"eu-1","weight":3,"tags":["a","\u001b[31m"],"deep":{"a":[1,2.5e3,null,true]}}"#,
            r#"[1,-0,1e400,"x"]"#,
            r#""\ud83d\ude00\n""#,
            "[[[[[[[[[[]]]]]]]]]]",
            "not JSON at all",
        ])
    };
    fuzz("metadata", make, |text| {
        let Ok(metadata) = tenure::types::Metadata::new(text) else { return Verdict::Refused };
        let value = json::metadata(&metadata);
        let is_json = serde_json::from_str::<serde_json::Value>(text).is_ok();
        assert!(is_json || value.as_str() == Some(text));

        // What a program reads means the same, and steers no terminal.
        let shown = escaped(&serde_json::to_string_pretty(&value).expect("JSON"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        assert_eq!(clean(&shown.replace('\n', "")), shown.replace('\n', ""));
        let said = clean(&said(&metadata));
        assert!(!said.chars().any(char::is_control) && clean(&said) == said, "{said:?}");
        if is_json { Verdict::Accepted } else { Verdict::Refused }
    });
}
