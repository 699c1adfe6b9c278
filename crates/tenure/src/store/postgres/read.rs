//! What people and dashboards may read, from rows to our words.

use std::time::Duration;

use tenure_core::{
    Grant, Happened, Label, Metadata, OwnerView, ResourceName, ResourceView, Term, Ticket, Token, WaiterView,
};
use tokio_postgres::Row;

use super::calls::{small, unsigned};
use super::trouble::Trouble;
use crate::store::{Concern, Cost, Entry};

/// Rows of `look`: each resource, followed by its owners and waiters.
pub(super) fn views(rows: &[Row]) -> Result<Vec<ResourceView>, Trouble> {
    let mut views: Vec<ResourceView> = Vec::new();
    for row in rows {
        let kind: i32 = row.try_get("kind")?;
        if kind == 0 {
            let tickets = small(row.try_get::<_, i32>("tickets")?.into())?;
            let resource = ResourceName::new(row.try_get("name")?)?;
            let withheld: Option<i64> = row.try_get("withheld_us")?;
            let withheld = withheld.map(|micros| Duration::from_micros(unsigned(micros)));
            views.push(ResourceView { resource, tickets, owners: Vec::new(), waiters: Vec::new(), withheld });
            continue;
        }
        let view = views.last_mut().ok_or_else(|| Trouble::damaged("an owner of nothing"))?;
        let worker = Label::new(row.try_get("worker")?)?;
        let metadata = Metadata::new(row.try_get("metadata")?)?;
        let left = span(row, "left_us")?;
        if kind == 1 {
            let (grant, owned_for) = (grant(row)?, span(row, "owned_us")?);
            view.owners.push(OwnerView { worker, metadata, grant, owned_for, left });
        } else {
            view.waiters.push(WaiterView { worker, metadata, left });
        }
    }
    Ok(views)
}

/// A row of `past`.
pub(super) fn entry(row: &Row) -> Result<Entry, Trouble> {
    let what = match row.try_get("what")? {
        0 => Happened::Granted,
        1 => Happened::Released,
        2 => Happened::Failed,
        3 => Happened::SteppedDown,
        4 => Happened::Expired,
        5 => Happened::Died,
        6 => Happened::Evicted,
        other => return Err(Trouble::damaged(format!("the event {other}"))),
    };
    Ok(Entry {
        ago: span(row, "ago_us")?,
        resource: ResourceName::new(row.try_get("name")?)?,
        worker: Label::new(row.try_get("worker")?)?,
        grant: grant(row)?,
        what,
    })
}

/// The row of `setup`: what the configuration takes away from the promises.
pub(super) fn concerns(row: &Row) -> Result<Vec<Concern>, Trouble> {
    let is_off = |column| Ok::<_, Trouble>(row.try_get::<_, &str>(column)? == "off");
    let mut concerns = Vec::new();
    let mut add = |cost, what: &str, hint: &str| {
        concerns.push(Concern { cost, what: what.into(), hint: hint.into() });
    };
    if is_off("fsync")? {
        let what = "fsync is off: a crash of the machine can undo grants that were answered";
        add(Cost::Exclusion, what, "set fsync = on");
    }
    if is_off("full_page_writes")? {
        let what = "full_page_writes is off: a crash of the machine can damage pages";
        add(Cost::Exclusion, what, "set full_page_writes = on");
    }
    let commit: &str = row.try_get("synchronous_commit")?;
    let names: &str = row.try_get("standby_names")?;
    if commit == "off" {
        let what = "synchronous_commit is off for this role; tenure turns it on for its own commits";
        add(Cost::Time, what, "each of them waits for the disk, whatever the setting");
    }
    if commit == "local" && !names.is_empty() {
        let what = "synchronous_commit is local: a standby that takes over may not know the latest grants";
        add(Cost::Exclusion, what, "set synchronous_commit = on");
    }
    if names.is_empty() && row.try_get::<_, i64>("standbys")? > 0 {
        let what = "the standbys are asynchronous: one that takes over may not know the latest grants";
        add(
            Cost::Exclusion,
            what,
            "set synchronous_standby_names; until then only the token protects after a failover",
        );
    }
    Ok(concerns)
}

fn grant(row: &Row) -> Result<Grant, Trouble> {
    Ok(Grant {
        ticket: Ticket(small(row.try_get::<_, i32>("ticket")?.into())?),
        term: Term(unsigned(row.try_get("term")?)),
        token: Token(unsigned(row.try_get("token")?)),
    })
}

fn span(row: &Row, column: &str) -> Result<Duration, Trouble> {
    Ok(Duration::from_micros(unsigned(row.try_get(column)?)))
}
