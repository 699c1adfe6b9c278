//! What people and dashboards may read. Takes no lease, marks nobody, and shows no lease id.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::{
    Grant, Happened, Label, Metadata, OwnerView, Record as Past, ResourceName, ResourceView, StoreTime, Term,
    Ticket, Token, WaiterView,
};

use super::record::Record;
use super::rows::{self, Lease, lease_columns, micros, time, unsigned};
use super::trouble::{Outcome, Trouble, damaged};

/// Every resource that was ever claimed, by name.
const NAMES: &str =
    "SELECT name FROM resource WHERE namespace = ?1 AND (?2 IS NULL OR name = ?2) ORDER BY name";
const QUIET: &str = "SELECT quiet_until FROM meta WHERE one = 1";
const PERSON: &str = "SELECT label, metadata FROM lease WHERE id = ?1";
/// What happened, in the order in which it was written down.
const HISTORY: &str = "SELECT h.at, r.name, h.worker, h.ticket, h.term, h.token, h.what
    FROM history AS h JOIN resource AS r ON r.id = h.resource
    WHERE h.namespace = ?1 AND (?2 IS NULL OR r.name = ?2) ORDER BY h.record";
/// Ownerships whose lease is over, though nobody has come across it yet.
const UNWRITTEN: &str = concat!(
    "SELECT r.name, l.label, s.ticket, s.term, s.token, s.since, ",
    lease_columns!(),
    " FROM seat AS s JOIN lease AS l ON l.id = s.lease JOIN resource AS r ON r.id = s.resource
    WHERE r.namespace = ?1 AND (?2 IS NULL OR r.name = ?2) AND (l.ended_at IS NOT NULL OR l.expires_at <= ?3)
    ORDER BY r.name, s.ticket"
);

/// Owners and waiters of one resource, or of all, by name; those whose lease is over are left out.
pub(super) fn resources(
    db: &Connection,
    namespace: i64,
    now: StoreTime,
    resource: Option<&ResourceName>,
) -> Outcome<Vec<ResourceView>> {
    let mut read = db.prepare_cached(NAMES)?;
    let mut rows = read.query(params![namespace, resource.map(ResourceName::as_str)])?;
    let quiet_until: Option<i64> =
        db.prepare_cached(QUIET)?.query_row([], |row| row.get(0)).optional()?.flatten();
    let withheld = quiet_until.map(|until| time(until).since(now)).filter(|left| !left.is_zero());
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        let name = rows::resource(row, 0)?;
        let Some(record) = Record::find(db, namespace, &name)? else { continue };
        let mut owners = Vec::new();
        for tenant in record.tenants().filter(|tenant| tenant.lease.lives(now)) {
            let Some((worker, metadata)) = person(db, &tenant.lease)? else { continue };
            let (owned_for, left) = (now.since(tenant.since), tenant.lease.expires_at.since(now));
            owners.push(OwnerView { worker, metadata, grant: tenant.grant, owned_for, left });
        }
        let mut waiters = Vec::new();
        for lease in record.waiters().filter_map(|waiter| waiter.lease).filter(|lease| lease.lives(now)) {
            let Some((worker, metadata)) = person(db, &lease)? else { continue };
            waiters.push(WaiterView { worker, metadata, left: lease.expires_at.since(now) });
        }
        let tickets = record.tickets();
        views.push(ResourceView { resource: name, tickets, owners, waiters, withheld });
    }
    Ok(views)
}

/// What happened, oldest first, with the endings that nobody has come across yet at their place in time.
pub(super) fn history(
    db: &Connection,
    namespace: i64,
    now: StoreTime,
    resource: Option<&ResourceName>,
) -> Outcome<Vec<Past>> {
    let name = resource.map(ResourceName::as_str);
    let mut records = Vec::new();
    let mut read = db.prepare_cached(HISTORY)?;
    let mut rows = read.query(params![namespace, name])?;
    while let Some(row) = rows.next()? {
        let what = happened(row.get(6)?)
            .ok_or_else(|| Trouble::Damaged("its history tells of what cannot happen".to_owned()))?;
        let (resource, worker) = (rows::resource(row, 1)?, rows::label(row, 2)?);
        records.push(Past { at: time(row.get(0)?), resource, worker, grant: grant(row, 3)?, what });
    }
    let mut read = db.prepare_cached(UNWRITTEN)?;
    let mut rows = read.query(params![namespace, name, micros(now)])?;
    while let Some(row) = rows.next()? {
        let ended = Lease::of(row, 6)?.ending();
        let at = ended.at.max(time(row.get(5)?));
        let (resource, worker) = (rows::resource(row, 0)?, rows::label(row, 1)?);
        records.push(Past { at, resource, worker, grant: grant(row, 2)?, what: ended.why.into() });
    }
    records.sort_by_key(|record| record.at);
    Ok(records)
}

fn person(db: &Connection, lease: &Lease) -> Outcome<Option<(Label, Metadata)>> {
    let mut read = db.prepare_cached(PERSON)?;
    let found = read.query_row([lease.row], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let Some((label, metadata)) = found.optional()? else { return Ok(None) };
    Ok(Some((
        Label::new(&label).map_err(|limit| damaged(&limit))?,
        Metadata::new(&metadata).map_err(|limit| damaged(&limit))?,
    )))
}

/// Ticket, term and token, from the `from`th column on.
fn grant(row: &Row<'_>, from: usize) -> Outcome<Grant> {
    Ok(Grant {
        ticket: Ticket(row.get(from)?),
        term: Term(unsigned(row.get(from + 1)?)),
        token: Token(unsigned(row.get(from + 2)?)),
    })
}

/// How the history writes down what happened.
pub(super) fn code(what: Happened) -> i64 {
    match what {
        Happened::Granted => 0,
        Happened::Released => 1,
        Happened::Failed => 2,
        Happened::SteppedDown => 3,
        Happened::Expired => 4,
        Happened::Died => 5,
        // The one that is left; the enum may grow, and then this has to.
        _ => 6,
    }
}

fn happened(code: i64) -> Option<Happened> {
    Some(match code {
        0 => Happened::Granted,
        1 => Happened::Released,
        2 => Happened::Failed,
        3 => Happened::SteppedDown,
        4 => Happened::Expired,
        5 => Happened::Died,
        6 => Happened::Evicted,
        _ => return None,
    })
}
