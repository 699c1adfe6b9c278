//! Datagrams that anybody of this user can send, and rows as somebody else may have left them: by the million.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use tenure_core::{LeaseId, Namespace, ResourceName, StoreTime};
use testkit::fuzz::{Maker, Verdict, fuzz};

use super::{fan, hints, host, rows};

#[test]
fn sqlite_datagrams() {
    let namespace = Namespace::default();
    let job = ResourceName::new("naïve job").expect("a name");
    let hint = hints::pack(&job, std::time::Duration::from_millis(100));
    let mut message = vec![7; 12];
    for name in [namespace.as_str(), job.as_str()] {
        message.push(u8::try_from(name.len()).expect("short"));
        message.extend(name.as_bytes());
    }
    let make = |make: &mut Maker| {
        let like = if make.is_one_of(2) { &hint } else { &message };
        (make.bytes(&[like]), make.text(&["monotonic 5 0\nboottime -7 500000000\n", "1 5 0\n7 3 0\n"]))
    };
    fuzz("sqlite_datagrams", make, |(bytes, offsets)| {
        let hint = hints::unpack(bytes, LeaseId(7));
        if let Some(hint) = &hint {
            assert_eq!(&hints::pack(&hint.resource, hint.after), bytes);
        }
        let message = fan::unpack(bytes, &namespace, &job);
        if let Some(message) = &message {
            assert_eq!(&fan::pack(&namespace, message), bytes);
        }
        let _shift = host::parse_shift(offsets);
        if hint.is_some() || message.is_some() { Verdict::Accepted } else { Verdict::Refused }
    });
}

/// A value of any type, mostly of the one that belongs there.
fn value(make: &mut Maker, usual: Value) -> Value {
    match make.below(40) {
        0 => Value::Null,
        1 => Value::Real(f64::from_bits(make.number())),
        2 => Value::Text(make.any_text()),
        3 => Value::Blob(make.bytes(&[&[0; 16]])),
        4..=9 => Value::Integer(make.number().cast_signed()),
        _ => usual,
    }
}

#[test]
fn sqlite_rows() {
    let db = Connection::open_in_memory().expect("a database");
    let mut select = db.prepare("SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9").expect("a statement");
    let select = std::cell::RefCell::new(&mut select);
    let make = |make: &mut Maker| {
        let name = make.text(&["job", "host-1", "* * * * * UTC"]);
        let usual = [
            Value::Integer(3),
            Value::Blob(vec![1; 16]),
            Value::Integer(15_000_000_000),
            Value::Integer(5),
            Value::Integer(9),
            Value::Integer(2),
            if make.is_one_of(2) { Value::Null } else { Value::Integer(8) },
            Value::Integer(1),
            Value::Text(name),
        ];
        usual.map(|usual| value(make, usual))
    };
    fuzz("sqlite_rows", make, |values| {
        let mut select = select.borrow_mut();
        let mut found = select.query(params_from_iter(values.iter())).expect("a query");
        let row = found.next().expect("no trouble").expect("a row");
        let lease = rows::Lease::of(row, 0);
        if let Ok(lease) = &lease {
            // Death is stable: no time is so early that a lease that ended lives.
            assert!(lease.ended.is_none() || !lease.lives(StoreTime::from_micros(0)));
            assert!(!lease.lives(lease.expires_at));
        }
        let text =
            values.last().and_then(|last| if let Value::Text(text) = last { Some(text) } else { None });
        let name = rows::resource(row, 8);
        assert_eq!(
            name.as_ref().ok().map(ResourceName::as_str),
            text.filter(|text| ResourceName::new(text).is_ok()).map(String::as_str)
        );
        let _others = (rows::label(row, 8).is_ok(), rows::plan(row, 8).is_ok());
        if lease.is_ok() && name.is_ok() { Verdict::Accepted } else { Verdict::Refused }
    });
}
