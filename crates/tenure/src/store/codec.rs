//! How records are written in a database: the names of their keys and, as JSON, their values.
//!
//! `write` and `read` have one function per kind of record, `signal` the texts of signals. Every writer keeps fields
//! that it does not know, in the record itself and in its owners, its queue, its job and its quarantine. A new field
//! anywhere else needs a new format.

mod read;
mod signal;
mod write;

use tenure_core::rules::{Event, Time, Value};
use tenure_core::{HistoryEvent, Key, LeaseId, ResourceName};

pub(crate) use self::signal::{SentRecord, SentSignal, decode_signal, encode_signal};
use super::backend::Text;
use super::json::{Reader, Writer};
use crate::Error;

/// The name of a record in a database, such as `resource/nightly-report` or `lease/00f3..`.
#[must_use]
pub fn key_name(key: &Key) -> String {
    match key {
        Key::Meta => "meta".to_owned(),
        Key::Ttls => "ttls".to_owned(),
        Key::Lease(lease) => format!("lease/{:032x}", lease.0),
        Key::Info(lease) => format!("info/{:032x}", lease.0),
        Key::Resource(name) => format!("resource/{name}"),
        Key::Runs(name) => format!("runs/{name}"),
    }
}

/// The key of a record by its name in a database; nothing for a name that Tenure does not write.
#[must_use]
pub fn key_of(name: &str) -> Option<Key> {
    let lease = |hex: &str| {
        let ours = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        ours.then(|| u128::from_str_radix(hex, 16).ok().map(LeaseId))?
    };
    match name.split_once('/') {
        None if name == "meta" => Some(Key::Meta),
        None if name == "ttls" => Some(Key::Ttls),
        Some(("lease", hex)) => lease(hex).map(Key::Lease),
        Some(("info", hex)) => lease(hex).map(Key::Info),
        Some(("resource", name)) => ResourceName::new(name).ok().map(Key::Resource),
        Some(("runs", name)) => ResourceName::new(name).ok().map(Key::Runs),
        _ => None,
    }
}

/// The format of the records that this version writes. A record names the format that its writers have to know.
const FORMAT: u64 = 1;

/// The text of a record, with its revision: how often it was written.
pub(crate) fn encode(value: &Value, revision: u64) -> Text {
    let text = Writer::object(|write| {
        write.put("format", FORMAT);
        write.put("rev", revision);
        match value {
            Value::Meta(meta) => write.meta(meta),
            Value::Ttls(ttls) => write.ttls(ttls),
            Value::Lease(lease) => write.lease(lease),
            Value::Info(info) => write.info(info),
            Value::Resource(resource) => write.resource(resource),
            Value::Runs(runs) => write.runs(runs),
        }
    });
    text.into()
}

/// The revision and the value of a record.
///
/// # Errors
/// When the record is damaged, or a newer version of the library wrote it.
pub(crate) fn decode(key: &Key, text: &str) -> Result<(u64, Value), Error> {
    let damaged = |what: &str| Error::corrupt(format!("the record `{}` cannot be read: {what}", shown(key)));
    let mut read = Reader::of(text, "it").map_err(|_| damaged("it is not a JSON object"))?;
    let format = read.number("format").map_err(|what| damaged(&what))?;
    if format > FORMAT {
        return Err(Error::refused(format!(
            "the record `{}` has format {format}, and this version knows up to {FORMAT}: use a newer version of Tenure",
            shown(key)
        )));
    }
    let record = read.number("rev").and_then(|revision| {
        let value = match key {
            Key::Meta => Value::Meta(read.meta()?),
            Key::Ttls => Value::Ttls(read.ttls()?),
            Key::Lease(_) => Value::Lease(read.lease()?),
            Key::Info(_) => Value::Info(read.info()?),
            Key::Resource(_) => Value::Resource(read.resource()?),
            Key::Runs(_) => Value::Runs(read.runs()?),
        };
        Ok((revision, value))
    });
    record.map_err(|what| damaged(&what))
}

/// The name of a record as errors show it: without the id of a lease.
fn shown(key: &Key) -> String {
    match key {
        Key::Lease(_) => "lease/..".to_owned(),
        Key::Info(_) => "info/..".to_owned(),
        other => key_name(other),
    }
}

/// The text of an entry of the history. The store keeps its time.
pub(crate) fn encode_event(event: &Event) -> Text {
    let line = Writer::object(|write| {
        write.put("resource", event.resource.as_str());
        write.put("worker", event.worker.as_str());
        write.grant(event.grant);
        write.put("what", event.what.record_name());
    });
    line.into()
}

/// An entry of the history.
pub(crate) fn decode_event(at: Time, text: &str) -> Result<Event, Error> {
    let read = || {
        let mut read = Reader::of(text, "line")?;
        Ok(Event {
            at,
            resource: read.name("resource")?,
            worker: read.label("worker")?,
            grant: read.grant()?,
            what: read.known("what", HistoryEvent::of_record_name)?,
        })
    };
    read().map_err(|what: String| Error::corrupt(format!("a line of the history cannot be read: {what}")))
}

#[cfg(test)]
mod tests {
    use super::super::json::LARGEST;
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_name() {
        let name = |text| ResourceName::new(text).expect("a name");
        let keys = [
            Key::Meta,
            Key::Ttls,
            Key::Lease(LeaseId(0x1f)),
            Key::Info(LeaseId(u128::MAX)),
            Key::Resource(name("a/b {c}")),
            Key::Runs(name("meta")),
        ];
        for key in keys {
            assert_eq!(key_of(&key_name(&key)), Some(key));
        }
        for stranger in
            ["", "meta/", "lease/1f", "lease/+0000000000000000000000000000001f", "resource/", "x/y"]
        {
            assert_eq!(key_of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn what_a_newer_version_wrote_into_a_part_of_a_record_is_kept() {
        let key = Key::Resource(ResourceName::new("r").expect("a name"));
        let text = r#"{"format":1,"rev":1,"tickets":1,"set_by":{"opened":1,"lease":"1"},"term":1,"token":1,
            "arrivals":1,"frees":0,
            "owners":[{"ticket":0,"term":1,"token":1,"lease":"1","since":1,"until":99}],
            "queue":[{"lease":"2","arrival":1,"step_us":100000,"never":true}]}"#;
        let (revision, value) = decode(&key, text).expect("it is read");

        let again = encode(&value, revision + 1);

        assert!(again.as_str().contains("never") && again.as_str().contains("until"), "{}", again.as_str());
    }

    #[test]
    fn numbers_that_could_not_be_added_to_are_refused() {
        let key = Key::Resource(ResourceName::new("r").expect("a name"));
        for (name, limit) in [("term", LARGEST), ("token", LARGEST), ("rev", LARGEST), ("tickets", 1000)] {
            let text = |number: u64| {
                let mut fields = serde_json::json!({"format": 1, "rev": 1, "tickets": 1, "term": 1, "token": 1,
                    "arrivals": 1, "frees": 0, "set_by": {"opened": 1, "lease": "1"}});
                fields[name] = number.into();
                fields.to_string()
            };
            assert!(decode(&key, &text(limit)).is_ok(), "{name}");
            let refused = decode(&key, &text(limit + 1)).expect_err(name).to_string();
            assert!(refused.contains(&limit.to_string()), "{refused}");
        }
    }
}
