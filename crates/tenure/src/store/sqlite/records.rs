//! Records and history in SQL. Every function runs inside the caller's transaction.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::{Key, LeaseId, Namespace, ResourceName, StoreTime, Version};

use super::error::Failure;
use crate::Error;
use crate::store::backend::{Change, Committed, HistoryEntry, Listing, Put, Stored, Text};
use crate::store::codec::{key_name, key_of};

/// How many records one page of a listing has.
const PAGE: i64 = 250;
/// How many entries of the history are kept and shown per namespace.
const HISTORY: i64 = tenure_core::HISTORY as i64;
/// The oldest ones are removed after so many new ones.
const TRIM: i64 = 100;

const VERSION: &str = "SELECT version FROM record WHERE namespace = ?1 AND key = ?2";
const FIND: &str = "SELECT version, stamp, value FROM record WHERE namespace = ?1 AND key = ?2";
const LIST: &str = "SELECT version, stamp, value, key FROM record
    WHERE namespace = ?1 AND key > ?2 AND key < ?3 ORDER BY key LIMIT ?4";
/// In any namespace: they share the folder of lock files.
const LEASES: &str = "SELECT key FROM record WHERE key > 'lease/' AND key < 'lease0'";
const PUT: &str = "INSERT INTO record (namespace, key, version, stamp, value) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (namespace, key) DO UPDATE
    SET version = excluded.version, stamp = excluded.stamp, value = excluded.value";
const DELETE: &str = "DELETE FROM record WHERE namespace = ?1 AND key = ?2";
const APPEND: &str = "INSERT INTO history (namespace, number, resource, at, entry)
    VALUES (?1, (SELECT coalesce(max(number), 0) + 1 FROM history WHERE namespace = ?1), ?2, ?3, ?4)
    RETURNING number";
const FORGET: &str = "DELETE FROM history WHERE namespace = ?1 AND number <= ?2";
/// The newest first. Those that are due to be removed are not shown.
const HISTORY_OF_ALL: &str = "SELECT at, entry FROM history
    WHERE namespace = ?1 AND number > (SELECT max(number) FROM history WHERE namespace = ?1) - ?2
    ORDER BY number DESC LIMIT ?3";
const HISTORY_OF_ONE: &str = "SELECT at, entry FROM history
    WHERE namespace = ?1 AND number > (SELECT max(number) FROM history WHERE namespace = ?1) - ?2
    AND resource = ?4 ORDER BY number DESC LIMIT ?3";

/// One namespace within a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records<'t> {
    pub(super) db: &'t Connection,
    pub(super) namespace: &'t Namespace,
}

impl Records<'_> {
    pub(super) fn find(self, key: &Key) -> Result<Stored, Failure> {
        let mut find = self.db.prepare_cached(FIND)?;
        let found =
            find.query_row(params![self.namespace.as_str(), key_name(key)], |row| stored(row, key.clone()));
        Ok(found.optional()?.unwrap_or_else(|| Stored::absent(key.clone())))
    }

    fn version(self, key: &Key) -> Result<Version, Failure> {
        let mut find = self.db.prepare_cached(VERSION)?;
        let found: Option<i64> =
            find.query_row(params![self.namespace.as_str(), key_name(key)], |row| row.get(0)).optional()?;
        Ok(found.map_or(Version::NONE, |version| Version(version.cast_unsigned())))
    }

    /// Applies the change if it finds what it expects, `now`.
    pub(super) fn apply(self, change: &Change, now: StoreTime) -> Result<Committed, Failure> {
        let mut others = Vec::new();
        for (key, version) in &change.expect {
            if self.version(key)? != *version {
                others.push(self.find(key)?);
            }
        }
        if !others.is_empty() || !change.window.contains(now) {
            return Ok(Committed::Conflict(others));
        }
        for put in &change.put {
            self.put(put, now)?;
        }
        for entry in &change.history {
            self.append(entry, now)?;
        }
        Ok(Committed::Done { stamp: Some(now) })
    }

    fn put(self, put: &Put, now: StoreTime) -> Result<(), Failure> {
        let (namespace, key) = (self.namespace.as_str(), key_name(&put.key));
        let Some(value) = &put.value else {
            self.db.prepare_cached(DELETE)?.execute(params![namespace, key])?;
            return Ok(());
        };
        let version = put.version.0.cast_signed();
        self.db.prepare_cached(PUT)?.execute(params![
            namespace,
            key,
            version,
            micros(now),
            value.as_str()
        ])?;
        Ok(())
    }

    fn append(self, entry: &HistoryEntry, now: StoreTime) -> Result<(), Failure> {
        let (namespace, at) = (self.namespace.as_str(), micros(entry.at.unwrap_or(now)));
        let number: i64 = self
            .db
            .prepare_cached(APPEND)?
            .query_row(params![namespace, entry.resource.as_str(), at, entry.text.as_str()], |row| {
                row.get(0)
            })?;
        if number % TRIM == 0 {
            self.db.prepare_cached(FORGET)?.execute(params![namespace, number - HISTORY])?;
        }
        Ok(())
    }

    /// A page of records, and whether there may be more.
    pub(super) fn list(self, of: Listing, after: Option<&Key>) -> Result<(Vec<Stored>, bool), Failure> {
        // `0` is the character after `/`.
        let (first, end) = match of {
            Listing::Leases => ("lease/", "lease0"),
            Listing::Resources => ("resource/", "resource0"),
        };
        let after = after.map_or_else(|| first.to_owned(), key_name);
        let mut list = self.db.prepare_cached(LIST)?;
        let found = list.query_map(params![self.namespace.as_str(), after, end, PAGE], |row| {
            let name: String = row.get(3)?;
            key_of(&name).map(|key| stored(row, key)).transpose()
        })?;
        let found: Option<Vec<Stored>> = found.collect::<Result<_, _>>()?;
        let found = found.ok_or_else(|| Error::corrupt("the store has a record with an unknown name"))?;
        let more = i64::try_from(found.len()).is_ok_and(|length| length == PAGE);
        Ok((found, more))
    }

    /// All leases that have a record, in any namespace.
    pub(super) fn all_leases(self) -> Result<Vec<LeaseId>, Failure> {
        let mut list = self.db.prepare_cached(LEASES)?;
        let names = list.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        let lease = |name: String| match key_of(&name) {
            Some(Key::Lease(lease)) => Some(lease),
            _ => None,
        };
        Ok(names.into_iter().filter_map(lease).collect())
    }

    /// The newest entries of the history, oldest first.
    pub(super) fn history(
        self,
        of: Option<&ResourceName>,
        most: usize,
    ) -> Result<Vec<(Option<StoreTime>, Text)>, Failure> {
        let (namespace, most) = (self.namespace.as_str(), i64::try_from(most).unwrap_or(HISTORY));
        let entry = |row: &Row<'_>| {
            let (at, entry): (i64, String) = (row.get(0)?, row.get(1)?);
            Ok((Some(time(at)), Text::from(entry)))
        };
        let mut entries: Vec<_> = match of {
            None => self
                .db
                .prepare_cached(HISTORY_OF_ALL)?
                .query_map(params![namespace, HISTORY, most], entry)?
                .collect::<Result<_, _>>()?,
            Some(resource) => self
                .db
                .prepare_cached(HISTORY_OF_ONE)?
                .query_map(params![namespace, HISTORY, most, resource.as_str()], entry)?
                .collect::<Result<_, _>>()?,
        };
        entries.reverse();
        Ok(entries)
    }
}

fn stored(row: &Row<'_>, key: Key) -> rusqlite::Result<Stored> {
    let (version, stamp, value): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(Stored {
        key,
        version: Version(version.cast_unsigned()),
        stamp: Some(time(stamp)),
        value: Some(Text::from(value)),
    })
}

pub(super) fn time(micros: i64) -> StoreTime {
    StoreTime::from_micros(micros.max(0).cast_unsigned())
}

pub(super) fn micros(time: StoreTime) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
