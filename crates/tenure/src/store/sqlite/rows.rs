//! Rows of leases, and how Rust's values stand in SQLite's.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::{Closing, Label, LeaseId, Plan, ResourceName, Seq, StoreTime};

use super::trouble::{Outcome, Trouble, damaged};
use crate::Error;

/// What [`Lease::of`] reads, in this order, from `lease AS l`.
macro_rules! lease_columns {
    () => {
        "l.id, l.bearer, l.ttl_ns, l.opened_at, l.expires_at, l.renewed, l.ended_at, l.ended_why"
    };
}
pub(super) use lease_columns;

/// One lease by its id, in one namespace.
const FIND: &str =
    concat!("SELECT ", lease_columns!(), " FROM lease AS l WHERE l.namespace = ?1 AND l.bearer = ?2");
/// Marks a lease dead; one that is dead already stays as it is.
const END: &str = "UPDATE lease SET ended_at = ?2, ended_why = ?3 WHERE id = ?1 AND ended_at IS NULL";
/// With the lease end its notices, and what it last asked for.
const END_NOTICES: &str = "DELETE FROM notice WHERE lease = ?1";
const END_NEWEST: &str = "DELETE FROM newest WHERE lease = ?1";

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) row: i64,
    pub(super) id: LeaseId,
    pub(super) ttl: Duration,
    pub(super) opened_at: StoreTime,
    pub(super) expires_at: StoreTime,
    pub(super) renewed: Seq,
    pub(super) ended: Option<Ended>,
}

/// How a lease came to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) at: StoreTime,
    pub(super) why: Closing,
}

impl Lease {
    pub(super) fn find(db: &Connection, namespace: i64, id: LeaseId) -> Outcome<Option<Self>> {
        let mut find = db.prepare_cached(FIND)?;
        Ok(find.query_row(params![namespace, bearer(id)], |row| Self::of(row, 0)).optional()?)
    }

    /// Reads the columns of [`lease_columns`] from the `from`th on.
    pub(super) fn of(row: &Row<'_>, from: usize) -> rusqlite::Result<Self> {
        let ended: Option<i64> = row.get(from + 6)?;
        let ended = match ended {
            Some(at) => Some(Ended { at: time(at), why: closing(row.get(from + 7)?) }),
            None => None,
        };
        Ok(Self {
            row: row.get(from)?,
            id: LeaseId(u128::from_be_bytes(row.get(from + 1)?)),
            ttl: span(row.get(from + 2)?),
            opened_at: time(row.get(from + 3)?),
            expires_at: time(row.get(from + 4)?),
            renewed: Seq(row.get::<_, i64>(from + 5)?.unsigned_abs()),
            ended,
        })
    }

    /// Whether it lives as of `judged`. Marks nobody.
    pub(super) fn lives(&self, judged: StoreTime) -> bool {
        self.ended.is_none() && self.expires_at > judged
    }

    /// The same, and a lease that is found run out is marked dead: its death is stable from here on.
    pub(super) fn judge(&mut self, db: &Connection, judged: StoreTime) -> Outcome<bool> {
        if self.ended.is_none() && self.expires_at <= judged {
            self.end(db, Ended { at: self.expires_at, why: Closing::Expired })?;
        }
        Ok(self.ended.is_none())
    }

    /// Marks it dead. One that is dead already stays as it is.
    pub(super) fn end(&mut self, db: &Connection, ended: Ended) -> Outcome<()> {
        if self.ended.is_none() {
            self.ended = Some(ended);
            db.prepare_cached(END)?.execute(params![self.row, micros(ended.at), why(ended.why)])?;
            db.prepare_cached(END_NOTICES)?.execute([self.row])?;
            db.prepare_cached(END_NEWEST)?.execute([self.row])?;
        }
        Ok(())
    }

    /// When and why it ended. For one that has run out without being marked: as it will be marked.
    pub(super) fn ending(&self) -> Ended {
        self.ended.unwrap_or(Ended { at: self.expires_at, why: Closing::Expired })
    }
}

pub(super) fn bearer(id: LeaseId) -> [u8; 16] {
    id.0.to_be_bytes()
}

pub(super) fn micros(at: StoreTime) -> i64 {
    i64::try_from(at.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn time(micros: i64) -> StoreTime {
    StoreTime::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A span in nanoseconds; one beyond 292 years is cut there.
pub(super) fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn span(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// The number of a request as SQLite holds it. Cutting it would make two requests equal, so it is refused.
pub(super) fn number(seq: Seq) -> Outcome<i64> {
    i64::try_from(seq.0)
        .map_err(|_| Trouble::Told(Error::refused(format!("request number {} is not below 2^63", seq.0))))
}

/// The name in a column.
pub(super) fn resource(row: &Row<'_>, column: usize) -> Outcome<ResourceName> {
    ResourceName::new(text(row, column)?).map_err(|limit| damaged(&limit))
}

/// The label in a column.
pub(super) fn label(row: &Row<'_>, column: usize) -> Outcome<Label> {
    Label::new(text(row, column)?).map_err(|limit| damaged(&limit))
}

/// The plan in a column.
pub(super) fn plan(row: &Row<'_>, column: usize) -> Outcome<Plan> {
    Plan::new(text(row, column)?).map_err(|limit| damaged(&limit))
}

/// The text in a column.
pub(super) fn text<'r>(row: &'r Row<'_>, column: usize) -> Outcome<&'r str> {
    Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
}

fn why(closing: Closing) -> i64 {
    match closing {
        Closing::Left => 0,
        Closing::Expired => 1,
        Closing::Proved => 2,
    }
}

fn closing(why: i64) -> Closing {
    match why {
        0 => Closing::Left,
        2 => Closing::Proved,
        _ => Closing::Expired,
    }
}

/// Counters and tokens stay far below 2^63.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
