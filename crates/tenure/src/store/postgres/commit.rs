//! The call of the function `commit`: its arguments, and its answer.

use std::collections::BTreeSet;

use tenure_core::{Incarnation, Key, StoreTime, Version};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::{Bound, Param};
use super::error::Failure;
use super::schema::Quoted;
use super::{MOST_CHANGES, MOST_SIGNAL_BYTES, listener, rows};
use crate::Error;
use crate::store::backend::{Change, Commits, Committed, Put, Text};
use crate::store::codec::key_name;

type Array<T> = Bound<Vec<T>>;
/// An array that is left out if there is nothing in it.
type Optional<T> = Bound<Option<Vec<T>>>;

/// What is sent, as functions.sql has it.
pub(super) struct CommitCall<'a> {
    changes: usize,
    records: Vec<Record<'a>>,
    within: Bound<Vec<u8>>,
    windows: (Array<Option<i64>>, Array<Option<i64>>),
    creates: i32,
    writes: i32,
    record_changes: Array<i32>,
    keys: Array<String>,
    expected: Array<i64>,
    versions: Array<Option<i64>>,
    values: Array<Option<&'a str>>,
    entry_changes: Optional<i32>,
    entry_resources: Optional<&'a str>,
    entry_times: Optional<Option<i64>>,
    entry_texts: Optional<&'a str>,
    signal_changes: Optional<i32>,
    signal_channels: Optional<String>,
    signal_texts: Optional<&'a str>,
}

/// A record that is expected and perhaps written.
struct Record<'a> {
    change: usize,
    key: &'a Key,
    expected: Version,
    put: Option<&'a Put>,
}

impl<'a> CommitCall<'a> {
    pub(super) fn new(within: Incarnation, changes: &'a [Change], schema: &Quoted) -> Result<Self, Error> {
        let records = records(changes)?;
        let creates = count(&records, |record| record.put.is_some() && record.expected == Version::NONE);
        let writes = count(&records, |record| record.put.is_some());
        let entries = || numbered(changes, |change| &change.history);
        let signals = || {
            let signals = numbered(changes, |change| &change.signals);
            signals.filter_map(|(place, signal)| Some((place, signal.to.first()?, signal)))
        };
        if signals().any(|(_, _, signal)| signal.text.as_str().len() > MOST_SIGNAL_BYTES) {
            return Err(Error::refused(format!("a signal is longer than {MOST_SIGNAL_BYTES} bytes")));
        }
        Ok(Self {
            changes: changes.len(),
            within: Bound(within.0.to_be_bytes().to_vec()),
            windows: (
                Bound(changes.iter().map(|change| change.window.from.map(micros)).collect()),
                Bound(changes.iter().map(|change| change.window.until.map(micros)).collect()),
            ),
            creates,
            writes,
            record_changes: Bound(records.iter().map(|record| number(record.change)).collect()),
            keys: Bound(records.iter().map(|record| key_name(record.key)).collect()),
            expected: Bound(records.iter().map(|record| record.expected.0.cast_signed()).collect()),
            versions: Bound(
                records.iter().map(|record| record.put.map(|put| put.version.0.cast_signed())).collect(),
            ),
            values: Bound(
                records.iter().map(|record| record.put?.value.as_ref().map(Text::as_str)).collect(),
            ),
            entry_changes: optional(entries().map(|(place, _)| number(place))),
            entry_resources: optional(entries().map(|(_, entry)| entry.resource.as_str())),
            entry_times: optional(entries().map(|(_, entry)| entry.at.map(micros))),
            entry_texts: optional(entries().map(|(_, entry)| entry.text.as_str())),
            signal_changes: optional(signals().map(|(place, _, _)| number(place))),
            signal_channels: optional(signals().map(|(_, to, _)| listener::database_name(schema, to))),
            signal_texts: optional(signals().map(|(_, _, signal)| signal.text.as_str())),
            records,
        })
    }

    pub(super) fn params(&self) -> [Param<'_>; 17] {
        [
            (&self.within, Type::BYTEA),
            (&self.windows.0, Type::INT8_ARRAY),
            (&self.windows.1, Type::INT8_ARRAY),
            (&self.creates, Type::INT4),
            (&self.writes, Type::INT4),
            (&self.record_changes, Type::INT4_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.expected, Type::INT8_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.values, Type::TEXT_ARRAY),
            (&self.entry_changes, Type::INT4_ARRAY),
            (&self.entry_resources, Type::TEXT_ARRAY),
            (&self.entry_times, Type::INT8_ARRAY),
            (&self.entry_texts, Type::TEXT_ARRAY),
            (&self.signal_changes, Type::INT4_ARRAY),
            (&self.signal_channels, Type::TEXT_ARRAY),
            (&self.signal_texts, Type::TEXT_ARRAY),
        ]
    }

    pub(super) fn answer(&self, row: &Row) -> Result<Commits, Failure> {
        let stamp = row.try_get::<_, Option<i64>>("stamp_us")?.map(rows::time).transpose()?;
        // In another life there is no answer per change.
        let applied: Vec<bool> = rows::array(row, "done")?;
        let is_applied = |change: usize| applied.get(change).copied().unwrap_or(false);
        let answer = |change| match is_applied(change) {
            true => Committed::Done { stamp },
            false => Committed::Conflict(Vec::new()),
        };
        let mut done: Vec<Committed> = (0..self.changes).map(answer).collect();
        let keys: Vec<Key> = self.records.iter().map(|record| record.key.clone()).collect();
        for found in rows::stored_at_places(row, &keys)? {
            let (index, stored) = found?;
            let record = &self.records[index];
            if let (Some(Committed::Conflict(differing)), true) =
                (done.get_mut(record.change), stored.version != record.expected)
            {
                differing.push(stored);
            }
        }
        Ok(Commits { life: rows::life(row)?, now: Some(rows::now(row)?), done })
    }
}

/// What the changes expect and write: new records first, then the others that are written, then the rest.
fn records(changes: &[Change]) -> Result<Vec<Record<'_>>, Error> {
    if changes.len() > MOST_CHANGES {
        return Err(Error::refused(format!("a commit has more than {MOST_CHANGES} changes")));
    }
    let mut records = Vec::new();
    let mut written = BTreeSet::new();
    for (place, change) in changes.iter().enumerate() {
        let put = |key: &Key| change.put.iter().find(|put| put.key == *key);
        records.extend(change.expect.iter().map(|(key, expected)| Record {
            change: place,
            key,
            expected: *expected,
            put: put(key),
        }));
        for put in &change.put {
            if !change.expect.iter().any(|(key, _)| *key == put.key) || !written.insert(&put.key) {
                return Err(Error::refused("a commit writes a record twice, or one that it does not expect"));
            }
        }
    }
    records.sort_by_key(|record| match record.put {
        Some(_) if record.expected == Version::NONE => 0,
        Some(_) => 1,
        None => 2,
    });
    Ok(records)
}

/// Everything of all changes, with the index of its change.
fn numbered<'a, T: 'a>(
    changes: &'a [Change],
    of: impl Fn(&'a Change) -> &'a Vec<T> + 'a,
) -> impl Iterator<Item = (usize, &'a T)> {
    changes
        .iter()
        .enumerate()
        .flat_map(move |(place, change)| of(change).iter().map(move |item| (place, item)))
}

fn optional<T>(items: impl Iterator<Item = T>) -> Optional<T> {
    let items: Vec<T> = items.collect();
    Bound((!items.is_empty()).then_some(items))
}

fn count(records: &[Record<'_>], which: impl Fn(&Record<'_>) -> bool) -> i32 {
    i32::try_from(records.iter().filter(|record| which(record)).count()).unwrap_or(i32::MAX)
}

/// The place of a change as the server counts: from 1.
fn number(place: usize) -> i32 {
    i32::try_from(place + 1).unwrap_or(i32::MAX)
}

fn micros(time: StoreTime) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
