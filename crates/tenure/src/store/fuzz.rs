//! URLs of stores, by the million: told apart by their schemes, and the path of a file taken as it is. Records and
//! signals: what is understood is written as it was read.

use tenure_core::{Key, LeaseId, ResourceName};
use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use super::open::Kind;
use super::sqlite::Url;
use super::{codec, schemes};

#[test]
fn store_urls() {
    let make = |make: &mut Maker| {
        if make.is_one_of(4) {
            return url_with_a_secret(make, &["redis", "rediss", "postgres", "mysql"]);
        }
        make.text(&[
            "memory:",
            "memory:one_Two-3",
            "sqlite:/var/lib/app/tenure.db",
            "sqlite:tenure.db?proof=off",
            "sqlite:a b/ä.db?proof=on",
            "redis://me:SwordfiSh@cache:6379/0",
            "postgres://me:SwordfiSh@db/x?password=hunter22",
            "mysql://me:SwordfiSh@db/x",
        ])
    };
    fuzz("store_urls", make, |url| {
        let kind = Kind::of(url).and_then(|kind| match kind.schemes {
            ["sqlite"] => Url::parse(url).map(Some),
            _ => Ok(None),
        });
        match &kind {
            Ok(Some(Url { path, proved })) => {
                let path = path.to_str().expect("it came from text");
                let again = format!("sqlite:{path}?proof={}", if *proved { "on" } else { "off" });
                assert_eq!(Url::parse(&again).ok(), Some(Url { path: path.into(), proved: *proved }));
                assert!(
                    url == &format!("sqlite:{path}") || url.starts_with(&format!("sqlite:{path}?proof=o"))
                );
            }
            Ok(None) => assert!(schemes().any(|scheme| url.starts_with(&format!("{scheme}:")))),
            Err(error) => {
                keeps_secrets(&format!("{error:?}"), url);
                is_a_sentence(&error.to_string());
            }
        }
        Verdict::of(&kind)
    });
}

const RECORDS: &[&str] = &[
    r#"{"format":1,"rev":3,"life":"0a","longest_us":15000000,"floor":0,"secret":"0b","paused":true}"#,
    r#"{"format":1,"rev":3,"life":"0a","longest_us":1,"floor":7,"secret":"0b","quarantine":{"since":5,"mark":9,"from":"0c"}}"#,
    r#"{"format":1,"rev":1,"uses":[{"ttl_us":15000000,"used":77},{"ttl_us":3000000}]}"#,
    r#"{"format":1,"rev":8,"label":"a","ttl_us":15000000,"opened":1,"renewed":2,"seq":3,"mark":7}"#,
    r#"{"format":1,"rev":8,"label":"a","ttl_us":1,"seq":3,"mark":7,"all":true,"notices":[{"resource":"r","token":4,"wish":"asked"}]}"#,
    r#"{"format":1,"rev":8,"label":"a","ttl_us":1,"seq":3,"mark":7,"ended":{"at":9,"why":"expired","clean":true}}"#,
    r#"{"format":1,"rev":1,"metadata":"{}","witness":"x"}"#,
    r#"{"format":1,"rev":2,"tickets":1,"set_by":{"opened":1,"lease":"01"},"term":1,"token":2,"arrivals":3,"frees":0,"owners":[{"ticket":0,"term":1,"token":2,"lease":"01","since":4,"wish":"lowered"}],"queue":[{"lease":"02","arrival":1,"priority":-5,"named":2,"step_us":100000}]}"#,
    r#"{"format":1,"rev":2,"tickets":1,"set_by":{"lease":"01"},"term":1,"token":2,"arrivals":3,"frees":0,"freed":8,"job":{"plan":"@daily","through":7,"counts":{"ran":1,"failed":0,"interrupted":0,"missed":0,"skipped":0},"latest":{"began":3,"occurrence":7,"attempt":1,"token":2,"key_token":2,"worker":"w","began_at":5,"state":"ran","took_us":6,"missed":0,"skipped":0,"note":"n"}}}"#,
    r#"{"format":1,"rev":2,"runs":[{"occurrence":7,"attempt":1,"token":2,"key_token":2,"worker":"w","began_at":5,"state":"failed","missed":0,"skipped":0}]}"#,
];

#[test]
fn records() {
    let make = |make: &mut Maker| (make.number() % 6, make.text(RECORDS));
    fuzz("records", make, |(kind, text)| {
        let name = ResourceName::new("r").expect("a name");
        let keys = [
            Key::Resource(name.clone()),
            Key::Lease(LeaseId(1)),
            Key::Meta,
            Key::Info(LeaseId(1)),
            Key::Runs(name),
            Key::Ttls,
        ];
        // As the first kind that understands it.
        let like = keys.iter().find(|key| codec::decode(key, text).is_ok());
        let record = codec::decode(like.unwrap_or(&keys[*kind as usize]), text);
        match &record {
            Ok((revision, value)) => {
                let written = codec::encode(value, *revision);
                let again = codec::decode(like.expect("it was understood"), written.as_str());
                assert_eq!(again.expect("it is written as it is read"), (*revision, value.clone()));
            }
            Err(error) => is_a_sentence(&error.to_string()),
        }
        Verdict::of(&record)
    });
}

const SIGNALS: &[&str] = &[
    r#"{"look":"r","after_us":100000}"#,
    r#"{"look":"r","after_us":0,"life":"0a","version":18446744073709551615,"record":{"rev":1}}"#,
    r#"{"ended":"0000000000000000000000000000001f"}"#,
    r#"{"knock":"nightly-report"}"#,
    r#"{"changed":"r","life":"0a","version":7,"record":{}}"#,
    r#"{"message":"r","ticket":0,"token":7,"number":18446744073709551615,"bytes":"aGVsbG8="}"#,
];

#[test]
fn signals() {
    fuzz(
        "signals",
        |make: &mut Maker| make.text(SIGNALS),
        |text| {
            let signal = codec::decode_signal(text).ok_or(());
            if let Ok(signal) = &signal {
                let again = codec::encode_signal(signal, usize::MAX).expect("there is room");
                assert_eq!(codec::decode_signal(again.as_str()).as_ref(), Some(signal));
            }
            Verdict::of(&signal)
        },
    );
}
